//! One run with its provenance: the content of `record.json`.
//!
//! The form in memory is the form on disk. Fields are written in the order of their declaration. A
//! field that an older file lacks takes its default, and an unknown field of a newer file is
//! ignored. So a new field only needs a default. The fields that every record must have are
//! `schema`, `id`, `outcome`, `task` and `model`.
//!
//! Accuracies are fractions from 0 to 1, times are seconds, sizes are bytes.

mod assignment;
mod decisive;
mod dense;
mod finite;
mod measured;
mod outcome;
mod possible;
mod pretraining;
mod provenance;
mod setting;
mod started_from;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::assignment::canonical;
pub(crate) use self::assignment::read as assignments;
pub use self::decisive::{Batching, Split};
pub use self::dense::{Dense, DenseGroup};
pub use self::measured::{
    Baseline, MAJORITY, Memory, Phases, Scores, Speed, Spread, number, numbers,
};
pub use self::outcome::Outcome;
pub(crate) use self::outcome::first_line;
pub use self::pretraining::Pretraining;
pub use self::provenance::{Host, Provenance, Revision, SEVERAL, Versions};
pub use self::setting::{Model, OwnCode, Recipe, Rows, Task};
pub use self::started_from::StartedFrom;

/// The version written into new records. It grows when the meaning of a field changes, not when one
/// is added.
pub const SCHEMA: u32 = 1;

/// The record of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// [`SCHEMA`] of the program that wrote the record.
    pub schema: u32,
    /// The run's id, which is also the name of its folder.
    pub id: String,
    /// Outcome of the run.
    pub outcome: Outcome,
    /// The task that was learned.
    pub task: Task,
    /// The model that learned it.
    pub model: Model,
    /// The recipe of the training.
    #[serde(default)]
    pub recipe: Recipe,
    /// The seed of parameters, batches and dropout.
    #[serde(default)]
    pub seed: u64,
    /// The run whose weights this one started from; absent if it started from random weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<StartedFrom>,
    /// The pretraining; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pretraining: Option<Pretraining>,
    /// The scores; absent when the run ended before any was computed.
    #[serde(default)]
    pub scores: Option<Scores>,
    /// Scores of trivial predictors on the same test split.
    #[serde(default)]
    pub baselines: Vec<Baseline>,
    /// Speed of the training; absent when too few steps were timed.
    #[serde(default)]
    pub speed: Option<Speed>,
    /// Memory of the run.
    #[serde(default)]
    pub memory: Option<Memory>,
    /// Origin of the figures.
    #[serde(flatten)]
    pub provenance: Provenance,
}

impl Record {
    /// Returns the accuracy of the majority baseline, if the record has it.
    pub fn majority(&self) -> Option<f64> {
        self.baselines
            .iter()
            .find(|baseline| baseline.name == MAJORITY)
            .map(|baseline| baseline.accuracy)
    }

    /// Returns the changes that were accepted on the way, in words: the run began with other data,
    /// another program or other instructions than it ended with, so that its score is that of
    /// neither. `None` if there are none.
    pub fn changed_on_the_way(&self) -> Option<String> {
        let accepted = &self.provenance.accepted_changes;
        (!accepted.is_empty()).then(|| accepted.join("; "))
    }

    /// Returns the weight of a run among those of its cell and seed: a scored run supersedes an
    /// unscored one, a later one an earlier one.
    pub(crate) fn weight(&self) -> (bool, &str, &str) {
        let scored = self.outcome == Outcome::Scored;
        (scored, &self.provenance.created, &self.id)
    }

    /// Returns the accuracy on the test split, if it was scored.
    pub fn test_accuracy(&self) -> Option<f64> {
        self.scores.as_ref().and_then(|scores| scores.test_accuracy)
    }

    /// Returns the scores on labelled positions of the test split, unless a figure is damaged.
    pub(crate) fn test_dense(&self) -> Option<&Dense> {
        let scores = self.scores.as_ref()?;
        scores.test_dense.as_ref().filter(|dense| dense.is_finite())
    }
}
