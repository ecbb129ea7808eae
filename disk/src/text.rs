//! Text that comes from files, made safe for a terminal.

/// Returns whether a terminal obeys the character: control characters, and characters that change
/// the direction of writing.
#[must_use]
pub fn is_obeyed(symbol: char) -> bool {
    symbol.is_control()
        || matches!(
            symbol,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        )
        || matches!(symbol, '\u{2066}'..='\u{2069}')
}

/// Returns a text in UTF-8 without the byte order mark that some editors and spreadsheets put
/// before it.
#[must_use]
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Returns text as one line in which every character that a terminal [obeys](is_obeyed) is escaped,
/// line feeds and tabs too.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for symbol in text.chars() {
        match is_obeyed(symbol) {
            true => safe.extend(symbol.escape_default()),
            false => safe.push(symbol),
        }
    }
    safe
}

/// Returns text that is safe for a terminal: line ends and tabs stay, and every other control
/// character is escaped, because the text may come from a file.
#[must_use]
pub fn printable(text: &str) -> String {
    let kept = text.split_inclusive(['\n', '\t']).map(|piece| {
        let end = piece.len() - usize::from(piece.ends_with(['\n', '\t']));
        escape(&piece[..end]) + &piece[end..]
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        for (mark, spelt) in [
            ('\u{1b}', "\\u{1b}"),
            ('\n', "\\n"),
            ('\t', "\\t"),
            ('\u{9b}', "\\u{9b}"),
            ('\u{202e}', "\\u{202e}"),
            ('\u{2066}', "\\u{2066}"),
            ('\u{200f}', "\\u{200f}"),
            ('\u{61c}', "\\u{61c}"),
            ('é', "é"),
            ('\u{200d}', "\u{200d}"),
        ] {
            assert_eq!(escape(&format!("a{mark}")), format!("a{spelt}"));
        }
    }

    /// Control characters, line and paragraph separators, and the marks, embeddings, overrides and
    /// isolates of the Unicode Bidirectional Algorithm.
    #[test]
    fn every_character_is_obeyed_or_not() {
        let obeyed: Vec<u32> = (0..=0x10_ffff)
            .filter(|code| char::from_u32(*code).is_some_and(is_obeyed))
            .collect();
        let known = (0..0x20)
            .chain(0x7f..0xa0)
            .chain([0x61c, 0x200e, 0x200f])
            .chain(0x2028..=0x202e)
            .chain(0x2066..=0x2069);
        assert_eq!(obeyed, known.collect::<Vec<u32>>());
    }

    #[test]
    fn lines_and_tabs_stay_where_text_has_several() {
        assert_eq!(
            printable("a\tb\u{1b}[2J\nc\r\n\u{202e}"),
            "a\tb\\u{1b}[2J\nc\\r\n\\u{202e}"
        );
        assert_eq!(printable(""), "");
    }

    #[test]
    fn a_byte_order_mark_is_dropped_once_and_at_the_start_alone() {
        assert_eq!(without_mark(b"\xef\xbb\xbf\xef\xbb\xbfa"), b"\xef\xbb\xbfa");
        for text in [&b"a\xef\xbb\xbf"[..], b"\xef\xbb", b""] {
            assert_eq!(without_mark(text), text);
        }
    }
}
