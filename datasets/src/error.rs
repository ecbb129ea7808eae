//! What can go wrong, worded for the person at the keyboard: the file, the line, the remedy.

use std::io;
use std::path::{Path, PathBuf};

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that this crate reports. [`Error::class`] groups the cases for an exit code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is missing, of the wrong type or out of range.
    #[error(
        "{task}: option `{}` cannot be {}; allowed: {allowed}",
        plain(key),
        plain(value)
    )]
    Option {
        /// Name of the task.
        task: &'static str,
        /// Key of the option.
        key: String,
        /// The value given.
        value: String,
        /// What would be accepted.
        allowed: String,
    },
    /// The task has no option of this name.
    #[error("{task} has no option `{}`; it has: {known}", plain(key))]
    UnknownOption {
        /// Name of the task.
        task: &'static str,
        /// The key given.
        key: String,
        /// Its options, separated by commas.
        known: String,
    },
    /// The task does not have this source.
    #[error("{task} has no source `{wanted}`; it has: {known}")]
    Source {
        /// Name of the task.
        task: &'static str,
        /// The source asked for.
        wanted: String,
        /// Its sources, separated by commas.
        known: String,
    },
    /// The options are each allowed, but no data set satisfies them together.
    #[error("{task}: {reason}")]
    Infeasible {
        /// Name of the task.
        task: &'static str,
        /// Why, and what to change.
        reason: String,
    },
    /// Data that has to be made or fetched first.
    #[error("missing: {what}; looked for {}{}\n  to get it: {command}{}", shown(path),
        there.as_ref().map(|there| format!("\n  what is there: {}", plain(there))).unwrap_or_default(),
        stand_in.as_ref().map(|flag| format!("\n  or use the stand-in: {flag}")).unwrap_or_default())]
    Missing {
        /// What is missing, in words.
        what: String,
        /// The file or folder looked for.
        path: PathBuf,
        /// What lies in its place instead, where that was looked at.
        there: Option<String>,
        /// The command that provides it.
        command: String,
        /// The flag that selects another source, where there is one.
        stand_in: Option<String>,
    },
    /// One line or record of a raw file is wrong.
    #[error("{}:{line}: {}", shown(file), plain(problem))]
    Row {
        /// The raw file.
        file: PathBuf,
        /// Line (or record) number, from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A raw file as a whole is wrong.
    #[error("{}: {}", shown(file), plain(problem))]
    File {
        /// The raw file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The published files at hand cannot be used.
    #[error("{problem}\n  {remedy}")]
    Unusable {
        /// What is wrong with them: a [`File`](Self::File) or a [`Row`](Self::Row).
        problem: Box<Error>,
        /// Where to get others.
        remedy: String,
    },
    /// An entry is there, but it was built from other files than those named now.
    #[error(
        "{} was made from other files than {}: {}\n  to replace it: {remedy}\n  \
        to keep both: another data directory (--data)",
        shown(folder),
        shown(raw),
        plain(difference)
    )]
    OtherFiles {
        /// The entry's folder.
        folder: PathBuf,
        /// The files named now.
        raw: PathBuf,
        /// In what they differ.
        difference: String,
        /// The command that replaces the entry.
        remedy: String,
    },
    /// A stored file is truncated, edited or unreadable.
    #[error(
        "{} is damaged: {}\n  to make it again: {remedy}",
        shown(file),
        plain(problem)
    )]
    Corrupt {
        /// The stored file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// The command that makes it again.
        remedy: String,
    },
    /// The operating system refused.
    #[error("cannot {action} {}: {cause}{}", shown(path), hint(cause))]
    Io {
        /// What was tried: "write", "read", "create".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The reason given by the system. The message holds it: as a source it would be printed again with the chain.
        cause: io::Error,
    },
    /// Somebody asked for an end: see [`Progress::stopped`](crate::Progress::stopped).
    #[error("interrupted before the data were built; the same command goes on")]
    Interrupted,
    /// A task's builder broke the task's own description: a bug in this program, not in the data.
    #[error("the builder of {task} broke its own description: {problem}")]
    Builder {
        /// Name of the task.
        task: &'static str,
        /// What was wrong.
        problem: String,
    },
}

/// Kinds of error, for exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The request is wrong: an option, a source, an impossible combination.
    Usage,
    /// Data is missing, damaged or not what it should be.
    Data,
    /// The system failed: full disk, no permission.
    System,
    /// The user asked for an end.
    Interrupted,
}

impl Error {
    /// The kind of this error.
    pub fn class(&self) -> Class {
        match self {
            Error::Option { .. }
            | Error::UnknownOption { .. }
            | Error::Source { .. }
            | Error::Infeasible { .. } => Class::Usage,
            Error::Missing { .. }
            | Error::Row { .. }
            | Error::File { .. }
            | Error::Unusable { .. }
            | Error::OtherFiles { .. }
            | Error::Corrupt { .. } => Class::Data,
            Error::Io { .. } | Error::Builder { .. } => Class::System,
            Error::Interrupted => Class::Interrupted,
        }
    }
}

/// Wraps an I/O error: `map_err(io("read", path))`.
pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |cause| Error::Io {
        action,
        path: path.to_owned(),
        cause,
    }
}

/// Text with its control characters spelt out, as they may come from files: a terminal would obey them. Signs that turn
/// the direction of writing are spelt out too.
pub fn plain(text: &str) -> String {
    let mut spelt = String::with_capacity(text.len());
    for symbol in text.chars() {
        match symbol {
            _ if symbol.is_control() => spelt.extend(symbol.escape_default()),
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                spelt.extend(symbol.escape_unicode());
            }
            _ => spelt.push(symbol),
        }
    }
    spelt
}

/// A path, as [`plain`] text.
fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

fn hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "\n  the disk is full: free some space or choose another folder with --data"
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "\n  choose a folder you may write to with --data or LRA_DATA"
        }
        _ => "",
    }
}
