//! A baseline on disk: a CSV file with one line per cell.

use std::path::Path;

use super::baseline::{Baseline, Key, Row};
use crate::{Error, Result, atomic};

impl Baseline {
    /// Reads a baseline.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is not a row.
    pub fn read(path: &Path) -> Result<Baseline> {
        let text = disk::read(path).map_err(Error::io("read", path))?;
        let bad = |error: csv::Error| Error::NotABaseline {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let mut reader = csv::Reader::from_reader(text.as_slice());
        let head = reader.headers().map_err(bad)?;
        let place = |name: &str| head.iter().position(|column| column == name);
        let places = COLUMNS.map(place);
        let known = head.iter().all(|name| COLUMNS.contains(&name));
        let whole = places.iter().take(REQUIRED).all(Option::is_some);
        if !known || !whole {
            return Err(Error::NotABaseline {
                path: path.to_owned(),
                reason: format!("its first line is not {}", COLUMNS.join(",")),
            });
        }
        // By place, not by name: the columns are put in order, and a key is a struct within the row.
        let rows = reader.into_records().map(|record| {
            let record = record.map_err(bad)?;
            let field = |place: &Option<usize>| place.and_then(|at| record.get(at)).unwrap_or("");
            let mut ordered: csv::StringRecord = places.iter().map(field).collect();
            ordered.set_position(record.position().cloned());
            ordered
                .deserialize::<Flat>(None)
                .map(Row::from)
                .map_err(bad)
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

/// The first line of the file.
const COLUMNS: [&str; 28] = [
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
];

/// How many of [`COLUMNS`] every baseline has. Older files lack others, and what these hold is not judged.
const REQUIRED: usize = 23;

/// A row as the file has it: a key and its values side by side, in the order of [`COLUMNS`].
type Flat = (
    Key,
    (String, String, usize, String, String, usize),
    (Option<f64>, Option<f64>, Option<f64>, String),
    (Option<u64>, String, Option<f64>, Option<f64>),
    (String, String, Option<u64>, String, Option<f64>),
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
            (
                row.instructions,
                row.spec,
                row.parameters,
                row.gradients,
                row.gradient_norm,
            ),
        )
    }
}

impl From<Flat> for Row {
    fn from(flat: Flat) -> Row {
        let (key, identity, scores, costs, later) = flat;
        let (data, processor, threads, outcome, seeds, test_rows) = identity;
        let (accuracy, accuracy_deviation, loss, trace) = scores;
        let (peak_bytes, memory_method, steps_per_second, speed_error) = costs;
        let (instructions, spec, parameters, gradients, gradient_norm) = later;
        Row {
            key,
            data,
            processor,
            instructions,
            threads,
            spec,
            parameters,
            outcome,
            seeds,
            test_rows,
            accuracy,
            accuracy_deviation,
            loss,
            trace,
            gradients,
            gradient_norm,
            peak_bytes,
            memory_method,
            steps_per_second,
            speed_error,
            damaged: None,
        }
    }
}
