//! `lra bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use results::Format;

use super::parse;

const EXAMPLES: &str = "\
Examples:
  lra bench --quick                                   all models at 1K to 4K, minutes on two cores
  lra bench --lengths 4096,16384 --models transformer,linear,performer
  lra bench --models transformer,transformer:attention=materialised --batch 8
  lra bench --recipe tay2021-paper --batch 1 --memory-limit 16G
  lra bench --base old/lra --lengths 1024 --batch 4   is this build slower than that one?
  lra bench --show runs/bench/2026-01-31T12-00-00Z.jsonl --format markdown";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// Lengths in tokens
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1024,2048,3072,4096",
        value_name = "LIST",
        value_parser = parse::whole::<usize>(0..=u64::MAX)
    )]
    pub lengths: Vec<usize>,
    /// Models, as `name` or `name:option=value` [default: all, softmax attention both fused and
    /// materialised]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub models: Vec<String>,
    /// Recipe whose model for text is measured: nystromformer is small, tay2021-paper is that of
    /// the published table
    #[arg(long, default_value = "nystromformer", value_name = "NAME")]
    pub recipe: String,
    /// Examples per step [default: the recipe's]
    #[arg(long, value_name = "N", value_parser = parse::whole::<usize>(0..=u64::MAX))]
    pub batch: Option<usize>,
    /// Change any setting, such as block.layers=4 or train.micro_batch=4
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Rounds; each measures every cell once, in its own process [default: 5, with --base 10]
    #[arg(long, value_name = "N", value_parser = parse::whole::<u32>(1..=1000))]
    pub rounds: Option<u32>,
    /// Time that each process measures, at least two steps [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub per_round: Option<Duration>,
    /// Compare this program with another build of it: both measure every cell in turn; the exit
    /// code is 1 if this one is slower
    #[arg(long, value_name = "PROGRAM", conflicts_with = "show")]
    pub base: Option<PathBuf>,
    /// Fraction of its speed that a cell may lose against --base
    #[arg(long, default_value_t = 0.1, value_parser = parse::share, value_name = "SHARE")]
    pub speed_threshold: f64,
    /// Run few short rounds with a small batch: the 1K to 4K table of the small model in minutes
    #[arg(long)]
    pub quick: bool,
    /// Limit on the total memory of a measuring process, such as 8G [default: 90 % of free memory]
    #[arg(long, value_parser = parse::bytes, value_name = "SIZE")]
    pub memory_limit: Option<usize>,
    /// Time limit of one measurement, such as 5m [default: 10m, with --quick 1m]
    #[arg(long, value_parser = parse::duration, value_name = "TIME")]
    pub time_limit: Option<Duration>,
    /// Device: auto, cpu or cuda:N (see `lra list devices`)
    #[arg(long, default_value = "auto", value_parser = parse::device)]
    pub device: String,
    /// Worker threads; 0 means all cores
    #[arg(long, default_value_t = 0, value_parser = parse::threads, value_name = "N")]
    pub threads: usize,
    /// Published figures to show beside ours (see `lra list published`)
    #[arg(long, default_value = "tay2021", value_name = "KEY")]
    pub against: String,
    /// Format of the tables: text, markdown, csv, json, latex or html
    #[arg(long, default_value_t = Format::Text)]
    pub format: Format,
    /// Print the measurements as JSON instead of tables
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Folder for the file of measurements, one JSON line per cell
    #[arg(long, default_value = "runs/bench", value_name = "DIR")]
    pub out: PathBuf,
    /// Measure nothing: show the tables of an earlier session
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lengths", "models", "recipe", "batch",
        "assignments", "rounds", "per_round", "quick", "memory_limit", "time_limit", "device",
        "threads", "out"])]
    pub show: Option<PathBuf>,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}
