//! Pretraining of a model.

use serde::{Deserialize, Serialize};

use super::measured::written;

/// A self-pretraining: tokens of the task's own training inputs were predicted first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pretraining {
    /// Tokens that were predicted: `masked` or `next`.
    pub kind: String,
    /// The share that was hidden; 0 for `next`.
    pub share: f64,
    /// Optimizer steps taken.
    pub steps: u64,
    /// Training examples seen.
    pub examples_seen: u64,
    /// The last smoothed training loss, in nats per predicted token.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    pub train_loss: Option<f64>,
    /// The loss on the validation split of the weights that were kept, those with the least.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    pub val_loss: Option<f64>,
    /// The share of tokens that these predicted rightly.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    pub val_accuracy: Option<f64>,
    /// The step they are of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_step: Option<u64>,
    /// Seconds that it took, evaluations and checkpoints included.
    pub wall_seconds: f64,
    /// High-water mark of memory in it, beyond what the process held before.
    pub peak_bytes: u64,
}
