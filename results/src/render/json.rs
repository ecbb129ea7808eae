//! One JSON document: an array of tables. A cell is an object of its values, a string, or null.

use serde_json::{Map, Value, json};

use crate::table::{Cell, Table};

pub(super) fn render(tables: &[Table]) -> String {
    let tables: Vec<Value> = tables.iter().map(table).collect();
    format!("{:#}\n", Value::Array(tables))
}

fn table(table: &Table) -> Value {
    let rows: Vec<Value> = table
        .rows
        .iter()
        .map(|row| {
            let names = table.columns.iter().map(|column| column.name.clone());
            Value::Object(names.zip(row.cells.iter().map(cell)).collect())
        })
        .collect();
    json!({
        "table": table.name,
        "title": table.title,
        "unit": table.unit,
        "rows": rows,
        "notes": table.notes,
    })
}

fn cell(cell: &Cell) -> Value {
    if cell.fields.is_empty() {
        return match cell.text.is_empty() {
            true => Value::Null,
            false => Value::from(cell.text.as_str()),
        };
    }
    let fields = cell.fields.iter();
    let fields: Map<String, Value> = fields
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    Value::Object(fields)
}
