//! Values that a pickle of protocol 0 spells in text, a line each.

use super::Value;
use crate::literal;

/// Reads a whole number in decimal, which may end in `L`; `00` and `01` are the truth values.
pub(super) fn number(line: &[u8]) -> Result<Value, String> {
    match line {
        b"00" => return Ok(Value::Bool(false)),
        b"01" => return Ok(Value::Bool(true)),
        _ => {}
    }
    let text = String::from_utf8_lossy(line);
    let number = text.trim().trim_end_matches('L').parse();
    number
        .map(Value::Int)
        .map_err(|_| "a value that is not a number, or has more than 64 bits".to_owned())
}

/// Reads a string of Python 2, in quotes and with escapes.
pub(super) fn string(line: &[u8]) -> Result<Vec<u8>, String> {
    match line.first() {
        Some(b'\'' | b'"') => literal::decode(&[b"b", line].concat(), usize::MAX),
        _ => Err("a string without quotes".to_owned()),
    }
}

/// Reads a text in Latin-1, with other characters as `\uXXXX` or `\UXXXXXXXX`; returns UTF-8.
pub(super) fn unicode(line: &[u8]) -> Result<Vec<u8>, String> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((byte, behind)) = rest.split_first() {
        let digits = match (byte, behind.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                text.push(char::from(*byte));
                rest = behind;
                continue;
            }
        };
        let spelt = behind
            .get(1..=digits)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let number = spelt.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        text.push(
            number
                .and_then(char::from_u32)
                .ok_or("an escape that is not a character")?,
        );
        rest = &behind[1 + digits..];
    }
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_python_spells_it() {
        assert_eq!(string(b"'a\\x00\\n\\'b'").unwrap(), b"a\0\n'b");
        assert!(string(b"touch").is_err() && string(b"'open").is_err());
        let text = unicode(b"a\\u000ab\xff\\u005c\\U0001f600").unwrap();
        assert_eq!(text, "a\nbÿ\\😀".as_bytes());
        for wrong in [&b"\\u12"[..], b"\\ud800", b"\\U00110000", b"\\uzzzz"] {
            assert!(unicode(wrong).is_err());
        }
    }
}
