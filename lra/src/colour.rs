//! Colours on terminals. A piece of text has the colour of its meaning, which is named where the
//! text is written.
//!
//! Text stays plain on a stream that is not a terminal, with `NO_COLOR` and with `TERM=dumb`.
//! `CLICOLOR_FORCE` colours it anyway.

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use results::Tone;

/// Text for a terminal: pieces with or without a meaning. No codes are in it, so that layouts count
/// characters.
#[derive(Clone, Debug, Default)]
pub struct Text(Vec<(Option<Tone>, String)>);

impl Text {
    /// Returns text that has a meaning.
    pub fn toned(tone: Tone, text: impl Into<String>) -> Text {
        Text(vec![(Some(tone), text.into())])
    }

    /// Returns the text with another behind it.
    #[must_use]
    pub fn and(mut self, next: impl Into<Text>) -> Text {
        self.0.extend(next.into().0);
        self
    }

    /// Returns the text for a stream: in its colours if `stream` shows any. Characters of it that a
    /// terminal obeys are escaped, but for line feeds and tabs.
    pub fn on(&self, stream: &impl RawStream) -> String {
        let colours = shown_by(stream);
        let pieces = self.0.iter().map(|(tone, text)| {
            let text = disk::printable(text);
            match tone {
                Some(tone) if colours => tone.paint(&text),
                _ => text,
            }
        });
        pieces.collect()
    }
}

impl<T: AsRef<str>> From<T> for Text {
    fn from(text: T) -> Text {
        Text(vec![(None, text.as_ref().to_owned())])
    }
}

impl FromIterator<(Option<Tone>, String)> for Text {
    fn from_iter<I: IntoIterator<Item = (Option<Tone>, String)>>(pieces: I) -> Text {
        Text(pieces.into_iter().collect())
    }
}

/// Returns lines as one text.
pub fn joined(lines: impl IntoIterator<Item = Text>) -> Text {
    let mut all = Text::default();
    for line in lines {
        if !all.0.is_empty() {
            all = all.and("\n");
        }
        all = all.and(line);
    }
    all
}

/// Returns whether a stream shows colours.
pub fn shown_by(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_plain_text() {
        let file = tempfile::tempfile().unwrap();
        let text = Text::toned(Tone::Bad, "FAILED").and("  \u{1b}[1mmodel\n");
        assert_eq!(text.on(&file), "FAILED  \\u{1b}[1mmodel\n");
    }

    #[test]
    fn lines_are_joined() {
        let file = tempfile::tempfile().unwrap();
        let lines = joined(["a".into(), Text::toned(Tone::Good, "b"), "".into()]);
        assert_eq!(lines.on(&file), "a\nb\n");
    }
}
