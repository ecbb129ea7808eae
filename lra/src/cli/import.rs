//! `lra import`.

use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  lra import theirs.csv --source s4-rerun             columns source, task, model, accuracy, seed, settings
  lra import wandb.csv --column task=dataset --column accuracy=test/acc
  lra import results.json --task listops --model linear --source jax
  lra import table1.csv --source zhu2024              a table: columns model, listops, text, ..., in percent
  lra report                                          shows them beside the runs under runs/";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// CSV files with a header (.tsv: with tabs), JSON objects or JSON lines
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Name of the source [default: the column `source`, else the name of the file]
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// Task of all lines [default: the column `task` or `dataset`]
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// Model of all lines [default: the column `model` or `method`]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Column or JSON key of a field: source, task, model, accuracy (a fraction),
    /// accuracy_percent, deviation_percent, seed, seeds or settings; can be repeated
    #[arg(long = "column", value_name = "FIELD=HEADER")]
    pub columns: Vec<String>,
    /// Columns named after tasks hold fractions [default: percent]
    #[arg(long)]
    pub fractions: bool,
    /// File that collects imported accuracies; `lra report DIR` reads DIR/imported.csv
    #[arg(long, value_name = "FILE", default_value = "runs/imported.csv")]
    pub output: PathBuf,
}
