//! Pretraining of a model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::measured::written;

/// Self-pretraining: predicting tokens of the task's own training inputs before training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Pretraining {
    /// Tokens that were predicted: `masked` or `next`.
    pub kind: String,
    /// The fraction of masked tokens; 0 for `next`.
    pub share: f64,
    /// Optimizer steps taken.
    pub steps: u64,
    /// Training examples seen.
    pub examples_seen: u64,
    /// The last smoothed training loss, in nats per predicted token.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    pub train_loss: Option<f64>,
    /// The lowest loss on the validation split, that of the weights that were kept.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    pub val_loss: Option<f64>,
    /// Their accuracy on the predicted tokens.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    pub val_accuracy: Option<f64>,
    /// Their step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_step: Option<u64>,
    /// Its duration in seconds, evaluations and checkpoints included.
    pub wall_seconds: f64,
    /// Its high-water mark of memory, above the memory that the process held before.
    pub peak_bytes: u64,
}
