//! Comma-separated values. A column with several values behind its cells becomes several, named `column.value`;
//! notes are left to the other forms.

use csv::Writer;
use serde_json::Value;

use crate::table::Table;

pub(super) fn render(table: &Table) -> String {
    let fields: Vec<_> = (0..table.columns.len()).map(|i| table.fields(i)).collect();
    let mut header = Vec::new();
    for (column, fields) in table.columns.iter().zip(&fields) {
        match fields.as_slice() {
            [] | [_] => header.push(column.name.clone()),
            several => header.extend(several.iter().map(|name| format!("{}.{name}", column.name))),
        }
    }
    let mut writer = Writer::from_writer(Vec::new());
    let mut written = writer.write_record(&header);
    for row in &table.rows {
        let mut line = Vec::new();
        for (cell, fields) in row.cells.iter().zip(&fields) {
            if fields.is_empty() {
                line.push(cell.text.clone());
            }
            line.extend(fields.iter().map(|name| match cell.field(name) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
            }));
        }
        written = written.and_then(|()| writer.write_record(&line));
    }
    // Writing to memory fails only if a row had more or fewer cells than the table has columns.
    debug_assert!(written.is_ok(), "{written:?}");
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
