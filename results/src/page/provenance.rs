//! A whole record, collapsed to one line.

use serde_json::Value;

use super::badge;
use crate::format::percent;
use crate::markup::escaped;
use crate::record::Record;

/// Returns one run: its outcome in a line, the rest on a click.
pub(super) fn html(record: &Record) -> String {
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
    let mut rows = String::new();
    if let Ok(value) = serde_json::to_value(record) {
        flatten("", &value, &mut rows);
    }
    format!(
        "<details><summary><code>{}</code> {ending}</summary>\n<table class=\"record\">{rows}</table></details>\n",
        escaped(&record.id)
    )
}

/// Adds one line per value, named by its path within the record.
fn flatten(path: &str, value: &Value, rows: &mut String) {
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
                *rows += &format!(
                    "<tr><td>{}</td><td>{}</td></tr>\n",
                    escaped(path),
                    escaped(&text)
                );
            }
        }
    }
}
