//! One example of a folder: a line of JSON, or a row of a table.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::lines::whole;
use crate::words::{of_deserializer, quoted};

/// Largest token, pixel and label: each is stored as a byte.
const LARGEST: i64 = 255;

/// Field that holds the sequence of an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// Text, read as the bytes of UTF-8.
    Text,
    /// Whole numbers from 0 to 255.
    Tokens,
    /// Grey levels from 0 to 255, in rows or as one list.
    Pixels,
    /// Measured numbers.
    Values,
}

impl Field {
    pub(super) const ALL: [Field; 4] = [Field::Text, Field::Tokens, Field::Pixels, Field::Values];

    /// Returns its name in files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Field::Text => "text",
            Field::Tokens => "tokens",
            Field::Pixels => "pixels",
            Field::Values => "values",
        }
    }

    /// Returns the names of all fields, with those of second sequences.
    pub(super) fn names() -> Vec<String> {
        let all = Field::ALL.into_iter();
        all.flat_map(|it| [it.name().to_owned(), it.second()])
            .collect()
    }

    /// Returns the name of the field of the second sequence.
    fn second(self) -> String {
        format!("{}2", self.name())
    }
}

/// Kind of an example: its field, and whether there is a second sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) field: Field,
    /// Number of sequences, 1 or 2.
    pub(super) towers: usize,
}

impl Kind {
    /// Returns the names of its fields in words.
    pub(super) fn words(self) -> String {
        let first = self.field.name();
        match self.towers {
            1 => format!("`{first}`"),
            _ => format!("`{first}` and `{}`", self.field.second()),
        }
    }
}

/// A sequence as it is in the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Sequence {
    /// Bytes, tokens or pixels, to be stored as they are.
    Bytes(Vec<u8>),
    /// Measured numbers, to be stored as levels.
    Numbers(Vec<f64>),
}

impl Sequence {
    pub(super) fn len(&self) -> usize {
        match self {
            Sequence::Bytes(bytes) => bytes.len(),
            Sequence::Numbers(numbers) => numbers.len(),
        }
    }
}

/// A label as it is in the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    Number(u8),
    Word(String),
}

impl Label {
    /// Returns the label of a whole number.
    ///
    /// # Errors
    /// It is out of range.
    pub(super) fn of_number(number: i64) -> Result<Label, String> {
        u8::try_from(number).map(Label::Number).map_err(|_| {
            format!("label {number} is out of range: labels are words, or whole numbers from 0 to {LARGEST}")
        })
    }

    /// Returns the label of a word, without blanks around it.
    ///
    /// # Errors
    /// It is empty.
    pub(super) fn of_word(word: &str) -> Result<Label, String> {
        match word.trim() {
            "" => Err("its `label` is empty: name the class".to_owned()),
            word => Ok(Label::Word(word.to_owned())),
        }
    }

    /// Returns the label in words.
    pub(super) fn text(&self) -> String {
        match self {
            Label::Number(number) => number.to_string(),
            Label::Word(word) => quoted(word),
        }
    }
}

/// An example.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) towers: Vec<Sequence>,
    pub(super) label: Label,
    /// Height and width of pixels; `None` for other fields.
    pub(super) grid: Option<[usize; 2]>,
}

impl Row {
    /// Reads a line of JSON.
    ///
    /// # Errors
    /// The problem and the remedy, in words.
    pub(super) fn parse(line: &[u8]) -> Result<Row, String> {
        let line: Fields = serde_json::from_slice(line).map_err(|error| {
            let told = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            let told = told.strip_suffix(&place).unwrap_or(&told);
            let told = of_deserializer(told, "an object");
            format!(
                "no JSON object: {told} at column {}; a line is such as {EXAMPLE}",
                error.column()
            )
        })?;
        let line = line.0;
        Row::of(&line, || label(line.get("label").unwrap_or(&Value::Null)))
    }

    /// Returns the example of these fields, with the label that `label` returns.
    ///
    /// # Errors
    /// The problem and the remedy, in words.
    pub(super) fn of(
        line: &Map<String, Value>,
        label: impl FnOnce() -> Result<Label, String>,
    ) -> Result<Row, String> {
        let mut fields = Field::ALL.into_iter().filter(|it| has(line, it.name()));
        let Some(field) = fields.next() else {
            return Err(format!(
                "it has none of the fields `text`, `tokens`, `pixels` and `values`; a line is such as {EXAMPLE}"
            ));
        };
        if let Some(other) = fields.next() {
            return Err(format!(
                "it has `{}` and `{}`: keep one, since an example is one sequence (or two: `{}` and `{}`)",
                field.name(),
                other.name(),
                field.name(),
                field.second()
            ));
        }
        let names = [field.name().to_owned(), field.second()];
        let names = names.iter().filter(|name| has(line, name));
        let read: Vec<(Sequence, _)> = names
            .map(|name| sequence(field, name, line.get(name.as_str()).unwrap_or(&Value::Null)))
            .collect::<Result<_, _>>()?;
        let grid = read[0].1;
        if read.iter().any(|(_, other)| *other != grid) {
            return Err("its two pictures differ in size: they have to have the same".to_owned());
        }
        Ok(Row {
            kind: Kind {
                field,
                towers: read.len(),
            },
            towers: read.into_iter().map(|(sequence, _)| sequence).collect(),
            label: label()?,
            grid,
        })
    }
}

/// The fields of a line, each of which is there once.
struct Fields(Map<String, Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(line: D) -> Result<Self, D::Error> {
        line.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut line: A) -> Result<Fields, A::Error> {
        let mut fields = Map::new();
        while let Some((name, value)) = line.next_entry::<String, Value>()? {
            if fields.contains_key(&name) {
                let name = quoted(&name);
                return Err(A::Error::custom(format!("the field {name} is there twice")));
            }
            fields.insert(name, value);
        }
        Ok(Fields(fields))
    }
}

/// A line in messages.
const EXAMPLE: &str = "{\"text\": \"to be read\", \"label\": 0}";

fn has(line: &Map<String, Value>, name: &str) -> bool {
    line.get(name).is_some_and(|value| !value.is_null())
}

fn empty(name: &str) -> String {
    format!("`{name}` is empty: leave the line out")
}

fn label(value: &Value) -> Result<Label, String> {
    match value {
        Value::Null => {
            Err("it has no `label`: add one, a word or a whole number from 0".to_owned())
        }
        Value::Bool(truth) => Ok(Label::Word(truth.to_string())),
        Value::String(word) => Label::of_word(word),
        Value::Number(number) => match number.as_f64().and_then(whole) {
            Some(number) => Label::of_number(number),
            None => Err(format!(
                "label {number} is not a whole number: classes are words, or whole numbers from 0"
            )),
        },
        Value::Array(_) | Value::Object(_) => Err(
            "its `label` is neither a word nor a number; a folder has one label for each example, \
             and labels at positions need a program: `lra new task NAME --kind positions`"
                .to_owned(),
        ),
    }
}

/// Reads a sequence, with height and width of pixels.
fn sequence(
    field: Field,
    name: &str,
    value: &Value,
) -> Result<(Sequence, Option<[usize; 2]>), String> {
    if field == Field::Text {
        return match value.as_str() {
            Some("") => Err(empty(name)),
            Some(text) => Ok((Sequence::Bytes(text.as_bytes().to_vec()), None)),
            None => Err(format!(
                "`{name}` is not a text in quotes; lists of numbers are `tokens`, `pixels` or `values`"
            )),
        };
    }
    let Some(items) = value.as_array() else {
        return Err(format!(
            "`{name}` is not a list of numbers, such as [1, 2, 3]"
        ));
    };
    if items.is_empty() {
        return Err(empty(name));
    }
    match field {
        Field::Values => {
            let numbers = items.iter().enumerate().map(|(place, item)| {
                let number = item.as_f64().filter(|number| number.is_finite());
                number.ok_or_else(|| format!("`{name}` holds {item} at place {place}, no number"))
            });
            let numbers = numbers.collect::<Result<_, _>>()?;
            Ok((Sequence::Numbers(numbers), None))
        }
        Field::Pixels if items[0].is_array() => pixels(name, items),
        Field::Pixels => {
            let bytes = bytes(name, items)?;
            // A list of pixels is a square picture if it can be one, else a line of pixels.
            let side = bytes.len().isqrt();
            let grid = match side * side == bytes.len() {
                true => [side; 2],
                false => [1, bytes.len()],
            };
            Ok((Sequence::Bytes(bytes), Some(grid)))
        }
        _ => Ok((Sequence::Bytes(bytes(name, items)?), None)),
    }
}

/// Reads a picture as a list of its rows.
fn pixels(name: &str, rows: &[Value]) -> Result<(Sequence, Option<[usize; 2]>), String> {
    let mut all = Vec::new();
    let mut width = 0;
    for (place, row) in rows.iter().enumerate() {
        let Some(items) = row.as_array().filter(|items| !items.is_empty()) else {
            return Err(format!("row {place} of `{name}` is not a list of numbers"));
        };
        if place > 0 && items.len() != width {
            return Err(format!(
                "row {place} of `{name}` has {} pixels, and the first {width}: all rows are of one length",
                items.len()
            ));
        }
        width = items.len();
        all.extend(bytes(name, items)?);
    }
    Ok((Sequence::Bytes(all), Some([rows.len(), width])))
}

fn bytes(name: &str, items: &[Value]) -> Result<Vec<u8>, String> {
    let byte = |(place, item): (usize, &Value)| {
        let number = item.as_f64().and_then(whole);
        let byte = number.and_then(|number| u8::try_from(number).ok());
        byte.ok_or_else(|| {
            let kind = match item.is_number() {
                true => "out of range",
                false => "no number",
            };
            format!(
                "`{name}` holds {item} at place {place}, {kind}: it holds whole numbers from 0 to {LARGEST} (measured numbers are `values`)"
            )
        })
    };
    items.iter().enumerate().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let row = Row::parse(br#"{"label": "cat", "text": "ab"}"#).unwrap();
        assert_eq!(row.towers, [Sequence::Bytes(b"ab".to_vec())]);
        assert_eq!(row.label, Label::Word("cat".to_owned()));
        let row = Row::parse(br#"{"pixels": [[0, 1, 2], [3, 4, 255]], "label": 2.0}"#).unwrap();
        assert_eq!(row.grid, Some([2, 3]));
        assert_eq!(row.label, Label::Number(2));
        let row = Row::parse(br#"{"pixels": [0, 1, 2, 3], "label": false}"#).unwrap();
        assert_eq!(row.grid, Some([2, 2]));
        let row = Row::parse(br#"{"values": [1, -2.5], "values2": [0], "label": 1}"#).unwrap();
        assert_eq!(row.kind.towers, 2);
        assert_eq!(row.towers[0], Sequence::Numbers(vec![1.0, -2.5]));
    }

    #[test]
    fn problems_are_named_with_the_remedy() {
        for (line, told) in [
            ("", "no JSON object"),
            ("[1]", "no JSON object"),
            (
                r#"{"text": "a", "label": 0, "label": 1}"#,
                "the field `label` is there twice",
            ),
            (r#"{"text": "a""#, "at column 12"),
            (r#"{"label": 1}"#, "it has none of the fields"),
            (r#"{"text": "a"}"#, "it has no `label`: add one"),
            (
                r#"{"text": "a", "label": null}"#,
                "it has no `label`: add one",
            ),
            (r#"{"text": "", "label": 1}"#, "`text` is empty"),
            (
                r#"{"text": 5, "label": 1}"#,
                "`text` is not a text in quotes",
            ),
            (
                r#"{"text": "a", "tokens": [1], "label": 1}"#,
                "it has `text` and `tokens`: keep one",
            ),
            (
                r#"{"text": "a", "label": -1}"#,
                "label -1 is out of range: labels are words, or whole numbers from 0 to 255",
            ),
            (
                r#"{"text": "a", "label": 0.5}"#,
                "label 0.5 is not a whole number",
            ),
            (
                r#"{"text": "a", "label": [0, 1]}"#,
                "lra new task NAME --kind positions",
            ),
            (
                r#"{"tokens": [1, 256], "label": 1}"#,
                "`tokens` holds 256 at place 1, out of range",
            ),
            (
                r#"{"tokens": ["a"], "label": 1}"#,
                "`tokens` holds \"a\" at place 0, no number",
            ),
            (
                r#"{"tokens": "a", "label": 1}"#,
                "`tokens` is not a list of numbers",
            ),
            (
                r#"{"values": [1, null], "label": 1}"#,
                "`values` holds null at place 1, no number",
            ),
            (
                r#"{"pixels": [[1], [1, 2]], "label": 1}"#,
                "row 1 of `pixels` has 2 pixels, and the first 1",
            ),
            (
                r#"{"pixels": [[1]], "pixels2": [[1, 2]], "label": 1}"#,
                "differ in size",
            ),
        ] {
            let problem = Row::parse(line.as_bytes()).unwrap_err();
            assert!(problem.contains(told), "{line}: {problem}");
        }
    }
}
