//! Atomic writes: after a crash or a power cut, a file holds its old contents or its new ones.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::{Error, Result};

/// Removes temporary files of killed writers from `folder`. No other process may be writing there.
///
/// # Errors
/// The folder cannot be read, or a file in it cannot be removed.
pub fn clear_unfinished(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let entry = entry.map_err(Error::io("read", folder))?;
        if disk::is_own_temporary(&entry.file_name()) {
            fs::remove_file(entry.path()).map_err(Error::io("remove", &entry.path()))?;
        }
    }
    Ok(())
}

/// Checks that the folder of a file is there, so that a command can refuse its name before it works
/// for minutes.
///
/// # Errors
/// There is no such folder.
pub fn check_folder(path: &Path) -> Result<()> {
    let folder = disk::folder_of(path);
    let found = fs::metadata(folder).map_err(Error::io("write into", folder));
    found.map(drop)
}

/// Replaces the file at `path` by `bytes`, which are written to a temporary file, flushed to the
/// disk and renamed. An existing file keeps its permissions.
///
/// # Errors
/// It is a symbolic link; or the folder is missing, read-only or full.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    disk::write(path, bytes).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Error::io("write into", disk::folder_of(path))(error)
        }
        _ => Error::io("write", path)(error),
    })
}
