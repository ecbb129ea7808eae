//! Many records in one file: a CSV table with a row for each record and a column for each field.
//!
//! A column is named by the path of its field in `record.json`, with dots between:
//! `scores.test_accuracy`. A cell is the field's JSON, and text stands without quotation marks
//! unless it would read as something else or holds a character that a terminal would obey. A `'`
//! stands before text that a spreadsheet would take for a formula. An empty cell is an absent
//! field. So the file holds all that records do, fields that are added later included, and every
//! column can be read by any program that reads CSV.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{Present, Schema};
use crate::csv_lines::{line_of, located};
use crate::markup::{guarded, shown, spelt, unguarded};
use crate::published::{model_rank, task_rank};
use crate::record::{Outcome, Record, SCHEMA};
use crate::{Error, Result, atomic, json};

/// Extension of the name of such a file.
const ENDING: &str = "csv";

/// Separator of the names in the path of a field.
const DOT: char = '.';

/// Returns whether a path names a file of records instead of a folder.
#[must_use]
pub fn is_named_so(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == ENDING) && !path.is_dir()
}

/// Reads the records of a file, each with its line number.
///
/// # Errors
/// The file cannot be read; a line of it holds no record, or one with a figure that cannot be; or
/// the record is a newer program's. The message has the line and the column.
pub fn read(path: &Path) -> Result<Vec<(u64, Record)>> {
    let bytes = disk::read(path).map_err(Error::io("read", path))?;
    parse(path, &bytes)
}

/// Reads the records of a file with these bytes, each with its line number. Errors name `path`.
///
/// # Errors
/// Those of [`read`], but for reading the file.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<(u64, Record)>> {
    let bad = |line: u64, reason: String| Error::NotARow {
        path: path.to_owned(),
        line,
        reason,
    };
    let of_csv = |error: csv::Error, columns: &csv::StringRecord| {
        let (line, reason) = located(bytes, &error);
        let column = match error.kind() {
            csv::ErrorKind::Utf8 { err, .. } => columns.get(err.field()),
            _ => None,
        };
        let column = column.map_or_else(String::new, |name| format!("column {name}: "));
        bad(line, format!("{column}{reason}"))
    };
    let mut reader = csv::Reader::from_reader(bytes);
    let columns = match reader.headers() {
        Ok(columns) => columns.clone(),
        Err(error) => return Err(of_csv(error, &csv::StringRecord::new())),
    };
    if columns
        .iter()
        .collect::<std::collections::BTreeSet<_>>()
        .len()
        < columns.len()
    {
        return Err(bad(1, "two columns have the same name".to_owned()));
    }
    if !columns.iter().any(|column| column == "schema") {
        return Err(bad(1, "it has no column `schema`".to_owned()));
    }
    let mut records = Vec::new();
    for row in reader.into_records() {
        let row = row.map_err(|error| of_csv(error, &columns))?;
        let line = row.position().map_or(1, |at| line_of(bytes, at));
        let mut fields = Map::new();
        for (column, cell) in columns
            .iter()
            .zip(&row)
            .filter(|(_, cell)| !cell.is_empty())
        {
            let value = serde_json::from_str(cell).unwrap_or_else(|_| unguarded(cell).into());
            insert(&mut fields, column, value).map_err(|reason| bad(line, reason))?;
        }
        let fields = Value::Object(fields);
        let schema: Schema = json::read_fields(&fields).map_err(|reason| bad(line, reason))?;
        schema.check(SCHEMA, path)?;
        let record: Record = json::read_fields(&fields).map_err(|reason| bad(line, reason))?;
        let record = record.settled();
        let present: Present = json::read_fields(&fields).map_err(|reason| bad(line, reason))?;
        let checked = record.check().and_then(|()| present.check());
        checked.map_err(|reason| bad(line, reason))?;
        records.push((line, record));
    }
    Ok(records)
}

/// Puts a value at a path of names, making the objects on the way.
fn insert(fields: &mut Map<String, Value>, path: &str, value: Value) -> Result<(), String> {
    let (name, rest) = match path.split_once(DOT) {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    let Some(rest) = rest else {
        return match fields.insert(name.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(format!("column {path}: the field has a value and parts")),
        };
    };
    let inner = fields
        .entry(name)
        .or_insert_with(|| Value::Object(Map::new()));
    match inner {
        Value::Object(inner) => insert(inner, rest, value),
        _ => Err(format!("column {path}: the field has a value and parts")),
    }
}

/// Writes records to a file, in the order of the tables, replacing an existing one.
///
/// # Errors
/// The folder is missing, read-only or full.
pub fn write(path: &Path, records: &[Record]) -> Result<()> {
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|record| {
        (
            task_rank(&record.task.name),
            record.task.label.as_str(),
            model_rank(&record.model.name),
            record.model.name.as_str(),
            record.recipe.name.as_str(),
            record.recipe.overrides.as_slice(),
            record.seed,
            record.id.as_str(),
        )
    });
    let mut columns: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for record in sorted {
        let value = serde_json::to_value(record).map_err(|error| Error::NotARecord {
            path: path.to_owned(),
            reason: format!("{}: {error}", record.id),
        })?;
        let mut cells = Vec::new();
        flatten("", &value, &mut cells);
        // A new column goes after the one that precedes it in this record.
        let mut place = 0;
        for (column, _) in &cells {
            place = match columns.iter().position(|known| known == column) {
                Some(at) => at + 1,
                None => {
                    columns.insert(place, column.clone());
                    place + 1
                }
            };
        }
        rows.push(cells.into_iter().collect::<BTreeMap<String, String>>());
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut written = writer.write_record(&columns);
    for row in &rows {
        let cells = columns
            .iter()
            .map(|column| row.get(column).map_or("", String::as_str));
        written = written.and_then(|()| writer.write_record(cells));
    }
    let bytes = written
        .map_err(std::io::Error::from)
        .and_then(|()| writer.into_inner().map_err(|error| error.into_error()));
    atomic::write(path, &bytes.map_err(Error::io("write", path))?)
}

/// Lists the fields below a value by their paths. Empty text is left out, since an absent field
/// reads as empty.
fn flatten(path: &str, value: &Value, cells: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                let path = match path {
                    "" => name.clone(),
                    _ => format!("{path}{DOT}{name}"),
                };
                flatten(&path, field, cells);
            }
        }
        Value::String(text) if text.is_empty() => {}
        Value::String(text) if is_plain(text) => cells.push((path.to_owned(), guarded(text))),
        _ => cells.push((path.to_owned(), spelt(&value.to_string()))),
    }
}

/// Returns whether a text can stand without quotation marks: it reads as no other JSON, and has
/// nothing that a terminal would obey.
fn is_plain(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_err() && spelt(text) == text
}

/// Returns the records of several folders and files of records as one set, each cell once.
///
/// Runs with the same settings and sources belong to the same cell. A run with a final outcome
/// replaces a failed one, and unfinished runs are left out. Two runs with final outcomes must agree
/// in data, outcome and scores; times and machines may differ.
///
/// # Errors
/// [`Error::Conflict`] if they do not; or a folder or a file cannot be read.
pub fn merge(sources: &[PathBuf]) -> Result<Merged> {
    let mut merged = Merged::default();
    let mut places: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for source in sources {
        for (place, record) in places_of(source, &mut merged)? {
            if matches!(record.outcome, Outcome::Interrupted { .. }) {
                merged.unfinished += 1;
                continue;
            }
            let key = cell_of(&record);
            let Some((at, known_place)) = places.get_mut(&key) else {
                places.insert(key, (merged.records.len(), place));
                merged.records.push(record);
                continue;
            };
            let known = &mut merged.records[*at];
            if known.outcome.is_final() && record.outcome.is_final() {
                if let Some(field) = difference(known, &record) {
                    return Err(Error::Conflict {
                        one: known_place.clone(),
                        other: place,
                        field,
                        id: record.id,
                    });
                }
            } else if record.outcome.is_final() {
                *known = record;
                *known_place = place;
            }
            merged.repeats += 1;
        }
    }
    Ok(merged)
}

/// Returns a key of the cell of a run: its settings, and the sources of a user's own model and
/// task, which the digest of the settings does not cover.
fn cell_of(record: &Record) -> String {
    let settings = match record.provenance.spec_digest.as_str() {
        "" => &record.id,
        digest => digest,
    };
    let own = [&record.model.own, &record.task.own].map(|own| {
        let own = own.as_ref();
        own.map_or("", |own| own.source.as_str())
    });
    format!("{settings} {} {}", own[0], own[1])
}

/// Result of [`merge`].
#[derive(Debug, Default)]
pub struct Merged {
    /// One record for each cell.
    pub records: Vec<Record>,
    /// Number of runs of cells that existed already.
    pub repeats: usize,
    /// Number of runs without a final outcome.
    pub unfinished: usize,
    /// Files that hold no record, with the reason.
    pub skipped: Vec<(PathBuf, String)>,
    /// Number of those that hold copies of records that are there.
    pub copies: usize,
}

/// Returns the records of a folder or a file, each with its location in words.
/// Files without a record, and runs without one, are added to `merged`.
fn places_of(source: &Path, merged: &mut Merged) -> Result<Vec<(String, Record)>> {
    if is_named_so(source) {
        let records = read(source)?.into_iter();
        let place = |line: u64| format!("{}, line {line}", shown(source));
        return Ok(records
            .map(|(line, record)| (place(line), record))
            .collect());
    }
    let loaded = super::load(source)?;
    merged.copies += loaded.copies;
    merged.skipped.extend(loaded.skipped);
    merged.unfinished += loaded.unfinished.len();
    let places = loaded
        .folders
        .iter()
        .map(|folder| folder.display().to_string());
    Ok(places.zip(loaded.records).collect())
}

/// Returns the first field in which two runs of one cell must agree but differ.
fn difference(one: &Record, other: &Record) -> Option<&'static str> {
    if one.task.name != other.task.name {
        Some("task.name")
    } else if one.model.name != other.model.name {
        Some("model.name")
    } else if one.seed != other.seed {
        Some("seed")
    } else if one.task.data_digest != other.task.data_digest {
        Some("task.data_digest")
    } else if one.outcome != other.outcome {
        Some("outcome")
    } else if one.scores != other.scores {
        Some("scores")
    } else {
        None
    }
}
