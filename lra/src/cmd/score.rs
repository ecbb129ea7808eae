//! `lra score`: scores the weights of a finished run.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use candle_core::Device;
use datasets::{Baseline, SplitName, Splits};
use serde_json::json;

use crate::cell::changes;
use crate::cli::data::DataPlace;
use crate::cli::score::{Computing, ScoreArgs, ScoredData};
use crate::cmd::Kind;
use crate::error::{Class, Classify, Error, Result};
use crate::eval::Score;
use crate::progress::Reporter;
use crate::trained::{Prediction, TrainedRun};
use crate::{cmd, device, runtime};

/// Runs the command.
pub fn run(arguments: &ScoreArgs) -> Result<ExitCode> {
    if let Some(file) = &arguments.predictions {
        cmd::check_file("--predictions", file, &[Kind::CSV, Kind::JSON_LINES])?;
    }
    let scoring = Scoring::new(&arguments.computing, &arguments.place, arguments.quiet)?;
    let scored = scoring.score(&arguments.run, &arguments.on)?;
    if let Some(file) = &arguments.predictions {
        write_predictions(file, &scored.predictions)?;
    }
    match arguments.json {
        true => cmd::print_json(&scored.to_json())?,
        false => cmd::print(scored.text())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The means to score runs.
pub struct Scoring {
    data: std::path::PathBuf,
    device: Device,
    reporter: Reporter,
}

/// A run with its score on a split.
pub struct Scored {
    /// The run.
    pub run: TrainedRun,
    /// Its data.
    pub splits: Splits,
    /// The split.
    pub split: SplitName,
    /// The score.
    pub score: Score,
    /// The predictions, in the order of the rows.
    pub predictions: Vec<Prediction>,
}

impl Scoring {
    /// Sets the process up as the flags ask.
    pub fn new(computing: &Computing, place: &DataPlace, quiet: bool) -> Result<Self> {
        runtime::set_up(Some(computing.threads))?;
        Self::of_set_up(&computing.device, place, quiet)
    }

    /// Returns the means in a process that is set up.
    pub fn of_set_up(device: &str, place: &DataPlace, quiet: bool) -> Result<Self> {
        Ok(Scoring {
            data: place.path(),
            device: device::select(device)?,
            reporter: Reporter::new(quiet),
        })
    }

    /// Scores the run in the folder `path`. A score that is not the one of its record is reported.
    ///
    /// # Errors
    /// The run was made with other data, by another program or on another machine, and this is not
    /// accepted; or it cannot be scored.
    pub fn score(&self, path: &Path, on: &ScoredData) -> Result<Scored> {
        self.score_opened(path, TrainedRun::open(path, &on.assignments)?, on)
    }

    /// Scores a run that was opened from the folder `path`, as [`Scoring::score`] does.
    ///
    /// # Errors
    /// Errors of [`Scoring::score`].
    pub fn score_opened(&self, path: &Path, run: TrainedRun, on: &ScoredData) -> Result<Scored> {
        let splits = run.splits(&self.data, &self.reporter)?;
        let changes = run.changes(&self.data, &self.device, &self.reporter)?;
        if !changes.is_empty() && !on.accept_changes {
            return Err(Error::usage(format!(
                "{}; train it again with `lra run --force`, or use its weights anyway with --accept-changes",
                changes::of_finished(path, &changes)
            )));
        }
        let (score, predictions) =
            run.score(&splits, on.split, on.limit, &self.device, &self.reporter)?;
        let contradiction = run.contradiction(on.split, on.limit, &score);
        let resumed = run.record.changed_on_the_way();
        let resumed = resumed.map(|changes| format!("it was resumed after changes: {changes}"));
        for remark in changes.iter().chain(&contradiction).chain(&resumed) {
            self.reporter.note(&format!("{}: {remark}", path.display()));
        }
        Ok(Scored {
            run,
            splits,
            split: on.split,
            score,
            predictions,
        })
    }
}

impl Scored {
    /// Returns the name of the scored examples: `2,000 examples of listops@64, test`.
    pub fn examples(&self) -> String {
        let examples = results::counted(self.score.examples as u64, "example");
        format!("{examples} of {}, {}", self.run.label(), self.split.name())
    }

    /// Returns the scored examples with their accuracy, such as `2,000 examples of listops@64,
    /// test: 35.15 % right`.
    pub fn accuracy(&self) -> String {
        let percent = 100.0 * self.score.accuracy;
        format!("{}: {percent:.2} % right", self.examples())
    }

    /// Returns the accuracies of predictors without a model, which are known for the test split.
    fn baselines(&self) -> Vec<Baseline> {
        match self.split {
            SplitName::Test => self.run.task.baselines(&self.splits),
            _ => Vec::new(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{}\n  on          {}\n",
            self.run.record.id,
            self.examples()
        );
        let _ = writeln!(text, "  accuracy    {:.2} %", 100.0 * self.score.accuracy);
        for Baseline { name, accuracy } in self.baselines() {
            let _ = writeln!(text, "              {:.2} % {name}", 100.0 * accuracy);
        }
        let _ = writeln!(text, "  loss        {:.4}", self.score.loss);
        if let Some(dense) = &self.score.dense {
            let labels = results::counted(dense.labels, "label");
            let _ = writeln!(
                text,
                "  positions   {:.2} % of {labels} at single positions",
                100.0 * dense.accuracy
            );
            for group in &dense.groups {
                let _ = writeln!(
                    text,
                    "              {:.2} % {}",
                    100.0 * group.accuracy,
                    group.name
                );
            }
        }
        text
    }

    fn to_json(&self) -> serde_json::Value {
        let baselines = self.baselines().into_iter();
        let baselines = baselines.map(|it| json!({ "name": it.name, "accuracy": it.accuracy }));
        json!({
            "id": self.run.record.id,
            "run": self.run.path,
            "data": self.run.label(),
            "data_digest": self.splits.manifest.digest,
            "split": self.split.name(),
            "examples": self.score.examples,
            "accuracy": self.score.accuracy,
            "loss": self.score.loss,
            "dense": self.score.dense,
            "baselines": baselines.collect::<Vec<_>>(),
        })
    }
}

/// Writes the predictions as JSON lines if the name of the file ends in `.jsonl`, else as CSV.
fn write_predictions(file: &Path, predictions: &[Prediction]) -> Result<()> {
    let bytes = match Kind::JSON_LINES.is_of(file) {
        true => json_lines(predictions),
        false => comma_separated(predictions).during(Class::Run, "writing the predictions")?,
    };
    cmd::write_file(file, &bytes)
}

fn json_lines(predictions: &[Prediction]) -> Vec<u8> {
    let line = |it: &Prediction| {
        let line = json!({
            "row": it.row,
            "label": it.label,
            "prediction": it.class(),
            "loss": it.loss(),
            "logits": it.logits,
        });
        format!("{line}\n")
    };
    predictions
        .iter()
        .map(line)
        .collect::<String>()
        .into_bytes()
}

fn comma_separated(predictions: &[Prediction]) -> std::result::Result<Vec<u8>, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let classes = predictions.first().map_or(0, |it| it.logits.len());
    let logits = (0..classes).map(|class| format!("logit_{class}"));
    let names = ["row", "label", "prediction", "loss"].map(str::to_owned);
    writer.write_record(names.into_iter().chain(logits))?;
    for it in predictions {
        let numbers = [it.row, it.label, it.class()].map(|number| number.to_string());
        let logits = it.logits.iter().map(f32::to_string);
        let loss = it.loss().to_string();
        writer.write_record(numbers.into_iter().chain([loss]).chain(logits))?;
    }
    writer
        .into_inner()
        .map_err(|error| error.into_error().into())
}
