//! The trait of a task, and the request that its builder fulfils.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::baseline::{Baseline, bag_of_tokens, majority};
use crate::command;
use crate::error::Result;
use crate::key::canonical_json;
use crate::{
    BuildCheckpoint, Check, Key, Known, Progress, Protocol, Remote, Shape, Source, SplitWriter,
    Splits, TaskInfo,
};

/// Request to a task's builder.
pub struct Request<'a> {
    /// Source of the data, one of the task's.
    pub source: Source,
    /// Protocol by which the splits are cut.
    pub protocol: Protocol,
    /// The task's options, complete.
    pub options: &'a Value,
    /// Path of the published files: `<data>/raw/<task>`, or the one given on the command line.
    pub raw: &'a Path,
    /// Receiver of progress reports.
    pub progress: &'a dyn Progress,
    /// Checkpoint of finished chunks of a long build, in case it is interrupted.
    pub checkpoint: &'a BuildCheckpoint,
}

/// A task: one of the arena's, listed in [`TASKS`](crate::TASKS), one of a program's own, which it
/// [registers](crate::tasks::register), or a [folder](crate::tasks::mine).
pub trait Task: Sync {
    /// Returns the description of the task.
    fn info(&self) -> &'static TaskInfo;

    /// Returns the source code of a program's own task, `include_str!("task.rs")`: its digest tells
    /// data and scores of different versions apart. Empty for the tasks of this crate.
    fn source(&self) -> &'static str {
        ""
    }

    /// Returns every data option with its default, as a JSON object: `max_length` where it can be
    /// chosen, `seed` where data is drawn.
    fn defaults(&self) -> Value;

    /// Returns the maximum length and the label for these options.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) for an unknown, missing or impossible option.
    fn shape(&self, options: &Value) -> Result<Shape>;

    /// Returns whether the splits of this source depend on the protocol. By default only published
    /// splits do: those of drawn data are drawn separately.
    fn has_protocols(&self, source: Source) -> bool {
        source == Source::Official
    }

    /// Returns the options that do not apply to this source.
    fn unused_options(&self, _source: Source) -> &'static [&'static str] {
        &[]
    }

    /// Returns the part of a key that determines the stored bytes: keys of equal data map to one
    /// key here, so that they share a stored entry. By default, options that do not apply get their
    /// default values, and so does a protocol that does not apply.
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

    /// Returns the files that the data are always made from, of one folder. Empty for a task that
    /// reads none, or whose files are looked for.
    fn own_files(&self) -> &[PathBuf] {
        &[]
    }

    /// Returns whether a file of this name may be read as data of the official source. The name is
    /// relative to the searched folder, with forward slashes. Other files, such as notes, may come
    /// and go without a change of the data.
    fn reads(&self, _name: &str) -> bool {
        true
    }

    /// Returns the published files that its official source reads, as far as they have an address.
    fn remote(&self) -> &'static [Remote] {
        &[]
    }

    /// Writes all rows of train, val and test with `writer`, in an order that depends only on the
    /// request.
    ///
    /// # Errors
    /// Missing or wrong raw data, an impossible request, or a full disk.
    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()>;

    /// Returns one example as readable text. `towers` are stored bytes, as
    /// [`Split::tokens`](crate::Split::tokens) returns them; invalid bytes are described and never
    /// cause a panic.
    fn to_text(&self, towers: &[&[u8]], label: u8) -> String;

    /// Returns measured properties of one example by which scores can be broken down, such as the
    /// depth of an expression. Examples of one task have the same properties in the same order.
    /// `towers` are stored bytes, as for [`Task::to_text`].
    fn traits(&self, towers: &[&[u8]]) -> Vec<(&'static str, u64)> {
        let longest = towers.iter().map(|tokens| tokens.len()).max();
        vec![("length", longest.unwrap_or(0) as u64)]
    }

    /// Returns scores that need no model, fitted on train and measured on test.
    fn baselines(&self, splits: &Splits) -> Vec<Baseline> {
        let info = self.info();
        vec![majority(splits, info), bag_of_tokens(splits, info)]
    }

    /// Returns the facts that the published files are known to have. A builder's facts are compared
    /// with them by name; data that contradicts them is marked as
    /// [altered](crate::Manifest::altered).
    fn known(&self) -> Vec<Known> {
        Vec::new()
    }

    /// Runs checks of the content that are specific to the task, for
    /// [`Store::verify`](crate::Store::verify).
    fn verify(&self, _splits: &Splits, _progress: &dyn Progress) -> Vec<Check> {
        Vec::new()
    }
}

impl Key {
    /// Returns the task's default source and options under the clean protocol.
    pub fn default_of(task: &dyn Task) -> Key {
        Key {
            source: task.info().sources[0],
            protocol: Protocol::Clean,
            options: task.defaults(),
        }
    }

    /// Returns the command that builds its data, to be pasted: the source, every option that is not
    /// the task's default, and the data directory in use.
    pub fn make_command(&self, task: &dyn Task) -> String {
        let mut command = format!(
            "lra data make {} --source {}",
            command::quoted(task.info().name),
            self.source
        );
        let identity = task.identity(self);
        if identity.protocol != Protocol::default() {
            command.push_str(&format!(" --protocol {}", identity.protocol));
        }
        let defaults = task.defaults();
        for (key, value) in identity.options.as_object().into_iter().flatten() {
            if defaults.get(key).map(canonical_json) != Some(canonical_json(value)) {
                let assignment = format!("data.{key}={value}");
                command.push_str(&format!(" --set {}", command::quoted(&assignment)));
            }
        }
        command.push_str(&command::data_flag());
        command
    }

    /// Returns the command that builds its data from the files at `raw`.
    pub(crate) fn make_command_from(&self, task: &dyn Task, raw: &Path) -> String {
        let command = self.make_command(task);
        match task.own_files() {
            [] => format!("{command} --from {}", command::quoted_path(raw)),
            _ => command,
        }
    }
}
