//! Lines on standard error: progress, warnings, errors. Results go to standard output ([`crate::cmd::print`]).

use std::io::{Write, stderr};

/// Prints a line. Where standard error is closed or full the line is lost, and nothing else: unlike `eprintln!`, this does
/// not panic.
pub fn line(text: &str) {
    // One write, so that lines of several processes in one log do not mix.
    let _ = stderr().write_all(format!("{text}\n").as_bytes());
}
