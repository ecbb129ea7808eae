//! `lra mini`.

use std::path::PathBuf;

use clap::Args;

use super::data::DataPlace;
use super::parse::{self, Seeds};

const EXAMPLES: &str = "\
Examples:
  lra mini                                 the table: the ranks of all models in it
  lra mini s4d --glance                    the tasks that need no download
  lra mini performer                       three seeds, also in the block of X-formers
  lra mini s4d --dry-run                   how long that would take here
  lra mini linear local --jobs 2           two models, two runs at a time
  cargo run --release -- mini my_mixer     your own model, from its program

Run the same command again to continue where it stopped. docs/mini.md states the rules of the protocol.";

/// Trains models by recipe `mini` and prints a score card of each.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MiniArgs {
    /// Models, as `name`, `name:option=value` or `name:block.norm=rms`. Without any, the command
    /// prints the table and trains nothing
    #[arg(value_name = "MODEL")]
    pub models: Vec<String>,
    /// Use only the generated tasks, at the stored learning rates; needs no network
    #[arg(long)]
    pub glance: bool,
    /// Seeds: FIRST..END, END not included, or a list
    #[arg(long, value_parser = parse::seeds, default_value = "0..3", value_name = "A..B")]
    pub seeds: Seeds,
    /// Change any setting of every run
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Number of simultaneous runs
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = parse::whole::<u16>(1..=1000))]
    pub jobs: u16,
    /// Worker threads of all runs together; 0 means all cores
    #[arg(long, default_value_t = 0, value_parser = parse::threads, value_name = "N")]
    pub threads: usize,
    /// Device: auto, cpu or cuda:N (see `lra list devices`)
    #[arg(long, default_value = "auto", value_parser = parse::device)]
    pub device: String,
    #[command(flatten)]
    pub place: DataPlace,
    /// Folder to create run folders in
    #[arg(long, default_value = "runs", value_name = "DIR")]
    pub out: PathBuf,
    /// Table to rank in: a folder of run folders, or a file of records [default: the one included
    /// in the program]
    #[arg(long, value_name = "PATH")]
    pub table: Option<PathBuf>,
    /// Rerun cells whose data, program, source of your own model or instruction set have changed
    #[arg(long, conflicts_with = "accept_changes")]
    pub redo_changed: bool,
    /// Use cells whose data, program, source of your own model or instruction set have changed as
    /// they are, and resume unfinished ones; their records then say so
    #[arg(long)]
    pub accept_changes: bool,
    /// Only say which runs are on file and how long the others would take here
    #[arg(long, conflicts_with_all = ["json", "quiet"])]
    pub dry_run: bool,
    /// Print the score cards as JSON
    #[arg(long)]
    pub json: bool,
    /// Print only the score cards and failures
    #[arg(long, short)]
    pub quiet: bool,
}
