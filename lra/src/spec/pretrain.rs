//! What is learned before training, from the same inputs.

use models::Objective;
use models::options::Range;
use serde::{Deserialize, Serialize};

use super::TrainOptions;
use super::train::{LARGEST_BATCH, MANY};

/// What a self-pretraining predicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PretrainKind {
    /// Nothing: there is none.
    #[default]
    None,
    /// Tokens that are hidden.
    Masked,
    /// The token after each; for causal models.
    Next,
}

/// Self-pretraining, with an optimizer and a run through the schedule of its own. What is not here is as in the section `train`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainOptions {
    /// What is predicted.
    pub kind: PretrainKind,
    /// The share of tokens that `masked` hides; 0 means what was published for the task.
    pub share: f64,
    /// Updates; 0 means `train.steps`.
    pub steps: usize,
    /// Examples per update; 0 means `train.batch`.
    pub batch: usize,
    /// Base learning rate; 0 means `train.learning_rate`.
    pub learning_rate: f64,
}

impl PretrainOptions {
    /// The ranges of its numbers.
    pub const RANGES: &[Range] = &[
        Range::probability("share"),
        Range::int("steps", 0, MANY),
        Range::int("batch", 0, LARGEST_BATCH),
        Range::not_negative("learning_rate"),
    ];

    /// Whether there is none.
    pub fn is_off(&self) -> bool {
        self.kind == PretrainKind::None
    }

    /// The same with numbers for what is derived; nothing but the default where there is none.
    pub(super) fn settled(self, train: &TrainOptions, hidden_share: f64) -> Self {
        if self.is_off() {
            return Self::default();
        }
        Self {
            kind: self.kind,
            share: match (self.kind, self.share) {
                (PretrainKind::Masked, 0.0) => hidden_share,
                (PretrainKind::Masked, share) => share,
                _ => 0.0,
            },
            steps: match self.steps {
                0 => train.steps,
                steps => steps,
            },
            batch: match self.batch {
                0 => train.batch,
                batch => batch,
            },
            learning_rate: match self.learning_rate {
                0.0 => train.learning_rate,
                rate => rate,
            },
        }
    }

    /// What the model is to predict; none where there is no pretraining.
    pub fn objective(&self) -> Option<Objective> {
        match self.kind {
            PretrainKind::None => None,
            PretrainKind::Masked => Some(Objective::Masked { share: self.share }),
            PretrainKind::Next => Some(Objective::Next),
        }
    }

    /// How its updates are made, beside those of `train`.
    pub fn training(&self, train: &TrainOptions) -> TrainOptions {
        TrainOptions {
            steps: self.steps,
            batch: self.batch,
            micro_batch: train.micro_batch.min(self.batch),
            learning_rate: self.learning_rate,
            schedule_steps: 0,
            ..train.clone()
        }
    }
}
