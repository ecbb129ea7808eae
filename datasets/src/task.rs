//! The trait of a task, and the request that its builder answers.

use std::path::Path;

use serde_json::Value;

use crate::baseline::{Baseline, bag_of_tokens, majority};
use crate::error::Result;
use crate::key::canonical_json;
use crate::{
    About, BuildCheckpoint, Check, Key, Known, Progress, Protocol, Remote, Shape, Source,
    SplitWriter, Splits,
};

/// What a builder is asked for.
pub struct Request<'a> {
    /// One of the task's sources.
    pub source: Source,
    /// How to cut the splits.
    pub protocol: Protocol,
    /// The task's options, complete.
    pub options: &'a Value,
    /// Folder with the published files: `<data>/raw/<task>`, or the one given on the command line.
    pub raw: &'a Path,
    /// Hears about long work.
    pub progress: &'a dyn Progress,
    /// Keeps finished chunks of a long build, in case it is interrupted.
    pub checkpoint: &'a BuildCheckpoint,
}

/// A task of the arena. Implementations are unit structs listed in [`TASKS`](crate::TASKS).
pub trait Task: Sync {
    /// What it is.
    fn about(&self) -> &'static About;

    /// Every data option with its default, as a JSON object: `max_length` where it can be chosen, `seed` where data is
    /// drawn.
    fn defaults(&self) -> Value;

    /// Longest sequence and label for these options.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) for an unknown, missing or impossible option.
    fn shape(&self, options: &Value) -> Result<Shape>;

    /// Whether the splits of this source depend on the protocol. By default only published splits do: those of drawn
    /// data are drawn apart.
    fn has_protocols(&self, source: Source) -> bool {
        source == Source::Official
    }

    /// The options that do not apply to this source.
    fn unused_options(&self, _source: Source) -> &'static [&'static str] {
        &[]
    }

    /// The part of a key that decides which bytes are stored: keys of equal data map to one key here, so that they share
    /// a stored entry. By default, options that do not apply get their default values, and the protocol too.
    fn identity(&self, key: &Key) -> Key {
        let mut identity = key.clone();
        if !self.has_protocols(key.source) {
            identity.protocol = Protocol::default();
        }
        let defaults = self.defaults();
        for option in self.unused_options(key.source) {
            if let (Some(value), Some(default)) =
                (identity.options.get_mut(option), defaults.get(option))
            {
                *value = default.clone();
            }
        }
        identity
    }

    /// The published files that its official source reads, as far as they have an address.
    fn remote(&self) -> &'static [Remote] {
        &[]
    }

    /// Writes all rows of train, val and test with `writer`, in an order that depends on the request alone.
    ///
    /// # Errors
    /// Missing or wrong raw data, a request that cannot be met, a full disk.
    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()>;

    /// One example as text for people. `towers` are stored bytes, as [`Split::tokens`](crate::Split::tokens) gives them;
    /// bytes that make no sense are described, never a panic.
    fn to_text(&self, towers: &[&[u8]], label: u8) -> String;

    /// Scores that need no model, fitted on train and measured on test.
    fn baselines(&self, splits: &Splits) -> Vec<Baseline> {
        let about = self.about();
        vec![majority(splits, about), bag_of_tokens(splits, about)]
    }

    /// What the published files are known to give. What a builder found is held against it, by name; data that
    /// contradicts it is marked as [altered](crate::Manifest::altered).
    fn known(&self) -> Vec<Known> {
        Vec::new()
    }

    /// Checks of the content that only the task can make, for [`Store::verify`](crate::Store::verify).
    fn verify(&self, _splits: &Splits, _progress: &dyn Progress) -> Vec<Check> {
        Vec::new()
    }
}

impl Key {
    /// The task's default source and options under the clean protocol.
    pub fn default_of(task: &dyn Task) -> Key {
        Key {
            source: task.about().sources[0],
            protocol: Protocol::Clean,
            options: task.defaults(),
        }
    }

    /// The command that builds its data: the source, and every option that is not the task's default.
    pub fn make_command(&self, task: &dyn Task) -> String {
        let mut command = format!(
            "lra data make {} --source {}",
            task.about().name,
            self.source
        );
        let identity = task.identity(self);
        if identity.protocol != Protocol::default() {
            command.push_str(&format!(" --protocol {}", identity.protocol));
        }
        let defaults = task.defaults();
        for (key, value) in identity.options.as_object().into_iter().flatten() {
            if defaults.get(key).map(canonical_json) != Some(canonical_json(value)) {
                command.push_str(&format!(" --set data.{key}={value}"));
            }
        }
        command
    }
}
