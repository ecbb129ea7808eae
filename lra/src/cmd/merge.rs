//! `lra merge`: combines the records of folders and files into one file.

use std::path::Path;
use std::process::ExitCode;

use results::store::record_file::{self, Merged};

use crate::cli::agree::MergeArgs;
use crate::cmd;
use crate::error::{Class, Classify, Error, Result};
use crate::output_lock::OutputLock;
use crate::stderr;

/// Runs the command.
pub fn run(arguments: &MergeArgs) -> Result<ExitCode> {
    let output = &arguments.output;
    if output.extension().is_none_or(|it| it != "csv") {
        return Err(Error::usage(format!(
            "--output {}: the name of a file of records ends in .csv",
            output.display()
        )));
    }
    let folder = disk::folder_of(output);
    if !folder.is_dir() {
        return Err(Error::usage(format!(
            "--output {}: there is no folder {}; make it first",
            output.display(),
            folder.display()
        )));
    }
    let _lock = OutputLock::acquire(output)?;
    if output.exists() && !arguments.sources.iter().any(|it| is_same(it, output)) {
        return Err(Error::usage(format!(
            "{0} is there already: name it among the sources too, or remove it",
            output.display()
        )));
    }
    let merged = record_file::merge(&arguments.sources).class(Class::Data)?;
    warn(&merged);
    let damaged = merged.skipped.len() - merged.copies;
    if arguments.strict && damaged > 0 {
        return Err(cmd::damaged(damaged));
    }
    if merged.records.is_empty() {
        let message = "no record of a run that ended is among the sources";
        return Err(Error::new(Class::Data, message));
    }
    record_file::write(output, &merged.records).map_err(cmd::of_writing)?;
    let cells = results::counted(merged.records.len() as u64, "cell");
    let mut line = format!("{cells} written to {}", output.display());
    for (number, what) in [
        (merged.repeats, "repeated"),
        (merged.unfinished, "unfinished, left out"),
    ] {
        if number > 0 {
            line += &format!("; {number} {what}");
        }
    }
    stderr::line(&line);
    Ok(ExitCode::SUCCESS)
}

/// Warns of the files that hold no record, by name.
pub fn warn(merged: &Merged) {
    for (path, reason) in &merged.skipped {
        stderr::warning(format!("{} left out: {reason}", path.display()));
    }
}

/// Returns whether two paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
