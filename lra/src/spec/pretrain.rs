//! Self-pretraining on the same inputs, before training.

use models::Objective;
use models::prelude::Options;
use serde::{Deserialize, Serialize};

use super::TrainOptions;
use super::train::{LARGEST_BATCH, MANY};

/// Objective of a self-pretraining.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PretrainKind {
    /// No pretraining.
    #[default]
    None,
    /// Prediction of masked tokens.
    Masked,
    /// Prediction of the next token; for causal models.
    Next,
}

/// Self-pretraining, with its own optimizer and schedule. All other settings are those of the
/// section `train`.
#[derive(Clone, Debug, Options, PartialEq, Serialize, Deserialize)]
#[options(crate = models)]
#[serde(deny_unknown_fields)]
pub struct PretrainOptions {
    /// Objective.
    pub kind: PretrainKind,
    /// Fraction of tokens that `masked` hides; 0 means the fraction published for the task.
    #[option(range = probability)]
    pub share: f64,
    /// Updates; 0 means `train.steps`.
    #[option(range = int(0, MANY))]
    pub steps: usize,
    /// Examples per update; 0 means `train.batch`.
    #[option(range = int(0, LARGEST_BATCH))]
    pub batch: usize,
    /// Base learning rate; 0 means `train.learning_rate`.
    #[option(range = not_negative)]
    pub learning_rate: f64,
}

impl PretrainOptions {
    /// Returns whether there is no pretraining.
    pub fn is_off(&self) -> bool {
        self.kind == PretrainKind::None
    }

    /// Returns these options with derived values filled in; the default options if there is no
    /// pretraining.
    pub(super) fn settled(self, train: &TrainOptions, mask_ratio: f64) -> Self {
        if self.is_off() {
            return Self::default();
        }
        Self {
            kind: self.kind,
            share: match (self.kind, self.share) {
                (PretrainKind::Masked, 0.0) => mask_ratio,
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

    /// Returns the objective of the model; `None` if there is no pretraining.
    pub fn objective(&self) -> Option<Objective> {
        match self.kind {
            PretrainKind::None => None,
            PretrainKind::Masked => Some(Objective::Masked { share: self.share }),
            PretrainKind::Next => Some(Objective::Next),
        }
    }

    /// Returns the options of its updates, derived from those of `train`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;

    /// 40 updates, before 100 of training whose schedule is planned for 70.
    #[test]
    fn a_pretraining_has_a_schedule_of_its_own_length() {
        let train = TrainOptions {
            steps: 100,
            schedule: Schedule::Linear,
            schedule_steps: 70,
            warmup: 10,
            learning_rate: 1.0,
            ..TrainOptions::default()
        };
        let pretrain = PretrainOptions {
            kind: PretrainKind::Masked,
            share: 0.5,
            steps: 40,
            batch: 3,
            learning_rate: 0.25,
        };
        let own = pretrain.training(&train);
        for (done, rate, rate_of_training) in [
            (0, 0.0, 0.0),
            (10, 0.25, 1.0),
            (25, 0.125, 0.75),
            (40, 0.0, 0.5),
        ] {
            assert_eq!(own.rate(done), rate, "{done}");
            assert_eq!(train.rate(done), rate_of_training, "{done}");
        }
        assert_eq!((own.steps, own.batch, own.warmup), (40, 3, 10));
    }
}
