//! `lra score`, `lra compare`, `lra explain`, `lra diff` and `lra replay`: what was trained, used
//! again.

use std::path::PathBuf;

use clap::Args;
use datasets::SplitName;
use results::Format;

use super::data::DataPlace;
use super::parse;

const SCORE_EXAMPLES: &str = "\
Examples:
  lra score runs/toy-bag-smoke-s0-0a1b2c3d                        the test split again
  lra score runs/toy-bag-smoke-s0-0a1b2c3d --split val --predictions val.csv
  lra score runs/listops@64-s4d-mini-s0-0a1b2c3d --set data.max_length=128 --set data.min_length=65    longer sequences";

#[derive(Debug, Args)]
#[command(after_help = SCORE_EXAMPLES)]
pub struct ScoreArgs {
    /// Folder of a finished run
    pub run: PathBuf,
    #[command(flatten)]
    pub on: ScoredData,
    /// Write a row for each example: its number in the split, label, prediction, loss and logits;
    /// CSV, or JSON lines if the name ends in .jsonl
    #[arg(long, value_name = "FILE")]
    pub predictions: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub computing: Computing,
    #[command(flatten)]
    pub place: DataPlace,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// The means to score with.
#[derive(Debug, Args)]
pub struct Computing {
    /// Device: auto, cpu or cuda:N (see `lra list devices`)
    #[arg(long, default_value = "auto", value_parser = parse::device)]
    pub device: String,
    /// Worker threads; 0 means all cores
    #[arg(long, default_value_t = 0, value_parser = parse::threads, value_name = "N")]
    pub threads: usize,
}

/// The examples that weights are scored on.
#[derive(Debug, Args)]
pub struct ScoredData {
    /// Split: train, val or test
    #[arg(long, default_value_t = SplitName::Test)]
    pub split: SplitName,
    /// Score only the first examples of the split; 0 means all
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = parse::whole::<usize>(0..=u64::MAX))]
    pub limit: usize,
    /// Change a data setting, such as data.max_length=256
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Use the weights although the data, the program, the source of your own model or the
    /// instruction set have changed
    #[arg(long)]
    pub accept_changes: bool,
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  lra compare runs/listops@64-s4d-mini-s0-0a1b2c3d runs/listops@64-performer-mini-s0-4e5f6a7b
  lra compare runs/A runs/B --split val --json";

#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub struct CompareArgs {
    /// Folder of a finished run
    pub first: PathBuf,
    /// Folder of another run on the same data
    pub second: PathBuf,
    #[command(flatten)]
    pub on: ScoredData,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub computing: Computing,
    #[command(flatten)]
    pub place: DataPlace,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  lra explain runs/listops@64-performer-mini-s0-4e5f6a7b              by length, depth and class
  lra explain runs/listops@64-performer-mini-s0-4e5f6a7b --show 3     and the three worst examples
  lra explain runs/pathfinder@32-s4d-mini-s0-0a1b2c3d --png worst.png
  lra explain runs/pathfinder@32-s4d-mini-s0-0a1b2c3d --format html > page.html";

#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub struct ExplainArgs {
    /// Folder of a finished run
    pub run: PathBuf,
    #[command(flatten)]
    pub on: ScoredData,
    /// Also print the N wrong predictions with the largest loss
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::whole::<usize>(0..=u64::MAX))]
    pub show: usize,
    /// Draw the wrong predictions with the largest loss, if examples are pictures
    #[arg(long, value_name = "FILE")]
    pub png: Option<PathBuf>,
    /// Format of the tables: text, markdown, csv, json, latex or html, a page with the worst
    /// predictions
    #[arg(long, default_value_t = Format::Text)]
    pub format: Format,
    /// Write the tables, or the page, to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub computing: Computing,
    #[command(flatten)]
    pub place: DataPlace,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}

const REPLAY_EXAMPLES: &str = "\
Examples:
  lra replay runs/listops@64-s4d-mini-s0-0a1b2c3d      train it again and compare
  lra replay record.json --out elsewhere               a record from another machine
  lra replay record.json --force                       once more, in place of the last replay";

#[derive(Debug, Args)]
#[command(after_help = REPLAY_EXAMPLES)]
pub struct ReplayArgs {
    /// Record of a run, or its folder
    pub record: PathBuf,
    /// Recipe file of the run, if its recipe was a file
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<String>,
    /// Folder of the run whose weights the run started from, if it did
    #[arg(long, value_name = "RUN")]
    pub from: Option<PathBuf>,
    /// Folder to create the new run folder in
    #[arg(long, default_value = "replays", value_name = "DIR")]
    pub out: PathBuf,
    /// Replace an earlier replay in that folder
    #[arg(long)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub computing: Computing,
    #[command(flatten)]
    pub place: DataPlace,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}

const DIFF_EXAMPLES: &str = "\
Examples:
  lra diff runs/listops@64-s4d-mini-s0-0a1b2c3d runs/listops@64-s4d-mini-s0-8c9d0e1f
  lra diff runs/A runs/B --json | jq .settings";

#[derive(Debug, Args)]
#[command(after_help = DIFF_EXAMPLES)]
pub struct DiffArgs {
    /// Folder of a run
    pub first: PathBuf,
    /// Folder of another run
    pub second: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
