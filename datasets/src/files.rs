//! Opening, writing and naming files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use disk::Output;

use crate::error::{Error, Result, io as io_error};

/// Reason for refusing a file that might never end or has no content.
const NOT_REGULAR: &str =
    "not a regular file but a pipe, a socket or a device; copy its content to a file first";

/// Opens a regular file for reading; a pipe or a device, which might never end, is refused.
///
/// # Errors
/// The file is not a regular file, is a dangling link, or cannot be opened.
pub(crate) fn open(path: &Path) -> Result<File> {
    let refused = |problem: &str| Error::File {
        file: path.to_owned(),
        problem: problem.to_owned(),
    };
    match fs::metadata(path) {
        Ok(found) if found.is_file() => disk::open(path).map_err(io_error("read", path)),
        Ok(found) if found.is_dir() => Err(refused("a folder where a file is wanted")),
        Ok(_) => Err(refused(NOT_REGULAR)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            Err(refused("a link to a file that is not there"))
        }
        Err(error) => Err(io_error("read", path)(error)),
    }
}

/// Reads all of a regular file.
///
/// # Errors
/// Errors of [`open`]; or the file cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = open(path)?;
    file.read_to_end(&mut bytes)
        .map_err(io_error("read", path))?;
    Ok(bytes)
}

/// Creates a file or empties it. It follows no link and waits for no pipe.
///
/// # Errors
/// There is a symbolic link, a folder, a pipe or a device at `path`, or the file cannot be created.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    disk::create(path)
}

/// Opens or creates a file that is used as a lock. Its content is left as it is.
///
/// # Errors
/// Errors of [`create`].
pub(crate) fn lock_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    disk::own(path, options.create(true).truncate(false).write(true))
}

/// Creates a file or empties it, to be written in pieces.
///
/// # Errors
/// Errors of [`create`].
pub(crate) fn output(path: &Path) -> Result<Output> {
    create(path)
        .map(Output::new)
        .map_err(io_error("create", path))
}

/// Writes a file as a whole: other processes see the old content or the new one, never a part. The
/// bytes go to a temporary file in the same folder, which is then renamed. It is not synced, so a
/// power failure may lose the bytes.
///
/// # Errors
/// The temporary file cannot be written or renamed; the file at `path` is unchanged then.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    disk::write_unsynced(path, bytes)
}

/// Returns the path of a file relative to `folder`, with forward slashes; the whole path if the
/// file is elsewhere.
pub(crate) fn relative_name(folder: &Path, path: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let names: Vec<_> = below.iter().map(|name| name.to_string_lossy()).collect();
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_leaves_nothing_beside_and_no_damage_behind() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("checked.json");
        for text in ["one", "two"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        assert!(replace(&root.path().join("missing/file"), b"").is_err());
    }
}
