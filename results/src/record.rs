//! One run, complete with its provenance: what `record.json` holds.
//!
//! The form in memory is the form on disk. Fields are written in the order they are declared in; a
//! field that an older file lacks takes its default, a field of a newer file that is unknown here is
//! passed over. So a new column needs a default and nothing else. What makes a file a record at all
//! (`schema`, `id`, `outcome`, `task`, `model`) must be there.
//!
//! Accuracies are fractions from 0 to 1, times are seconds, sizes are bytes.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// The version written into new records. It grows when the meaning of a field changes, not when one is added.
pub const SCHEMA: u32 = 1;

/// Everything that one run leaves for the tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`] of the program that wrote the record.
    pub schema: u32,
    /// The run's id, which is also the name of its folder.
    pub id: String,
    /// When the record was written, RFC 3339 in UTC.
    #[serde(default)]
    pub created: String,
    /// The command line that started the run.
    #[serde(default)]
    pub command: String,
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
    /// Digest of the frozen spec that the run followed.
    #[serde(default)]
    pub spec_digest: String,
    /// Number format of the training arithmetic, such as `f32`.
    #[serde(default)]
    pub precision: String,
    /// Where it ran, such as `cpu` or `cuda:0 NVIDIA H100`.
    #[serde(default)]
    pub device: String,
    /// CPU threads the run was allowed.
    #[serde(default)]
    pub threads: usize,
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
    /// The machine.
    #[serde(default)]
    pub host: Host,
    /// The programs.
    #[serde(default)]
    pub versions: Versions,
    /// The source code's commit, where it is known.
    #[serde(default)]
    pub revision: Option<Revision>,
}

/// How a run ended. On disk: an object tagged by `status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// The test split was scored.
    Scored,
    /// An error stopped it.
    Failed {
        /// The error.
        #[serde(default)]
        reason: String,
    },
    /// The loss became infinite or not a number.
    Diverged {
        /// The step at which it was noticed.
        #[serde(default)]
        step: u64,
        /// What was noticed.
        #[serde(default)]
        reason: String,
    },
    /// The memory did not suffice.
    OutOfMemory {
        /// What could not be allocated.
        #[serde(default)]
        reason: String,
    },
    /// A signal stopped it; it can be resumed.
    Interrupted {
        /// Steps taken until then.
        #[serde(default)]
        step: u64,
    },
    /// An ending that only a newer version has a name for.
    #[serde(other)]
    Unknown,
}

impl Outcome {
    /// Whether the same run would end the same way again. What was interrupted can go on, and so can what failed, once its
    /// cause (a full disk, too low a limit) is gone.
    pub fn is_final(&self) -> bool {
        match self {
            Outcome::Scored | Outcome::Diverged { .. } | Outcome::Unknown => true,
            Outcome::Failed { .. } | Outcome::OutOfMemory { .. } | Outcome::Interrupted { .. } => {
                false
            }
        }
    }

    /// The word that stands in a table's cell.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Scored => "scored",
            Outcome::Failed { .. } => "failed",
            Outcome::Diverged { .. } => "diverged",
            Outcome::OutOfMemory { .. } => "out of memory",
            Outcome::Interrupted { .. } => "interrupted",
            Outcome::Unknown => "unknown outcome",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Outcome::Scored | Outcome::Unknown => Ok(()),
            Outcome::Failed { reason } | Outcome::OutOfMemory { reason } => {
                write!(f, ": {}", first_line(reason))
            }
            Outcome::Diverged { step, reason } => write!(f, " at step {step}: {reason}"),
            Outcome::Interrupted { step } => write!(f, " at step {step}"),
        }
    }
}

/// What a table has room for. Records of older versions hold backtraces, too.
pub(crate) fn first_line(reason: &str) -> &str {
    reason.lines().next().unwrap_or_default()
}

/// The task and the data it was learned from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Task {
    /// Registry name, such as `listops`.
    pub name: String,
    /// The name as published, or with what was changed: `listops`, `listops@256`.
    pub label: String,
    /// `generated`, `official` or `synthetic`.
    pub source: String,
    /// `clean` or `tay2021`.
    pub protocol: String,
    /// Number of classes.
    pub classes: usize,
    /// Digest over the contents of the three splits.
    pub data_digest: String,
    /// Rows of each split.
    pub rows: Rows,
    /// Whether the splits hold only a part of the data that their source has.
    pub partial: bool,
    /// Which published facts about the data its contents contradict, a sentence each; empty where they hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub altered: Vec<String>,
}

impl Task {
    /// Whether the data is a stand-in of the task's shape; its scores say nothing about the task.
    pub fn synthetic(&self) -> bool {
        self.source == "synthetic"
    }

    /// Whether the data was found to be other than what was published under its name.
    pub fn altered(&self) -> bool {
        !self.altered.is_empty()
    }

    /// Whether scores on this data are scores on the task, whatever they may be compared with otherwise.
    pub fn genuine(&self) -> bool {
        !self.synthetic() && !self.altered()
    }

    /// The label, with what the reader must not miss: `image (synthetic)`, `text (altered)`.
    pub fn title(&self) -> String {
        let marks = [(self.synthetic(), "synthetic"), (self.altered(), "altered")];
        let marks: Vec<&str> = marks
            .into_iter()
            .filter_map(|(applies, mark)| applies.then_some(mark))
            .collect();
        match marks.is_empty() {
            true => self.label.clone(),
            false => format!("{} ({})", self.label, marks.join(", ")),
        }
    }
}

/// Rows per split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rows {
    /// Training rows.
    pub train: usize,
    /// Validation rows.
    pub val: usize,
    /// Test rows.
    pub test: usize,
}

/// The model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Model {
    /// Registry name, such as `performer`.
    pub name: String,
    /// Variant of the model; empty or `paper` for its default.
    pub variant: String,
    /// Trained parameters.
    pub parameters: u64,
    /// Whether padding is kept out of the model's mixing.
    pub masks_padding: bool,
}

impl Model {
    /// The variant, unless it is the default, what the model's paper says: records write that one as `paper` or leave it empty.
    pub fn departure(&self) -> Option<&str> {
        let variant = self.variant.as_str();
        (!matches!(variant, "" | "paper")).then_some(variant)
    }
}

/// The training recipe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recipe {
    /// Name, such as `laptop`.
    pub name: String,
    /// The paper or configuration file that it follows.
    pub source: String,
    /// Whether it is a published protocol in full, so that its scores may stand beside published ones.
    pub published: bool,
    /// What the command line changed, such as `train.steps=200`, under the present names of the settings.
    #[serde(deserialize_with = "overrides")]
    pub overrides: Vec<String>,
    /// Where this program, following the recipe, departs from what the recipe's source did, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub departures: Vec<String>,
}

/// What a run scored. Each number is absent when the run did not get there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scores {
    /// Accuracy on the test split, of the checkpoint that validation chose.
    pub test_accuracy: Option<f64>,
    /// Mean cross-entropy on the test split, in nats.
    pub test_loss: Option<f64>,
    /// Accuracy on the validation split at the chosen checkpoint.
    pub val_accuracy: Option<f64>,
    /// Mean cross-entropy on the validation split at the chosen checkpoint, in nats.
    pub val_loss: Option<f64>,
    /// The last smoothed training loss, in nats.
    pub train_loss: Option<f64>,
    /// The step of the chosen checkpoint.
    pub best_step: Option<u64>,
    /// Optimizer steps taken.
    pub steps: u64,
    /// Training examples seen.
    pub examples_seen: u64,
    /// How often the validation split was scored.
    pub evaluations: u64,
}

/// A predictor that needs no model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Baseline {
    /// Its name, such as `majority`, `first token`, `bag of tokens`.
    pub name: String,
    /// Its accuracy on the test split.
    #[serde(deserialize_with = "number")]
    pub accuracy: f64,
}

/// The baseline that always answers with the most frequent class of the training split.
pub const MAJORITY: &str = "majority";

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

/// A distribution in three numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    /// The middle.
    #[serde(deserialize_with = "number")]
    pub median: f64,
    /// One tenth lies below.
    #[serde(deserialize_with = "number")]
    pub p10: f64,
    /// One tenth lies above.
    #[serde(deserialize_with = "number")]
    pub p90: f64,
}

/// Speed of training steps: transfer, forward, backward and update, after warm-up, device synchronised at both ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Floating point operations of one step by formula, padding included; a multiply-add counts as two.
    pub flops_per_step: u64,
    /// `flops_per_step` times the median steps per second. Kernels pass over padding, so on padded data this can be more than
    /// the device can do.
    #[serde(deserialize_with = "number")]
    pub achieved_flops_per_second: f64,
    /// Steps that were timed.
    pub timed_steps: u64,
    /// Steps before them that were not.
    pub warmup_steps: u64,
    /// Where the time of the timed steps went.
    pub phases: Phases,
    /// Share of the timed steps' time, 0 to 1, that is none of the four phases: the harness's own.
    #[serde(deserialize_with = "number")]
    pub overhead_share: f64,
    /// Seconds in training steps altogether, warm-up included.
    #[serde(deserialize_with = "number")]
    pub training_seconds: f64,
    /// Seconds from the start of the run to its record.
    #[serde(deserialize_with = "number")]
    pub wall_seconds: f64,
}

/// Seconds per phase, summed over the timed steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// Memory at its highest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// The high-water mark that the memory tables show, beyond the base.
    pub peak_bytes: u64,
    /// What the process held before it built the model, mostly buffers whose size depends on the processor and on the
    /// number of threads; 0, and not written, where the method does not take it off.
    #[serde(skip_serializing_if = "is_zero")]
    pub base_bytes: u64,
    /// The process's resident size at its highest.
    pub resident_bytes: u64,
    /// How `peak_bytes` was measured, such as `live heap bytes since the start, counting allocator`.
    /// Figures of different methods are not compared.
    pub method: String,
    /// What the device's driver said was in use at most, other programs included; on GPUs only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_bytes: Option<u64>,
}

/// The machine a run took place on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Name of the processor.
    pub cpu: String,
    /// The vector instructions that kernels ran on, such as `AVX-512`, `AVX2` or `portable (aarch64)`. They decide how sums are
    /// rounded: only runs on the same ones agree bit for bit. Empty where it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// Logical cores.
    pub cores: usize,
    /// Memory that the run might use: the machine's, or what its container or `ulimit` left of it.
    pub memory_bytes: u64,
    /// Operating system and its version.
    pub os: String,
    /// Name of the accelerator, empty on CPU.
    pub device: String,
    /// Version of its driver, empty on CPU.
    pub driver: String,
}

/// Versions of the programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Versions {
    /// This harness.
    pub lra: String,
    /// The tensor library.
    pub candle: String,
    /// The compiler.
    pub rustc: String,
}

/// State of the source code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Revision {
    /// Git commit.
    pub commit: String,
    /// Whether files differed from it.
    pub dirty: bool,
}

/// Settings that were renamed: their names in earlier versions, and those since. Records, saved settings, recipes and command
/// lines may use either.
pub const FORMER_SETTINGS: &[(&str, &str)] = &[("train.rate", "train.learning_rate")];

/// An assignment `key=value` to a setting, under the setting's present name.
pub fn current_assignment(text: &str) -> String {
    let renamed = text.split_once('=').and_then(|(key, value)| {
        let mut renamed = FORMER_SETTINGS.iter();
        let (_, current) = renamed.find(|(former, _)| *former == key.trim())?;
        Some(format!("{current}={value}"))
    });
    renamed.unwrap_or_else(|| text.to_owned())
}

fn overrides<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let overrides = Vec::<String>::deserialize(deserializer)?;
    Ok(overrides
        .iter()
        .map(|text| current_assignment(text))
        .collect())
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// JSON has no word for "not a number" and `serde_json` writes `null` instead: it is read back as what it was,
/// so that one undefined figure never costs the whole record.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_read_under_the_present_names_of_settings() {
        let text = r#"{"overrides": ["train.rate=0.1", "train.steps=2", "model.rate=1"]}"#;
        let recipe: Recipe = serde_json::from_str(text).unwrap();
        let present = ["train.learning_rate=0.1", "train.steps=2", "model.rate=1"];
        assert_eq!(recipe.overrides, present);
        let again: Recipe = serde_json::from_str(&serde_json::to_string(&recipe).unwrap()).unwrap();
        assert_eq!(again, recipe);
    }
}
