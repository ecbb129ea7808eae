//! What a baseline holds of each cell.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::published::{model_rank, task_rank};
use crate::record::{Outcome, Record};
use crate::stats::Sample;
use crate::store::Loaded;
use crate::{Error, Result, atomic, metrics};

/// The cells of one state of the code, in the order of the tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    /// One row per cell.
    pub rows: Vec<Row>,
}

/// What makes two cells the same question.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Label of the task, such as `listops@256`.
    pub task: String,
    /// Source of its data.
    pub source: String,
    /// Protocol of its splits.
    pub protocol: String,
    /// Registry name of the model.
    pub model: String,
    /// Its variant.
    pub variant: String,
    /// Recipe.
    pub recipe: String,
    /// What the command line changed, blanks between.
    pub set: String,
    /// Number format of the arithmetic.
    pub precision: String,
    /// Device.
    pub device: String,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Which.
    pub key: Key,
    /// Digest of the data.
    pub data: String,
    /// Name of the processor that ran it.
    pub processor: String,
    /// Threads it was allowed.
    pub threads: usize,
    /// How its runs ended: `scored` if all were, else the first other word.
    pub outcome: String,
    /// Its seeds, blanks between.
    pub seeds: String,
    /// Rows of the test split.
    pub test_rows: usize,
    /// Mean test accuracy over the seeds, a fraction.
    pub accuracy: Option<f64>,
    /// Its sample standard deviation over the seeds.
    pub accuracy_deviation: Option<f64>,
    /// Mean of the last training losses, in nats.
    pub loss: Option<f64>,
    /// Digest over all losses of all seeds; empty where a log was not there.
    pub trace: String,
    /// The highest peak of its runs.
    pub peak_bytes: Option<u64>,
    /// How the peak was measured.
    pub memory_method: String,
    /// Mean over the seeds of the median steps per second.
    pub steps_per_second: Option<f64>,
    /// Relative standard error of that speed, from the spread of the steps.
    pub speed_error: Option<f64>,
}

impl Baseline {
    /// Folds the records of a folder into cells. Of runs with the same seed the latest counts.
    ///
    /// # Errors
    /// A log beside a record is damaged.
    pub fn of(loaded: &Loaded) -> Result<Baseline> {
        let mut cells: BTreeMap<(usize, usize, Key), BTreeMap<u64, usize>> = BTreeMap::new();
        for (index, record) in loaded.records.iter().enumerate() {
            let ranks = (task_rank(&record.task.name), model_rank(&record.model.name));
            let seeds = cells
                .entry((ranks.0, ranks.1, Key::of(record)))
                .or_default();
            let earlier = seeds
                .get(&record.seed)
                .map(|at| &loaded.records[*at].created);
            if earlier.is_none_or(|created| *created <= record.created) {
                seeds.insert(record.seed, index);
            }
        }
        let rows = cells.into_iter().map(|((_, _, key), seeds)| {
            let runs: Vec<usize> = seeds.into_values().collect();
            Row::of(key, loaded, &runs)
        });
        Ok(Baseline {
            rows: rows.collect::<Result<_>>()?,
        })
    }

    /// Reads a baseline.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is not a row.
    pub fn read(path: &Path) -> Result<Baseline> {
        let text = std::fs::read(path).map_err(Error::io("read", path))?;
        let bad = |error: csv::Error| Error::NotABaseline {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let mut reader = csv::Reader::from_reader(text.as_slice());
        if !reader.headers().map_err(bad)?.iter().eq(COLUMNS) {
            return Err(Error::NotABaseline {
                path: path.to_owned(),
                reason: format!("its first line is not {}", COLUMNS.join(",")),
            });
        }
        // By place, not by name: the columns are checked, and a key is a struct within the row.
        let rows = reader.into_records().map(|record| {
            let record = record.map_err(bad)?;
            record.deserialize::<Flat>(None).map(Row::from).map_err(bad)
        });
        Ok(Baseline {
            rows: rows.collect::<Result<_>>()?,
        })
    }

    /// Writes the baseline, replacing what was there.
    ///
    /// # Errors
    /// The folder is missing, read-only or full.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut writer = csv::WriterBuilder::new()
            .has_headers(false)
            .from_writer(vec![]);
        let written = writer.write_record(COLUMNS).and_then(|()| {
            let mut rows = self.rows.iter();
            rows.try_for_each(|row| writer.serialize(Flat::from(row.clone())))
        });
        let bytes = written.map_err(Into::into).and_then(|()| {
            let inner = writer.into_inner();
            inner.map_err(|error| error.into_error())
        });
        atomic::write(path, &bytes.map_err(Error::io("write", path))?)
    }
}

impl Key {
    /// The cell that a record belongs to.
    pub fn of(record: &Record) -> Key {
        let mut set = record.recipe.overrides.clone();
        set.sort();
        Key {
            task: record.task.label.clone(),
            source: record.task.source.clone(),
            protocol: record.task.protocol.clone(),
            model: record.model.name.clone(),
            variant: record.model.variant.clone(),
            recipe: record.recipe.name.clone(),
            set: set.join(" "),
            precision: record.precision.clone(),
            device: record.device.clone(),
        }
    }

    /// The task, and whether a stand-in was learned in its place.
    pub(super) fn question(&self) -> String {
        match self.source.as_str() {
            "synthetic" => format!("{} (synthetic)", self.task),
            _ => self.task.clone(),
        }
    }

    /// Whether two cells differ in nothing but the model, so that their speeds may be set in a ratio.
    pub(super) fn same_but_for_the_model(&self, other: &Key) -> bool {
        (&self.task, &self.source, &self.protocol, &self.recipe)
            == (&other.task, &other.source, &other.protocol, &other.recipe)
            && (&self.set, &self.precision, &self.device)
                == (&other.set, &other.precision, &other.device)
    }
}

impl Row {
    /// Folds the runs of one cell, given by their places in the order of their seeds.
    fn of(key: Key, loaded: &Loaded, runs: &[usize]) -> Result<Row> {
        let records: Vec<&Record> = runs.iter().map(|at| &loaded.records[*at]).collect();
        let latest = records[0];
        let mean = |of: fn(&Record) -> Option<f64>| {
            let values: Vec<f64> = records.iter().filter_map(|record| of(record)).collect();
            Sample::of(&values)
        };
        let accuracy = mean(Record::test_accuracy);
        let speed = mean(|record| Some(record.speed.as_ref()?.steps_per_second.median));
        let speed_error = mean(|record| {
            let speed = record.speed.as_ref()?;
            let rate = speed.steps_per_second;
            // Eight tenths of a normal distribution lie within 2.56 standard deviations; the median's error is 1.25 of the mean's.
            let deviation = (rate.p90 - rate.p10) / 2.56;
            Some(1.25 * deviation / rate.median / (speed.timed_steps.max(1) as f64).sqrt())
        });
        let peaks = records.iter().filter_map(|record| record.memory.as_ref());
        let ends = records.iter().map(|record| &record.outcome);
        let end = ends.clone().find(|end| **end != Outcome::Scored);
        let mut lines = Vec::new();
        let mut traced = true;
        for at in runs {
            let folder = &loaded.folders[*at];
            traced &= folder.join(metrics::FILE).is_file();
            if traced {
                lines.extend(metrics::read(folder)?);
            }
        }
        let seeds: Vec<_> = records
            .iter()
            .map(|record| record.seed.to_string())
            .collect();
        Ok(Row {
            key,
            data: latest.task.data_digest.clone(),
            processor: latest.host.cpu.clone(),
            threads: latest.threads,
            outcome: end.unwrap_or(&Outcome::Scored).word().to_owned(),
            seeds: seeds.join(" "),
            test_rows: latest.task.rows.test,
            accuracy: accuracy.map(|sample| sample.mean),
            accuracy_deviation: accuracy.and_then(|sample| sample.deviation),
            loss: mean(|record| record.scores.as_ref()?.train_loss).map(|sample| sample.mean),
            trace: if traced {
                metrics::trace(&lines)
            } else {
                String::new()
            },
            peak_bytes: peaks.clone().map(|memory| memory.peak_bytes).max(),
            memory_method: peaks
                .map(|memory| memory.method.clone())
                .next()
                .unwrap_or_default(),
            steps_per_second: speed.map(|sample| sample.mean),
            speed_error: speed_error.map(|sample| sample.mean / (records.len() as f64).sqrt()),
        })
    }
}

/// The first line of the file.
const COLUMNS: [&str; 23] = [
    "task",
    "source",
    "protocol",
    "model",
    "variant",
    "recipe",
    "set",
    "precision",
    "device",
    "data",
    "processor",
    "threads",
    "outcome",
    "seeds",
    "test_rows",
    "accuracy",
    "accuracy_deviation",
    "loss",
    "trace",
    "peak_bytes",
    "memory_method",
    "steps_per_second",
    "speed_error",
];

/// A row as the file has it: a key and its values side by side, in the order of [`COLUMNS`].
type Flat = (
    Key,
    (String, String, usize, String, String, usize),
    (Option<f64>, Option<f64>, Option<f64>, String),
    (Option<u64>, String, Option<f64>, Option<f64>),
);

impl From<Row> for Flat {
    fn from(row: Row) -> Flat {
        (
            row.key,
            (
                row.data,
                row.processor,
                row.threads,
                row.outcome,
                row.seeds,
                row.test_rows,
            ),
            (row.accuracy, row.accuracy_deviation, row.loss, row.trace),
            (
                row.peak_bytes,
                row.memory_method,
                row.steps_per_second,
                row.speed_error,
            ),
        )
    }
}

impl From<Flat> for Row {
    fn from(flat: Flat) -> Row {
        let (key, (data, processor, threads, outcome, seeds, test_rows), scores, costs) = flat;
        let (accuracy, accuracy_deviation, loss, trace) = scores;
        let (peak_bytes, memory_method, steps_per_second, speed_error) = costs;
        Row {
            key,
            data,
            processor,
            threads,
            outcome,
            seeds,
            test_rows,
            accuracy,
            accuracy_deviation,
            loss,
            trace,
            peak_bytes,
            memory_method,
            steps_per_second,
            speed_error,
        }
    }
}
