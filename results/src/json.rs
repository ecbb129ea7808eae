//! The messages of the JSON reader in plain words.

/// Returns the reason why a text cannot be read, with the place in it.
pub(crate) fn reason(error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    if error.is_eof() {
        return format!("it is cut off{place}");
    }
    let text = error.to_string();
    let (text, place) = match text.strip_suffix(&place) {
        Some(text) => (text, place.as_str()),
        None => (text.as_str(), ""),
    };
    if let Some(field) = text.strip_prefix("missing field ") {
        return format!("{field} is missing{place}");
    }
    match between(text, "invalid type: ", ", expected ") {
        Some((given, "a map")) => format!("{given} instead of an object{place}"),
        Some((given, wanted)) if wanted.starts_with("struct ") => {
            format!("{given} instead of an object{place}")
        }
        Some((given, wanted)) => format!("{given} instead of {wanted}{place}"),
        None => format!("{text}{place}"),
    }
}

/// Returns the reason for a text that is one line of a file.
pub(crate) fn reason_in_line(error: &serde_json::Error) -> String {
    reason(error).replace(" at line 1 column", " at column")
}

/// Returns what lies between a start and a middle, and what lies behind the middle.
fn between<'a>(text: &'a str, start: &str, middle: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(start)?.rsplit_once(middle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Schema;

    #[test]
    fn reasons_name_no_terms_of_the_reader() {
        for (text, told) in [
            ("", "it is cut off at line 1 column 0"),
            ("{\n\"schema\": 1", "it is cut off at line 2 column 11"),
            ("{}", "`schema` is missing at line 1 column 2"),
            ("7", "integer `7` instead of an object at line 1 column 1"),
            (
                "{\"schema\": \"x\"}",
                "string \"x\" instead of u32 at line 1 column 14",
            ),
        ] {
            let error = serde_json::from_str::<Schema>(text).err().unwrap();
            assert_eq!(reason(&error), told);
        }
        let error = serde_json::from_str::<Schema>("[").err().unwrap();
        assert_eq!(reason_in_line(&error), "it is cut off at column 1");
    }
}
