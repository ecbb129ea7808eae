//! `lra repro`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use datasets::Protocol;

use super::Machine;
use super::data::DataPlace;
use super::parse::{self, Seeds};

const EXAMPLES: &str = "\
Examples:
  lra repro --list                                all published cells that can be trained here, cheapest first
  lra repro s5                                    the cells of one source, with estimated hours and the number of differences
  lra repro --unoffered mega                      figures of this source that cannot be reproduced here, with reasons
  lra repro tay2021 listops performer --dry-run   what was printed, what differs here, what it costs
  lra repro s4d text s4d                          train it and compare it with the printed figure
  lra repro nystromformer listops transformer --seeds 0..3
  lra repro chordmixer text chordmixer --budget 12h    as many seeds as fit
  lra repro nystromformer --budget 12h            as many of its cells as fit, cheapest first

Run the same command again to continue where it stopped.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReproArgs {
    /// Published source (see `lra list published`), or a recipe, which stands for the sources it
    /// follows
    pub source: Option<String>,
    /// Task (see `lra list tasks`)
    #[arg(requires = "model")]
    pub task: Option<String>,
    /// Model (see `lra list models`)
    pub model: Option<String>,
    /// List the cells to reproduce, cheapest first, and train nothing; SOURCE alone does the same
    #[arg(long, conflicts_with_all = ["task", "dry_run", "budget", "seeds"])]
    pub list: bool,
    /// List the published accuracies of registered models that cannot be reproduced, with reasons
    #[arg(long, conflicts_with_all = ["task", "list", "dry_run", "budget", "seeds", "recipe"])]
    pub unoffered: bool,
    /// Show the published figure, every known difference and the cost, and train nothing
    #[arg(long)]
    pub dry_run: bool,
    /// One of the source's recipes [default: the first that has the task]
    #[arg(long, value_name = "NAME")]
    pub recipe: Option<String>,
    /// Seeds of one cell: FIRST..END, END not included, or a list [default: 0]
    #[arg(long, value_parser = parse::seeds, value_name = "A..B")]
    pub seeds: Option<Seeds>,
    /// Run as many seeds as the estimate says fit into this time, such as 3h; as many cells if no
    /// single cell is named
    #[arg(long, value_parser = parse::duration, value_name = "TIME", conflicts_with = "seeds")]
    pub budget: Option<Duration>,
    /// Examples per forward pass; gradients are accumulated (as `lra run --micro-batch`)
    #[arg(long, value_name = "N", value_parser = parse::whole::<usize>(0..=u64::MAX))]
    pub micro_batch: Option<usize>,
    /// Split rules: tay2021 (as published, where the test split may have been validated on) or
    /// clean
    #[arg(long, default_value_t = Protocol::Tay2021)]
    pub protocol: Protocol,
    #[command(flatten)]
    pub machine: Machine,
    #[command(flatten)]
    pub place: DataPlace,
    /// Folder to create run folders in
    #[arg(long, default_value = "runs", value_name = "DIR")]
    pub out: PathBuf,
    /// Reuse a score or a checkpoint although the data, the program or the instruction set have
    /// changed
    #[arg(long)]
    pub accept_changes: bool,
    /// Print JSON: the plan, and the records of the runs
    #[arg(long)]
    pub json: bool,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}

impl ReproArgs {
    /// Returns the seeds of a cell.
    pub fn seeds(&self) -> Seeds {
        self.seeds.clone().unwrap_or_else(|| Seeds(vec![0]))
    }
}
