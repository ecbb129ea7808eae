//! One JSON document: an array of tables. A cell is an object of its values, a string, or null.
//! Facts that a printed table states in headers or notes are in `columns` and in each row's
//! `info`.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::markup::spelt;
use crate::table::{Cell, Column, Fact, Table, known, or_null, unique};

/// Name of the facts about a row, among those of its cells.
const INFO: &str = "about";

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
    Ok(spelt(&serde_json::to_string_pretty(value)?))
}

fn table(table: &Table) -> Value {
    let mut shared: Vec<&str> = Vec::new();
    for (name, _) in table.rows.iter().flat_map(|row| &row.facts) {
        if !shared.contains(name) {
            shared.push(name);
        }
    }
    // Two columns may have one header, and neither may take the place of the other.
    let headers = table.columns.iter().map(|column| column.name.clone());
    let names = unique(headers, &[INFO]);
    let named = || table.columns.iter().zip(&names);
    let rows: Vec<Value> = table
        .rows
        .iter()
        .map(|row| {
            // A key that tells rows of this table apart is a fact about every row.
            let is_fact = |column: &Column| column.key && shared.contains(&column.name.as_str());
            let pairs = named().zip(&row.cells);
            let mut values: Map<String, Value> = pairs
                .filter(|((column, _), _)| !is_fact(column))
                .map(|((column, name), cell)| (name.clone(), self::cell(column, cell)))
                .collect();
            if !shared.is_empty() {
                let fact = |name: &str| row.facts.iter().find(|(known, _)| *known == name);
                let facts = shared.iter().map(|name| {
                    let value = fact(name).map_or(Value::Null, |(_, value)| known(value));
                    ((*name).to_owned(), value)
                });
                values.insert(INFO.to_owned(), Value::Object(facts.collect()));
            }
            Value::Object(values)
        })
        .collect();
    let told = named().filter_map(|(column, name)| Some((name.clone(), info(column)?)));
    json!({
        "table": table.name,
        "title": table.title,
        "unit": or_null(&table.unit),
        "columns": Value::Object(told.collect()),
        "rows": rows,
        "notes": table.notes,
    })
}

/// Returns the facts about a column's cells, and their unit if it differs from the table's.
fn info(column: &Column) -> Option<Value> {
    let unit = column
        .unit
        .map(|unit| ("unit".to_owned(), Value::from(unit)));
    let all: Map<String, Value> = facts(&column.facts).chain(unit).collect();
    (!all.is_empty()).then_some(Value::Object(all))
}

fn facts(facts: &[Fact]) -> impl Iterator<Item = (String, Value)> {
    let facts = facts.iter();
    facts.map(|(name, fact)| ((*name).to_owned(), known(fact)))
}

/// Returns a cell's values: all that its column declares, and others that it has.
fn cell(column: &Column, cell: &Cell) -> Value {
    if cell.fields.is_empty() && (column.fields.is_empty() || cell.text.is_empty()) {
        return or_null(&cell.text);
    }
    let declared = column.fields.iter().copied();
    let others = cell.fields.iter().map(|(name, _)| *name);
    let others = others.filter(|name| !column.fields.contains(name));
    let fields: Map<String, Value> = declared
        .chain(others)
        .map(|name| (name.to_owned(), cell.field(name).map_or(Value::Null, known)))
        .collect();
    Value::Object(fields)
}
