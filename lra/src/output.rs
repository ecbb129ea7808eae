//! Standard output, which carries results only.

use std::io::{self, Write};

use crate::colour;
use crate::error::{Class, Classify, Result, printable};

/// Writes a result to standard output, without characters that control a terminal. A closed pipe
/// (`lra report | head`) is not an error.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let text = printable(text);
    let text = colour::on(&out, &text);
    let ending = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{ending}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.during(Class::Run, "writing to standard output"),
    }
}

/// Writes a value as one JSON document to standard output.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    print(&results::document(value).class(Class::Run)?)
}
