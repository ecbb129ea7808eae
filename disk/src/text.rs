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
}
