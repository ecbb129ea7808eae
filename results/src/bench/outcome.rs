//! Outcome of the measurement of a cell.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Outcome of the measurement of a cell. On disk: an object tagged by `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// Every round that was begun was measured.
    #[default]
    Measured,
    /// The memory, or the limit on it, was not sufficient.
    OutOfMemory {
        /// The allocation that failed.
        #[serde(default)]
        reason: String,
    },
    /// The time limit was reached.
    TimedOut {
        /// The limit.
        #[serde(default)]
        reason: String,
    },
    /// It was skipped, because an estimate from shorter lengths or from the speed of matrix
    /// products exceeds the limit on memory or time.
    Skipped {
        /// The memory or the time it would have needed, in words.
        #[serde(default)]
        reason: String,
    },
    /// The measuring process failed.
    Failed {
        /// The error.
        #[serde(default)]
        reason: String,
    },
    /// An outcome of a newer version.
    #[serde(other)]
    Unknown,
}

impl Outcome {
    /// Returns the word for a table cell.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Measured => "measured",
            Outcome::OutOfMemory { .. } => "no memory",
            Outcome::TimedOut { .. } => "time out",
            Outcome::Skipped { .. } => "skipped",
            Outcome::Failed { .. } => "failed",
            Outcome::Unknown => "unknown",
        }
    }

    /// Returns the reason why the cell was not measured; empty if it was.
    pub fn reason(&self) -> &str {
        match self {
            Outcome::OutOfMemory { reason }
            | Outcome::TimedOut { reason }
            | Outcome::Skipped { reason }
            | Outcome::Failed { reason } => reason,
            Outcome::Measured | Outcome::Unknown => "",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            "" => f.write_str(self.word()),
            reason => write!(f, "{}: {reason}", self.word()),
        }
    }
}
