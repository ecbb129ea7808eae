//! Colour on terminals: red for failures, yellow for warnings, green for success.
//!
//! Text is laid out without colour and coloured on output, so that widths do not count colour
//! codes. It stays plain on a stream that is not a terminal, with `NO_COLOR` and with `TERM=dumb`.
//! `CLICOLOR_FORCE` colours it anyway.

use std::borrow::Cow;

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

const BAD: Style = AnsiColor::Red.on_default().bold();
const MIND: Style = AnsiColor::Yellow.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();

/// Words of tables and signs of sweeps that are coloured.
const WORDS: &[(&str, Style)] = &[
    ("FAIL", BAD),
    ("FAILED", BAD),
    ("REGRESSED", BAD),
    ("CHANGED", BAD),
    ("MISSING", BAD),
    ("✗", BAD),
    ("!", MIND),
    ("‖", MIND),
    ("✓", GOOD),
    ("passed", GOOD),
];

/// Beginnings of lines that are coloured.
const HEADS: &[(&str, Style)] = &[("error:", BAD), ("failed:", BAD), ("warning:", MIND)];

/// Returns the text, coloured if `stream` shows colours.
pub fn on<'a>(stream: &impl RawStream, text: &'a str) -> Cow<'a, str> {
    match AutoStream::choice(stream) {
        ColorChoice::Never => text.into(),
        _ => painted(text).into(),
    }
}

fn painted(text: &str) -> String {
    text.split_inclusive('\n').map(line).collect()
}

fn line(text: &str) -> String {
    let head = HEADS.iter().find(|(head, _)| text.starts_with(head));
    let (mut out, rest) = match head {
        Some((head, style)) => (format!("{style}{head}{style:#}"), &text[head.len()..]),
        None => (String::new(), text),
    };
    for piece in rest.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end_matches(|c: char| c.is_whitespace() || ",.;".contains(c));
        match WORDS.iter().find(|(known, _)| *known == word) {
            Some((_, style)) => out += &format!("{style}{word}{style:#}{}", &piece[word.len()..]),
            None => out += piece,
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_is_painted_and_nothing_else() {
        let text = "model  16.35 FAIL\nerror: no file, FAILED\nFAILS  (passed)\n";
        let bad = |word| format!("{BAD}{word}{BAD:#}");
        let expected = format!(
            "model  16.35 {}\n{} no file, {}\nFAILS  (passed)\n",
            bad("FAIL"),
            bad("error:"),
            bad("FAILED")
        );
        assert_eq!(painted(text), expected);
    }

    #[test]
    fn a_file_gets_plain_text() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(on(&file, "✗ FAIL"), "✗ FAIL");
    }
}
