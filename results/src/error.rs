//! Errors of this crate, worded for the person who has to fix them.

use std::io;
use std::path::{Path, PathBuf};

use crate::markup::{one_line, shown};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A failure of the file system.
    #[error("cannot {action} {}: {cause}{}", shown(path), remedy(action, cause))]
    Io {
        /// The action that failed, as a verb: "read", "write".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason. It is part of the message; as `source` it would be printed twice.
        cause: io::Error,
    },
    /// A file that should hold a record holds none.
    #[error(
        "{} is not a run record: {}; restore it",
        shown(path),
        one_line(reason)
    )]
    NotARecord {
        /// The file.
        path: PathBuf,
        /// Position at which reading stopped, and the reason.
        reason: String,
    },
    /// A file was written by a newer version of this program.
    #[error(
        "{} was made by a newer lra (schema {schema}, this one reads up to {known}): use that one, or move the file away",
        shown(path)
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version that the file states.
        schema: u32,
        /// The highest version that this program knows.
        known: u32,
    },
    /// A line of a run's log is damaged.
    #[error(
        "{}, line {line}: not a line of a run's log: {}",
        shown(path),
        one_line(reason)
    )]
    NotALog {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Position at which reading stopped, and the reason.
        reason: String,
    },
    /// A line of a file of measurements holds none.
    #[error(
        "{}, line {line}: not a measurement of `lra bench`: {}; restore the file, or remove the line",
        shown(path),
        one_line(reason)
    )]
    NotABench {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Position at which reading stopped, and the reason.
        reason: String,
    },
    /// A file that should hold a baseline holds none.
    #[error(
        "{} is not a baseline: {}; restore it, or remove it and write it anew with `lra check --update`",
        shown(path),
        one_line(reason)
    )]
    NotABaseline {
        /// The file.
        path: PathBuf,
        /// Position at which reading stopped, and the reason.
        reason: String,
    },
    /// A line of a file of records holds no record.
    #[error(
        "{}, line {line}: not a run record: {}; write the file anew with `lra merge`",
        shown(path),
        one_line(reason)
    )]
    NotARow {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The fault.
        reason: String,
    },
    /// A line of a file by others has no accuracy that can be imported.
    #[error("{}, line {line}: {}", shown(path), one_line(reason))]
    NotImportable {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1; of JSON the object.
        line: u64,
        /// The fault and the remedy.
        reason: String,
    },
    /// Two runs of the same settings ended differently.
    #[error(
        "{} and {} are of the same cell and differ in {field} ({}): leave out one of them",
        one_line(one),
        one_line(other),
        one_line(id)
    )]
    Conflict {
        /// Place of the first.
        one: String,
        /// Place of the second.
        other: String,
        /// The field that differs.
        field: &'static str,
        /// Its run's id.
        id: String,
    },
    /// The records to compare are ambiguous or missing.
    #[error("{reason}")]
    Selection {
        /// The choices, and how to choose.
        reason: String,
    },
    /// A chart could not be drawn.
    #[error("the chart {name} cannot be drawn: {reason}")]
    Chart {
        /// Its name.
        name: String,
        /// The drawing library's reason.
        reason: String,
    },
    /// A page lacks the markers to splice between.
    #[error("{reason}")]
    Marker {
        /// The wrong marker and the fault, after the file if it is known.
        reason: String,
    },
    /// No published source has this key.
    #[error("no published source is called `{key}`; `lra list published` lists them all")]
    UnknownSource {
        /// The requested key.
        key: String,
    },
    /// No renderer has this name.
    #[error("no format is called `{name}`; there are: {known}")]
    UnknownFormat {
        /// The requested name.
        name: String,
        /// The names of all formats.
        known: String,
    },
    /// No table has this name.
    #[error("no table is called `{name}`; there are: {known}")]
    UnknownTable {
        /// The requested name.
        name: String,
        /// The names of all tables.
        known: String,
    },
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns a function for `map_err` that adds the path to a system error.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |cause| Error::Io {
            action,
            path,
            cause,
        }
    }

    /// Returns whether the error tells of a file, not of a system that refused to read or write it,
    /// such as by too many open files, a missing permission or a failing disk.
    #[must_use]
    pub fn is_of_content(&self) -> bool {
        match self {
            Error::Io { cause, .. } => disk::is_of_content(cause),
            _ => true,
        }
    }

    /// Adds the file of a wrong marker to the error.
    pub(crate) fn at(self, path: &Path) -> Error {
        match self {
            Error::Marker { reason } => Error::Marker {
                reason: format!("{}: {reason}", shown(path)),
            },
            other => other,
        }
    }
}

fn remedy(action: &str, cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::NotFound if action != "read" => "; make that folder first",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if action != "read" => {
            "; choose a folder you may write to"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; the disk is full: free some space"
        }
        io::ErrorKind::FileTooLarge => {
            "; no file may be as large here: raise the limit (`ulimit -f`)"
        }
        _ => "",
    }
}
