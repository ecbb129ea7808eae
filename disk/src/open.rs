//! Opening of files: regular ones only, and the program's own without following links.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::faults::{self, Operation};

/// Opens a regular file for reading, also through a symbolic link. It never waits: a pipe is
/// refused rather than opened.
///
/// # Errors
/// The path is a folder, a pipe, a socket or a device, or cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    faults::strike(Operation::Read)?;
    let mut options = OpenOptions::new();
    options.read(true);
    without_waiting(&mut options, 0);
    let file = options.open(path).map_err(worded)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file as a whole.
///
/// # Errors
/// Errors of [`open`]; or the file cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a regular UTF-8 file as a whole.
///
/// # Errors
/// Errors of [`read`]; or the content is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Opens one of the program's own files with `options`, which decide whether it is created.
///
/// # Errors
/// There is a symbolic link or another kind of file than a regular one at the path, or the file
/// cannot be opened.
pub fn own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Some systems cannot refuse to follow a link. There a check beforehand replaces the flag.
    if cfg!(not(unix)) {
        refuse_link(path)?;
    }
    without_waiting(options, NO_LINKS);
    let file = options.open(path).map_err(worded)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Refuses one of the program's own folders if one of its files is a symbolic link; returns the
/// path of the first one with the error.
///
/// # Errors
/// A file is a symbolic link, or the folder cannot be read.
pub fn refuse_links(folder: &Path) -> Result<(), (PathBuf, io::Error)> {
    let failed = |error| (folder.to_owned(), error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    for path in paths {
        refuse_link(&path).map_err(|error| (path.clone(), error))?;
    }
    Ok(())
}

/// Refuses a path that is a symbolic link.
///
/// # Errors
/// The path is a symbolic link.
pub fn refuse_link(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => Err(is_a_link()),
        _ => Ok(()),
    }
}

/// Refuses a path with a symbolic link, a folder, a pipe or a device at its place.
///
/// # Errors
/// There is one at the path.
pub(crate) fn refuse_special(path: &Path) -> io::Result<()> {
    refuse_link(path)?;
    match fs::symlink_metadata(path) {
        Ok(found) => regular(&found),
        Err(_) => Ok(()),
    }
}

fn is_a_link() -> io::Error {
    io::Error::new(
        ErrorKind::InvalidInput,
        "it is a symbolic link, and no link is followed here: remove it, or put what it leads to in its place",
    )
}

/// Refuses anything but a regular file.
fn regular(found: &Metadata) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    let problem = match found.is_dir() {
        true => "it is a folder where a file is wanted",
        false => "it is not a regular file but a pipe, a socket or a device",
    };
    Err(io::Error::new(ErrorKind::InvalidInput, problem))
}

#[cfg(unix)]
const NO_LINKS: i32 = libc::O_NOFOLLOW;
#[cfg(not(unix))]
const NO_LINKS: i32 = 0;

/// Sets `flags`, and the flag that keeps opening a pipe from waiting for its other end. On a
/// regular file that flag has no effect.
#[cfg(unix)]
fn without_waiting(options: &mut OpenOptions, flags: i32) {
    use std::os::unix::fs::OpenOptionsExt;
    options.custom_flags(libc::O_NONBLOCK | flags);
}

#[cfg(not(unix))]
fn without_waiting(_options: &mut OpenOptions, _flags: i32) {}

/// Rewords the errors that are specific to opening with these flags.
fn worded(error: io::Error) -> io::Error {
    #[cfg(unix)]
    match error.raw_os_error() {
        // A symbolic link, which O_NOFOLLOW forbids.
        Some(libc::ELOOP) => return is_a_link(),
        // A pipe that is opened for writing and has no reader, or a socket.
        Some(libc::ENXIO) => {
            return io::Error::new(
                ErrorKind::InvalidInput,
                "it is not a regular file but a pipe, a socket or a device",
            );
        }
        _ => {}
    }
    if error.kind() == ErrorKind::IsADirectory {
        let problem = "it is a folder where a file is wanted";
        return io::Error::new(ErrorKind::IsADirectory, problem);
    }
    error
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    fn pipe(path: &Path) {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is a string that ends with zero.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    }

    #[test]
    fn only_regular_files_are_opened_and_no_pipe_is_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        pipe(&at("pipe"));
        assert_eq!(read_to_string(&at("file")).unwrap(), "text");
        assert_eq!(read(&at("link")).unwrap(), b"text");
        let refused = |path: &Path| read(path).unwrap_err().to_string();
        assert!(refused(&at("pipe")).contains("not a regular file"));
        assert!(refused(place.path()).contains("a folder"));
        assert!(refused(Path::new("/dev/zero")).contains("a device"));
        let missing = read(&at("missing")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn files_of_ones_own_are_never_reached_through_a_link() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("foreign"), "text").unwrap();
        symlink(at("foreign"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        pipe(&at("pipe"));
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            own(&at(name), options.create(true).write(true).truncate(true))
        };
        for name in ["link", "dangling"] {
            let error = open(name).unwrap_err().to_string();
            assert!(error.contains("symbolic link"), "{error}");
        }
        fs::create_dir(at("folder")).unwrap();
        let refused = open("pipe").unwrap_err().to_string();
        assert!(refused.contains("not a regular file"), "{refused}");
        let refused = open("folder").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::IsADirectory);
        assert!(refused.to_string().contains("a folder"), "{refused}");
        // A pipe and a folder can be opened to read them.
        for name in ["pipe", "folder"] {
            let refused = own(&at(name), OpenOptions::new().read(true)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{name}");
        }
        open("new").unwrap();
        assert_eq!(fs::read_to_string(at("foreign")).unwrap(), "text");
        assert!(!at("nowhere").exists());
        let (found, _) = refuse_links(place.path()).unwrap_err();
        assert_eq!(found, at("dangling"));
    }
}
