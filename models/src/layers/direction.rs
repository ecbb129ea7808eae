//! The direction of a filter or a recurrence in time.

use serde::{Deserialize, Serialize};

/// Value of the option `direction`: the directions in time in which a model runs its filter or
/// recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Both directions, each with weights of its own.
    Both,
    /// From the first position to the last: a position sees itself and those before it.
    Forward,
}

impl Direction {
    /// Returns the number of directions.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            Self::Both => 2,
            Self::Forward => 1,
        }
    }
}
