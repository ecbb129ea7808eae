//! Writing of files: as a whole, or line by line at the end of a log.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::faults::{self, Operation};
use crate::open::refuse_special;

/// Prefix of the names of temporary files.
const UNFINISHED: &str = ".writing-";

/// Returns whether a file's name is that of a temporary file of [`write()`], which a killed process
/// may have left.
pub fn is_own_temporary(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes())
}

/// Replaces the file at `path` by `bytes`, which are written to a temporary file in the same
/// folder, flushed to the disk, and renamed. An existing file keeps its permissions.
///
/// # Errors
/// There is a symbolic link, a folder, a pipe or a device at the path; or the folder is missing,
/// read-only or full.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = folder_of(path);
    let file = temporary(path, bytes)?;
    sync(file.as_file())?;
    persist(file, path)?;
    // The rename itself is stored in the folder.
    sync_folder(folder)
}

/// Replaces a file like [`write()`], but without flushing, so that a power failure may lose the
/// content.
///
/// # Errors
/// Errors of [`write()`].
pub fn write_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    persist(temporary(path, bytes)?, path)
}

/// Returns the folder of a file.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Writes a temporary file in the folder of `path`.
fn temporary(path: &Path, bytes: &[u8]) -> io::Result<tempfile::NamedTempFile> {
    refuse_special(path)?;
    // Opened and written by the standard library: errors of `tempfile` would name the temporary
    // file, which the user does not know.
    let file = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .make_in(folder_of(path), |temporary| File::create_new(temporary))?;
    keep_permissions(path, file.as_file())?;
    file.as_file().append(bytes)?;
    Ok(file)
}

fn persist(file: tempfile::NamedTempFile, path: &Path) -> io::Result<()> {
    faults::strike(Operation::Rename)?;
    file.persist(path).map_err(|refused| refused.error)?;
    Ok(())
}

/// Gives the new file the permissions of the one it replaces. If there is none, the user's umask
/// decides, as for any file.
fn keep_permissions(old: &Path, new: &File) -> io::Result<()> {
    let Ok(old) = fs::metadata(old) else {
        return Ok(());
    };
    // Compared first, since some file systems have no permissions and refuse to set any.
    match old.permissions() == new.metadata()?.permissions() {
        true => Ok(()),
        false => new.set_permissions(old.permissions()),
    }
}

/// Removes a file or a folder. A link itself is removed, not its target.
///
/// # Errors
/// The path does not exist, or the system refuses.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

/// Renames a file or a folder.
///
/// # Errors
/// The system refuses.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    faults::strike(Operation::Rename)?;
    fs::rename(from, to)
}

/// Flushes a file's content to the disk.
///
/// # Errors
/// The system refuses.
pub fn sync(file: &File) -> io::Result<()> {
    faults::strike(Operation::Sync)?;
    file.sync_all()?;
    faults::synced(file);
    Ok(())
}

/// Flushes the names in a folder to the disk, if the file system can. Only Unix can open a folder,
/// one without read permission cannot be opened, and some file systems, such as network ones,
/// refuse to sync it. There, renaming has to be durable enough.
///
/// # Errors
/// The folder does not exist, or the disk fails or is full.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    faults::strike(Operation::Folder)?;
    match File::open(folder).and_then(|file| file.sync_all()) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput
                    | io::ErrorKind::Unsupported
                    | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// Writing at the end of an open file.
pub trait Append {
    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// The system refuses. A part may have been written.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;
}

impl Append for File {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self;
        faults::strike_write(file, bytes)?;
        file.write_all(bytes)
    }
}

/// A file that is written in pieces, preferably through a buffer.
#[derive(Debug)]
pub struct Output(File);

impl Output {
    /// Returns an output that writes to an open file, from its current position.
    pub fn new(file: File) -> Output {
        Output(file)
    }

    /// Flushes the file's content to the disk.
    ///
    /// # Errors
    /// The system refuses.
    pub fn sync(&self) -> io::Result<()> {
        sync(&self.0)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        faults::strike_write(&self.0, bytes)?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    use std::process::Command;

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_cannot_be_synced_is_no_error() {
        // A file system that refuses to sync any file.
        let refused = File::open("/proc/self").unwrap().sync_all();
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        sync_folder(Path::new("/proc/self")).unwrap();
        assert!(sync_folder(Path::new("/proc/missing")).is_err());
    }

    #[test]
    fn a_link_is_neither_followed_nor_replaced() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("foreign"), "text").unwrap();
        symlink(at("foreign"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        for name in ["link", "dangling"] {
            for written in [
                write(&at(name), b"other"),
                write_unsynced(&at(name), b"other"),
            ] {
                let message = written.unwrap_err().to_string();
                assert!(message.contains("symbolic link"), "{message}");
            }
            assert!(fs::symlink_metadata(at(name)).unwrap().is_symlink());
        }
        assert_eq!(fs::read_to_string(at("foreign")).unwrap(), "text");
        assert!(!at("nowhere").exists());
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write(&path, b"one").unwrap();
        for wanted in [0o600, 0o644, 0o755] {
            fs::set_permissions(&path, fs::Permissions::from_mode(wanted)).unwrap();
            write(&path, b"two").unwrap();
            assert_eq!(mode(), wanted);
            write_unsynced(&path, b"three").unwrap();
            assert_eq!(mode(), wanted);
        }
    }

    /// A rename is whole only within one file system.
    #[test]
    fn an_unfinished_file_lies_beside_the_one_it_becomes() {
        let place = tempfile::tempdir().unwrap();
        let file = temporary(&place.path().join("file"), b"text").unwrap();
        assert_eq!(file.path().parent(), Some(place.path()));
        assert!(is_own_temporary(file.path().file_name().unwrap()));
        for other in [".hidden", "writing-1", "file", ""] {
            assert!(!is_own_temporary(OsStr::new(other)), "{other}");
        }
        for (path, folder) in [("a/b", "a"), ("b", "."), ("/b", "/"), ("/", ".")] {
            assert_eq!(folder_of(Path::new(path)), Path::new(folder));
        }
    }

    #[test]
    fn a_folder_goes_with_its_content_and_a_link_alone() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for folder in ["old", "kept"] {
            fs::create_dir(at(folder)).unwrap();
            fs::write(at(folder).join("file"), "text").unwrap();
        }
        symlink(at("kept"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        for name in ["old", "link", "dangling"] {
            remove(&at(name)).unwrap();
            assert!(fs::symlink_metadata(at(name)).is_err());
        }
        assert!(at("kept").join("file").exists());
        assert!(remove(&at("missing")).is_err());
    }

    /// A rename would replace the pipe, or `/dev/null`, by a file.
    #[test]
    fn only_regular_files_are_replaced() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        assert!(
            Command::new("mkfifo")
                .arg(at("pipe"))
                .status()
                .unwrap()
                .success()
        );
        fs::create_dir(at("folder")).unwrap();
        for name in ["pipe", "folder"] {
            assert!(write(&at(name), b"text").is_err(), "{name}");
            assert!(write_unsynced(&at(name), b"text").is_err(), "{name}");
        }
        assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
        for text in ["one", "two"] {
            write(&at("file"), text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(at("file")).unwrap(), text);
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 3);
    }
}
