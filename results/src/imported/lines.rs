//! Reads the lines of files by others, as names and values: CSV, JSON and JSON lines. Tables with a
//! column for each task become lines with one task each.

use std::path::Path;

use serde_json::{Deserializer, Value};

use super::fault;
use crate::csv_lines::{line_of, located};
use crate::markup::unguarded;
use crate::{Error, Result, json};

/// The named values of one line of CSV, or of one JSON object.
pub(super) struct Line {
    /// The line, counted from 1; of JSON the object, counted from 1.
    pub(super) number: u64,
    values: Vec<(String, String)>,
}

impl Line {
    /// Returns the value called `name`, in any case; none if it is empty.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut values = self.values.iter();
        let found = values.find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        Some(found.1.trim()).filter(|value| !value.is_empty())
    }

    /// Returns the names of its values.
    pub(super) fn names(&self) -> Vec<&str> {
        self.values.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// Marks of tables in place of an accuracy.
const NO_ACCURACY: [&str; 10] = ["-", "–", "—", "x", "✗", "✘", "n/a", "nan", "fail", "none"];

/// Turns lines that have a column for each task into lines with one task each, as `melt` of pandas
/// does: the header is the value `task`, the entry is the value `accuracy`, or left out where it
/// says that there is none. Other values are repeated. Lines without such columns stay as they are.
pub(super) fn melt(
    lines: Vec<Line>,
    is_task: fn(&str) -> bool,
    task: &str,
    accuracy: &str,
) -> Vec<Line> {
    let melted = lines.into_iter().flat_map(|line| {
        let (tasks, others): (Vec<_>, Vec<_>) = line
            .values
            .into_iter()
            .partition(|(name, _)| is_task(name.as_str()));
        if tasks.is_empty() {
            return vec![Line {
                values: others,
                ..line
            }];
        }
        let number = line.number;
        let of_task = |(name, entry): (String, String)| {
            let bare = entry.trim().trim_end_matches('%').trim_end().to_lowercase();
            let is_mark = NO_ACCURACY.contains(&bare.as_str());
            let mut values = others.clone();
            values.push((task.to_owned(), name));
            values.push((
                accuracy.to_owned(),
                if is_mark { String::new() } else { entry },
            ));
            Line { number, values }
        };
        tasks.into_iter().map(of_task).collect()
    });
    melted.collect()
}

/// Reads the lines of a file.
pub(super) fn lines(path: &Path) -> Result<Vec<Line>> {
    let bytes = disk::read(path).map_err(Error::io("read", path))?;
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
    match ending.to_str() {
        Some("json" | "jsonl" | "ndjson") => of_json(path, bytes),
        Some("tsv") => of_csv(path, bytes, b'\t'),
        _ => of_csv(path, bytes, b','),
    }
}

fn of_csv(path: &Path, bytes: &[u8], delimiter: u8) -> Result<Vec<Line>> {
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .from_reader(bytes);
    let bad = |error: csv::Error| {
        let (line, reason) = located(bytes, &error);
        let remedy = match error.kind() {
            csv::ErrorKind::UnequalLengths { .. } => {
                ": add the fields that are missing, or quote one that holds a delimiter"
            }
            csv::ErrorKind::Utf8 { .. } => ": save the file as UTF-8",
            _ => "",
        };
        fault(path, line, reason + remedy)
    };
    let names = reader.headers().map_err(bad)?.clone();
    reader
        .records()
        .map(|record| {
            let record = record.map_err(bad)?;
            let values = names.iter().zip(&record);
            Ok(Line {
                number: record.position().map_or(0, |at| line_of(bytes, at)),
                values: values
                    .map(|(name, value)| (name.trim().to_owned(), unguarded(value).to_owned()))
                    .collect(),
            })
        })
        .collect()
}

fn of_json(path: &Path, bytes: &[u8]) -> Result<Vec<Line>> {
    let mut objects = Vec::new();
    for value in Deserializer::from_slice(bytes).into_iter::<Value>() {
        match value {
            Ok(Value::Array(items)) => objects.extend(items),
            Ok(value) => objects.push(value),
            Err(error) => {
                let reason = json::reason(&error);
                let reason = format!("{reason}: correct it, or export the file again");
                return Err(fault(path, error.line() as u64, reason));
            }
        }
    }
    let lines = objects.into_iter().zip(1..).map(|(value, number)| {
        let mut values = Vec::new();
        flatten("", &value, &mut values);
        match value.is_object() {
            true => Ok(Line { number, values }),
            false => {
                let reason =
                    "not a JSON object: write one for each result, with task, model and accuracy";
                Err(fault(path, number, reason.to_owned()))
            }
        }
    });
    lines.collect()
}

/// Appends the values of an object, with the keys of nested objects joined by dots. Arrays and
/// nulls are left out.
fn flatten(prefix: &str, value: &Value, values: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let name = match prefix {
                    "" => key.clone(),
                    prefix => format!("{prefix}.{key}"),
                };
                flatten(&name, value, values);
            }
        }
        Value::String(text) => values.push((prefix.to_owned(), text.clone())),
        Value::Number(number) => values.push((prefix.to_owned(), number.to_string())),
        Value::Bool(flag) => values.push((prefix.to_owned(), flag.to_string())),
        Value::Array(_) | Value::Null => {}
    }
}
