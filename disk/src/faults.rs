//! Faults of the file system, for tests: in debug builds the variable `LRA_FAULTS` says which
//! operations fail, counted from 1 within the process. Release builds have none of it.
//!
//! ```text
//! LRA_FAULTS=write:3:28,lock:1:37      the third write fails with error number 28, the first lock with 37
//! LRA_FAULTS=rename:2:die              the process is killed in place of the second rename
//! LRA_FAULTS=sync:*:5                  every flush fails
//! ```

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
}

/// Fails if the plan says that this operation does.
#[cfg(not(debug_assertions))]
pub(crate) fn strike(_: Operation) -> io::Result<()> {
    Ok(())
}

/// Fails if the plan says that this operation does, after `first` was done.
#[cfg(not(debug_assertions))]
pub(crate) fn strike_after(
    _: Operation,
    _first: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    Ok(())
}

#[cfg(debug_assertions)]
pub(crate) use planned::{strike, strike_after};

#[cfg(debug_assertions)]
mod planned {
    use std::io;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Operation;

    const NAMES: [&str; 5] = ["read", "write", "sync", "rename", "lock"];

    /// One entry of the variable.
    #[derive(Debug, PartialEq)]
    pub(super) struct Fault {
        operation: usize,
        /// Which of its kind, counted from 1; none for each.
        number: Option<usize>,
        /// The system's error number; none kills the process.
        code: Option<i32>,
    }

    static PLAN: LazyLock<Vec<Fault>> = LazyLock::new(|| {
        let text = std::env::var("LRA_FAULTS").unwrap_or_default();
        text.split(',').filter_map(parse).collect()
    });
    static MADE: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

    pub(super) fn parse(entry: &str) -> Option<Fault> {
        let mut words = entry.split(':');
        let (name, number, code) = (words.next()?, words.next()?, words.next()?);
        Some(Fault {
            operation: NAMES.iter().position(|known| *known == name)?,
            number: match number {
                "*" => None,
                number => Some(number.parse().ok()?),
            },
            code: match code {
                "die" => None,
                code => Some(code.parse().ok()?),
            },
        })
    }

    pub(crate) fn strike(operation: Operation) -> io::Result<()> {
        strike_after(operation, || Ok(()))
    }

    pub(crate) fn strike_after(
        operation: Operation,
        first: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let number = 1 + MADE[operation as usize].fetch_add(1, Ordering::Relaxed);
        let hit = PLAN.iter().find(|fault| {
            fault.operation == operation as usize && fault.number.is_none_or(|it| it == number)
        });
        let Some(fault) = hit else { return Ok(()) };
        first()?;
        match fault.code {
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => std::process::abort(),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_plan_is_read() {
            let fault = parse("write:3:28").unwrap();
            let (write, die) = (Operation::Write as usize, parse("lock:*:die").unwrap());
            assert_eq!(
                (fault.operation, fault.number, fault.code),
                (write, Some(3), Some(28))
            );
            assert_eq!((die.number, die.code), (None, None));
            assert_eq!(parse("tea:1:2"), None);
        }
    }
}
