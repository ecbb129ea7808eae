//! One file per verb.

pub mod bench;
pub mod check;
pub mod check_model;
pub mod data;
pub mod list;
pub mod new;
pub mod parity;
pub mod report;
pub mod repro;
pub mod run;
pub mod shell;
pub mod sweep;

use std::io::{self, Write};
use std::path::Path;

use results::store::Loaded;

use crate::colour;
use crate::error::{Class, Classify, Error, Result, printable};
use crate::stderr;

/// Writes a result to standard output, without control characters that a terminal would obey. A closed pipe (`lra report | head`) is not an error.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let text = printable(text);
    let text = colour::on(&out, &text);
    let ending = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{ending}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.during(Class::Usage, "writing to standard output"),
    }
}

/// Loads the records below a folder, with a warning for each that is damaged.
///
/// # Errors
/// The folder cannot be read or holds no record; under `strict`, also if one is damaged.
pub fn load(folder: &Path, strict: bool) -> Result<Loaded> {
    let loaded = results::store::load(folder).class(Class::Data)?;
    for (path, reason) in &loaded.skipped {
        let path = path.display();
        stderr::line(&format!("warning: {path} left out: {reason}"));
    }
    if strict && !loaded.skipped.is_empty() {
        let count = loaded.skipped.len();
        return Err(Error::new(
            Class::Data,
            format!("{count} damaged or foreign records (see the warnings)"),
        ));
    }
    if loaded.records.is_empty() {
        let place = folder.display();
        return Err(Error::new(
            Class::Data,
            format!("no records under {place}; make one with `lra run`"),
        ));
    }
    Ok(loaded)
}

/// Writes a value as one JSON document to standard output.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    print(&serde_json::to_string_pretty(value).class(Class::Run)?)
}
