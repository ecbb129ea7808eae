//! `lra sweep`.

use std::path::PathBuf;

use clap::Args;
use datasets::{Protocol, Source};

use super::data::DataPlace;
use super::parse::{self, Devices, Seeds};
use crate::recipe;
use crate::sweep::batch_job::BatchSystem;
use crate::sweep::plan::Shard;
use crate::sweep::search::Dimension;
use crate::task_choice::TaskChoice;
use crate::tracker::TrackerKind;

const EXAMPLES: &str = "\
Examples:
  lra sweep --tasks listops,pathfinder --dry-run                the plan, with time and memory per cell
  lra sweep --tasks listops,image:synthetic --seeds 0..3 --jobs 2
  lra sweep --tasks listops --models transformer,performer:variant=tay2021 --recipe nystromformer
  lra sweep --tasks listops --models linear --grid train.learning_rate=3e-3,1e-3,3e-4 --grid block.dropout=0,0.1
  lra sweep --tasks listops --models linear --grid train.learning_rate=1e-4..1e-2 --trials 8    random search
  lra sweep --tasks listops --models transformer,local --components --recipe smoke    around each model, all components
  lra sweep --tasks listops --models s4d,linear --recipe mini --probe    the learning rate of each
  lra sweep --tasks listops --devices cuda:0..4                 four GPUs, a run on each at a time
  lra sweep --tasks listops --seeds 0..3 --tracker wandb,mlflow    folders for these trackers in each run folder
  lra sweep --tasks listops --shard 1/4                         a quarter of it, for one of four machines
  lra sweep --tasks listops --on-file records.csv               only what a file of records lacks
  lra sweep --tasks listops --seeds 0..5 --emit slurm > job.sh && sbatch job.sh
  lra sweep --tasks listops --emit kubernetes --array 8 > job.yaml && kubectl create -f job.yaml
  lra sweep --tasks listops --emit slurm --estimate --sbatch=--partition=short > job.sh

Every cell is an `lra run` with a log, <out>/<run id>/log.txt. Run the same command again to continue where it stopped.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SweepArgs {
    /// Tasks, as `task` or `task:source`
    #[arg(long, required = true, value_delimiter = ',', value_name = "LIST")]
    pub tasks: Vec<TaskChoice>,
    /// Where the data comes from, for tasks that name no source: generated, official or synthetic
    /// [default: each task's own]
    #[arg(long)]
    pub source: Option<Source>,
    /// Models, as `name`, `name:option=value` or `name:block.norm=rms`, or `all`
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "all",
        value_name = "LIST"
    )]
    pub models: Vec<String>,
    /// Also run each model with each value of each component (`lra list components`) that it supports, one
    /// at a time
    #[arg(long)]
    pub components: bool,
    /// Seeds: FIRST..END, END not included, or a list
    #[arg(long, value_parser = parse::seeds, default_value = "0", value_name = "A..B")]
    pub seeds: Seeds,
    /// Recipes, by name or as paths of .toml files
    #[arg(
        long,
        value_delimiter = ',',
        default_value = recipe::DEFAULT,
        value_name = "LIST"
    )]
    pub recipe: Vec<String>,
    /// Number of updates (the same as --set train.steps=N)
    #[arg(long, value_name = "N", value_parser = parse::whole::<usize>(0..=u64::MAX))]
    pub steps: Option<usize>,
    /// Change any setting of every cell
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Try several values of a setting; several such options make a grid, and every cell of it is
    /// run
    #[arg(long = "grid", value_name = "KEY=V1,V2,...")]
    pub grid: Vec<Dimension>,
    /// Draw this many points of the grid instead of running all; a setting may then be a range,
    /// KEY=LOW..HIGH
    #[arg(long, requires = "grid", value_name = "N", value_parser = parse::whole::<u16>(1..=10_000))]
    pub trials: Option<u16>,
    /// Find learning rates instead of whole runs: a short run at each rate of the recipe; the one
    /// with the lowest validation loss wins
    #[arg(long, conflicts_with_all = ["grid", "trials", "steps", "emit", "shard"])]
    pub probe: bool,
    /// Split rules: clean (validation held out of train) or tay2021 (as published)
    #[arg(long, default_value_t = Protocol::Clean)]
    pub protocol: Protocol,
    /// Number of simultaneous runs [default: 1, or one for each of --devices]
    #[arg(long, value_name = "N", value_parser = parse::whole::<u16>(1..=1000))]
    pub jobs: Option<u16>,
    /// Worker threads of all runs together; 0 means all cores
    #[arg(long, default_value_t = 0, value_parser = parse::threads, value_name = "N")]
    pub threads: usize,
    /// Limit on the total memory of each run, such as 8G [default: 95 % of what the machine, its
    /// container and `ulimit` allow, divided by --jobs]
    #[arg(long, value_parser = parse::bytes, value_name = "SIZE")]
    pub memory_limit: Option<usize>,
    /// Device: auto, cpu or cuda:N (see `lra list devices`)
    #[arg(long, default_value = "auto", value_parser = parse::device)]
    pub device: String,
    /// Several devices, cuda:FIRST..END (END not included) or a list: each run gets the one with
    /// the fewest runs; by default there are as many simultaneous runs as devices (see --jobs)
    #[arg(long, value_parser = parse::devices, value_name = "LIST", conflicts_with = "device")]
    pub devices: Option<Devices>,
    #[command(flatten)]
    pub place: DataPlace,
    /// Folder to create run folders in; several sweeps may share it
    #[arg(long, default_value = "runs", value_name = "DIR")]
    pub out: PathBuf,
    /// Also count the cells of a file of records (see `lra merge`) as done; can be repeated
    #[arg(long = "on-file", value_name = "FILE")]
    pub on_file: Vec<PathBuf>,
    /// Retry failed cells, each from its last checkpoint; diverged ones are not retried, since they
    /// would diverge again
    #[arg(long)]
    pub retry_failed: bool,
    /// Rerun cells whose data, program, source of your own model or instruction set have changed
    #[arg(long, conflicts_with = "accept_changes")]
    pub redo_changed: bool,
    /// Use cells whose data, program, source of your own model or instruction set have changed as
    /// they are, and resume unfinished ones; their records then say so
    #[arg(long)]
    pub accept_changes: bool,
    /// Run nothing: show the cells with estimated time and memory
    #[arg(long, conflicts_with = "emit")]
    pub dry_run: bool,
    /// Run only every N-th cell, starting with the I-th
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Run nothing: print a job script
    #[arg(long, value_enum, ignore_case = true, conflicts_with = "shard")]
    pub emit: Option<BatchSystem>,
    /// With --emit: further options for sbatch, such as --sbatch=--partition=short; can be repeated
    #[arg(
        long,
        requires = "emit",
        value_name = "OPTION",
        allow_hyphen_values = true
    )]
    pub sbatch: Vec<String>,
    /// With --emit: measure two small steps of every cell, and request 1.5 times the time of the
    /// longest element
    #[arg(long, requires = "emit")]
    pub estimate: bool,
    /// Elements of the array job [default: one per cell, at most 1,000]
    #[arg(long, requires = "emit", value_name = "N", value_parser = parse::whole::<u32>(1..=100_000))]
    pub array: Option<u32>,
    /// Also write each run for an experiment tracker into its folder, without a network: wandb, mlflow
    /// or trackio, several with commas; runs on file are left as they are
    #[arg(long, value_name = "NAME", value_delimiter = ',', ignore_case = true)]
    pub tracker: Vec<TrackerKind>,
    /// Print JSON: the outcome of each cell, or the plan
    #[arg(long)]
    pub json: bool,
    /// Print only failures and the table at the end
    #[arg(long, short)]
    pub quiet: bool,
}

impl SweepArgs {
    /// Returns the devices that runs are distributed over, at least one.
    pub fn devices(&self) -> Vec<String> {
        let several = self.devices.as_ref();
        several.map_or_else(|| vec![self.device.clone()], |it| it.0.clone())
    }

    /// Returns the number of runs at a time.
    pub fn jobs(&self) -> usize {
        self.jobs.map_or_else(|| self.devices().len(), usize::from)
    }
}
