//! `lra data`, and the location of the data.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use datasets::{Protocol, Source, SplitName};

use crate::task_choice::TaskChoice;

#[derive(Clone, Debug, Args)]
pub struct DataPlace {
    /// Data directory [default: $LRA_DATA, else the cache directory of the platform]
    #[arg(long = "data", value_name = "DIR")]
    pub data: Option<PathBuf>,
}

impl DataPlace {
    /// Returns the data directory.
    pub fn path(&self) -> PathBuf {
        let from_environment = || std::env::var_os("LRA_DATA").map(PathBuf::from);
        let from_platform = || dirs::cache_dir().map(|cache| cache.join("lra"));
        self.data
            .clone()
            .or_else(from_environment)
            .or_else(from_platform)
            .unwrap_or_else(|| PathBuf::from("data"))
    }
}

/// Which data of a task.
#[derive(Debug, Args)]
pub struct DataChoice {
    /// Task (see `lra list tasks`), as `task` or `task:source`
    pub task: TaskChoice,
    /// Where the data comes from, unless the task says it [default: official with --from, otherwise the task's own]
    #[arg(long)]
    pub source: Option<Source>,
    /// Split rules: clean or tay2021
    #[arg(long, default_value_t = Protocol::Clean)]
    pub protocol: Protocol,
    /// Take the data settings of a recipe
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

#[derive(Debug, Subcommand)]
pub enum DataVerb {
    /// What data there is of every task, and the command for what is not there
    List {
        #[command(flatten)]
        place: DataPlace,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Download the published files of a task; an interrupted download goes on where it broke
    Fetch {
        /// Task (see `lra list tasks`)
        task: String,
        /// Take this file or address instead of the published ones
        #[arg(long, value_name = "FILE|URL", conflicts_with = "mirror")]
        from: Option<String>,
        /// Take the published files from this folder of a mirror [default: $LRA_MIRROR]
        #[arg(long, value_name = "URL")]
        mirror: Option<String>,
        #[command(flatten)]
        place: DataPlace,
    },
    /// Build the data of a task
    Make {
        #[command(flatten)]
        choice: DataChoice,
        /// Read raw files from this file or folder
        #[arg(long, value_name = "PATH")]
        from: Option<PathBuf>,
        /// Build again even if it is there
        #[arg(long)]
        force: bool,
        /// Take incomplete files of image (the same as --set data.allow_partial=true); the data is marked as partial. Other tasks
        /// take them without it
        #[arg(long)]
        allow_partial: bool,
    },
    /// Prove the data of a task: checksums, counts, labels, and what is known of the published files
    Verify {
        #[command(flatten)]
        choice: DataChoice,
        /// Prove these raw files instead of the stored data
        #[arg(long, value_name = "PATH")]
        from: Option<PathBuf>,
        /// Take incomplete files of image (the same as --set data.allow_partial=true)
        #[arg(long)]
        allow_partial: bool,
    },
    /// Show an example, histograms and the trivial baselines
    Show {
        #[command(flatten)]
        choice: DataChoice,
        /// Which example
        #[arg(long, default_value_t = 0)]
        row: usize,
        /// Of which split: train, val or test
        #[arg(long, default_value_t = SplitName::Train)]
        split: SplitName,
        /// For tasks of pixels: write a contact sheet of the examples from --row on to this file
        #[arg(long, value_name = "FILE")]
        png: Option<PathBuf>,
    },
}
