//! Scores of a run on labels at positions, in addition to the labels of whole sequences.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::number;

/// Scores of the labels at the positions of one split.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Dense {
    /// Labels scored.
    pub labels: u64,
    /// Fraction of correct predictions.
    #[serde(deserialize_with = "number")]
    pub accuracy: f64,
    /// Their mean cross-entropy, in nats.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// The mean over examples of the fraction of correct predictions, where the label of the whole
    /// example counts as `train.sequence_weight` positions.
    #[serde(deserialize_with = "number")]
    pub weighted_accuracy: f64,
    /// The mean over examples of their cross-entropies with the same weights, in nats: the loss
    /// that training minimises.
    #[serde(deserialize_with = "number")]
    pub weighted_loss: f64,
    /// Scores by group, without the groups that have no label.
    pub groups: Vec<DenseGroup>,
}

/// The scores of one group of labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DenseGroup {
    /// Its name, such as `depth 2`.
    pub name: String,
    /// Labels scored.
    pub labels: u64,
    /// Fraction of correct predictions.
    #[serde(deserialize_with = "number")]
    pub accuracy: f64,
    /// Their mean cross-entropy, in nats.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Accuracy of always predicting the group's most frequent class of the training split; only on
    /// the test split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub majority: Option<f64>,
}

impl Dense {
    /// Returns whether losses and accuracies are finite.
    pub fn is_finite(&self) -> bool {
        let of_groups = self.groups.iter().flat_map(|it| [it.accuracy, it.loss]);
        let all = [
            self.accuracy,
            self.loss,
            self.weighted_accuracy,
            self.weighted_loss,
        ];
        all.into_iter().chain(of_groups).all(f64::is_finite)
    }
}
