//! Locks on files, which end with the process that holds them.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use crate::faults::{self, Operation};

/// Environment variable; the value `off` allows file systems without locks.
const LOCKS: &str = "LRA_LOCKS";
/// Its only value.
const OFF: &str = "off";

/// Checks the value of `LRA_LOCKS`.
///
/// # Errors
/// The variable has another value than `off`. An empty one counts as none.
pub fn check_locks_variable() -> Result<(), String> {
    known(&std::env::var_os(LOCKS).unwrap_or_default())
}

fn known(value: &OsStr) -> Result<(), String> {
    match value.is_empty() || value == OFF {
        true => Ok(()),
        false => Err(format!(
            "{LOCKS}={} is none of its values: set it to {OFF}, or unset it",
            crate::escape(&value.to_string_lossy())
        )),
    }
}

/// An open file that this process has locked. The lock is freed when this is dropped, at once:
/// closing the file would not free it while a child process is being started, which has a copy of
/// all open files until its own program begins.
#[derive(Debug)]
pub struct Locked(File);

impl Deref for Locked {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // If this fails, closing the file frees the lock.
        let _ = self.0.unlock();
    }
}

/// Locks an open file without waiting. With `LRA_LOCKS=off` a file system without locks is no
/// error, and no lock is taken.
///
/// # Errors
/// Another process holds the lock; or the file system has no locks, and the message gives the
/// remedy.
pub fn try_lock(file: File) -> Result<Locked, TryLockError> {
    match take(&file) {
        Err(TryLockError::Error(error)) if has_no_locks(&error) => {
            match std::env::var_os(LOCKS).is_some_and(|value| value == OFF) {
                true => Ok(Locked(file)),
                false => Err(TryLockError::Error(without_locks(&error))),
            }
        }
        other => other.map(|()| Locked(file)),
    }
}

/// Locks an open file without waiting, regardless of the value of `LRA_LOCKS`, for callers that
/// need proof that no other process is at work. A signal that interrupts the call is no error.
///
/// # Errors
/// Another process holds the lock, or the file system has no locks.
pub fn try_lock_strictly(file: File) -> Result<Locked, TryLockError> {
    take(&file).map(|()| Locked(file))
}

fn take(file: &File) -> Result<(), TryLockError> {
    uninterrupted(|| {
        faults::strike(Operation::Lock).map_err(TryLockError::Error)?;
        file.try_lock()
    })
}

/// Repeats a call until no signal interrupts it.
fn uninterrupted(call: impl Fn() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    loop {
        match call() {
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Returns whether an error says that the file system has no locks, as some network file systems
/// do. Some of them call the request invalid, or an error of input and output.
fn has_no_locks(error: &io::Error) -> bool {
    #[cfg(unix)]
    if let Some(code) = error.raw_os_error() {
        let codes = [
            libc::ENOLCK,
            libc::ENOTSUP,
            libc::EOPNOTSUPP,
            libc::ENOSYS,
            libc::EINVAL,
            libc::EIO,
        ];
        return codes.contains(&code);
    }
    error.kind() == io::ErrorKind::Unsupported
}

/// Returns whether an error may as well be one of the disk or of a server that does not answer.
fn is_fault(error: &io::Error) -> bool {
    #[cfg(unix)]
    if error.raw_os_error() == Some(libc::EIO) {
        return true;
    }
    false
}

fn without_locks(error: &io::Error) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "{} ({error}): choose a folder on another one, or set {LOCKS}=off if no other lra works there meanwhile",
            match is_fault(error) {
                true => "this file system refuses locks, because it has none or is faulty",
                false => "this file system has no locks",
            }
        ),
    )
}

/// Returns whether `path` is still the name of an open file.
#[cfg(unix)]
pub fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |it: std::fs::Metadata| (it.dev(), it.ino());
    let there = std::fs::symlink_metadata(path).map(number);
    matches!((file.metadata().map(number), there), (Ok(open), Ok(there)) if open == there)
}

/// Returns whether `path` is still the name of an open file, which cannot be removed here.
#[cfg(not(unix))]
pub fn is_at(_file: &File, _path: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_lock_is_held_once_and_its_lack_has_a_remedy() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || file.reopen().unwrap();
        let one = open();
        // As in a child process that is being started.
        let copy = one.try_clone().unwrap();
        let held = try_lock(one).unwrap();
        let refused = try_lock(open());
        assert!(matches!(refused, Err(TryLockError::WouldBlock)));
        drop(held);
        try_lock_strictly(open()).unwrap();
        drop(copy);
        #[cfg(unix)]
        for code in [
            libc::ENOLCK,
            libc::ENOTSUP,
            libc::ENOSYS,
            libc::EINVAL,
            libc::EIO,
        ] {
            let error = io::Error::from_raw_os_error(code);
            assert!(has_no_locks(&error), "{error}");
            let message = without_locks(&error).to_string();
            assert!(message.contains("LRA_LOCKS=off"), "{message}");
            // A disk that fails gives the same error as a file system without locks.
            assert_eq!(
                message.contains("or is faulty"),
                code == libc::EIO,
                "{message}"
            );
        }
        let other = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(!has_no_locks(&other));
    }

    /// A process that waited may have opened a file that was removed or replaced meanwhile.
    #[cfg(unix)]
    #[test]
    fn a_file_is_at_its_path_until_it_is_removed_or_replaced() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let file = File::create(at("lock")).unwrap();
        File::create(at("other")).unwrap();
        assert!(is_at(&file, &at("lock")) && !is_at(&file, &at("other")));
        std::fs::rename(at("other"), at("lock")).unwrap();
        assert!(!is_at(&file, &at("lock")));
        std::fs::remove_file(at("lock")).unwrap();
        assert!(!is_at(&file, &at("lock")));
    }

    #[test]
    fn a_signal_during_the_call_is_no_error() {
        let calls = Cell::new(0);
        let done = uninterrupted(|| {
            calls.set(calls.get() + 1);
            match calls.get() {
                3 => Ok(()),
                _ => Err(TryLockError::Error(io::ErrorKind::Interrupted.into())),
            }
        });
        assert!(done.is_ok() && calls.get() == 3);
    }

    #[test]
    fn an_unknown_value_of_the_variable_is_refused() {
        for value in ["", "off"] {
            assert_eq!(known(value.as_ref()), Ok(()));
        }
        for value in ["of", "OFF", "on", "0"] {
            let message = known(value.as_ref()).unwrap_err();
            assert!(message.starts_with(&format!("LRA_LOCKS={value} is none")));
        }
    }
}
