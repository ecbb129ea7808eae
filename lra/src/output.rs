//! Standard output, which carries results only.

use std::io::{self, Write};

use results::table::Table;
use results::{Format, Tone};

use crate::colour::{self, Text};
use crate::error::{Class, Classify, Error, Result};

/// Writes a result to standard output, without characters that control a terminal.
pub fn print(text: impl Into<Text>) -> Result<()> {
    write_out(&text.into().on(&io::stdout()))
}

/// Writes tables to standard output. On a terminal, text has the colours of its meanings.
pub fn print_tables(format: Format, tables: &[Table]) -> Result<()> {
    print_judged(format, tables, None)
}

/// Writes tables like [`print_tables`], with titles in the colour of a verdict.
pub fn print_judged(format: Format, tables: &[Table], verdict: Option<Tone>) -> Result<()> {
    match format {
        Format::Text if colour::shown_by(&io::stdout()) => {
            write_out(&results::on_terminal(tables, verdict))
        }
        format => print(format.render(tables)),
    }
}

/// Writes to standard output. A closed pipe (`lra report | head`) is not an error.
fn write_out(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let ending = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{ending}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.during(Class::Run, "writing to standard output"),
    }
}

/// Writes sentences to standard output. Lines that are too long for a terminal are folded.
pub fn print_prose(text: &str) -> Result<()> {
    match columns() {
        Some(columns) => print(results::fold(text, columns)),
        None => print(text),
    }
}

/// Returns the width of the terminal, or the value of `COLUMNS` if there is none.
pub fn columns() -> Option<usize> {
    let terminal = terminal_size::terminal_size_of(io::stdout());
    let terminal = terminal.map(|(terminal_size::Width(columns), _)| usize::from(columns));
    terminal.or_else(|| std::env::var("COLUMNS").ok()?.trim().parse().ok())
}

/// Writes a value as one JSON document to standard output.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    print(results::document(value).class(Class::Run)?)
}

/// Returns the error of a file of results that cannot be written.
pub fn of_writing(error: results::Error) -> Error {
    let class = match &error {
        results::Error::Io { cause, .. } => Class::of_writing(cause),
        _ => Class::Data,
    };
    Error::new(class, error)
}
