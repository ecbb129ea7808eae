//! One JSON document: an array of tables. A cell is an object of its values, a string, or null.
//! Facts that a printed table states in headers or notes are in `columns` and in each row's
//! `about`.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::markup::is_obeyed;
use crate::table::{Cell, Column, Table, or_null};

pub(super) fn render(tables: &[Table]) -> String {
    let tables: Vec<Value> = tables.iter().map(table).collect();
    document(&tables).unwrap_or_default() + "\n"
}

/// Returns a value as a JSON document whose strings hold no characters that control a terminal.
/// Those that JSON does not escape by itself, such as U+009B, are escaped too.
///
/// # Errors
/// The value has a key that is no string, or its own serialization fails.
pub fn document(value: &impl Serialize) -> serde_json::Result<String> {
    let plain = serde_json::to_string_pretty(value)?;
    let mut spelt = String::with_capacity(plain.len());
    for c in plain.chars() {
        match is_obeyed(c) {
            true => spelt += &format!("\\u{:04x}", u32::from(c)),
            false => spelt.push(c),
        }
    }
    Ok(spelt)
}

fn table(table: &Table) -> Value {
    let rows: Vec<Value> = table
        .rows
        .iter()
        .map(|row| {
            let names = table.columns.iter().map(|column| column.name.clone());
            let mut values: Map<String, Value> = names.zip(row.cells.iter().map(cell)).collect();
            if !row.facts.is_empty() {
                values.insert(
                    "about".to_owned(),
                    Value::Object(facts(&row.facts).collect()),
                );
            }
            Value::Object(values)
        })
        .collect();
    let told = table
        .columns
        .iter()
        .filter_map(|column| Some((column.name.clone(), about(column)?)));
    json!({
        "table": table.name,
        "title": table.title,
        "unit": table.unit,
        "columns": Value::Object(told.collect()),
        "rows": rows,
        "notes": table.notes,
    })
}

/// Returns the facts about a column's cells, and their unit if it differs from the table's.
fn about(column: &Column) -> Option<Value> {
    let unit = column
        .unit
        .map(|unit| ("unit".to_owned(), Value::from(unit)));
    let all: Map<String, Value> = facts(&column.facts).chain(unit).collect();
    (!all.is_empty()).then_some(Value::Object(all))
}

fn facts(facts: &[(&'static str, String)]) -> impl Iterator<Item = (String, Value)> {
    let facts = facts.iter();
    facts.map(|(name, fact)| ((*name).to_owned(), or_null(fact)))
}

fn cell(cell: &Cell) -> Value {
    if cell.fields.is_empty() {
        return or_null(&cell.text);
    }
    let fields = cell.fields.iter();
    let fields: Map<String, Value> = fields
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    Value::Object(fields)
}
