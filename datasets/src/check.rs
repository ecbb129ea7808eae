//! One check of stored data and its outcome.

use serde::Serialize;

/// Result of one check of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Name of the check.
    pub name: String,
    /// True if the check holds.
    pub ok: bool,
    /// Observed value or reason.
    pub detail: String,
}

impl Check {
    /// Returns a check with this outcome.
    pub fn new(name: impl Into<String>, ok: bool, detail: impl Into<String>) -> Check {
        Check {
            name: name.into(),
            ok,
            detail: detail.into(),
        }
    }
}
