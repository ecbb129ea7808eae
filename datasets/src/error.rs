//! Errors of this crate, worded for the user: the file, the line, the remedy.

use std::io;
use std::path::{Path, PathBuf};

use disk::escape;

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of this crate. [`Error::class`] groups the cases for an exit code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is missing, of the wrong type or out of range.
    #[error(
        "{task}: option `{}` cannot be {}; allowed: {allowed}",
        escape(key),
        escape(value)
    )]
    Option {
        /// Name of the task.
        task: &'static str,
        /// Key of the option.
        key: String,
        /// Given value.
        value: String,
        /// Accepted values.
        allowed: String,
    },
    /// An option has a word that is none of its choices.
    #[error(
        "{task}: data.{} = \"{}\" is none of its values: {}",
        escape(key),
        escape(value),
        known.join(", ")
    )]
    Word {
        /// Name of the task.
        task: &'static str,
        /// Key of the option.
        key: String,
        /// Given word.
        value: String,
        /// The words that it can be.
        known: Vec<String>,
    },
    /// The task has no option of this name.
    #[error("{task} has no option `{}`; it has: {known}", escape(key))]
    UnknownOption {
        /// Name of the task.
        task: &'static str,
        /// Given key.
        key: String,
        /// Options of the task, separated by commas.
        known: String,
    },
    /// The task does not have this source.
    #[error("{task} has no source `{wanted}`; it has: {known}")]
    Source {
        /// Name of the task.
        task: &'static str,
        /// Requested source.
        wanted: String,
        /// Sources of the task, separated by commas.
        known: String,
    },
    /// The options are each allowed, but no data set satisfies them together.
    #[error("{task}: {reason}")]
    Infeasible {
        /// Name of the task.
        task: &'static str,
        /// Reason, and the remedy.
        reason: String,
    },
    /// Tasks of a program's own that it cannot register.
    #[error("your own tasks: {reason}")]
    Registry {
        /// Reason, and the remedy.
        reason: String,
    },
    /// Data is missing and has to be made or fetched first.
    #[error("missing: {what}; looked for {}{}\n  to get it: {command}{}", shown(path),
        there.as_ref().map(|there| format!("\n  what is there: {}", escape(there))).unwrap_or_default(),
        stand_in.as_ref().map(|flag| format!("\n  or use the stand-in: {flag}")).unwrap_or_default())]
    Missing {
        /// Missing data, in words.
        what: String,
        /// Path of the file or folder looked for.
        path: PathBuf,
        /// Contents found in its place, where that was inspected.
        there: Option<String>,
        /// Command that provides the data.
        command: String,
        /// The flag that selects another source, where there is one.
        stand_in: Option<String>,
    },
    /// One line or record of a raw file is wrong.
    #[error("{}:{line}: {}", shown(file), escape(problem))]
    Row {
        /// The raw file.
        file: PathBuf,
        /// Line (or record) number, from 1.
        line: u64,
        /// Description of the problem.
        problem: String,
    },
    /// A raw file as a whole is wrong.
    #[error("{}: {}", shown(file), escape(problem))]
    File {
        /// The raw file.
        file: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// The published files at hand cannot be used.
    #[error("{problem}\n  {remedy}")]
    Unusable {
        /// Description of the problem: a [`File`](Self::File) or a [`Row`](Self::Row).
        problem: Box<Error>,
        /// Place from which to get others.
        remedy: String,
    },
    /// An entry exists, but it was built from other files than those given now.
    #[error(
        "{} was made from other files than {}: {}\n  to replace it: {remedy}\n  \
        to keep both: another data directory (--data)",
        shown(folder),
        shown(raw),
        escape(difference)
    )]
    OtherFiles {
        /// Folder of the entry.
        folder: PathBuf,
        /// Files given now.
        raw: PathBuf,
        /// Difference between the files.
        difference: String,
        /// Command that replaces the entry.
        remedy: String,
    },
    /// A stored file is truncated, edited or unreadable.
    #[error(
        "{} is damaged: {}\n  to make it again: {remedy}",
        shown(file),
        escape(problem)
    )]
    Corrupt {
        /// Stored file.
        file: PathBuf,
        /// Description of the problem.
        problem: String,
        /// Command that makes the file again.
        remedy: String,
    },
    /// The operating system refused an operation.
    #[error("cannot {action} {}: {cause}{}", shown(path), hint(action, cause))]
    Io {
        /// Attempted action: "write", "read", "create".
        action: &'static str,
        /// File or folder.
        path: PathBuf,
        /// Reason given by the system. It is part of the message; as a source it would be printed
        /// twice.
        cause: io::Error,
    },
    /// The user requested a stop: see [`Progress::stopped`](crate::Progress::stopped).
    #[error("interrupted before the data was built; run the same command again to continue")]
    Interrupted,
    /// A task's builder violated the task's own description: a bug in this program, not in the
    /// data.
    #[error("the builder of {task} broke its own description: {problem}")]
    Builder {
        /// Name of the task.
        task: &'static str,
        /// Description of the problem.
        problem: String,
    },
}

/// Kind of error, for exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The request is wrong: an option, a source, an impossible combination.
    Usage,
    /// Data is missing, damaged or differs from what is expected.
    Data,
    /// The system failed: full disk, no permission.
    System,
    /// The system has no memory or no address space left.
    Memory,
    /// The user requested a stop.
    Interrupted,
}

impl Error {
    /// Returns whether the system refused to read a file that is there, which says nothing about
    /// its content.
    pub(crate) fn is_of_system(&self) -> bool {
        match self {
            Error::Io { cause, .. } => {
                cause.kind() != io::ErrorKind::NotFound && !disk::is_of_content(cause)
            }
            _ => false,
        }
    }

    /// Returns the kind of this error.
    pub fn class(&self) -> Class {
        match self {
            Error::Option { .. }
            | Error::Word { .. }
            | Error::UnknownOption { .. }
            | Error::Source { .. }
            | Error::Infeasible { .. }
            | Error::Registry { .. } => Class::Usage,
            Error::Missing { .. }
            | Error::Row { .. }
            | Error::File { .. }
            | Error::Unusable { .. }
            | Error::OtherFiles { .. }
            | Error::Corrupt { .. } => Class::Data,
            Error::Io { cause, .. } if cause.kind() == io::ErrorKind::OutOfMemory => Class::Memory,
            Error::Io { .. } | Error::Builder { .. } => Class::System,
            Error::Interrupted => Class::Interrupted,
        }
    }
}

/// Returns a function that wraps an I/O error: `map_err(io("read", path))`.
pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |cause| Error::Io {
        action,
        path: path.to_owned(),
        cause,
    }
}

/// Returns a path as [escaped](escape) text.
pub(crate) fn shown(path: &Path) -> String {
    escape(&path.to_string_lossy())
}

fn hint(action: &str, cause: &io::Error) -> &'static str {
    let reads = matches!(action, "read" | "map" | "find");
    match cause.kind() {
        io::ErrorKind::OutOfMemory => {
            "\n  out of memory: raise the limit on address space (`ulimit -v`) or free some memory"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "\n  the disk is full: free some space or choose another folder with --data"
        }
        io::ErrorKind::FileTooLarge => {
            "\n  no file may be as large here: raise the limit (`ulimit -f`) or choose another folder with --data"
        }
        io::ErrorKind::PermissionDenied if reads => {
            "\n  it is there, but you may not read it: have its permissions changed"
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "\n  this data is not complete there: make it (`lra data make`) as a user who may write to it, \
             or choose a folder you may write to with --data or LRA_DATA"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_refuses_says_nothing_of_the_file() {
        // Input/output error, permission denied, invalid argument, too many open files.
        for number in [5, 13, 22, 24] {
            let refused = io("read", Path::new("x"))(io::Error::from_raw_os_error(number));
            assert!(refused.is_of_system(), "{refused}");
            let cause = io::Error::from_raw_os_error(number);
            let member = crate::archive::unreadable(Path::new("x.tar"))(cause);
            assert!(!member.to_string().contains("damaged"), "{member}");
        }
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::InvalidData] {
            assert!(!io("read", Path::new("x"))(kind.into()).is_of_system());
        }
    }

    #[test]
    fn a_lack_of_memory_is_no_damage_of_the_file() {
        let cause = io::Error::from(io::ErrorKind::OutOfMemory);
        let error = io("map", Path::new("train.safetensors"))(cause);
        assert_eq!(error.class(), Class::Memory);
        let text = error.to_string();
        assert!(
            text.starts_with("cannot map train.safetensors: ") && text.contains("ulimit -v"),
            "{text}"
        );
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = io("read", Path::new("x"))(denied);
        assert_eq!(error.class(), Class::System);
        // A folder for writing is no remedy for what cannot be read.
        let text = error.to_string();
        assert!(
            text.contains("you may not read it") && !text.contains("write"),
            "{text}"
        );
    }
}
