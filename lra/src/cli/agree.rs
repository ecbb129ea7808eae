//! `lra agree` and `lra merge`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use results::Format;
use results::agreement::{Half, Measure};

const AGREE_EXAMPLES: &str = "\
Examples:
  lra agree                                           the table of the small protocol in this program
  lra agree runs                                      the runs under runs/
  lra agree records.csv --half sealed                 the anchors that nothing was tuned on
  lra agree runs --recipe mini --set block.family=xformer    every model in the same block
  lra agree runs --by accuracy --format json";

#[derive(Debug, Args)]
#[command(after_help = AGREE_EXAMPLES)]
pub struct AgreeArgs {
    /// Folder of run folders, or a file of records (see `lra merge`) [default: the table of the
    /// small protocol in this program, results/mini/records.csv]
    pub path: Option<PathBuf>,
    /// Recipe of the runs; required if there are runs of several
    #[arg(long, value_name = "NAME")]
    pub recipe: Option<String>,
    /// Settings that the runs got by --set, one option for each [default: runs without such
    /// settings, if there are any]
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Split rules of the runs: clean or tay2021; required if the runs have both
    #[arg(long, value_name = "NAME")]
    pub protocol: Option<String>,
    /// Number format of the runs: f32 or bf16; required if the runs have both
    #[arg(long, value_name = "FORMAT")]
    pub precision: Option<String>,
    /// Device of the runs, such as cpu or cuda:0; required if the runs have several
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Anchors to compare: those for tuning a protocol, or those that stay sealed until it is frozen
    /// [default: all]
    #[arg(long, value_name = "HALF", ignore_case = true)]
    pub half: Option<HalfChoice>,
    /// Measure to rank runs by [default: bits gained if all runs of the anchors have them, else
    /// accuracy]
    #[arg(long, value_name = "MEASURE", ignore_case = true)]
    pub by: Option<MeasureChoice>,
    /// Format of the table: text, markdown, csv, json or latex
    #[arg(long, default_value_t = Format::Text)]
    pub format: Format,
    /// Write the table to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Fail if a folder holds a damaged record
    #[arg(long)]
    pub strict: bool,
}

/// A half of the anchors.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum HalfChoice {
    /// Anchors whose name has a SHA-256 that ends with the bit 1
    Tuning,
    /// Anchors whose name has one that ends with the bit 0
    Sealed,
}

impl From<HalfChoice> for Half {
    fn from(choice: HalfChoice) -> Half {
        match choice {
            HalfChoice::Tuning => Half::Tuning,
            HalfChoice::Sealed => Half::Sealed,
        }
    }
}

/// Quantity that ranks runs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum MeasureChoice {
    /// Bits gained, averaged over the training
    Bits,
    /// Test accuracy
    Accuracy,
}

impl From<MeasureChoice> for Measure {
    fn from(choice: MeasureChoice) -> Measure {
        match choice {
            MeasureChoice::Bits => Measure::Bits,
            MeasureChoice::Accuracy => Measure::Accuracy,
        }
    }
}

const MERGE_EXAMPLES: &str = "\
Examples:
  lra merge runs --output records.csv                 a folder's records as one file
  lra merge ours.csv theirs.csv --output ours.csv     what two machines ran
  lra report records.csv                              tables of such a file
  lra sweep --tasks listops --on-file records.csv     run only what it lacks";

#[derive(Debug, Args)]
#[command(after_help = MERGE_EXAMPLES)]
pub struct MergeArgs {
    /// Folders of run folders, and files of records. Runs of the same settings count once; if two
    /// were scored and differ, it is an error
    #[arg(required = true, value_name = "FOLDER|FILE")]
    pub sources: Vec<PathBuf>,
    /// The CSV file to write; if it exists, it must be among the sources
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// Fail if a folder holds a damaged record
    #[arg(long)]
    pub strict: bool,
}
