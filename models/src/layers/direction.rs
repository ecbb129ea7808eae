//! The direction of a filter or a recurrence in time.

use serde::{Deserialize, Serialize};

/// The option `direction` of the models that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Back and ahead, with weights of their own.
    Both,
    /// From the first position to the last: each sees the positions before it.
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
