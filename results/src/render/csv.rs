//! Comma-separated values: one table of everything, a row per cell, with a column that names the
//! table that it is of. The columns are those of the tables' schemas, whatever the rows hold. Units
//! stand in the names of columns; notes are left to the other forms.

use csv::Writer;
use serde_json::Value;

use super::tidy;
use crate::markup::{guarded, visible};
use crate::table::Table;

/// The column that names the table of a row.
const TABLE: &str = "table";

pub(super) fn render(tables: &[Table]) -> String {
    let parts: Vec<(&Table, Vec<tidy::TidyRow>)> = tables
        .iter()
        .map(|table| (table, tidy::rows(table)))
        .collect();
    let names = parts.iter().map(|(table, rows)| tidy::names(table, rows));
    let (info, found): (Vec<_>, Vec<_>) = names.unzip();
    let mut header: Vec<&str> = vec![TABLE];
    for name in info.iter().flatten().chain(found.iter().flatten()) {
        if !header.contains(&name.as_str()) {
            header.push(name);
        }
    }
    let rows = parts.iter().flat_map(|(table, rows)| {
        let header = &header;
        rows.iter().map(move |row| {
            let line = header.iter().map(|column| match *column {
                TABLE => Value::from(table.name.as_str()),
                column => {
                    let value = row.info.get(column).or_else(|| row.found.get(column));
                    value.cloned().unwrap_or(Value::Null)
                }
            });
            line.collect()
        })
    });
    lines(&header, rows)
}

/// Returns a header and rows of as many values as CSV; null is an empty field.
pub(crate) fn lines(header: &[&str], rows: impl IntoIterator<Item = Vec<Value>>) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    let mut written = writer.write_record(header.iter().copied().map(field));
    for row in rows {
        written = written.and_then(|()| writer.write_record(row.iter().map(printed)));
    }
    // Writing to memory fails only if a line had more or fewer fields than the header.
    debug_assert!(written.is_ok(), "{written:?}");
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn printed(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => field(text),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(_) | Value::Object(_) => field(&value.to_string()),
    }
}

fn field(text: &str) -> String {
    guarded(&visible(text))
}
