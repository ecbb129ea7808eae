//! Outcome of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Outcome of a run. On disk: an object tagged by `status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// The loss became infinite or not a number.
    Diverged {
        /// The step at which it was noticed.
        #[serde(default)]
        step: u64,
        /// The observation.
        #[serde(default)]
        reason: String,
    },
    /// The memory did not suffice.
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
    /// An ending that only a newer version has a name for.
    #[serde(other)]
    Unknown,
}

impl Outcome {
    /// Returns whether the same run would end the same way again. What was interrupted can go on,
    /// and so can what failed, once its cause (a full disk, too low a limit) is gone.
    pub fn is_final(&self) -> bool {
        match self {
            Outcome::Scored | Outcome::Diverged { .. } | Outcome::Unknown => true,
            Outcome::Failed { .. } | Outcome::OutOfMemory { .. } | Outcome::Interrupted { .. } => {
                false
            }
        }
    }

    /// Returns the word that stands in a table's cell.
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
            Outcome::Scored | Outcome::Unknown => "",
            Outcome::Failed { reason } | Outcome::OutOfMemory { reason } => first_line(reason),
            Outcome::Diverged { step, reason } => {
                write!(f, " at step {step}")?;
                reason
            }
            Outcome::Interrupted { step } => return write!(f, " at step {step}"),
        };
        match reason {
            "" => Ok(()),
            reason => write!(f, ": {reason}"),
        }
    }
}

/// Returns the part of a reason that a table has room for. Records of older versions hold
/// backtraces, too.
pub(crate) fn first_line(reason: &str) -> &str {
    reason.lines().next().unwrap_or_default()
}
