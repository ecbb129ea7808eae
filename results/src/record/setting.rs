//! Setting of a run: the task with its data, the model, the recipe with its overrides.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Batching, Revision, assignment};

/// The task and the data it was learned from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Task {
    /// Registry name, such as `listops`.
    pub name: String,
    /// The published name, or the name with the changes: `listops`, `listops@256`.
    pub label: String,
    /// `generated`, `official`, `synthetic` or `folder`.
    pub source: String,
    /// `clean` or `tay2021`.
    pub protocol: String,
    /// Number of classes.
    pub classes: usize,
    /// True if the task is a probe, which is a part of no score over tasks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub probe: bool,
    /// Digest over the contents of the three splits.
    pub data_digest: String,
    /// Rows of each split.
    pub rows: Rows,
    /// True if the splits hold only a part of the data of their source.
    pub partial: bool,
    /// Published facts that the data contradicts, a sentence each; empty if all facts hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub altered: Vec<String>,
    /// Origin of a user's own task; absent for a task of the arena, and for a folder, whose files
    /// are told apart by `data_digest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnCode>,
}

impl Task {
    /// Returns whether the data is synthetic, with only the shape of the task's; its scores say
    /// nothing about the task.
    pub fn synthetic(&self) -> bool {
        self.source == "synthetic"
    }

    /// Returns whether the data was found to differ from the data published under its name.
    pub fn altered(&self) -> bool {
        !self.altered.is_empty()
    }

    /// Returns whether scores on this data are scores on the task, regardless of other conditions
    /// of a comparison.
    pub fn genuine(&self) -> bool {
        !self.synthetic() && !self.altered()
    }

    /// Returns the label with its important marks: `image (synthetic)`, `text (partial)`.
    pub fn title(&self) -> String {
        let marks = [
            (self.synthetic(), "synthetic"),
            (self.partial, "partial"),
            (self.altered(), "altered"),
        ];
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Model {
    /// Registry name, such as `performer`.
    pub name: String,
    /// Variant of the model.
    pub variant: String,
    /// True if the variant is the model's default. Older records do not say; there `paper` and the
    /// empty name are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_variant: Option<bool>,
    /// Trained parameters.
    pub parameters: u64,
    /// True if the model masks padding.
    pub masks_padding: bool,
    /// Breach of the benchmark's rules by the model, in words. Its scores are not compared with
    /// others.
    #[serde(alias = "against_rules", skip_serializing_if = "Option::is_none")]
    pub rule_violation: Option<String>,
    /// The family whose block the recipe gave it; absent if the recipe gives all models the same
    /// block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Origin of a user's own model; absent for a model of the registry, whose source is the
    /// program's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnCode>,
    /// Source lines of a user's own model with matrix products whose operands are not rounded in
    /// `bf16`, unlike all others; empty if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unrounded: Vec<String>,
}

/// The code of a user's own model or task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OwnCode {
    /// SHA-256 of its source files; of a model, those of its variants.
    pub source: String,
    /// Name of the program that contains it; by default that of its crate.
    pub program: String,
    /// SHA-256 of the program file, which contains all code of the crate.
    pub program_digest: String,
    /// Name of the crate; empty if the program does not name it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub crate_name: String,
    /// Version of the crate; empty if the program does not name it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub crate_version: String,
    /// The crate's commit; absent if the program does not name it, or outside git.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// The process that computes the mixer, with which the program exchanges tensors through a pipe,
    /// such as `Python 3.11.7 with PyTorch 2.9.1`; empty if the program computes it itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub process: String,
}

impl OwnCode {
    /// Returns the word by which tables of speed and memory mark a mixer that another process
    /// computes; `None` if the program computes it itself.
    pub fn pipe(&self) -> Option<&'static str> {
        (!self.process.is_empty()).then_some("through_a_pipe")
    }

    /// Returns its origin in words, such as `my_mixer 0.1.0 (4f2a91c07d3e, modified)`.
    pub fn origin(&self) -> String {
        let mut words = match self.crate_name.as_str() {
            "" => self.program.clone(),
            name => format!("{name} {}", self.crate_version),
        };
        if let Some(revision) = &self.revision {
            words += &format!(" ({})", revision.words());
        }
        words
    }
}

impl Model {
    /// Returns the variant, unless it is the model's default.
    pub fn departure(&self) -> Option<&str> {
        let variant = self.variant.as_str();
        let is_default = self
            .default_variant
            .unwrap_or(matches!(variant, "" | "paper"));
        (!is_default).then_some(variant)
    }
}

/// The training recipe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Recipe {
    /// Name, such as `mini`.
    pub name: String,
    /// The paper or configuration file that it follows.
    pub source: String,
    /// True if it is a complete published protocol, so that its scores may be compared with
    /// published ones.
    pub published: bool,
    /// Changes made by the command line, such as `train.steps=200`. Each number has one spelling:
    /// `2e-3` stands for `0.002`, too.
    #[serde(deserialize_with = "assignment::read")]
    pub overrides: Vec<String>,
    /// The `overrides` that repeat a value of the recipe.
    #[serde(
        deserialize_with = "assignment::read",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub repeated: Vec<String>,
    /// The recipe's own values of those settings among `overrides` that are judged by them (see
    /// [`Recipe::is_judged_by_its_own`]), each as `key=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
    /// The split of batches into forward passes; absent in older records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batching: Option<Batching>,
    /// Departures of this program from the source of the recipe, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub departures: Vec<String>,
}
