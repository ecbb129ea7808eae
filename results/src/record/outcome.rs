//! Outcome of a run.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::markup::one_line;

/// Outcome of a run. On disk: an object tagged by `status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// The test split was scored.
    Scored,
    /// An error stopped it.
    Failed {
        /// The error.
        #[serde(default)]
        reason: String,
    },
    /// The loss became infinite or NaN.
    Diverged {
        /// The step at which it was noticed.
        #[serde(default)]
        step: u64,
        /// A description of what was noticed.
        #[serde(default)]
        reason: String,
    },
    /// The memory was not sufficient.
    OutOfMemory {
        /// The allocation that failed.
        #[serde(default)]
        reason: String,
    },
    /// A signal stopped it; it can be resumed.
    Interrupted {
        /// Steps taken until then.
        #[serde(default)]
        step: u64,
    },
    /// An outcome of a newer version.
    #[serde(other)]
    Unknown,
}

impl Outcome {
    /// Returns whether the same run would end in the same way again. An interrupted run can be
    /// resumed, and so can a failed one, once the cause (a full disk, too low a limit) is gone.
    pub fn is_final(&self) -> bool {
        match self {
            Outcome::Scored | Outcome::Diverged { .. } | Outcome::Unknown => true,
            Outcome::Failed { .. } | Outcome::OutOfMemory { .. } | Outcome::Interrupted { .. } => {
                false
            }
        }
    }

    /// All words of [`Outcome::word`].
    pub(crate) const WORDS: [&str; 6] = [
        "scored",
        "failed",
        "diverged",
        "out of memory",
        "interrupted",
        "unknown outcome",
    ];

    /// Returns the word for a table cell.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Scored => "scored",
            Outcome::Failed { .. } => "failed",
            Outcome::Diverged { .. } => "diverged",
            Outcome::OutOfMemory { .. } => "out of memory",
            Outcome::Interrupted { .. } => "interrupted",
            Outcome::Unknown => "unknown outcome",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        let reason = match self {
            Outcome::Scored | Outcome::Unknown => return Ok(()),
            Outcome::Failed { reason } | Outcome::OutOfMemory { reason } => reason,
            Outcome::Diverged { step, reason } => {
                write!(f, " at step {step}")?;
                reason
            }
            Outcome::Interrupted { step } => return write!(f, " at step {step}"),
        };
        match one_line(first_line(reason)).as_str() {
            "" => Ok(()),
            reason => write!(f, ": {reason}"),
        }
    }
}

/// Returns the part of a reason that fits into a table. Records of older versions also hold
/// backtraces.
pub(crate) fn first_line(reason: &str) -> &str {
    reason.lines().next().unwrap_or_default()
}
