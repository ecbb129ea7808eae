//! Files that the command line names for results.

use std::path::Path;

use results::own_file;

use crate::error::{Error, Result};
use crate::output::of_writing;
use crate::run_folder;

/// Replaces a file that the command line names. A file that the program reads back is not replaced:
/// one of a run, a table of records, a baseline, imported accuracies or a session of `lra bench`.
///
/// # Errors
/// The file is one of those, or cannot be written. On a full disk the command failed, as if it was
/// a run.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    refuse_own(path)?;
    results::write(path, bytes).map_err(of_writing)
}

/// Checks the name of a file that [`write_file`] will write, before the work whose result it is.
///
/// # Errors
/// The file is not to be replaced, or its folder is missing.
pub fn check_file(path: &Path) -> Result<()> {
    refuse_own(path)?;
    results::check_folder(path).map_err(of_writing)
}

fn refuse_own(path: &Path) -> Result<()> {
    match kind(path) {
        Some(kind) => Err(Error::usage(format!(
            "{} is {kind}, which this would replace: choose another name",
            disk::escape(&path.display().to_string())
        ))),
        None => Ok(()),
    }
}

/// Returns what a file is that is not to be replaced, in words.
fn kind(path: &Path) -> Option<&'static str> {
    let of_run = run_folder::is_file_of_run(path).then_some("a file of a run");
    of_run.or_else(|| own_file::kind(path))
}
