//! Measurements of a run: scores, speed and memory.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Dense, Record};

/// Scores of a run. A number is absent if the run ended before it was computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Scores {
    /// Accuracy on the test split at the checkpoint chosen by validation.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
    /// Mean cross-entropy on the test split, in nats.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    pub test_loss: Option<f64>,
    /// Accuracy on the validation split at the chosen checkpoint.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    pub val_accuracy: Option<f64>,
    /// Mean cross-entropy on the validation split at the chosen checkpoint, in nats.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    pub val_loss: Option<f64>,
    /// Scores on the labels at positions of the test split; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_dense: Option<Dense>,
    /// The labels at positions of the validation split, at the chosen checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_dense: Option<Dense>,
    /// The last smoothed training loss, in nats.
    #[serde(deserialize_with = "written", skip_serializing_if = "Option::is_none")]
    pub train_loss: Option<f64>,
    /// The step of the chosen checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_step: Option<u64>,
    /// Optimizer steps taken.
    pub steps: u64,
    /// Training examples seen.
    pub examples_seen: u64,
    /// Number of times that the validation split was scored.
    pub evaluations: u64,
    /// Mean cross-entropy on the validation split, in nats, of always predicting the class shares
    /// of the training split. If positions have labels, it covers all labels, weighted like
    /// `weighted_loss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prior_loss: Option<f64>,
    /// The fraction of `prior_loss` that the model's predictions save, from 0 to 1: the mean over
    /// all evaluations on the validation split and the final score on the test split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_gained: Option<f64>,
}

impl Scores {
    /// Relative distance below the prior's loss from which a run counts as trained.
    const TRAINED: f64 = 0.02;

    /// Returns whether the final loss is more than 2 % below the prior's; `None` for records
    /// without these losses.
    #[must_use]
    pub fn trained(&self) -> Option<bool> {
        let weighted = self.test_dense.as_ref().map(|dense| dense.weighted_loss);
        let (prior, loss) = (self.prior_loss?, weighted.or(self.test_loss)?);
        Some(loss < (1.0 - Self::TRAINED) * prior)
    }

    /// Returns what is computed from accuracies and losses, and the counts; NaN stands for what is
    /// absent.
    pub(crate) fn further(&self) -> [f64; 6] {
        [
            self.bits_gained.unwrap_or(f64::NAN),
            self.prior_loss.unwrap_or(f64::NAN),
            self.best_step.map_or(f64::NAN, |step| step as f64),
            self.steps as f64,
            self.examples_seen as f64,
            self.evaluations as f64,
        ]
    }

    /// Returns the validation accuracy that selects settings: of all labels if positions have
    /// labels.
    #[must_use]
    pub fn deciding_accuracy(&self) -> Option<f64> {
        let dense = self.val_dense.as_ref();
        dense.map(|it| it.weighted_accuracy).or(self.val_accuracy)
    }

    /// Returns the validation loss that selects learning rates: of all labels if positions have
    /// labels.
    #[must_use]
    pub fn deciding_loss(&self) -> Option<f64> {
        let dense = self.val_dense.as_ref();
        dense.map(|it| it.weighted_loss).or(self.val_loss)
    }
}

/// A predictor that needs no model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Baseline {
    /// Its name, such as `majority`, `first token`, `bag of tokens`.
    pub name: String,
    /// Its accuracy on the test split.
    #[serde(deserialize_with = "number")]
    pub accuracy: f64,
}

impl Baseline {
    /// Returns the most accurate of several; `None` if there are none with a known accuracy.
    pub(crate) fn best<'a>(all: impl IntoIterator<Item = &'a Baseline>) -> Option<&'a Baseline> {
        let known = all.into_iter().filter(|it| it.accuracy.is_finite());
        known.max_by(|a, b| a.accuracy.total_cmp(&b.accuracy))
    }

    /// Returns the baselines of a data set as the newest of its runs measured them. Other builds of
    /// the program may measure others.
    pub(crate) fn of_data<'a>(runs: impl IntoIterator<Item = &'a Record>) -> &'a [Baseline] {
        let measured = runs.into_iter().filter(|run| !run.baselines.is_empty());
        let newest = measured.max_by_key(|run| (&run.provenance.created, &run.id));
        newest.map_or(&[], |run| &run.baselines)
    }

    /// Returns which accuracy of a predictor [`Baseline::of_data`] returns for these runs, in words
    /// to put behind its name; empty if they all have the same.
    pub(crate) fn which<'a>(runs: impl IntoIterator<Item = &'a Record>, name: &str) -> String {
        let all = runs.into_iter().flat_map(|run| &run.baselines);
        let own = all.filter(|it| it.name == name && it.accuracy.is_finite());
        let values: BTreeSet<u64> = own.map(|it| it.accuracy.to_bits()).collect();
        match values.len() {
            0 | 1 => String::new(),
            count => format!(" (the newest of {count} values)"),
        }
    }

    /// Returns the baseline with its name of today: `every 2th training row` of older versions is
    /// `one training row in 2`.
    pub(super) fn renamed(self) -> Baseline {
        let parts = self.name.split_once(" (every ").and_then(|(rule, rest)| {
            let step: usize = rest.strip_suffix("th training row)")?.parse().ok()?;
            Some(format!("{rule} (one training row in {step})"))
        });
        Baseline {
            name: parts.unwrap_or(self.name),
            ..self
        }
    }
}

/// The baseline that always answers with the most frequent class of the training split.
pub const MAJORITY: &str = "majority";

/// A distribution in three numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Spread {
    /// The median.
    #[serde(deserialize_with = "number")]
    pub median: f64,
    /// The 10th percentile.
    #[serde(deserialize_with = "number")]
    pub p10: f64,
    /// The 90th percentile.
    #[serde(deserialize_with = "number")]
    pub p90: f64,
}

/// Speed of training steps: transfer, forward, backward and update, after warm-up, device
/// synchronised at both ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Speed {
    /// Optimizer steps per second, over the timed steps.
    pub steps_per_second: Spread,
    /// Training examples per second, at the median.
    #[serde(deserialize_with = "number")]
    pub examples_per_second: f64,
    /// Tokens per second at the median, padding included.
    #[serde(deserialize_with = "number")]
    pub tokens_per_second: f64,
    /// Floating point operations of one step by formula, padding included; a multiply-add counts as
    /// two.
    pub flops_per_step: u64,
    /// `flops_per_step` times the median steps per second. Kernels skip padding, so on padded data
    /// this can exceed the peak of the device.
    #[serde(deserialize_with = "number")]
    pub achieved_flops_per_second: f64,
    /// Steps that were timed.
    pub timed_steps: u64,
    /// Steps before them that were not timed.
    pub warmup_steps: u64,
    /// Time of the timed steps by phase.
    pub phases: Phases,
    /// Fraction of the timed steps' time, 0 to 1, outside the four phases: the overhead of the
    /// harness. NaN, `null` in JSON, on a GPU, whose phases are not timed.
    #[serde(deserialize_with = "number")]
    pub overhead_share: f64,
    /// Total seconds of training steps, warm-up included.
    #[serde(deserialize_with = "number")]
    pub training_seconds: f64,
    /// Seconds from the start of the run to its record.
    #[serde(deserialize_with = "number")]
    pub wall_seconds: f64,
}

/// Seconds per phase, summed over the timed steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Phases {
    /// From rows to tensors on the device.
    #[serde(deserialize_with = "number")]
    pub transfer: f64,
    /// Logits and loss.
    #[serde(deserialize_with = "number")]
    pub forward: f64,
    /// Gradients.
    #[serde(deserialize_with = "number")]
    pub backward: f64,
    /// Clipping and update.
    #[serde(deserialize_with = "number")]
    pub optimizer: f64,
}

/// Peak memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Memory {
    /// The high-water mark shown in memory tables, above the base.
    pub peak_bytes: u64,
    /// Bytes that the process held before it built the model, mostly buffers whose size depends on
    /// the processor and the number of threads. 0, and not written, if the method does not subtract
    /// them.
    #[serde(skip_serializing_if = "is_zero")]
    pub base_bytes: u64,
    /// The process's resident size at its highest.
    pub resident_bytes: u64,
    /// Method by which `peak_bytes` was measured, such as `live heap bytes since the start,
    /// counting allocator`. Figures of different methods are not compared.
    pub method: String,
    /// Peak of the memory in use according to the device's driver, other programs included; on GPUs
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_bytes: Option<u64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Speed {
    /// Returns whether every figure is finite, but for the overhead, which may be unknown.
    pub fn is_finite(&self) -> bool {
        let (rate, phases) = (self.steps_per_second, self.phases);
        [
            rate.median,
            rate.p10,
            rate.p90,
            self.examples_per_second,
            self.tokens_per_second,
            self.achieved_flops_per_second,
            phases.transfer,
            phases.forward,
            phases.backward,
            phases.optimizer,
            self.training_seconds,
            self.wall_seconds,
        ]
        .iter()
        .all(|figure| figure.is_finite())
    }
}

/// Reads a number that is present. JSON has no NaN, and `serde_json` writes `null` instead, which
/// is read back as NaN, distinct from an absent number.
pub(super) fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    number(deserializer).map(Some)
}

/// Reads a number. JSON has no NaN, and `serde_json` writes `null` instead, which is read back as
/// NaN, so that one undefined figure does not invalidate the record.
pub fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Reads numbers by name, as [`number`] does.
pub fn numbers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, f64>, D::Error> {
    let read = BTreeMap::<String, Option<f64>>::deserialize(deserializer)?;
    let numbers = read.into_iter();
    Ok(numbers
        .map(|(name, number)| (name, number.unwrap_or(f64::NAN)))
        .collect())
}
