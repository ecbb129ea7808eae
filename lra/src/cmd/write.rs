//! Files that the command line names for results.

use std::path::Path;

use results::check::Baseline;
use results::store::record_file;

use crate::error::{Error, Result};
use crate::output::of_writing;
use crate::run_folder;

/// Replaces a file that the command line names. A file that the program reads back is not replaced:
/// one of a run, a table of records, or a baseline.
///
/// # Errors
/// The file is one of those, or cannot be written. On a full disk the command failed, as if it was
/// a run.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    match kind(path) {
        Some(kind) => Err(Error::usage(format!(
            "{} is {kind}, which this would replace: choose another name",
            disk::escape(&path.display().to_string())
        ))),
        None => results::write(path, bytes).map_err(of_writing),
    }
}

/// Returns what a file is that is not to be replaced, in words.
fn kind(path: &Path) -> Option<&'static str> {
    if run_folder::is_file_of_run(path) {
        return Some("a file of a run");
    }
    // A pipe must not be read.
    if !record_file::is_named_so(path) || !path.is_file() {
        return None;
    }
    if Baseline::read(path).is_ok() {
        return Some("a baseline");
    }
    let records = record_file::read(path).unwrap_or_default();
    (!records.is_empty()).then_some("a table of records")
}
