//! `lra data`, and the location of the data.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use datasets::{Protocol, Source, SplitName};

use super::parse;
use crate::task_choice::TaskChoice;

#[derive(Clone, Debug, Args)]
pub struct DataPlace {
    /// Data directory [default: $LRA_DATA, else the cache directory of the platform]
    #[arg(long = "data", value_name = "DIR")]
    pub data: Option<PathBuf>,
}

impl DataPlace {
    /// Returns the data directory. One that is named here is named by the commands in messages,
    /// too.
    pub fn path(&self) -> PathBuf {
        if let Some(path) = &self.data {
            datasets::command::name_directory(path);
        }
        let set = || std::env::var_os("LRA_DATA").filter(|it| !it.is_empty());
        let from_environment = || set().map(PathBuf::from);
        let from_platform = || dirs::cache_dir().map(|cache| cache.join("lra"));
        self.data
            .clone()
            .or_else(from_environment)
            .or_else(from_platform)
            .unwrap_or_else(|| PathBuf::from("data"))
    }
}

/// Choice of the data of a task.
#[derive(Debug, Args)]
pub struct DataChoice {
    /// Task (see `lra list tasks`), as `task` or `task:source`; or `mine:FOLDER`, a folder of your own
    /// with train, val and test
    pub task: TaskChoice,
    /// Where the data comes from, unless the task names the source [default: the task's own; with
    /// `make --from`, official]
    #[arg(long)]
    pub source: Option<Source>,
    /// Split rules: clean or tay2021
    #[arg(long, default_value_t = Protocol::Clean)]
    pub protocol: Protocol,
    /// Use the data settings of a recipe
    #[arg(long, value_name = "NAME")]
    pub recipe: Option<String>,
    /// Change a data setting, such as data.max_length=256
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    #[command(flatten)]
    pub place: DataPlace,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Examples of all verbs.
pub const EXAMPLES: &str = "\
Examples:
  lra data list                           the data of every task that is here, and how to get the rest
  lra data make listops                   generate the data of a task
  lra data fetch text                     download published files
  lra data make text                      ... and build the data from them
  lra data verify listops                 counts, labels and checksums
  lra data show listops --row 3           an example and the trivial baselines";

const LIST_EXAMPLES: &str = "\
Examples:
  lra data list
  lra data list --json | jq .missing";

const FETCH_EXAMPLES: &str = "\
Examples:
  lra data fetch text
  lra data fetch image --from downloads/cifar-10-binary.tar.gz    a file that you have
  lra data fetch retrieval --mirror https://mirror.example/lra    from a mirror";

const MAKE_EXAMPLES: &str = "\
Examples:
  lra data make listops
  lra data make listops --set data.max_length=512 --set data.min_length=128
  lra data make text --from downloads/aclImdb_v1.tar.gz
  lra data make image:synthetic           a stand-in that needs no file";

const VERIFY_EXAMPLES: &str = "\
Examples:
  lra data verify listops
  lra data verify text --from downloads/aclImdb_v1.tar.gz    raw files, before anything is built";

const SHOW_EXAMPLES: &str = "\
Examples:
  lra data show listops
  lra data show listops --row 3 --split val
  lra data show mine:birds                    a folder of your own (docs/own-task.md)
  lra data show pathfinder --png sheet.png    a contact sheet";

#[derive(Debug, Subcommand)]
pub enum DataVerb {
    /// List the data of every task, with the command that gets missing data
    #[command(after_help = LIST_EXAMPLES)]
    List {
        #[command(flatten)]
        place: DataPlace,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Download the published files of a task; an interrupted download continues where it stopped
    #[command(after_help = FETCH_EXAMPLES)]
    Fetch {
        /// Task (see `lra list tasks`)
        task: String,
        /// Use this file or address instead of the published ones
        #[arg(long, value_name = "FILE|URL", conflicts_with = "mirror")]
        from: Option<String>,
        /// Download the published files from this folder of a mirror [default: $LRA_MIRROR]
        #[arg(long, value_name = "URL")]
        mirror: Option<String>,
        #[command(flatten)]
        place: DataPlace,
    },
    /// Build the data of a task
    #[command(after_help = MAKE_EXAMPLES)]
    Make {
        #[command(flatten)]
        choice: DataChoice,
        /// Read raw files from this file or folder
        #[arg(long, value_name = "PATH")]
        from: Option<PathBuf>,
        /// Build again even if the data exists
        #[arg(long)]
        force: bool,
        /// Accept incomplete files of image (the same as --set data.allow_partial=true); the data
        /// is marked as partial. Other tasks accept them without this option
        #[arg(long)]
        allow_partial: bool,
    },
    /// Verify the data of a task: checksums, counts, labels, and what is known of the published
    /// files
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify {
        #[command(flatten)]
        choice: DataChoice,
        /// Verify these raw files instead of the stored data
        #[arg(long, value_name = "PATH")]
        from: Option<PathBuf>,
        /// Accept incomplete files of image (the same as --set data.allow_partial=true)
        #[arg(long)]
        allow_partial: bool,
    },
    /// Show an example, histograms and the trivial baselines
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        #[command(flatten)]
        choice: DataChoice,
        /// Number of the example, from 0
        #[arg(long, default_value_t = 0, value_parser = parse::whole::<usize>(0..=u64::MAX))]
        row: usize,
        /// Split of the example: train, val or test
        #[arg(long, default_value_t = SplitName::Train)]
        split: SplitName,
        /// For image tasks: write a contact sheet of the examples, starting at --row, to this file
        #[arg(long, value_name = "FILE")]
        png: Option<PathBuf>,
    },
}
