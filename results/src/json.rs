//! Reading JSON with messages in plain words.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a value from a JSON text.
///
/// # Errors
/// The text is no JSON, or holds no such value. The reason names the field, if one is at fault, and
/// the place in the text.
pub(crate) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| {
        let fields = serde_json::from_slice::<Value>(text);
        match fields.map(|fields| read_fields::<T>(&fields)) {
            Ok(Err(told)) => told + &place(&error),
            // The text itself is at fault.
            Ok(Ok(_)) | Err(_) => reason(&error),
        }
    })
}

/// Reads a value from a text that is one line of a file.
///
/// # Errors
/// Those of a JSON text; the reason has the column of the fault.
pub fn read_line<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    read(line.as_bytes()).map_err(|told| told.replace(" at line 1 column", " at column"))
}

/// Reads a value from its fields.
///
/// # Errors
/// A field is missing or of another kind; the reason names it.
pub(crate) fn read_fields<T: DeserializeOwned>(fields: &Value) -> Result<T, String> {
    T::deserialize(fields).map_err(|error| {
        let message = error.to_string();
        let told = plain(&message);
        match at_fault::<T>(fields, &message) {
            Some(field) => format!("{field}: {told}"),
            None => told,
        }
    })
}

/// Returns the reason why a text cannot be read, with the place in it.
pub(crate) fn reason(error: &serde_json::Error) -> String {
    let place = place(error);
    if error.is_eof() {
        return format!("it is cut off{place}");
    }
    let text = error.to_string();
    match text.strip_suffix(&place) {
        Some(text) => plain(text) + &place,
        None => plain(&text),
    }
}

/// Returns the place of a fault in a text, or nothing where the reader has lost it, as within a
/// line of a log.
fn place(error: &serde_json::Error) -> String {
    if error.line() == 0 {
        return String::new();
    }
    format!(" at line {} column {}", error.line(), error.column())
}

/// Returns a message of the reader, without a place, in plain words.
fn plain(message: &str) -> String {
    if let Some(field) = message.strip_prefix("missing field ") {
        return format!("{field} is missing");
    }
    match mismatch(message) {
        Some((given, wanted)) => format!("{} instead of {}", given_words(given), kind(wanted)),
        None if message == "number out of range" => "a number is too large".to_owned(),
        None => message.to_owned(),
    }
}

/// Returns what the reader found, and what it expected, if its message is about a value of another
/// kind or size.
fn mismatch(message: &str) -> Option<(&str, &str)> {
    let starts = ["invalid type: ", "invalid value: "];
    let found = starts.iter().find_map(|start| message.strip_prefix(start));
    found?.rsplit_once(", expected ")
}

/// Returns words for what the reader found: `text "NaN"`, `number -3`.
fn given_words(given: &str) -> String {
    match given {
        "map" => return "an object".to_owned(),
        "sequence" => return "a list".to_owned(),
        _ => {}
    }
    let words = [
        ("string ", "text "),
        ("integer ", "number "),
        ("floating point ", "number "),
        ("boolean ", ""),
    ];
    let found = words
        .iter()
        .find_map(|(term, word)| Some((*word, given.strip_prefix(term)?)));
    match found {
        Some((word, value)) => format!("{word}{}", value.trim_matches('`')),
        None => given.to_owned(),
    }
}

/// Returns the word for the kind of values that the reader expected.
fn kind(wanted: &str) -> &str {
    match wanted {
        "a string" | "string" => "text",
        "a map" => "an object",
        _ if wanted.starts_with("struct ") || wanted.contains("tagged enum ") => "an object",
        _ if wanted.starts_with("variant ") => "a word",
        _ => disk::kind_in_words(wanted),
    }
}

/// A step from a value to one that it holds.
#[derive(Clone)]
enum Step {
    /// The member of an object.
    Name(String),
    /// The item of a list.
    At(usize),
}

/// The most fields that are tried for a fault. Of a file of any size no more are.
const MOST_TRIED: usize = 200;

/// Returns the field at fault if reading fails with `message`: the innermost without which reading
/// succeeds, else the first without which it fails otherwise. `None` if there is none, as where a
/// field is missing, which the message names.
fn at_fault<T: DeserializeOwned>(fields: &Value, message: &str) -> Option<String> {
    if message.starts_with("missing field") {
        return None;
    }
    let given = mismatch(message).map(|(given, _)| given);
    let mut all = Vec::new();
    list(fields, &mut Vec::new(), &mut all);
    let might = all
        .into_iter()
        .filter(|(_, value)| given.is_none_or(|given| is_given(value, given)));
    let mut other = None;
    for (path, _) in might.take(MOST_TRIED) {
        let mut rest = fields.clone();
        remove(&mut rest, &path);
        match T::deserialize(&rest) {
            Ok(_) => return Some(shown(&path)),
            Err(error) if error.to_string() != message => other = other.or(Some(path)),
            Err(_) => {}
        }
    }
    other.map(|path| shown(&path))
}

/// Returns whether a value is what the reader says that it found.
fn is_given(value: &Value, given: &str) -> bool {
    match value {
        Value::Null => given == "null",
        Value::Bool(flag) => given == format!("boolean `{flag}`"),
        Value::Number(number) => {
            let found = given
                .split('`')
                .nth(1)
                .and_then(|found| found.parse::<f64>().ok());
            found == number.as_f64()
        }
        Value::String(text) => given == format!("string {text:?}"),
        Value::Array(_) => given == "sequence",
        Value::Object(_) => given == "map",
    }
}

/// Lists the values within a value with their paths, the inner ones first. `path` is the value's
/// own.
fn list<'a>(value: &'a Value, path: &mut Vec<Step>, all: &mut Vec<(Vec<Step>, &'a Value)>) {
    let mut enter = |step: Step, inner: &'a Value| {
        path.push(step);
        list(inner, path, all);
        all.push((path.clone(), inner));
        path.pop();
    };
    match value {
        Value::Object(members) => {
            for (name, inner) in members {
                enter(Step::Name(name.clone()), inner);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                enter(Step::At(index), inner);
            }
        }
        _ => {}
    }
}

/// Removes the value at a path.
fn remove(value: &mut Value, path: &[Step]) {
    let Some((step, rest)) = path.split_first() else {
        return;
    };
    let inner = match (value, step) {
        (Value::Object(members), Step::Name(name)) if rest.is_empty() => {
            members.shift_remove(name);
            None
        }
        (Value::Array(items), Step::At(at)) if rest.is_empty() => {
            items.remove(*at);
            None
        }
        (value, Step::Name(name)) => value.get_mut(name),
        (value, Step::At(at)) => value.get_mut(*at),
    };
    if let Some(inner) = inner {
        remove(inner, rest);
    }
}

/// Returns a path as text: `baselines[0].accuracy`.
fn shown(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Name(name) if text.is_empty() => text += name,
            Step::Name(name) => text += &format!(".{name}"),
            Step::At(at) => text += &format!("[{at}]"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Line;
    use crate::record::Record;
    use crate::store::Schema;

    #[test]
    fn reasons_name_no_terms_of_the_reader() {
        for (text, told) in [
            ("", "it is cut off at line 1 column 0"),
            ("{\n\"schema\": 1", "it is cut off at line 2 column 11"),
            ("{}", "`schema` is missing at line 1 column 2"),
            ("7", "number 7 instead of an object at line 1 column 1"),
            (
                "{\"schema\": \"x\"}",
                "schema: text \"x\" instead of a whole number from 0 to 4294967295 at line 1 column 14",
            ),
            (
                "{\"schema\": -1}",
                "schema: number -1 instead of a whole number from 0 to 4294967295 at line 1 column 13",
            ),
            (
                "{\"schema\": true}",
                "schema: true instead of a whole number from 0 to 4294967295 at line 1 column 15",
            ),
            (
                "{\"schema\": 1e999}",
                "a number is too large at line 1 column 16",
            ),
        ] {
            assert_eq!(read::<Schema>(text.as_bytes()).err().unwrap(), told);
        }
        let told = read_line::<Schema>("[").err().unwrap();
        assert_eq!(told, "it is cut off at column 1");
    }

    /// An inner field is named, not the object that holds it, and none before it that holds
    /// something else.
    #[test]
    fn the_field_at_fault_is_named_with_its_place() {
        let told = |fields: &str| {
            let start = r#""schema": 1, "id": "run", "outcome": {"status": "scored"}, "task": {}, "model": {}"#;
            let text = format!("{{{start}, {fields}}}");
            let fields: Value = serde_json::from_str(&text).unwrap();
            read_fields::<Record>(&fields).unwrap_err()
        };
        for (fields, expected) in [
            (
                r#""scores": {"test_accuracy": "NaN"}"#,
                "scores.test_accuracy: text \"NaN\" instead of a number",
            ),
            (
                r#""scores": {"test_loss": {}}"#,
                "scores.test_loss: an object instead of a number",
            ),
            (
                r#""baselines": [{"accuracy": 0.5}, {"accuracy": []}]"#,
                "baselines[1].accuracy: a list instead of a number",
            ),
            (
                r#""threads": 2.5"#,
                "threads: number 2.5 instead of a whole number from 0",
            ),
            (
                r#""recipe": {"name": 7}"#,
                "recipe.name: number 7 instead of text",
            ),
        ] {
            assert_eq!(told(fields), expected);
        }
        let told = read_line::<Line>(r#"{"event": "train", "step": "x"}"#).unwrap_err();
        assert_eq!(told, "step: text \"x\" instead of a whole number from 0");
    }
}
