//! Atomic writes: after a crash or a power cut, a file holds its old contents or its new ones.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::{Error, Result};

/// What the names of temporary files begin with.
const UNFINISHED: &str = ".writing-";

/// Removes what killed writers left in `folder`. Nobody else may be writing there.
///
/// # Errors
/// The folder cannot be read, or a file in it not be removed.
pub fn clear_unfinished(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let entry = entry.map_err(Error::io("read", folder))?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
            fs::remove_file(entry.path()).map_err(Error::io("remove", &entry.path()))?;
        }
    }
    Ok(())
}

/// Replaces `path` by `bytes`: written to a temporary file beside it, flushed to the disk, renamed.
/// A file that was there keeps its permissions.
///
/// # Errors
/// The folder is missing, read-only or full.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Opened and written by the standard library: errors of `tempfile` name its file, which nobody asked about.
    let file = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .make_in(folder, |temporary| File::create_new(temporary))
        .map_err(Error::io("write into", folder))?;
    keep_permissions(path, file.as_file())
        .and_then(|()| file.as_file().write_all(bytes))
        .and_then(|()| file.as_file().sync_all())
        .map_err(Error::io("write", path))?;
    file.persist(path)
        .map_err(|refused| Error::io("write", path)(refused.error))?;
    // The rename itself lives in the folder. Not every file system can sync one: the file is whole either way.
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Gives the new file the permissions of the one it replaces. Without one the user's umask decides, as for any file.
fn keep_permissions(old: &Path, new: &File) -> io::Result<()> {
    let Ok(old) = fs::metadata(old) else {
        return Ok(());
    };
    // Asked first, since some file systems know no permissions and refuse to set any.
    match old.permissions() == new.metadata()?.permissions() {
        true => Ok(()),
        false => new.set_permissions(old.permissions()),
    }
}
