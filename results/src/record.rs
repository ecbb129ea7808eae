//! One run, complete with its provenance: what `record.json` holds.
//!
//! The form in memory is the form on disk. Fields are written in the order they are declared in; a
//! field that an older file lacks takes its default, a field of a newer file that is unknown here is
//! passed over. So a new column needs a default and nothing else. What makes a file a record at all
//! (`schema`, `id`, `outcome`, `task`, `model`) must be there.
//!
//! Accuracies are fractions from 0 to 1, times are seconds, sizes are bytes.

mod decisive;
mod dense;
mod finite;
mod measured;
mod outcome;
mod pretraining;
mod provenance;
mod setting;

use serde::{Deserialize, Serialize};

pub use self::decisive::Batching;
pub use self::dense::{Dense, DenseGroup};
pub use self::measured::{
    Baseline, MAJORITY, Memory, Phases, Scores, Speed, Spread, number, numbers,
};
pub use self::outcome::Outcome;
pub(crate) use self::outcome::first_line;
pub use self::pretraining::Pretraining;
pub use self::provenance::{Host, Provenance, Revision, Versions};
pub use self::setting::{Model, OwnModel, Recipe, Rows, Task};

/// The version written into new records. It grows when the meaning of a field changes, not when one is added.
pub const SCHEMA: u32 = 1;

/// Everything that one run leaves for the tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`] of the program that wrote the record.
    pub schema: u32,
    /// The run's id, which is also the name of its folder.
    pub id: String,
    /// How the run ended.
    pub outcome: Outcome,
    /// What was learned.
    pub task: Task,
    /// What learned it.
    pub model: Model,
    /// How it was trained.
    #[serde(default)]
    pub recipe: Recipe,
    /// The seed of parameters, batches and dropout.
    #[serde(default)]
    pub seed: u64,
    /// What it learned before; absent where it began from nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pretraining: Option<Pretraining>,
    /// What it scored; absent when the run ended before anything was.
    #[serde(default)]
    pub scores: Option<Scores>,
    /// What trivial predictors score on the same test split.
    #[serde(default)]
    pub baselines: Vec<Baseline>,
    /// How fast it trained; absent when too few steps were timed.
    #[serde(default)]
    pub speed: Option<Speed>,
    /// What it held in memory.
    #[serde(default)]
    pub memory: Option<Memory>,
    /// Where all this comes from.
    #[serde(flatten)]
    pub provenance: Provenance,
}

impl Record {
    /// Accuracy of the majority baseline, if the record has it.
    pub fn majority(&self) -> Option<f64> {
        self.baselines
            .iter()
            .find(|baseline| baseline.name == MAJORITY)
            .map(|baseline| baseline.accuracy)
    }

    /// Accuracy on the test split, if it was scored.
    pub fn test_accuracy(&self) -> Option<f64> {
        self.scores.as_ref().and_then(|scores| scores.test_accuracy)
    }
}
