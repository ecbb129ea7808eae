//! `manifest.json`: the content and the provenance of a stored entry.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Dense, Digest, Key, Protocol, Source};

/// Name of one of the three splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SplitName {
    /// Training split, which models are fitted on.
    Train,
    /// Validation split, by which the checkpoint is chosen.
    Val,
    /// Test split, which is scored once.
    Test,
}

impl SplitName {
    /// All splits, in the order of files and reports.
    pub const ALL: [SplitName; 3] = [SplitName::Train, SplitName::Val, SplitName::Test];

    /// Returns `train`, `val` or `test`.
    pub fn name(self) -> &'static str {
        match self {
            SplitName::Train => "train",
            SplitName::Val => "val",
            SplitName::Test => "test",
        }
    }

    /// Returns the name of its file in an entry's folder.
    pub fn file_name(self) -> &'static str {
        match self {
            SplitName::Train => "train.safetensors",
            SplitName::Val => "val.safetensors",
            SplitName::Test => "test.safetensors",
        }
    }
}

impl fmt::Display for SplitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SplitName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        SplitName::ALL
            .into_iter()
            .find(|split| split.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("unknown split `{text}`; known: train, val, test"))
    }
}

/// Three values of a kind, one for each split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PerSplit<T> {
    /// Value of the training split.
    pub train: T,
    /// Value of the validation split.
    pub val: T,
    /// Value of the test split.
    pub test: T,
}

impl<T> PerSplit<T> {
    /// Calls `make` for train, val and test, in this order.
    ///
    /// # Errors
    /// The first error of `make`.
    pub fn try_new<E>(mut make: impl FnMut(SplitName) -> Result<T, E>) -> Result<Self, E> {
        Ok(PerSplit {
            train: make(SplitName::Train)?,
            val: make(SplitName::Val)?,
            test: make(SplitName::Test)?,
        })
    }

    /// Returns the value of `split`.
    pub fn get(&self, split: SplitName) -> &T {
        match split {
            SplitName::Train => &self.train,
            SplitName::Val => &self.val,
            SplitName::Test => &self.test,
        }
    }

    /// Returns the value of `split`, to be changed.
    pub fn get_mut(&mut self, split: SplitName) -> &mut T {
        match split {
            SplitName::Train => &mut self.train,
            SplitName::Val => &mut self.val,
            SplitName::Test => &mut self.test,
        }
    }
}

/// Content of one split's file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SplitManifest {
    /// Number of examples.
    pub rows: usize,
    /// Number of examples with each label.
    pub labels: Vec<u64>,
    /// Number of positions with each label, where positions have labels of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dense_labels: Vec<u64>,
    /// Size of the file.
    pub bytes: u64,
    /// SHA-256 of the file.
    pub sha256: String,
}

/// A fact about the raw files: a count, a sum, a digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// Name of the quantity.
    pub name: String,
    /// Value found.
    pub value: String,
}

impl Fact {
    /// Returns a fact.
    pub fn new(name: impl Into<String>, value: impl ToString) -> Fact {
        Fact {
            name: name.into(),
            value: value.to_string(),
        }
    }
}

/// A fact that the published files are known to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Name and published value.
    pub fact: Fact,
    /// True if the fact is recorded only where all of its files are present, so partial data must
    /// have the published value too.
    pub of_parts: bool,
}

impl Known {
    /// Returns a fact about all of the published data: partial data may have another value.
    pub fn whole(name: impl Into<String>, value: impl ToString) -> Known {
        Known {
            fact: Fact::new(name, value),
            of_parts: false,
        }
    }

    /// Returns a fact that is recorded only where it must be as published, in partial data too.
    pub fn part(name: impl Into<String>, value: impl ToString) -> Known {
        Known {
            fact: Fact::new(name, value),
            of_parts: true,
        }
    }
}

impl Manifest {
    /// Escapes control characters and line feeds in the texts that commands print.
    pub(crate) fn escape_texts(&mut self) {
        let groups = self.dense.iter_mut().flat_map(|dense| &mut dense.groups);
        let digests = [&mut self.label, &mut self.digest];
        let texts = self.notes.iter_mut().chain(&mut self.altered).chain(groups);
        for text in texts.chain(digests) {
            *text = disk::escape(text);
        }
        for split in SplitName::ALL {
            let file = self.splits.get_mut(split);
            file.sha256 = disk::escape(&file.sha256);
        }
    }
}

/// Content and provenance of an entry. It is written last: an entry without it does not exist.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// Name of the task.
    pub task: String,
    /// SHA-256 of the source code of a program's own task that built it; empty for others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// Version of the task that built it.
    pub version: u32,
    /// Source of the data.
    pub source: Source,
    /// Protocol by which the splits are cut.
    pub protocol: Protocol,
    /// Options that determine the data.
    pub options: Value,
    /// Label of the data: the task's name, or another one if the options are not the published
    /// ones.
    pub label: String,
    /// Maximum sequence length that the options allow.
    pub max_length: usize,
    /// Kind of the labels in the columns `targets` and `groups`, a byte of each for every token;
    /// `None` where the files have no such columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dense: Option<Dense>,
    /// Manifests of the three files.
    pub splits: PerSplit<SplitManifest>,
    /// Digest of the content of all three files.
    pub digest: String,
    /// True if the data is smaller than what the source publishes.
    #[serde(default)]
    pub partial: bool,
    /// Contradictions between the raw files and the known facts of the published ones, a sentence
    /// each. Empty for data without known contradictions, and for data that is made here.
    #[serde(default)]
    pub altered: Vec<String>,
    /// True if the builder promises that no row occurs twice, within a split or between them.
    #[serde(default)]
    pub distinct: bool,
    /// Remarks of the builder for the user.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Facts that the builder found in the raw files and that the rows no longer show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
    /// Time at which it was built, in seconds since 1970.
    #[serde(default)]
    pub built_at: u64,
    /// Duration of the build, in seconds.
    #[serde(default)]
    pub build_seconds: f64,
}

impl Manifest {
    /// Returns the key under which the entry is stored.
    pub fn key(&self) -> Key {
        Key {
            source: self.source,
            protocol: self.protocol,
            options: self.options.clone(),
        }
    }

    /// Returns the content digest of these three files.
    pub(crate) fn content_digest(splits: &PerSplit<SplitManifest>) -> String {
        let mut digest = Digest::default();
        for split in SplitName::ALL {
            let line = format!("{} {}\n", split.name(), splits.get(split).sha256);
            digest.update(line.as_bytes());
        }
        digest.hex()
    }
}
