//! The command line.

pub mod agree;
pub mod bench;
pub mod data;
pub mod import;
pub mod mini;
pub mod parse;
pub mod publish;
pub mod repro;
pub mod score;
pub mod sweep;
pub mod unknown;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use datasets::{Protocol, Source};
use results::Format;
use results::tables::TableKind;

use self::data::{DataPlace, DataVerb};
use crate::recipe;
use crate::task_choice::TaskChoice;
use crate::tracker::TrackerKind;

/// The Long Range Arena: train efficient Transformers on long sequences, fairly and repeatably.
#[derive(Debug, Parser)]
#[command(name = "lra", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

impl Cli {
    /// Reads the words of a command line, the name of the program first.
    ///
    /// # Errors
    /// They are no command, or ask for help or the version.
    pub fn read(words: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Cli, clap::Error> {
        let mut command = Cli::command();
        let mut matches = command.try_get_matches_from_mut(with_negative_values(words))?;
        let read = Cli::from_arg_matches_mut(&mut matches);
        read.map_err(|error| error.format(&mut command))
    }
}

/// Joins each word that begins like a negative number to the option before it, as in `--steps=-1`.
/// No option begins so, and the reader of the value says what it takes.
fn with_negative_values(words: impl IntoIterator<Item = impl Into<OsString>>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut options = true;
    for word in words.into_iter().map(Into::into) {
        options &= word != "--";
        let before = joined.last_mut().filter(|before| is_bare_option(before));
        match before.filter(|_| options && begins_negative(&word)) {
            Some(option) => {
                option.push("=");
                option.push(word);
            }
            None => joined.push(word),
        }
    }
    joined
}

/// Returns whether a word is an option without a value, such as `--steps`.
fn is_bare_option(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    bytes.len() > 2 && bytes.starts_with(b"--") && !bytes.contains(&b'=')
}

/// Returns whether a word begins like a negative number, such as `-1G`, `-1..2` or `-.5`.
fn begins_negative(word: &OsStr) -> bool {
    matches!(
        word.as_encoded_bytes(),
        [b'-', b'0'..=b'9', ..] | [b'-', b'.', b'0'..=b'9', ..]
    )
}

const EXAMPLES: &str = "\
Examples:
  lra tour                                            the tutorial in a minute
  lra run --task listops --model performer            train one model on one task
  lra run --task listops --model linear --seeds 0..3  one model with three seeds
  lra data show listops                               look at an example and the trivial baselines
  lra report                                          tables of all runs under runs/
  lra mini s4d --glance                               a model's rank in the small protocol
  lra sweep --tasks listops,pathfinder --seeds 0..3   all models on two tasks, three seeds each
  lra repro tay2021 listops performer --dry-run       what it takes to reproduce a published cell
  lra bench --quick                                   speed and memory of all models over length";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Train and score one cell of the table: a model on a task
    Run(RunArgs),
    /// Train and score a matrix of cells: tasks by models by seeds
    Sweep(sweep::SweepArgs),
    /// Measure speed and memory of training steps over length, model by model
    Bench(bench::BenchArgs),
    /// Make, fetch, verify, list and look at data
    #[command(subcommand, after_help = data::EXAMPLES)]
    Data(DataVerb),
    /// Make tables of accuracy, speed and memory from the records of finished runs
    Report(ReportArgs),
    /// Write a static site of published figures, models, tasks and runs
    Publish(publish::PublishArgs),
    /// Train a published cell as its source did, and compare it with the printed figure
    Repro(repro::ReproArgs),
    /// Measure how well runs rank models in the order of the published tables
    Agree(agree::AgreeArgs),
    /// Train a model on the small protocol, and show its rank among the models that were run
    Mini(mini::MiniArgs),
    /// Merge the records of folders and files into one CSV file, each cell once
    Merge(agree::MergeArgs),
    /// Import accuracies that others measured, to show them beside runs
    Import(import::ImportArgs),
    /// Compare the runs of a folder with a baseline; the exit code is 1 if any cell got worse
    Check(CheckArgs),
    /// Score the weights of a finished run, on any split or length
    Score(score::ScoreArgs),
    /// Compare two finished runs on the same examples, with an interval
    Compare(score::CompareArgs),
    /// Break the score of a finished run down by length, depth, distance and class
    Explain(score::ExplainArgs),
    /// Train a recorded run again and compare its scores to the bit
    Replay(score::ReplayArgs),
    /// Show how two runs differ: settings, data, program, machine
    Diff(score::DiffArgs),
    /// List tasks, models, recipes, published results, devices, components, settings and schemas
    List(ListArgs),
    /// Test a model: gradients, padding, rows, lengths, costs, causality, determinism
    CheckModel(CheckModelArgs),
    /// Test a task: seeds, splits, labels, lengths, stored data, trivial predictors
    CheckTask(CheckTaskArgs),
    /// Start a program with a model or a task of your own
    #[command(subcommand, after_help = NEW_EXAMPLES)]
    New(NewVerb),
    /// Run a short tutorial in its own folder: shows each command before it runs, and says what to
    /// look at
    Tour(TourArgs),
    /// Print completions for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        #[arg(ignore_case = true)]
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one file per command
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// Folder to write them to
        folder: PathBuf,
    },
    /// Compare mixers with other implementations, using case files
    Parity(ParityArgs),
    /// Answer a request for a measurement, as JSON from standard input to standard output; started
    /// by other commands
    #[command(hide = true)]
    Measure,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  lra completions bash > ~/.local/share/bash-completion/completions/lra
  lra completions zsh > ~/.zfunc/_lra";

const MAN_EXAMPLES: &str = "\
Examples:
  lra man ~/.local/share/man/man1    read by `man lra` and `man lra-run`";

const RUN_EXAMPLES: &str = "\
Examples:
  lra run --task listops --model performer
  lra run --task listops --model transformer --recipe nystromformer --steps 200 --set train.warmup=40
  lra run --task listops --model linear --seeds 0..3 --set train.learning_rate=1e-3
  lra run --task image:synthetic --model linear --recipe smoke    generated data: no file is needed
  lra run --task listops --model performer --pretrain masked    learn hidden tokens of the inputs first
  lra run --task mine:birds --model s4d                   a folder of your own (docs/own-task.md)
  lra run --task text:synthetic --model s4d --recipe smoke --from runs/A    start from the weights of a finished run
  lra run --task text --model s4d --recipe s4 --dry-run   every setting, without a run
  lra run --task listops --model performer --resume       continue an interrupted or failed run
  lra run --task toy --model bag --recipe smoke --tracker mlflow    a file store for MLflow in the run's folder
  lra run --task toy --model bag --recipe smoke --json | jq .scores";

#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    /// Task (see `lra list tasks`), as `task` or `task:source`; or `mine:FOLDER`, a folder of your own
    /// with train, val and test
    #[arg(long)]
    pub task: TaskChoice,
    /// Model (see `lra list models`), as `name`, `name:option=value` or `name:block.norm=rms`
    #[arg(long)]
    pub model: String,
    /// Recipe (see `lra list recipes`), or the path of a .toml file
    #[arg(long, default_value = recipe::DEFAULT)]
    pub recipe: String,
    /// Seed of initialisation, batch order and random draws
    #[arg(
        long,
        default_value_t = 0,
        value_parser = parse::seed,
        conflicts_with = "seeds"
    )]
    pub seed: u64,
    /// Several seeds, one after the other: FIRST..END, END not included, or a list
    #[arg(long, value_parser = parse::seeds, value_name = "A..B")]
    pub seeds: Option<parse::Seeds>,
    /// Number of updates (the same as --set train.steps=N)
    #[arg(long, value_name = "N", value_parser = parse::whole::<usize>(0..=u64::MAX))]
    pub steps: Option<usize>,
    /// Examples per forward pass; gradients are accumulated (the same as --set train.micro_batch=N)
    #[arg(long, value_name = "N", value_parser = parse::whole::<usize>(0..=u64::MAX))]
    pub micro_batch: Option<usize>,
    /// Predict tokens of the training inputs first: masked, or next for causal models (the same as
    /// --set pretrain.kind=KIND; pretrain.share, .steps, .batch and .learning_rate are the task's
    /// and the training's own unless set)
    #[arg(long, value_name = "KIND")]
    pub pretrain: Option<String>,
    /// Start from the weights of a finished run of the same model, of any task or length. Weights
    /// whose name and shape match are taken; the others start from random values, and are listed
    #[arg(long, value_name = "RUN")]
    pub from: Option<PathBuf>,
    /// Change any setting, such as train.learning_rate=1e-3, block.layers=4 or data.max_length=512
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,
    /// Split rules: clean (validation held out of train) or tay2021 (as published)
    #[arg(long, default_value_t = Protocol::Clean)]
    pub protocol: Protocol,
    /// Where the data comes from, unless --task names the source: generated, official or synthetic
    /// [default: the task's own]
    #[arg(long)]
    pub source: Option<Source>,
    /// Accept incomplete files of image (the same as --set data.allow_partial=true); the record
    /// says so
    #[arg(long)]
    pub allow_partial: bool,
    /// Precision of matrix products: f32, bf16, or on NVIDIA GPUs tf32 (the same as --set
    /// train.precision=P)
    #[arg(long, value_name = "P")]
    pub precision: Option<String>,
    #[command(flatten)]
    pub machine: Machine,
    #[command(flatten)]
    pub place: DataPlace,
    /// Folder to create run folders in
    #[arg(long, default_value = "runs", value_name = "DIR")]
    pub out: PathBuf,
    /// Print the settings that the run would have, as TOML, and run nothing
    #[arg(long, conflicts_with_all = ["resume", "force"])]
    pub dry_run: bool,
    /// Resume from the last checkpoint of a run that was stopped, was killed or failed
    #[arg(long, conflicts_with = "force")]
    pub resume: bool,
    /// Start over, even if the run folder holds results
    #[arg(long)]
    pub force: bool,
    /// Reuse a score or a checkpoint although the data, the program, the source of your own model
    /// or the instruction set have changed; the record of a resumed run says so
    #[arg(long, conflicts_with = "force")]
    pub accept_changes: bool,
    /// Also save the state and stop when standard input ends; for a parent process that holds a
    /// pipe
    #[arg(long, hide = true)]
    pub stop_on_eof: bool,
    /// Also write event files for TensorBoard into each run folder
    #[arg(long)]
    pub tensorboard: bool,
    /// Also write each run for an experiment tracker into its folder, without a network: wandb, mlflow
    /// or trackio, several with commas. A finished run is written without being trained again
    #[arg(long, value_name = "NAME", value_delimiter = ',', ignore_case = true)]
    pub tracker: Vec<TrackerKind>,
    /// Print the record as JSON instead of tables (a list of records with --seeds)
    #[arg(long)]
    pub json: bool,
    /// Print no banner and no progress, but still report that a score is an old one
    #[arg(long, short)]
    pub quiet: bool,
}

/// Limits on the resources that a run may use.
#[derive(Debug, Args)]
pub struct Machine {
    /// Device: auto, cpu or cuda:N (see `lra list devices`)
    #[arg(long, default_value = "auto", value_parser = parse::device)]
    pub device: String,
    /// Worker threads; 0 means all cores
    #[arg(long, default_value_t = 0, value_parser = parse::threads, value_name = "N")]
    pub threads: usize,
    /// Limit on the total memory of the program, such as 8G; beyond it the run is recorded as out
    /// of memory [default: 95 % of what the machine, its container and `ulimit` allow]
    #[arg(long, value_parser = parse::bytes, value_name = "SIZE")]
    pub memory_limit: Option<usize>,
}

const REPORT_EXAMPLES: &str = "\
Examples:
  lra report                                          accuracy, speed and memory of the runs under runs/
  lra report --table comparison --against mega        differences and verdicts beside a published source
  lra report --table reproduced                       the same for every source whose recipe was followed
  lra report --format html --output report.html       one page with charts, for a browser
  lra report --charts plots                           every chart as SVG and PNG
  lra report --splice docs/measured.md                keep the tables of a Markdown file fresh";

#[derive(Debug, Args)]
#[command(after_help = REPORT_EXAMPLES)]
pub struct ReportArgs {
    /// Folder of run folders, or a file of records (see `lra merge`)
    #[arg(default_value = "runs")]
    pub dir: PathBuf,
    /// Table to make [default: accuracy, speed and memory]
    #[arg(long, value_name = "NAME", value_parser = parse::table(), ignore_case = true)]
    pub table: Option<&'static TableKind>,
    /// Published results to show beside ours (see `lra list published`)
    #[arg(long, default_value = "tay2021", value_name = "KEY")]
    pub against: String,
    /// Format of the tables: text, markdown, csv, json, latex or html (one page with charts, opens
    /// offline)
    #[arg(long, default_value_t = Format::Text)]
    pub format: Format,
    /// Session of `lra bench` to show in pages, charts and splices [default: the latest under
    /// DIR/bench]
    #[arg(long, value_name = "FILE")]
    pub bench: Option<PathBuf>,
    /// File of imported accuracies (see `lra import`) [default: DIR/imported.csv]
    #[arg(long, value_name = "FILE")]
    pub imported: Option<PathBuf>,
    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also write every chart into a folder, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    pub charts: Option<PathBuf>,
    /// Insert tables between the markers of a Markdown file instead of printing them: the table of
    /// --table, or every table that has markers
    #[arg(long, value_name = "FILE", conflicts_with_all = ["format", "output"])]
    pub splice: Option<PathBuf>,
    /// Fail if a folder holds a damaged record
    #[arg(long)]
    pub strict: bool,
}

const CHECK_EXAMPLES: &str = "\
Examples:
  lra check --baseline smoke.csv --update runs       write the baseline from the runs of today
  lra check --baseline smoke.csv runs                compare later runs with it
  lra check --baseline smoke.csv runs --format markdown --junit check.xml
  lra check --baseline smoke.csv runs --no-speed     where machines are busy";

#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub struct CheckArgs {
    /// Folder of run folders
    #[arg(default_value = "runs")]
    pub dir: PathBuf,
    /// The baseline, a CSV file
    #[arg(long, value_name = "FILE")]
    pub baseline: PathBuf,
    /// Write the baseline from the runs instead of checking them
    #[arg(long)]
    pub update: bool,
    /// With --update: also take cells that diverged or failed
    #[arg(long, requires = "update")]
    pub allow_failed: bool,
    /// Reference model; speeds are divided by its speed, so that machines may differ
    #[arg(long, default_value = "transformer", value_name = "MODEL")]
    pub reference: String,
    /// Level of the one-sided test on accuracies
    #[arg(long, default_value_t = 0.99, value_parser = parse::share, value_name = "SHARE")]
    pub level: f64,
    /// Fraction by which the last loss may change if training cannot be equal to the bit (another
    /// instruction set, a GPU)
    #[arg(long, default_value_t = 0.01, value_parser = parse::share, value_name = "SHARE")]
    pub loss_threshold: f64,
    /// Fraction by which the mean norm of the gradients may change in that case
    #[arg(long, default_value_t = 0.1, value_parser = parse::share, value_name = "SHARE")]
    pub gradient_threshold: f64,
    /// Fraction by which peak memory may grow
    #[arg(long, default_value_t = 0.01, value_parser = parse::share, value_name = "SHARE")]
    pub memory_threshold: f64,
    /// Fraction of its relative speed that a cell may lose beyond the noise
    #[arg(long, default_value_t = 0.25, value_parser = parse::share, value_name = "SHARE")]
    pub speed_threshold: f64,
    /// Do not judge speeds, for runs of milliseconds and for machines that do other work
    #[arg(long, conflicts_with = "speed_threshold")]
    pub no_speed: bool,
    /// Format of the table: text, markdown, csv, json, latex or html
    #[arg(long, default_value_t = Format::Text)]
    pub format: Format,
    /// Write the table to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also write the verdicts as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Fail if a folder holds a damaged record
    #[arg(long)]
    pub strict: bool,
}

const LIST_EXAMPLES: &str = "\
Examples:
  lra list tasks
  lra list models --recipe tay2021 --task text     sizes as in the 2021 configuration
  lra list settings train                          what --set train.* can be
  lra list schemas record                          the JSON schema of record.json
  lra list models reformer                         paper, equation, cost, options
  lra list published tay2021                       figures of one source, where they were read, what is wrong with them
  lra list published --json | jq .";

#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub struct ListArgs {
    /// Registry to list
    #[arg(value_enum, ignore_case = true)]
    pub what: Registry,
    /// Print one entry in full: its documentation, or the figures of a published source (the same
    /// as --long NAME)
    #[arg(conflicts_with = "long")]
    pub name: Option<String>,
    /// Print one entry in full
    #[arg(long, value_name = "NAME")]
    pub long: Option<String>,
    /// Count the models' parameters with this recipe [default: mini]
    #[arg(long)]
    pub recipe: Option<String>,
    /// Count the models' parameters for this task [default: listops]
    #[arg(long)]
    pub task: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const CHECK_MODEL_EXAMPLES: &str = "\
Compares gradients with difference quotients in f64, `is_causal` with the effect of later tokens, the card's costs with the memory and \
the operations of passes, and `flops` with the products computed. A promise that depends on a broken one is not tested. The report of \
a broken promise names a line of the model's source. An error of a tensor operation names the line that called it.

Examples:
  lra check-model performer
  cargo run --release -- check-model my_model     in a program with a model of its own (`lra new model my_model`)";

#[derive(Debug, Args)]
#[command(after_help = CHECK_MODEL_EXAMPLES)]
pub struct CheckModelArgs {
    /// Model (see `lra list models`), with options if wanted: mamba, or mamba:direction=sum
    pub model: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const CHECK_TASK_EXAMPLES: &str = "\
Builds the data in a temporary folder, with at most 2,000 examples of train. Checks the description and the options, whether equal \
seeds give equal bytes and different seeds do not, whether splits have examples in common, labels and lengths, stored data, the text of \
examples, and trivial predictors. Remarks point out other findings, such as a task that a trivial predictor solves.

Examples:
  lra check-task toy
  lra check-task mine:birds                       a folder of your own
  cargo run --release -- check-task my_task       in a program with a task of its own (`lra new task my_task`)";

#[derive(Debug, Args)]
#[command(after_help = CHECK_TASK_EXAMPLES)]
pub struct CheckTaskArgs {
    /// Task (see `lra list tasks`), or mine:FOLDER [default: every task of this program's own]
    pub task: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const NEW_EXAMPLES: &str = "\
Examples:
  lra new model my_mixer
  lra new task my_task --kind positions";

const NEW_MODEL_EXAMPLES: &str = "\
Examples:
  lra new model my_mixer
  cd my_mixer && cargo run --release -- run --task listops --model my_mixer";

const NEW_TASK_EXAMPLES: &str = "\
A folder of examples is a task without any code: --task mine:FOLDER.

Examples:
  lra new task my_task
  lra new task my_task --kind positions    labels at positions
  cd my_task && cargo run --release -- run --task my_task --model s4d";

/// Name and place of a new crate.
#[derive(Debug, Args)]
pub struct NewPlace {
    /// Name of the model or task and its crate: lower-case letters, digits and underscores
    pub name: String,
    /// Folder to make [default: the name]
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// Folder of the crate `lra` in its sources [default: where this program was built]
    #[arg(long, value_name = "DIR")]
    pub lra: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum NewVerb {
    /// Make a crate with a model of your own: a program that is lra plus this model
    #[command(after_help = NEW_MODEL_EXAMPLES)]
    Model {
        #[command(flatten)]
        place: NewPlace,
    },
    /// Make a crate with a task of your own: a program that is lra plus this task
    #[command(after_help = NEW_TASK_EXAMPLES)]
    Task {
        #[command(flatten)]
        place: NewPlace,
        /// Kind of labels
        #[arg(long, value_enum, default_value_t = TaskKind::Labels, ignore_case = true)]
        kind: TaskKind,
    },
}

/// Labels of a new task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TaskKind {
    /// A label for each sequence
    Labels,
    /// A label for each position, too
    Positions,
    /// A label for two sequences
    Pairs,
}

const TOUR_EXAMPLES: &str = "\
Examples:
  lra tour
  lra tour --out /tmp/lra-tour";

#[derive(Debug, Args)]
#[command(after_help = TOUR_EXAMPLES)]
pub struct TourArgs {
    /// Folder for data and runs
    #[arg(long, default_value = "lra-tour", value_name = "DIR")]
    pub out: PathBuf,
}

const PARITY_EXAMPLES: &str = "\
Examples:
  lra parity models/tests/parity/xcit-1.safetensors
  lra parity models/tests/parity/xcit-1.safetensors --json";

#[derive(Debug, Args)]
#[command(after_help = PARITY_EXAMPLES)]
pub struct ParityArgs {
    /// Case files (see models/tests/parity)
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Registry {
    Tasks,
    Models,
    Recipes,
    Published,
    Devices,
    /// Options of norm, residual, positions and so on, around any model
    Components,
    /// All settings of --set with defaults, values and meaning; NAME is a section or a setting
    Settings,
    /// JSON schemas of records, logs, benchmarks and manifests; NAME prints one
    Schemas,
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;
    use std::time::Duration;

    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;
    use crate::spec::RunRequest;
    use crate::sweep::plan::Shard;

    /// Checks that a command and all below it take every word of a list in any case.
    fn check_cases(command: &clap::Command) {
        for argument in command.get_arguments() {
            let words = argument.get_possible_values();
            let takes = argument.get_num_args().is_some_and(|it| it.takes_values());
            if takes && words.len() > 1 {
                assert!(
                    argument.is_ignore_case_set(),
                    "{}: {}",
                    command.get_name(),
                    argument.get_id()
                );
            }
        }
        command.get_subcommands().for_each(check_cases);
    }

    #[test]
    fn words_are_taken_in_any_case() {
        let mut command = Cli::command();
        command.build();
        check_cases(&command);
        for words in [
            "lra report --table ACCURACY",
            "lra run --task toy --model bag --device CPU",
            "lra sweep --tasks toy --emit Slurm",
            "lra sweep --tasks toy --devices CPU,cpu",
            "lra completions Bash",
        ] {
            Cli::read(words.split(' ')).unwrap_or_else(|error| panic!("{words}: {error}"));
        }
        for words in [
            "lra run --task toy --model bag --device zzz",
            "lra sweep --tasks toy --device zzz --dry-run",
            "lra sweep --tasks toy --devices zzz:0..2",
            "lra sweep --tasks toy --devices cpu,zzz",
            "lra mini bag --device zzz",
            "lra bench --device zzz",
        ] {
            assert!(Cli::read(words.split(' ')).is_err(), "{words}");
        }
    }

    /// Value names of options that take numbers, sizes, ranges or times.
    const NUMBERS: [&str; 6] = ["N", "SIZE", "TIME", "SHARE", "A..B", "I/N"];

    /// Returns whether an option takes numbers, sizes, ranges or times.
    fn takes_numbers(argument: &clap::Arg) -> bool {
        let types = [
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
            TypeId::of::<f64>(),
            TypeId::of::<Duration>(),
            TypeId::of::<parse::Seeds>(),
            TypeId::of::<parse::Devices>(),
            TypeId::of::<Shard>(),
        ];
        let read = argument.get_value_parser().type_id();
        let mut names = argument.get_value_names().into_iter().flatten();
        argument.get_action().takes_values()
            && (types.iter().any(|it| read == *it)
                || names.any(|it| NUMBERS.contains(&it.as_str())))
    }

    /// Checks the options of a command and of all below it, and counts them. `words` lead to the
    /// command.
    fn check_numbers(command: &clap::Command, words: &[&str]) -> usize {
        let mut count = 0;
        for argument in command.get_arguments().filter(|it| takes_numbers(it)) {
            let flag = format!("--{}", argument.get_long().expect("an option"));
            for value in [
                "-1", "-1G", "-1..2", "-1,2", "-2s", "-0.5", "-.5", "-1/4", "zzz", "",
            ] {
                let given = [flag.as_str(), value];
                let error = Cli::read(words.iter().chain(&given)).unwrap_err();
                let told = error.to_string();
                let of_reader = error.kind() == ErrorKind::ValueValidation;
                assert!(
                    of_reader && told.contains(&format!("for '{flag}")),
                    "{words:?} {flag} {value}: {told}"
                );
                for foreign in [
                    "invalid digit",
                    "cannot parse",
                    "invalid float",
                    "too large",
                ] {
                    assert!(!told.contains(foreign), "{words:?} {flag} {value}: {told}");
                }
            }
            count += 1;
        }
        let below = command.get_subcommands();
        count
            + below
                .map(|it| check_numbers(it, &[words, &[it.get_name()]].concat()))
                .sum::<usize>()
    }

    /// Options of numbers answer in the words of their own readers, also to values that begin with
    /// a minus: they are no unknown options.
    #[test]
    fn every_option_of_a_number_says_what_it_takes() {
        let count = check_numbers(&Cli::command(), &["lra"]);
        assert!(count > 40, "{count}");
        for (words, told) in [
            ("run --memory-limit -1G", "not a size of at least one byte"),
            ("run --seeds -1..2", "'-1' is not a seed from 0 to"),
            ("run --steps -1", "not a whole number of at least 0"),
            ("bench --per-round -2s", "not a duration above zero"),
            ("bench --lengths 64,-1", "not a whole number of at least 0"),
        ] {
            let error = Cli::read(format!("lra {words}").split(' ')).unwrap_err();
            assert!(error.to_string().contains(told), "{words}: {error}");
        }
    }

    /// A word behind another word than an option, or behind `--`, is not joined.
    #[test]
    fn only_values_of_options_are_joined_to_them() {
        let joined = |words: &str| {
            let words = with_negative_values(words.split(' '));
            let words: Vec<_> = words.iter().map(|it| it.to_string_lossy()).collect();
            words.join(" ")
        };
        for (words, expected) in [
            ("lra run --steps -1", "lra run --steps=-1"),
            ("lra run --out=a -1", "lra run --out=a -1"),
            ("lra run -q -1", "lra run -q -1"),
            ("lra run --out a -1", "lra run --out a -1"),
            ("lra run --steps --quiet", "lra run --steps --quiet"),
            ("lra run -- --steps -1", "lra run -- --steps -1"),
        ] {
            assert_eq!(joined(words), expected);
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Returns the words of the examples in a help text, without what a shell does with them and
    /// without the remark behind two blanks.
    fn examples(help: &str) -> Vec<Vec<String>> {
        let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
        let commands = lines.filter(|line| line.starts_with("lra "));
        let words = commands.map(|line| {
            let ends = ["  ", " | ", " > ", " && "];
            let ends = ends.iter().filter_map(|end| line.find(end));
            let line = &line[..ends.min().unwrap_or(line.len())];
            line.split(' ').map(str::to_owned).collect()
        });
        words.collect()
    }

    /// Checks the help of a command and of all below it.
    fn check_examples(command: &clap::Command, name: &str) {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_else(|| panic!("lra{name} has no examples"));
        let examples = examples(&help);
        assert!(!examples.is_empty(), "lra{name}: {help}");
        for words in examples {
            let told = words.join(" ");
            let cli = Cli::read(&words).unwrap_or_else(|error| panic!("{told}: {error}"));
            if let Verb::Run(run) = cli.verb
                // A folder of the reader's own is not here.
                && !datasets::tasks::mine::is_folder(&run.task.name)
            {
                let request = RunRequest {
                    task: &run.task.name,
                    model: &run.model,
                    recipe: &run.recipe,
                    source: run.task.source,
                    protocol: run.protocol,
                    seed: run.seed,
                    assignments: &run.assignments,
                };
                if let Err(error) = request.resolve() {
                    panic!("{told}: {error}");
                }
            }
        }
        for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            check_examples(below, &format!("{name} {}", below.get_name()));
        }
    }

    #[test]
    fn every_command_has_examples_that_can_be_typed() {
        check_examples(&Cli::command(), "");
    }
}
