//! Python's bytes literals.

/// Returns the first bytes, at most `most`, of the value of a literal `b'...'` or `b"..."`. Any
/// other field is returned as it is.
///
/// # Errors
/// The literal has an escape that Python does not write, or no closing quote.
pub(super) fn decode(field: &[u8], most: usize) -> Result<Vec<u8>, String> {
    let (quote, body) = match field {
        [b'b', quote @ (b'\'' | b'"'), body @ ..] => (*quote, body),
        plain => return Ok(plain[..plain.len().min(most)].to_vec()),
    };
    let Some((last, body)) = body.split_last().filter(|(last, _)| **last == quote) else {
        return Err("a bytes literal without its closing quote".to_owned());
    };
    debug_assert_eq!(*last, quote);
    let mut bytes = Vec::new();
    let mut rest = body.iter();
    while bytes.len() < most {
        let byte = match rest.next() {
            None => break,
            Some(b'\\') => escaped(&mut rest)?,
            Some(byte) if *byte == quote => {
                return Err("a bytes literal with something behind its closing quote".to_owned());
            }
            Some(byte) => *byte,
        };
        bytes.push(byte);
    }
    Ok(bytes)
}

/// Returns the byte for the characters after a backslash.
fn escaped(rest: &mut std::slice::Iter<'_, u8>) -> Result<u8, String> {
    match rest.next() {
        Some(b'n') => Ok(b'\n'),
        Some(b't') => Ok(b'\t'),
        Some(b'r') => Ok(b'\r'),
        Some(same @ (b'\\' | b'\'' | b'"')) => Ok(*same),
        Some(b'x') => {
            let mut digit = || char::from(*rest.next()?).to_digit(16);
            match (digit(), digit()) {
                (Some(high), Some(low)) => Ok((16 * high + low) as u8),
                _ => Err("a bytes literal with \\x and not two hexadecimal digits".to_owned()),
            }
        }
        Some(other) => Err(format!(
            "a bytes literal with the escape \\{}",
            other.escape_ascii()
        )),
        None => Err("a bytes literal that ends in a backslash".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_python_writes_them() {
        let read = |text: &str| decode(text.as_bytes(), 100).unwrap();
        assert_eq!(read(r"b'It is'"), b"It is");
        assert_eq!(read(r#"b"It's""#), b"It's");
        assert_eq!(
            read(r"b'\x00\xc3\xBc\n\t\r\\ \' \x41'"),
            b"\0\xc3\xbc\n\t\r\\ ' A"
        );
        assert_eq!(read("b''"), b"");
        // Not literals: returned as they are.
        for plain in ["", "b", "before", "'quoted'", "br'raw'"] {
            assert_eq!(read(plain), plain.as_bytes());
        }
        assert_eq!(decode(br"b'\x41BCD'", 2).unwrap(), b"AB");
        assert_eq!(decode(b"plain", 2).unwrap(), b"pl");
    }

    #[test]
    fn what_python_never_writes() {
        for wrong in [
            "b'", "b'open", r"b'\x4'", r"b'\xg0'", r"b'\q'", r"b'\'", "b'a'b'", "b\"'",
        ] {
            assert!(decode(wrong.as_bytes(), 100).is_err(), "{wrong}");
        }
    }
}
