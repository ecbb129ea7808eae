//! Kinds of values as readers of files name them, in plain words.

/// Returns the words for a kind of value that a reader of JSON or TOML expected, such as `u64`. A
/// kind without other words stays as it is.
#[must_use]
pub fn kind_in_words(kind: &str) -> &str {
    match kind {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "u128" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "variant identifier" => "a word",
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_numbers_have_plain_words() {
        assert_eq!(kind_in_words("u64"), "a whole number from 0");
        assert_eq!(kind_in_words("f64"), "a number");
        assert_eq!(kind_in_words("a string"), "a string");
    }
}
