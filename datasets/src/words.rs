//! Numbers, lists and the messages of deserializers, in plain words.

/// Returns a number with its noun: `1 image`, `2 images`.
pub(crate) fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

/// Number of counts up to which all of them are written.
const FEW: usize = 24;

/// Returns the range of many counts, such as `60 labels, 131 to 187 of each`; `None` if they
/// are few enough to be listed. Labels after the last that occurs are not counted.
pub(crate) fn spread(rows: &[u64]) -> Option<String> {
    let used = rows
        .iter()
        .rposition(|&count| count > 0)
        .map_or(0, |last| last + 1);
    let (least, most) = (rows[..used].iter().min()?, rows[..used].iter().max()?);
    let labels = counted(used, "label");
    (rows.len() > FEW).then(|| format!("{labels}, {least} to {most} of each"))
}

/// Returns names as a list: `a`, `a and b`, `a, b and c`.
pub(crate) fn listed<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let names: Vec<S> = names.into_iter().collect();
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        text += match index {
            0 => "",
            _ if index + 1 == names.len() => " and ",
            _ => ", ",
        };
        text += name.as_ref();
    }
    text
}

/// Returns text from a file in backquotes; empty text as words.
pub(crate) fn quoted(text: &str) -> String {
    match text {
        "" => "nothing".to_owned(),
        text => format!("`{text}`"),
    }
}

/// Returns the message of a deserializer without the names of types of this program, and without
/// its own terms. `group` is the word for values with names: a table in TOML, an object in JSON.
pub fn of_deserializer(message: &str, group: &str) -> String {
    let names = |text: &str| -> Vec<String> {
        let quoted = text.split('`').skip(1).step_by(2);
        quoted.map(|name| format!("`{name}`")).collect()
    };
    if let Some((given, known)) = between(message, "unknown variant ", ", expected ") {
        return format!("{given} is none of {}", listed(names(known)));
    }
    if let Some((given, known)) = between(message, "unknown field ", ", expected ") {
        return format!(
            "{given} is unknown here; known are {}",
            listed(names(known))
        );
    }
    if let Some((given, wanted)) = between(message, "invalid type: ", ", expected ")
        .or_else(|| between(message, "invalid value: ", ", expected "))
    {
        let is_group = ["struct ", "a map", "map", "internally tagged"]
            .iter()
            .any(|start| wanted.starts_with(start));
        return match is_group {
            true => format!("{given} instead of {group}"),
            false => {
                let wanted = disk::kind_in_words(wanted.trim_start_matches("enum "));
                format!("{given} instead of {wanted}")
            }
        };
    }
    for (start, told) in [
        ("missing field ", "is missing"),
        ("duplicate field ", "is there twice"),
    ] {
        if let Some(name) = message.strip_prefix(start) {
            return format!("{name} {told}");
        }
    }
    let plain = PLAIN.iter().find(|(start, _)| message.starts_with(start));
    plain.map_or(message, |(_, told)| *told).to_owned()
}

/// Beginnings of messages of readers of numbers and of JSON, and the same in plain words.
const PLAIN: [(&str, &str); 11] = [
    ("EOF while parsing", "it is cut off"),
    ("JSON number out of range", LARGE),
    ("integer number overflowed", LARGE),
    ("floating-point number overflowed", "a number is too large"),
    ("number out of range", "a number is too large"),
    ("unexpected leading zero", "a number begins with 0"),
    (
        "invalid mantissa",
        "a number has no digits before its point",
    ),
    (
        "invalid fraction",
        "a number has no digits behind its point",
    ),
    ("invalid exponent", "a number has no digits behind its e"),
    (
        "`_` may only go between digits",
        "a number has a `_` that is not between digits",
    ),
    (
        "string values must be quoted",
        "a value is missing, or is a word without quotation marks",
    ),
];

/// The message for a whole number that no setting can be.
const LARGE: &str = "a whole number is too large (at most 9223372036854775807) or has no digits";

/// Returns the names that a deserializer's message lists as known, without quotes: those of the
/// values that a setting can have. Empty for any other message.
pub(crate) fn known_values(message: &str) -> Vec<&str> {
    match between(message, "unknown variant ", ", expected ") {
        Some((_, known)) => known.split('`').skip(1).step_by(2).collect(),
        None => Vec::new(),
    }
}

/// Returns what lies between a start and a middle, and what lies behind the middle.
fn between<'a>(message: &'a str, start: &str, middle: &str) -> Option<(&'a str, &'a str)> {
    message.strip_prefix(start)?.rsplit_once(middle)
}

/// Returns the message of a JSON deserializer in such words, with the place in the text.
pub fn of_json(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match message.strip_suffix(&place) {
        Some(message) => format!("{}{place}", of_deserializer(message, "an object")),
        None => of_deserializer(&message, "an object"),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Schema {
        #[allow(dead_code, reason = "only the message counts")]
        kind: Kind,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        One,
        Two,
        Three,
    }

    #[test]
    fn messages_of_deserializers_name_no_types() {
        for (text, told) in [
            ("7", "integer `7` instead of an object at line 1 column 1"),
            (
                r#"{"kind":"four"}"#,
                "`four` is none of `one`, `two` and `three` at line 1 column 14",
            ),
            (
                r#"{"king":"one"}"#,
                "`king` is unknown here; known are `kind` at line 1 column 7",
            ),
            ("{}", "`kind` is missing at line 1 column 2"),
        ] {
            let error = serde_json::from_str::<Schema>(text).unwrap_err();
            assert_eq!(of_json(&error), told);
        }
        for (text, told) in [
            (
                "[-1]",
                "integer `-1` instead of a whole number from 0 at line 1 column 3",
            ),
            (
                "[1.5]",
                "floating point `1.5` instead of a whole number from 0 at line 1 column 4",
            ),
            ("[1", "it is cut off at line 1 column 2"),
            ("[1e999]", "a number is too large at line 1 column 6"),
        ] {
            let error = serde_json::from_str::<Vec<u64>>(text).unwrap_err();
            assert_eq!(of_json(&error), told);
        }
        let error = serde_json::from_str::<Kind>("\"four\"").unwrap_err();
        let message = error.to_string();
        assert_eq!(known_values(&message), ["one", "two", "three"]);
        let _ = (Kind::One, Kind::Two, Kind::Three);
    }

    #[test]
    fn one_is_singular_and_lists_have_one_and() {
        assert_eq!(counted(0_usize, "image"), "0 images");
        assert_eq!(counted(1_u64, "image"), "1 image");
        assert_eq!(counted(2_u32, "image"), "2 images");
        assert_eq!(listed::<&str>([]), "");
        assert_eq!(listed(["a"]), "a");
        assert_eq!(listed(["a", "b"]), "a and b");
        assert_eq!(listed(["a", "b", "c"]), "a, b and c");
    }
}
