//! Lines on standard error: progress, warnings, errors. Results go to standard output
//! ([`crate::output::print`]).

use std::io::{IsTerminal, Write, stderr};

use terminal_size::Width;

use results::Tone;

use crate::colour::Text;
use crate::error::as_message;

/// Narrowest terminal whose lines are folded to its width, in columns.
const NARROWEST: usize = 60;

/// Prints the line or lines of `text`. Control characters, which file names and strings of records
/// may contain, are escaped. If standard error is closed or full, only the line is lost; unlike
/// `eprintln!`, this does not panic.
pub fn line(text: impl Into<Text>) {
    // One write, so that lines of several processes in one log do not mix.
    let line = text.into().and("\n").on(&stderr());
    let _ = stderr().write_all(line.as_bytes());
}

/// Prints an error.
pub fn error(message: impl std::fmt::Display) {
    line(headed(Tone::Bad, "error:", &message.to_string()));
}

/// Prints a warning. Line feeds that come from a file are escaped too ([`as_message`]).
pub fn warning(message: impl std::fmt::Display) {
    line(headed(
        Tone::Caution,
        "warning:",
        &as_message(&message.to_string()),
    ));
}

/// Returns a message behind a word for its kind.
pub fn headed(tone: Tone, head: &str, message: &str) -> Text {
    Text::toned(tone, head).and(format!(" {message}"))
}

/// Prints sentences like [`line`]. Lines that are too long for a terminal are folded.
pub fn prose(text: &str) {
    match terminal_size::terminal_size_of(stderr()) {
        Some((Width(columns), _)) => line(results::fold(text, usize::from(columns).max(NARROWEST))),
        None => line(text),
    }
}

/// Returns whether standard error is a terminal whose cursor can be moved.
pub fn is_interactive() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stderr().is_terminal() && !is_dumb
}
