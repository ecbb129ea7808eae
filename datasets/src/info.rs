//! Description of a task as data: its names and sizes, the sources of its data, its splits, and the
//! shape set by options.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Dense;
use crate::error::Result;

/// Description of a task, independent of any option.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TaskInfo {
    /// Name on the command line and in records.
    pub name: &'static str,
    /// Name in tables.
    pub title: &'static str,
    /// Summary in one sentence.
    pub summary: &'static str,
    /// Publication that introduced the task.
    pub paper: &'static str,
    /// Version, raised whenever the same options would give other bytes; part of the key of a
    /// stored entry.
    pub version: u32,
    /// Number of model ids, padding included.
    pub vocabulary: usize,
    /// Stored byte `s` is model id `s + first_id`: 1 where id 0 is padding, 0 where there is no
    /// padding id. Then all rows have the longest length.
    pub first_id: u32,
    /// Number of labels, counted from 0.
    pub classes: usize,
    /// Sequences per example: 1, or 2 for retrieval.
    pub towers: usize,
    /// Fraction of tokens that self-pretraining masks, as published for the task
    /// (arXiv:2310.02980).
    pub mask_ratio: f64,
    /// Possible sources of its data; the first is the default.
    pub sources: &'static [Source],
    /// True if it tests one ability beside the arena: it is a part of no average over tasks.
    pub probe: bool,
}

/// Source of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The real task, drawn by our own generator.
    Generated,
    /// The published files.
    Official,
    /// Synthetic data of the task's shape; its scores are never compared with published ones.
    Synthetic,
    /// The files of a folder of your own, which is the task ([`tasks::mine`](crate::tasks::mine)).
    Folder,
}

/// Protocol by which the splits are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Validation is always cut from train; the test split is never validated on.
    #[default]
    Clean,
    /// Splits as in the 2021 code.
    Tay2021,
}

impl Source {
    /// All sources.
    pub const ALL: [Source; 4] = [
        Source::Generated,
        Source::Official,
        Source::Synthetic,
        Source::Folder,
    ];

    /// Returns the name used on the command line and in folder names.
    pub fn name(self) -> &'static str {
        match self {
            Source::Generated => "generated",
            Source::Official => "official",
            Source::Synthetic => "synthetic",
            Source::Folder => "folder",
        }
    }

    /// Returns whether the data are made from files of others, which can change.
    pub fn reads_files(self) -> bool {
        matches!(self, Source::Official | Source::Folder)
    }
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Protocol; 2] = [Protocol::Clean, Protocol::Tay2021];

    /// Returns the name used on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Clean => "clean",
            Protocol::Tay2021 => "tay2021",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Source::ALL
            .into_iter()
            .find(|source| source.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| unknown("source", text, SOURCE_WORDS, &Source::ALL.map(Source::name)))
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Protocol::ALL
            .into_iter()
            .find(|protocol| protocol.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                let known = Protocol::ALL.map(Protocol::name);
                unknown("protocol", text, PROTOCOL_WORDS, &known)
            })
    }
}

/// Names with the words that others have for them.
type Words = &'static [(&'static str, &'static [&'static str])];

const SOURCE_WORDS: Words = &[
    ("generated", &["drawn", "generate"]),
    (
        "official",
        &["real", "published", "original", "release", "raw", "lra"],
    ),
    ("synthetic", &["fake", "dummy", "stand-in"]),
];

const PROTOCOL_WORDS: Words = &[(
    "tay2021",
    &["original", "published", "official", "paper", "lra"],
)];

/// Returns the message for a word that is no name of this kind, with the name that it stands for
/// elsewhere.
fn unknown(kind: &str, word: &str, words: Words, known: &[&str]) -> String {
    let is_it = |other: &&str| other.eq_ignore_ascii_case(word);
    let meant = words.iter().find(|(_, words)| words.iter().any(is_it));
    let known = known.join(", ");
    match meant {
        Some((name, _)) => {
            format!("unknown {kind} `{word}`; did you mean `{name}`? (known: {known})")
        }
        None => format!("unknown {kind} `{word}`; known: {known}"),
    }
}

/// Properties of a task's data that depend on its options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Maximum sequence length of any split, in tokens; batches of the test split are padded to it.
    pub max_length: usize,
    /// Maximum sequence length of the training and validation splits, in tokens; their batches are
    /// padded to it. It differs from `max_length` where longer sequences are tested.
    #[serde(skip)]
    pub train_length: usize,
    /// Number of labels, counted from 0: at most those of the task.
    #[serde(skip)]
    pub classes: usize,
    /// Label of the data: the task's name for its published parameters (with any seed), otherwise a
    /// clearly different name, such as `listops@256`.
    pub label: String,
    /// Height and width of the image whose pixels form a sequence, row by row; `None` if it is not
    /// an image.
    #[serde(skip)]
    pub grid: Option<[usize; 2]>,
    /// Kind of labels at positions, in addition to the label of the whole sequence; `None` if there
    /// are none.
    #[serde(skip)]
    pub dense: Option<Dense>,
}

impl Shape {
    /// Returns the shape of a task's data that differs from its data by default by `departures`,
    /// such as `["256", "decoded"]`. Its label is the task's name where there are none, else
    /// `name@256-decoded`.
    pub fn new<const N: usize>(
        info: &TaskInfo,
        max_length: usize,
        departures: [Option<String>; N],
    ) -> Shape {
        let departures: Vec<String> = departures.into_iter().flatten().collect();
        let label = match departures.is_empty() {
            true => info.name.to_owned(),
            false => format!("{}@{}", info.name, departures.join("-")),
        };
        Shape {
            max_length,
            train_length: max_length,
            classes: info.classes,
            label,
            grid: None,
            dense: None,
        }
    }

    /// Returns the shape of drawn data of `max_length` tokens. Its label is the task's name where
    /// `options` are those of `defaults`, the seed aside, else `name@max_length`.
    pub fn drawn(
        info: &TaskInfo,
        max_length: usize,
        defaults: &impl Serialize,
        options: &Value,
    ) -> Shape {
        let mut usual = json!(defaults);
        usual["seed"] = options["seed"].clone();
        let departs = usual != *options;
        Shape::new(info, max_length, [departs.then(|| max_length.to_string())])
    }

    /// Returns this shape for sequences that are images of `height` by `width` pixels.
    pub fn of_image(self, height: usize, width: usize) -> Shape {
        Shape {
            grid: Some([height, width]),
            ..self
        }
    }

    /// Returns this shape for sequences whose positions have labels of their own.
    pub fn with_dense(self, dense: Option<Dense>) -> Shape {
        Shape { dense, ..self }
    }
}
