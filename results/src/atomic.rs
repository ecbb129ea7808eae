//! Writing a file so that no reader, and no power cut, ever sees half of it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::{Error, Result};

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
    let mut builder = tempfile::Builder::new();
    builder.prefix(".writing-");
    if let Some(permissions) = permissions(path) {
        builder.permissions(permissions);
    }
    let mut file = builder
        .tempfile_in(folder)
        .map_err(Error::io("write into", folder))?;
    file.write_all(bytes)
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

/// The permissions the new file shall have: those of the old one, else what the user's umask leaves.
#[cfg(unix)]
fn permissions(path: &Path) -> Option<fs::Permissions> {
    use std::os::unix::fs::PermissionsExt;
    match fs::metadata(path) {
        Ok(old) => Some(old.permissions()),
        Err(_) => Some(fs::Permissions::from_mode(0o666)),
    }
}

#[cfg(not(unix))]
fn permissions(_: &Path) -> Option<fs::Permissions> {
    None
}
