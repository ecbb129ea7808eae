//! `manifest.json`: what a stored entry holds and how it came about.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Dense, Digest, Key, Protocol, Source};

/// One of the three splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SplitName {
    /// What a model is fitted on.
    Train,
    /// What picks the checkpoint.
    Val,
    /// What is scored once.
    Test,
}

impl SplitName {
    /// In the order of files and reports.
    pub const ALL: [SplitName; 3] = [SplitName::Train, SplitName::Val, SplitName::Test];

    /// `train`, `val` or `test`.
    pub fn name(self) -> &'static str {
        match self {
            SplitName::Train => "train",
            SplitName::Val => "val",
            SplitName::Test => "test",
        }
    }

    /// The name of its file in an entry's folder.
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
            .find(|split| split.name() == text)
            .ok_or_else(|| format!("unknown split `{text}`; known: train, val, test"))
    }
}

/// Three of a kind, one for each split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerSplit<T> {
    /// Of the training split.
    pub train: T,
    /// Of the validation split.
    pub val: T,
    /// Of the test split.
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

    /// The one of `split`.
    pub fn get(&self, split: SplitName) -> &T {
        match split {
            SplitName::Train => &self.train,
            SplitName::Val => &self.val,
            SplitName::Test => &self.test,
        }
    }

    /// The one of `split`, to be changed.
    pub fn get_mut(&mut self, split: SplitName) -> &mut T {
        match split {
            SplitName::Train => &mut self.train,
            SplitName::Val => &mut self.val,
            SplitName::Test => &mut self.test,
        }
    }
}

/// What one file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// A finding about the raw files: a count, a sum, a digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What was looked at.
    pub name: String,
    /// What was found.
    pub value: String,
}

impl Fact {
    /// A finding.
    pub fn new(name: impl Into<String>, value: impl ToString) -> Fact {
        Fact {
            name: name.into(),
            value: value.to_string(),
        }
    }
}

/// A finding that the published files are known to give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The finding.
    pub fact: Fact,
    /// It is recorded only of what is there as a whole, so data that is partial otherwise has to give it as well.
    pub of_parts: bool,
}

impl Known {
    /// What all of the published data gives: partial data may give something else.
    pub fn whole(name: impl Into<String>, value: impl ToString) -> Known {
        Known {
            fact: Fact::new(name, value),
            of_parts: false,
        }
    }

    /// What is recorded only where it has to be as published, in partial data too.
    pub fn part(name: impl Into<String>, value: impl ToString) -> Known {
        Known {
            fact: Fact::new(name, value),
            of_parts: true,
        }
    }
}

/// What an entry holds and how it came about. Written last: an entry without it does not exist.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Name of the task.
    pub task: String,
    /// Version of the task that built it.
    pub version: u32,
    /// Where the data comes from.
    pub source: Source,
    /// How the splits are cut.
    pub protocol: Protocol,
    /// The options that decided it.
    pub options: Value,
    /// The task's label for them: its name, or one that says that they are not the published ones.
    pub label: String,
    /// Longest sequence that the options allow.
    pub max_length: usize,
    /// The kind of labels in the columns `targets` and `groups`, a byte of each for every token;
    /// none where the files have no such columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dense: Option<Dense>,
    /// The three files.
    pub splits: PerSplit<SplitManifest>,
    /// One digest for the content of all three.
    pub digest: String,
    /// The data is smaller than what the source publishes.
    #[serde(default)]
    pub partial: bool,
    /// What the raw files contradict of what is known of the published ones, a sentence each. Empty for data that is
    /// as published as far as that is known, and for data that is made here.
    #[serde(default)]
    pub altered: Vec<String>,
    /// The builder promises that no row occurs twice, within a split or between them.
    #[serde(default)]
    pub distinct: bool,
    /// Remarks of the builder, for people.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What the builder found in the raw files and the rows no longer show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
    /// When it was built, in seconds since 1970.
    #[serde(default)]
    pub built_at: u64,
    /// How long building took, in seconds.
    #[serde(default)]
    pub build_seconds: f64,
}

impl Manifest {
    /// The key under which it is stored.
    pub fn key(&self) -> Key {
        Key {
            source: self.source,
            protocol: self.protocol,
            options: self.options.clone(),
        }
    }

    /// The content digest that these three files have.
    pub(crate) fn content_digest(splits: &PerSplit<SplitManifest>) -> String {
        let mut digest = Digest::default();
        for split in SplitName::ALL {
            let line = format!("{} {}\n", split.name(), splits.get(split).sha256);
            digest.update(line.as_bytes());
        }
        digest.hex()
    }
}
