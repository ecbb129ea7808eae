//! Optimisation and evaluation.

use std::collections::BTreeMap;
use std::fmt;

use models::prelude::Options;
use serde::{Deserialize, Serialize};

use super::ParameterGroup;
use crate::error::{Error, Result};
use crate::schedule::{self, Schedule};

/// Choice of the weights that are scored on the test split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Select {
    /// Weights of the evaluation with the best validation accuracy (the earliest if several are
    /// equal).
    Best,
    /// Weights of the last step, as in the 2021 trainers.
    Last,
}

/// Precision of matrix products. Everything else is computed in 32-bit floating point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 32-bit floating point.
    F32,
    /// NVIDIA's tensor cores: products of numbers rounded to 10 fraction bits, summed in 32-bit.
    Tf32,
    /// Products of numbers rounded to bfloat16, with 7 fraction bits, summed in 32-bit; on the CPU
    /// by AMX or AVX512-BF16 if present. Weights and their moments stay 32-bit, and so does
    /// everything between products.
    Bf16,
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
        })
    }
}

/// Optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay.
    #[default]
    Adamw,
    /// Sign of a momentum, with decoupled weight decay.
    Lion,
}

impl OptimizerKind {
    /// Returns whether it is the default.
    #[allow(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde hands over references"
    )]
    fn is_default(&self) -> bool {
        *self == OptimizerKind::default()
    }
}

/// Parameters that weight decay applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// Every parameter, as in the 2021 code.
    All,
    /// Matrices only: not biases and norms, embeddings, positions and the CLS vector.
    Matrices,
}

/// Optimisation and evaluation. Lengths are counted in updates (steps) unless said otherwise.
#[derive(Clone, Debug, PartialEq, Options, Serialize, Deserialize)]
#[options(crate = models)]
#[serde(deny_unknown_fields)]
pub struct TrainOptions {
    /// Updates in the whole run.
    #[option(default = 1000, range = int(1, MANY))]
    pub steps: usize,
    /// Examples per update.
    #[option(default = 32, range = int(1, LARGEST_BATCH))]
    pub batch: usize,
    /// Examples per forward pass; the gradients of a batch are accumulated. 0 means the whole batch
    /// at once.
    #[option(range = int(0, LARGEST_BATCH))]
    pub micro_batch: usize,
    /// Number of batches whose examples are sorted by length before they are split, to reduce
    /// padding; each batch is as long as its longest sequence. 1: batches are not sorted, and each
    /// is as long as its longest sequence, which suits BatchNorm, since sorted batches have biased
    /// statistics. 0: every sequence is padded to the task's longest, as in the 2021 code.
    #[option(range = int(0, LARGEST_BATCH))]
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bucket: usize,
    /// Base learning rate, scaled by the schedule. Some saved settings call it `rate`.
    #[option(default = 1e-3, range = not_negative)]
    #[serde(alias = "rate")]
    pub learning_rate: f64,
    /// Schedule of the learning rate.
    #[option(default = Schedule::Cosine)]
    pub schedule: Schedule,
    /// Lowers β1 from 0.95 to 0.85 while the rate of `one_cycle` rises, and raises it again while the
    /// rate falls, as in PyTorch's `OneCycleLR` by default. `beta1` then has no effect.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cycle_momentum: bool,
    /// Planned length of the schedule in updates, warm-up included. 0 means the length of the run,
    /// which is also the value if the number of updates is set and this is not. A cosine rises
    /// again after it.
    #[option(range = int(0, MANY))]
    #[serde(default, skip_serializing_if = "is_zero")]
    pub schedule_steps: usize,
    /// Optimizer.
    #[serde(default, skip_serializing_if = "OptimizerKind::is_default")]
    pub optimizer: OptimizerKind,
    /// Updates of linear warm-up.
    #[option(default = 100, range = int(0, MANY))]
    pub warmup: usize,
    /// Decoupled weight decay, multiplied by the scheduled rate.
    #[option(default = 0.01, range = not_negative)]
    pub weight_decay: f64,
    /// Parameters that decay.
    #[option(default = Decay::Matrices)]
    pub decay: Decay,
    /// Decay of the first moment; for Lion, the weight of the momentum in the direction of an
    /// update.
    #[option(default = 0.9, range = probability)]
    pub beta1: f64,
    /// Decay of the second moment; for Lion, of the momentum.
    #[option(default = 0.98, range = probability)]
    pub beta2: f64,
    /// Number added to the square root of the second moment, more than 0; Lion has none.
    #[option(default = 1e-9, range = not_negative)]
    pub epsilon: f64,
    /// Largest global L2 norm of the gradient; 0 means no clipping.
    #[option(default = 1.0, range = not_negative)]
    pub clip: f64,
    /// Updates between evaluations on the validation split; 0 means only at the end.
    #[option(default = 100, range = int(0, MANY))]
    pub eval_every: usize,
    /// Validation examples scored at each evaluation; 0 means all of them.
    #[option(range = int(0, MANY))]
    pub eval_examples: usize,
    /// Choice of the weights that the test split is scored with.
    #[option(default = Select::Best)]
    pub select: Select,
    /// Precision of matrix products, as `--precision` sets it.
    #[option(default = Precision::F32)]
    pub precision: Precision,
    /// Updates between checkpoints; 0 means at each evaluation.
    #[option(range = int(0, MANY))]
    pub checkpoint_every: usize,
    /// Updates between lines of the metrics log.
    #[option(default = 10, range = int(1, MANY))]
    pub log_every: usize,
    /// Updates whose times are left out of the speed figures.
    #[option(default = 5, range = int(0, MANY))]
    pub speed_warmup: usize,
    /// Weights of the losses that the model adds to the cross-entropy, by name; 0 leaves one out of
    /// training. Only names that the model has are accepted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub aux: BTreeMap<String, f64>,
    /// Number of labelled positions that the label of a whole sequence counts as, if single
    /// positions have labels too (`data.dense`).
    #[option(default = sequence_weight(), range = positive(MANY as f64))]
    #[serde(
        default = "sequence_weight",
        skip_serializing_if = "is_sequence_weight"
    )]
    pub sequence_weight: f64,
    /// Parameters with their own learning rate or weight decay. If several groups have a parameter,
    /// the first one counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ParameterGroup>,
}

/// Returns whether a setting is off.
#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over references"
)]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over references"
)]
fn is_false(setting: &bool) -> bool {
    !*setting
}

/// Returns the usual weight of a sequence's own label.
pub(super) fn sequence_weight() -> f64 {
    4.0
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over references"
)]
fn is_sequence_weight(weight: &f64) -> bool {
    *weight == sequence_weight()
}

/// Upper bound for updates, examples of a split and similar counts.
pub(super) const MANY: u64 = 1_000_000_000;
/// Most examples of a batch.
pub(super) const LARGEST_BATCH: u64 = 1 << 20;

impl TrainOptions {
    pub(super) fn check(&self) -> Result<()> {
        if self.cycle_momentum && self.schedule != Schedule::OneCycle {
            return Err(Error::usage(
                "train.cycle_momentum = true needs train.schedule = one_cycle: other schedules have no cycle",
            ));
        }
        if self.epsilon as f32 == 0.0 && self.optimizer == OptimizerKind::Adamw {
            return Err(Error::usage(format!(
                "train.epsilon = {:e} is out of range: more than 0 as a 32-bit number, because a weight without gradient would become 0 / 0",
                self.epsilon
            )));
        }
        if self.micro_batch > self.batch {
            let (micro, batch) = (self.micro_batch, self.batch);
            return Err(Error::usage(format!(
                "train.micro_batch = {micro} is out of range: at most train.batch = {batch}"
            )));
        }
        if self.schedule_steps > 0 && !self.schedule.has_length() {
            let planned = self.schedule_steps;
            return Err(Error::usage(format!(
                "train.schedule_steps = {planned}: the schedules constant and rsqrt have no length; use 0"
            )));
        }
        if self.schedule_steps > 0 && !self.schedule.outlasts(self.warmup, self.schedule_steps) {
            let (planned, warmup) = (self.schedule_steps, self.warmup);
            return Err(Error::usage(format!(
                "train.schedule_steps = {planned} is not more than train.warmup = {warmup}: after the warm-up no schedule is left"
            )));
        }
        for (name, weight) in &self.aux {
            if !(weight.is_finite() && *weight >= 0.0) {
                return Err(Error::usage(format!(
                    "train.aux.{name} = {weight} is out of range: a finite number, at least 0"
                )));
            }
        }
        for group in &self.groups {
            let name = &group.parameters;
            let numbers = [
                ("learning_rate", group.learning_rate),
                ("weight_decay", group.weight_decay),
            ];
            for (key, number) in numbers {
                if let Some(number) = number.filter(|x| !(x.is_finite() && *x >= 0.0)) {
                    return Err(Error::usage(format!(
                        "train.groups: {key} = {number} of '{name}' is out of range: a finite number, at least 0"
                    )));
                }
            }
            if group.learning_rate.is_some() && self.learning_rate == 0.0 {
                return Err(Error::usage(format!(
                    "train.groups: '{name}' has a learning rate of its own, but with train.learning_rate = 0 nothing is trained"
                )));
            }
        }
        Ok(())
    }

    /// Returns the rate of the update made after `done` others, for parameters without a rate of
    /// their own.
    pub fn rate(&self, done: usize) -> f64 {
        self.schedule
            .rate(self.learning_rate, done, self.warmup, self.planned())
    }

    /// Returns β1 of the update made after `done` others.
    pub fn beta1_at(&self, done: usize) -> f64 {
        match self.cycle_momentum {
            true => schedule::cycled_momentum(done, self.warmup, self.planned()),
            false => self.beta1,
        }
    }

    /// Returns the planned length of the schedule in updates.
    fn planned(&self) -> usize {
        match self.schedule_steps {
            0 => self.steps,
            planned => planned,
        }
    }

    /// Returns a remark if the warm-up takes the whole run.
    pub fn endless_warmup(&self) -> Option<String> {
        let (warmup, steps, rate) = (self.warmup, self.steps, self.learning_rate);
        if warmup == 0 || steps == 0 || self.schedule.outlasts(warmup, steps) {
            return None;
        }
        let shorter = steps / 10;
        // The highest rate of `rsqrt` depends on the warm-up.
        let (highest, with_rate) = match self.schedule {
            Schedule::Rsqrt => {
                let highest = rate / (warmup as f64).sqrt();
                let same = highest * (shorter.max(1) as f64).sqrt();
                let with_rate = format!(" --set train.learning_rate={same:.2e}");
                (format!("{highest:.2e}"), with_rate)
            }
            _ => (format!("{rate:e}"), String::new()),
        };
        Some(format!(
            "train.warmup = {warmup} is not less than train.steps = {steps}, so the learning rate never reaches {highest}; \
             `--set train.warmup={shorter}{with_rate}` shortens the warm-up"
        ))
    }

    /// Returns the number of examples per forward pass.
    pub fn forward_examples(&self) -> usize {
        if self.micro_batch == 0 {
            self.batch
        } else {
            self.micro_batch
        }
    }

    /// Returns the updates between evaluations; the last update is always followed by one.
    pub fn eval_period(&self) -> usize {
        if self.eval_every == 0 {
            self.steps
        } else {
            self.eval_every
        }
    }

    /// Returns the updates between checkpoints.
    pub fn checkpoint_period(&self) -> usize {
        if self.checkpoint_every == 0 {
            self.eval_period()
        } else {
            self.checkpoint_every
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(change: impl FnOnce(&mut TrainOptions)) -> TrainOptions {
        let mut options = TrainOptions::default();
        change(&mut options);
        options
    }

    #[test]
    fn settings_are_taken_up_to_their_borders_and_refused_beyond() {
        let group = |learning_rate, weight_decay| ParameterGroup {
            parameters: "*".to_owned(),
            learning_rate,
            weight_decay,
        };
        let ok: [fn(&mut TrainOptions); 6] = [
            |it| it.micro_batch = it.batch,
            |it| it.epsilon = 1e-40,
            |it| (it.epsilon, it.optimizer) = (0.0, OptimizerKind::Lion),
            |it| (it.schedule, it.cycle_momentum) = (Schedule::OneCycle, true),
            |it| (it.schedule, it.schedule_steps, it.warmup) = (Schedule::Linear, 7, 6),
            |it| (it.schedule, it.schedule_steps, it.warmup) = (Schedule::OneCycle, 7, 7),
        ];
        for (place, change) in ok.into_iter().enumerate() {
            assert!(options(change).check().is_ok(), "{place}");
        }
        type Change = fn(&mut TrainOptions);
        let wrong: [(&str, Change); 9] = [
            ("train.schedule_steps = 7 is not more", |it| {
                (it.schedule, it.schedule_steps, it.warmup) = (Schedule::Cosine, 7, 7);
            }),
            ("train.schedule_steps = 7 is not more", |it| {
                (it.schedule, it.schedule_steps, it.warmup) = (Schedule::OneCycle, 7, 8);
            }),
            ("train.micro_batch = 33", |it| it.micro_batch = it.batch + 1),
            ("train.epsilon = 1e-46", |it| it.epsilon = 1e-46),
            ("train.cycle_momentum", |it| it.cycle_momentum = true),
            ("train.schedule_steps = 7", |it| {
                (it.schedule, it.schedule_steps) = (Schedule::Constant, 7);
            }),
            ("train.schedule_steps = 7", |it| {
                (it.schedule, it.schedule_steps) = (Schedule::Rsqrt, 7);
            }),
            ("train.aux.a = -0.5", |it| {
                it.aux.insert("a".to_owned(), -0.5);
            }),
            ("train.aux.a = NaN", |it| {
                it.aux.insert("a".to_owned(), f64::NAN);
            }),
        ];
        for (words, change) in wrong {
            let error = options(change).check().unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
        for (words, base, group) in [
            ("learning_rate = -1 of '*'", 1.0, group(Some(-1.0), None)),
            ("weight_decay = -1 of '*'", 1.0, group(None, Some(-1.0))),
            (
                "weight_decay = inf of '*'",
                1.0,
                group(None, Some(f64::INFINITY)),
            ),
            ("nothing is trained", 0.0, group(Some(1.0), None)),
        ] {
            let of = |it: &mut TrainOptions| (it.learning_rate, it.groups) = (base, vec![group]);
            let error = options(of).check().unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
        let zeros = |it: &mut TrainOptions| it.groups = vec![group(Some(0.0), Some(0.0))];
        assert!(options(zeros).check().is_ok());
        let decay = group(None, Some(1.0));
        let fixed = |it: &mut TrainOptions| (it.learning_rate, it.groups) = (0.0, vec![decay]);
        assert!(options(fixed).check().is_ok());
    }

    #[test]
    fn periods_of_zero_are_those_of_the_next_larger_thing() {
        let periods = |eval_every, checkpoint_every| {
            let options = options(|it| {
                (it.steps, it.eval_every, it.checkpoint_every) = (70, eval_every, checkpoint_every);
            });
            (options.eval_period(), options.checkpoint_period())
        };
        assert_eq!(periods(0, 0), (70, 70));
        assert_eq!(periods(9, 0), (9, 9));
        assert_eq!(periods(9, 4), (9, 4));
        assert_eq!(periods(0, 4), (70, 4));
        let forward = |micro_batch| options(|it| it.micro_batch = micro_batch).forward_examples();
        assert_eq!((forward(0), forward(5)), (32, 5));
    }

    #[test]
    fn a_warm_up_that_never_ends_is_told() {
        let told = |warmup| {
            let options = options(|it| (it.steps, it.warmup) = (50, warmup));
            options.endless_warmup()
        };
        assert_eq!((told(0), told(49)), (None, None));
        for warmup in [50, 51] {
            let told = told(warmup).unwrap();
            assert!(told.contains("--set train.warmup=5"), "{told}");
        }
        // Its peak is at the last update of the warm-up.
        let told = |warmup| {
            let options = options(|it| {
                (it.steps, it.warmup, it.schedule) = (50, warmup, Schedule::OneCycle);
            });
            options.endless_warmup().is_some()
        };
        assert_eq!([49, 50, 51].map(told), [false, false, true]);
        // The highest rate is that of the warm-up, and a shorter one needs another base rate.
        let rsqrt = options(|it| {
            (it.steps, it.warmup, it.schedule) = (40, 400, Schedule::Rsqrt);
            it.learning_rate = 0.06;
        });
        let told = rsqrt.endless_warmup().unwrap();
        for words in [
            "never reaches 3.00e-3",
            "train.warmup=4 --set train.learning_rate=6.00e-3",
        ] {
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn rate_and_momentum_follow_the_planned_length() {
        let of = |schedule_steps| {
            options(|it| {
                (it.steps, it.warmup, it.schedule_steps) = (20, 5, schedule_steps);
                (it.schedule, it.cycle_momentum) = (Schedule::OneCycle, true);
                (it.learning_rate, it.beta1) = (2.0, 0.5);
            })
        };
        let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-12, "{found}");
        for (planned, middle) in [(0, 11.5_f64), (9, 6.0)] {
            let options = of(planned);
            close(options.rate(4), 2.0);
            close(options.beta1_at(4), 0.85);
            // Halfway down; between two updates the mean of both.
            let mean = |of: &dyn Fn(usize) -> f64| {
                let (low, high) = (middle.floor(), middle.ceil());
                0.5 * (of(low as usize) + of(high as usize))
            };
            close(mean(&|at| options.rate(at)), 1.0 + 4e-6);
            close(mean(&|at| options.beta1_at(at)), 0.9);
        }
        let mut plain = of(0);
        plain.cycle_momentum = false;
        assert_eq!(plain.beta1_at(4), 0.5);
    }
}
