//! Lines on standard error: progress, warnings, errors. Results go to standard output
//! ([`crate::output::print`]).

use std::io::{IsTerminal, Write, stderr};

use crate::colour;

/// Prints a line. If standard error is closed or full, only the line is lost: unlike `eprintln!`,
/// this does not panic.
pub fn line(text: &str) {
    // One write, so that lines of several processes in one log do not mix.
    let line = format!("{}\n", colour::on(&stderr(), text));
    let _ = stderr().write_all(line.as_bytes());
}

/// Returns whether standard error is a terminal whose cursor can be moved.
pub fn is_interactive() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stderr().is_terminal() && !is_dumb
}
