//! Whole records: what all of them share once, then each collapsed to one line.

use std::collections::HashSet;

use serde_json::Value;

use super::badge;
use crate::format::{counted, percent};
use crate::markup::escaped;
use crate::record::Record;

/// Number of bytes of values after which runs are lines without values. A page of 10,000 runs with
/// tables and charts then stays below 2 MB.
const MOST_BYTES: usize = 600_000;

/// Largest number of runs with a line.
const MOST_LINES: usize = 10_000;

/// A path within a record, and the value there.
type Row = (String, String);

/// Returns the runs: shared values once, a line for each run, its own values on a click.
pub(super) fn html(records: &[&Record]) -> String {
    let shared = shared(records);
    let mut text = String::new();
    if !shared.is_empty() {
        text += &format!(
            "<details class=\"shared\"><summary>Values that all {} share</summary>\n{}</details>\n",
            counted(records.len() as u64, "run"),
            table(shared.iter())
        );
    }
    let shared: HashSet<Row> = shared.into_iter().collect();
    let (mut bytes, mut whole) = (0, 0);
    for record in records.iter().take(MOST_LINES) {
        let rows = rows(record);
        let own = table(rows.iter().filter(|row| !shared.contains(*row)));
        bytes += own.len();
        if bytes > MOST_BYTES {
            break;
        }
        whole += 1;
        text += &format!(
            "<details><summary>{}</summary>\n{own}</details>\n",
            line(record)
        );
    }
    let lines = &records[whole..records.len().min(MOST_LINES)];
    if !lines.is_empty() {
        text += "<ul class=\"runs\">\n";
        text.extend(
            lines
                .iter()
                .map(|record| format!("<li>{}</li>\n", line(record))),
        );
        text += "</ul>\n";
    }
    if whole < records.len() {
        let without = counted((records.len() - whole) as u64, "run");
        let left = match records.len().saturating_sub(MOST_LINES) {
            0 => String::new(),
            left => format!(", {} of them without a line", counted(left as u64, "run")),
        };
        text += &format!(
            "<p class=\"note\">Without their values: {without}{left}. \
             All values are in the record.json of each run, and \
             <code>lra merge FOLDER --output runs.csv</code> writes them to one file.</p>\n"
        );
    }
    text
}

/// Returns the rows that several records have in common.
fn shared(records: &[&Record]) -> Vec<Row> {
    let [first, rest @ ..] = records else {
        return Vec::new();
    };
    if rest.is_empty() {
        return Vec::new();
    }
    let mut shared = rows(first);
    for record in rest {
        let own: HashSet<Row> = rows(record).into_iter().collect();
        shared.retain(|row| own.contains(row));
    }
    shared
}

/// Returns the name of a run and how it ended.
fn line(record: &Record) -> String {
    let ending = match record.test_accuracy() {
        Some(accuracy) => format!("{} %", percent(accuracy)),
        None => {
            let (word, told) = (record.outcome.word(), record.outcome.to_string());
            let rest = told.strip_prefix(word).unwrap_or(&told);
            format!(
                "{} {}",
                badge(word),
                escaped(rest.trim_start_matches([':', ' ']))
            )
        }
    };
    format!("<code>{}</code> {ending}", escaped(&record.id))
}

/// Returns rows as a table.
fn table<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let rows = rows.map(|(path, value)| {
        format!(
            "<tr><td>{}</td><td>{}</td></tr>\n",
            escaped(path),
            escaped(value)
        )
    });
    format!(
        "<table class=\"record\">{}</table>\n",
        rows.collect::<String>()
    )
}

/// Returns one row per value of a record.
fn rows(record: &Record) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Ok(value) = serde_json::to_value(record) {
        flatten("", &value, &mut rows);
    }
    rows
}

/// Adds one row per value.
fn flatten(path: &str, value: &Value, rows: &mut Vec<Row>) {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                flatten(&below(name), value, rows);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            for (index, value) in values.iter().enumerate() {
                flatten(&below(&index.to_string()), value, rows);
            }
        }
        Value::Null => {}
        value => {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            if !text.is_empty() {
                rows.push((path.to_owned(), text));
            }
        }
    }
}
