//! A baseline on disk: a CSV file with one line per cell.

use std::collections::HashSet;
use std::path::Path;

use super::baseline::{Baseline, Key, Row};
use crate::csv_lines::{line_of, located};
use crate::markup::{guarded, unguarded};
use crate::record::canonical;
use crate::{Error, Result, atomic};

impl Baseline {
    /// Reads a baseline.
    ///
    /// # Errors
    /// The file cannot be read, or one of its lines is not a row or has an impossible figure.
    pub fn read(path: &Path) -> Result<Baseline> {
        let text = disk::read(path).map_err(Error::io("read", path))?;
        let bad = |error: csv::Error| {
            let (line, reason) = located(&text, &error);
            Error::NotABaseline {
                path: path.to_owned(),
                reason: format!("line {line}: {reason}"),
            }
        };
        let mut reader = csv::Reader::from_reader(text.as_slice());
        let head = reader.headers().map_err(bad)?;
        let place = |name: &str| head.iter().position(|column| column == name);
        let places = COLUMNS.map(place);
        let twice = |name: &&str| head.iter().filter(|other| other == name).count() > 1;
        if let Some(name) = head.iter().find(twice) {
            return Err(Error::NotABaseline {
                path: path.to_owned(),
                reason: format!("its first line has the column {name} twice"),
            });
        }
        if !Baseline::has_columns(head) {
            return Err(Error::NotABaseline {
                path: path.to_owned(),
                reason: match text.iter().all(u8::is_ascii_whitespace) {
                    true => "it is empty".to_owned(),
                    false => format!("its first line is not {}", COLUMNS.join(",")),
                },
            });
        }
        // Fields are read by position, not by name, since a key is a struct within the row. So the
        // columns are put in order first.
        let rows = reader.into_records().map(|record| {
            let record = record.map_err(bad)?;
            let field = |place: &Option<usize>| place.and_then(|at| record.get(at)).unwrap_or("");
            let mut ordered: csv::StringRecord = places.iter().map(field).collect();
            ordered.set_position(record.position().cloned());
            let line = record.position().map_or(0, |at| line_of(&text, at));
            let row: Row = ordered
                .deserialize::<Flat>(None)
                .map(Row::from)
                .map_err(|error| match in_column(&error) {
                    Some(reason) => Error::NotABaseline {
                        path: path.to_owned(),
                        reason: format!("line {line}: {reason}"),
                    },
                    None => bad(error),
                })?;
            row.check().map_err(|reason| Error::NotABaseline {
                path: path.to_owned(),
                reason: format!("line {line}: {reason}"),
            })?;
            Ok(row)
        });
        let rows: Vec<Row> = rows.collect::<Result<_>>()?;
        let mut seen = HashSet::new();
        if let Some(twice) = rows.iter().find(|row| !seen.insert(&row.key)) {
            let (model, task) = (&twice.key.model, &twice.key.task);
            return Err(Error::NotABaseline {
                path: path.to_owned(),
                reason: format!(
                    "{model} on {task} occurs twice with the same settings; keep one line"
                ),
            });
        }
        Ok(Baseline { rows })
    }

    /// Returns whether these columns are those of a baseline.
    pub(crate) fn has_columns(columns: &csv::StringRecord) -> bool {
        let is_known = |name: &str| COLUMNS.contains(&name);
        let is_there = |name: &&str| columns.iter().any(|column| column == *name);
        columns.iter().all(is_known) && COLUMNS[..REQUIRED].iter().all(is_there)
    }

    /// Writes the baseline, replacing an existing file.
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

/// Returns the column of a field that could not be read, and the reason.
fn in_column(error: &csv::Error) -> Option<String> {
    let csv::ErrorKind::Deserialize { err, .. } = error.kind() else {
        return None;
    };
    let column = COLUMNS.get(usize::try_from(err.field()?).ok()?)?;
    let reason = match err.kind() {
        csv::DeserializeErrorKind::ParseInt(_) => "not a whole number".to_owned(),
        csv::DeserializeErrorKind::ParseFloat(_) => "not a number".to_owned(),
        other => other.to_string(),
    };
    Some(format!("{column}: {reason}"))
}

/// The first line of the file.
const COLUMNS: [&str; 31] = [
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
    "instructions",
    "spec",
    "parameters",
    "gradients",
    "gradient_norm",
    "jobs",
    "scores",
    "further_scores",
];

/// Number of [`COLUMNS`] that every baseline has. Older files lack others, and the values of those
/// are not judged.
const REQUIRED: usize = 23;

/// A row in the form of the file: a key and its values in the order of [`COLUMNS`], with words
/// [`guarded`].
type Flat = (
    Key,
    (String, String, usize, String, String, usize),
    (Option<f64>, Option<f64>, Option<f64>, String),
    (Option<u64>, String, Option<f64>, Option<f64>),
    (
        String,
        String,
        Option<u64>,
        String,
        Option<f64>,
        Option<usize>,
        String,
        String,
    ),
);

/// Returns a key with `change` applied to its words.
fn with_words(key: &Key, change: fn(&str) -> String) -> Key {
    Key {
        task: change(&key.task),
        source: change(&key.source),
        protocol: change(&key.protocol),
        model: change(&key.model),
        variant: change(&key.variant),
        recipe: change(&key.recipe),
        set: change(&key.set),
        precision: change(&key.precision),
        device: change(&key.device),
    }
}

fn read_back(field: &str) -> String {
    unguarded(field).to_owned()
}

impl From<Row> for Flat {
    fn from(row: Row) -> Flat {
        (
            with_words(&row.key, guarded),
            (
                guarded(&row.data),
                guarded(&row.processor),
                row.threads,
                guarded(&row.outcome),
                guarded(&row.seeds),
                row.test_rows,
            ),
            (
                row.accuracy,
                row.accuracy_deviation,
                row.loss,
                guarded(&row.trace),
            ),
            (
                row.peak_bytes,
                guarded(&row.memory_method),
                row.steps_per_second,
                row.speed_error,
            ),
            (
                guarded(&row.instructions),
                guarded(&row.spec),
                row.parameters,
                guarded(&row.gradients),
                row.gradient_norm,
                row.jobs,
                guarded(&row.scores),
                guarded(&row.further_scores),
            ),
        )
    }
}

impl From<Flat> for Row {
    fn from(flat: Flat) -> Row {
        let (key, identity, scores, costs, later) = flat;
        let mut key = with_words(&key, read_back);
        // Older files have numbers as the command line had them.
        let set: Vec<String> = key.set.split(' ').map(canonical).collect();
        key.set = set.join(" ");
        let (data, processor, threads, outcome, seeds, test_rows) = identity;
        let (accuracy, accuracy_deviation, loss, trace) = scores;
        let (peak_bytes, memory_method, steps_per_second, speed_error) = costs;
        let (instructions, spec, parameters, gradients, gradient_norm, jobs, scores, further) =
            later;
        Row {
            key,
            data: read_back(&data),
            processor: read_back(&processor),
            instructions: read_back(&instructions),
            threads,
            jobs,
            spec: read_back(&spec),
            parameters,
            outcome: read_back(&outcome),
            seeds: read_back(&seeds),
            test_rows,
            accuracy,
            accuracy_deviation,
            loss,
            scores: read_back(&scores),
            further_scores: read_back(&further),
            trace: read_back(&trace),
            gradients: read_back(&gradients),
            gradient_norm,
            peak_bytes,
            memory_method: read_back(&memory_method),
            steps_per_second,
            speed_error,
            damaged: None,
            mixture: None,
            unlogged: None,
        }
    }
}
