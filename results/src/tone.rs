//! Meanings of words for people, which a terminal shows as colours.

use anstyle::{AnsiColor, Style};

/// Meaning of a word, a cell or a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A failure; red.
    Bad,
    /// A warning; yellow.
    Caution,
    /// A success; green.
    Good,
}

impl Tone {
    /// Returns the style that shows it.
    #[must_use]
    pub fn style(self) -> Style {
        let colour = match self {
            Tone::Bad => AnsiColor::Red,
            Tone::Caution => AnsiColor::Yellow,
            Tone::Good => AnsiColor::Green,
        };
        colour.on_default().bold()
    }

    /// Returns the text in its colour, with the codes of a terminal.
    pub fn paint(self, text: &str) -> String {
        let style = self.style();
        format!("{style}{text}{style:#}")
    }
}
