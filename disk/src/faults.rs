//! Faults of the file system, for tests: in debug builds the variable `LRA_FAULTS` lists the
//! operations that fail, counted from 1 within the process. Release builds contain none of this.
//!
//! ```text
//! LRA_FAULTS=write:3:28,lock:1:37      the third write fails with error number 28, the first lock with 37
//! LRA_FAULTS=rename:2:die              the process is killed in place of the second rename
//! LRA_FAULTS=sync:1:power              the machine loses power in place of the first flush
//! LRA_FAULTS=sync:*:5                  every flush of a file fails
//! LRA_FAULTS=folder:1:5                the first flush of the names in a folder fails
//! ```
//!
//! A write that fails, or in which the process dies, leaves half of its bytes. A power loss loses
//! all bytes that were written but not flushed; renames stay, which is the worst case.
//! `LRA_FAULTS_LOG=FILE` adds a line per operation to a file, with the process and the operation's
//! name, so that a test knows the number of operations.

#[cfg(not(debug_assertions))]
use std::fs::File;
#[cfg(not(debug_assertions))]
use std::io;

/// An operation that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opening a file to read it.
    Read,
    /// Writing bytes.
    Write,
    /// Flushing a file to the disk.
    Sync,
    /// Renaming a file or a folder.
    Rename,
    /// Taking a lock.
    Lock,
    /// Flushing the names in a folder to the disk.
    Folder,
}

/// Fails if the plan lists this operation.
#[cfg(not(debug_assertions))]
pub(crate) fn strike(_: Operation) -> io::Result<()> {
    Ok(())
}

/// Fails, after half of `bytes` were written, if the plan lists this write.
#[cfg(not(debug_assertions))]
pub(crate) fn strike_write(_: &File, _bytes: &[u8]) -> io::Result<()> {
    strike(Operation::Write)
}

/// Records that a file was flushed.
#[cfg(not(debug_assertions))]
pub(crate) fn synced(_: &File) {}

#[cfg(debug_assertions)]
pub(crate) use planned::{strike, strike_write, synced};

#[cfg(debug_assertions)]
mod planned {
    use std::fs::File;
    use std::io::{self, Write};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{LazyLock, Mutex, PoisonError};

    use super::Operation;

    const NAMES: [&str; 6] = ["read", "write", "sync", "rename", "lock", "folder"];

    /// One entry of the variable.
    #[derive(Debug, PartialEq)]
    pub(super) struct Fault {
        operation: usize,
        /// Number of the operation among those of its kind, counted from 1; `None` for all of them.
        number: Option<usize>,
        how: How,
    }

    /// Kind of failure.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(super) enum How {
        /// The operation fails with the system's error number.
        Error(i32),
        /// The process is killed.
        Die,
        /// The machine stops, and bytes that were not flushed are lost.
        Power,
    }

    static PLAN: LazyLock<Vec<Fault>> = LazyLock::new(|| {
        let text = std::env::var("LRA_FAULTS").unwrap_or_default();
        text.split(',').filter_map(parse).collect()
    });
    static LOG: LazyLock<Option<File>> = LazyLock::new(|| {
        let path = std::env::var_os("LRA_FAULTS_LOG")?;
        File::options().create(true).append(true).open(path).ok()
    });
    static MADE: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

    /// A file with bytes that were not flushed.
    struct Unsynced {
        file: File,
        identity: (u64, u64),
        /// Number of bytes that are on the disk.
        kept: u64,
    }

    static UNSYNCED: Mutex<Vec<Unsynced>> = Mutex::new(Vec::new());

    pub(super) fn parse(entry: &str) -> Option<Fault> {
        let mut words = entry.split(':');
        let (name, number, how) = (words.next()?, words.next()?, words.next()?);
        Some(Fault {
            operation: NAMES.iter().position(|known| *known == name)?,
            number: match number {
                "*" => None,
                number => Some(number.parse().ok()?),
            },
            how: match how {
                "die" => How::Die,
                "power" => How::Power,
                code => How::Error(code.parse().ok()?),
            },
        })
    }

    pub(crate) fn strike(operation: Operation) -> io::Result<()> {
        strike_after(operation, || Ok(()))
    }

    pub(crate) fn strike_write(mut file: &File, bytes: &[u8]) -> io::Result<()> {
        note_unsynced(file);
        strike_after(Operation::Write, || {
            file.write_all(&bytes[..bytes.len() / 2])
        })
    }

    fn strike_after(
        operation: Operation,
        first: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let number = 1 + MADE[operation as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(mut log) = LOG.as_ref() {
            let line = format!("{} {}\n", std::process::id(), NAMES[operation as usize]);
            log.write_all(line.as_bytes())?;
        }
        let hit = PLAN.iter().find(|fault| {
            fault.operation == operation as usize && fault.number.is_none_or(|it| it == number)
        });
        let Some(fault) = hit else { return Ok(()) };
        first()?;
        match fault.how {
            How::Error(code) => Err(io::Error::from_raw_os_error(code)),
            How::Die => std::process::abort(),
            How::Power => {
                lose(&UNSYNCED.lock().unwrap_or_else(PoisonError::into_inner));
                std::process::abort()
            }
        }
    }

    /// Records that bytes are about to be written to a file, if the plan has a power loss.
    fn note_unsynced(file: &File) {
        if PLAN.iter().all(|fault| fault.how != How::Power) {
            return;
        }
        let known = (identity(file), file.metadata(), file.try_clone());
        let (Some(identity), Ok(metadata), Ok(file)) = known else {
            return;
        };
        let mut unsynced = UNSYNCED.lock().unwrap_or_else(PoisonError::into_inner);
        if unsynced.iter().all(|other| other.identity != identity) {
            unsynced.push(Unsynced {
                file,
                identity,
                kept: metadata.len(),
            });
        }
    }

    pub(crate) fn synced(file: &File) {
        if let Some(identity) = identity(file) {
            let mut unsynced = UNSYNCED.lock().unwrap_or_else(PoisonError::into_inner);
            unsynced.retain(|other| other.identity != identity);
        }
    }

    /// Truncates files to their flushed bytes. A file that cannot be truncated stays as it is.
    fn lose(unsynced: &[Unsynced]) {
        for lost in unsynced {
            let _ = lost.file.set_len(lost.kept);
        }
    }

    #[cfg(unix)]
    fn identity(file: &File) -> Option<(u64, u64)> {
        use std::os::unix::fs::MetadataExt;
        let metadata = file.metadata().ok()?;
        Some((metadata.dev(), metadata.ino()))
    }

    /// Returns `None`: files have no such number here, so no bytes are lost.
    #[cfg(not(unix))]
    fn identity(_: &File) -> Option<(u64, u64)> {
        None
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_plan_is_read() {
            let fault = parse("write:3:28").unwrap();
            let (write, die) = (Operation::Write as usize, parse("lock:*:die").unwrap());
            assert_eq!(
                (fault.operation, fault.number, fault.how),
                (write, Some(3), How::Error(28))
            );
            assert_eq!((die.number, die.how), (None, How::Die));
            assert_eq!(parse("sync:1:power").unwrap().how, How::Power);
            assert_eq!(parse("tea:1:2"), None);
        }

        #[cfg(unix)]
        #[test]
        fn what_was_not_flushed_is_lost_also_after_a_rename() {
            let place = tempfile::tempdir().unwrap();
            let [one, other] = ["one", "other"].map(|name| place.path().join(name));
            let mut file = File::create(&one).unwrap();
            file.write_all(b"flushed").unwrap();
            let unsynced = Unsynced {
                identity: identity(&file).unwrap(),
                kept: file.metadata().unwrap().len(),
                file: file.try_clone().unwrap(),
            };
            file.write_all(b" and not").unwrap();
            std::fs::rename(&one, &other).unwrap();
            lose(&[unsynced]);
            assert_eq!(std::fs::read(&other).unwrap(), b"flushed");
        }
    }
}
