//! Experiment trackers: the logs of a run in the formats of other programs, in the run's folder.
//!
//! TensorBoard's event files are written line by line while a run trains. The others, each a
//! [`Tracker`], are made of `metrics.jsonl`, `timings.jsonl` and the record when a run has ended,
//! whatever its outcome, and again whenever the run is asked for. None needs a network or a package
//! of the tracker.

mod mlflow;
mod points;
mod protobuf;
pub mod tensorboard;
mod trackio;
mod wandb;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use results::Record;
use serde_json::Value;

use self::points::Point;

/// An experiment tracker whose format is written at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TrackerKind {
    /// Weights & Biases: a folder for `wandb sync`
    Wandb,
    /// MLflow: a file store `mlruns`
    Mlflow,
    /// Trackio: a CSV file for `trackio.import_csv`
    Trackio,
}

/// A format for an experiment tracker.
trait Tracker {
    /// Returns the name of its folder within the run's folder.
    fn folder(&self) -> &'static str;

    /// Writes the run into `folder`, which is new and empty.
    ///
    /// # Errors
    /// A file cannot be written.
    fn write(&self, folder: &Path, run: &Export<'_>) -> anyhow::Result<()>;
}

/// A run that is written for a tracker.
struct Export<'a> {
    /// The record.
    record: &'a Record,
    /// The settings by their path, such as `train.steps`.
    settings: &'a [(String, Value)],
    /// Its values in order of the steps; the last ones are the scores of the record.
    points: Vec<Point>,
    /// Time at which its first process began, in seconds since 1970.
    began: f64,
    /// Time at which it ended.
    ended: f64,
}

impl Export<'_> {
    /// Returns the values, each with its step and its name.
    fn values(&self) -> impl Iterator<Item = (&Point, &str, f64)> {
        let points = self.points.iter();
        points.flat_map(|point| {
            let values = point.values.iter();
            values.map(move |(name, value)| (point, name.as_str(), *value))
        })
    }
}

impl TrackerKind {
    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            TrackerKind::Wandb => "wandb",
            TrackerKind::Mlflow => "mlflow",
            TrackerKind::Trackio => "trackio",
        }
    }

    fn tracker(self) -> &'static dyn Tracker {
        match self {
            TrackerKind::Wandb => &wandb::Wandb,
            TrackerKind::Mlflow => &mlflow::Mlflow,
            TrackerKind::Trackio => &trackio::Trackio,
        }
    }
}

/// Returns the names of the folders that trackers have within a run's folder.
pub fn folders() -> impl Iterator<Item = &'static str> {
    let kinds = TrackerKind::value_variants().iter();
    let exported = kinds.map(|kind| kind.tracker().folder());
    exported.chain([tensorboard::FOLDER])
}

/// Writes the run in `folder`, with its record and its settings by path, for each of `kinds`, in
/// place of what was written for them before. Returns the folder of each.
///
/// # Errors
/// A log cannot be read, or a file cannot be written.
pub fn export(
    kinds: &[TrackerKind],
    folder: &Path,
    record: &Record,
    settings: &[(String, Value)],
) -> anyhow::Result<Vec<PathBuf>> {
    let (mut points, began, ended) = points::read(folder, record)?;
    points.extend(points::last(record, ended));
    let run = Export {
        record,
        settings,
        points,
        began,
        ended,
    };
    let mut places = Vec::new();
    for kind in kinds {
        let tracker = kind.tracker();
        let place = folder.join(tracker.folder());
        match disk::remove(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::create_dir_all(&place),
        }
        .with_context(|| format!("making {}", place.display()))?;
        tracker.write(&place, &run)?;
        places.push(place);
    }
    Ok(places)
}

/// Writes a file, with the folders above it.
fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let context = || format!("writing {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(context)?;
    }
    disk::write_unsynced(path, bytes).with_context(context)
}

#[cfg(test)]
mod testing {
    use results::record::{Outcome, Scores};
    use serde_json::json;

    use super::*;

    /// Calls `check` with a small run that was scored.
    pub(super) fn with_run(check: impl FnOnce(&Export<'_>)) {
        let text = json!({
            "schema": 1,
            "id": "toy-bag-smoke-s0-0a1b2c3d",
            "outcome": { "status": "scored" },
            "task": { "name": "toy", "label": "toy" },
            "model": { "name": "bag" },
            "spec_digest": "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9",
        });
        let mut record: Record = serde_json::from_value(text).unwrap();
        assert_eq!(record.outcome, Outcome::Scored);
        record.scores = Some(Scores {
            test_accuracy: Some(0.75),
            test_loss: Some(0.5),
            best_step: Some(2),
            steps: 2,
            ..Scores::default()
        });
        let settings = [
            ("train.steps".to_owned(), json!(2)),
            ("block.norm".to_owned(), json!("it's")),
        ];
        let point = |step, time, values: &[(&str, f64)]| Point {
            step,
            time,
            values: values
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect(),
        };
        check(&Export {
            record: &record,
            settings: &settings,
            points: vec![
                point(1, 1_000_000_000.25, &[("train/loss", 1.5)]),
                point(
                    2,
                    1_000_000_001.5,
                    &[("train/loss", 1.25), ("validation/accuracy, all", 0.5)],
                ),
                points::last(&record, 1_000_000_002.0).unwrap(),
            ],
            began: 1_000_000_000.125,
            ended: 1_000_000_002.0,
        });
    }
}
