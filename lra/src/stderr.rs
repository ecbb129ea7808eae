//! Lines on standard error: progress, warnings, errors. Results go to standard output
//! ([`crate::output::print`]).

use std::io::{IsTerminal, Write, stderr};

use terminal_size::Width;

use crate::colour;

/// Narrowest terminal whose lines are folded to its width, in columns.
const NARROWEST: usize = 60;

/// Prints the line or lines of `text`. Control characters, which file names and strings of records
/// may contain, are escaped. If standard error is closed or full, only the line is lost; unlike
/// `eprintln!`, this does not panic.
pub fn line(text: &str) {
    let text = escaped(text);
    // One write, so that lines of several processes in one log do not mix.
    let line = format!("{}\n", colour::on(&stderr(), &text));
    let _ = stderr().write_all(line.as_bytes());
}

/// Prints sentences like [`line`]. Lines that are too long for a terminal are folded.
pub fn prose(text: &str) {
    match terminal_size::terminal_size_of(stderr()) {
        Some((Width(columns), _)) => {
            line(&results::fold(text, usize::from(columns).max(NARROWEST)))
        }
        None => line(text),
    }
}

/// Prints `text` as one line, like [`line`]: its line feeds, which come from a file, are escaped
/// too.
pub fn one(text: &str) {
    line(&disk::escape(text));
}

/// Returns `text` with its control characters escaped, line by line.
fn escaped(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(disk::escape).collect();
    lines.join("\n")
}

/// Returns whether standard error is a terminal whose cursor can be moved.
pub fn is_interactive() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stderr().is_terminal() && !is_dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(
            escaped("error: \u{1b}[31mred\u{7}\n  next"),
            "error: \\u{1b}[31mred\\u{7}\n  next"
        );
    }
}
