//! The output formats of tables, one per file.

pub(crate) mod csv;
mod html;
mod json;
mod latex;
pub mod markdown;
mod text;
mod tidy;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::table::Table;
use crate::{Error, Result};

pub use json::document;
pub use text::on_terminal;

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For terminals, at most [`width`] columns wide.
    Text,
    /// For pages on GitHub and the like.
    Markdown,
    /// One table with a line per cell, values unrounded.
    Csv,
    /// One document, values unrounded.
    Json,
    /// For papers; needs the packages `adjustbox` and `booktabs`.
    Latex,
    /// For browsers: one file with sortable tables.
    Html,
}

/// Width of text in columns if there is no terminal.
const USUAL_WIDTH: usize = 100;
/// The smallest and the largest width of text; longer lines are hard to read.
const WIDTHS: RangeInclusive<usize> = 60..=160;
static WIDTH: AtomicUsize = AtomicUsize::new(USUAL_WIDTH);

/// Returns the width of text in columns.
#[must_use]
pub fn width() -> usize {
    WIDTH.load(Ordering::Relaxed)
}

/// Sets the width of text to that of a terminal, at least 60 and at most 160 columns.
pub fn set_width(columns: usize) {
    let columns = columns.clamp(*WIDTHS.start(), *WIDTHS.end());
    WIDTH.store(columns, Ordering::Relaxed);
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 6] = [
        Format::Text,
        Format::Markdown,
        Format::Csv,
        Format::Json,
        Format::Latex,
        Format::Html,
    ];

    /// Renders tables one below the other; the text ends with a line feed.
    pub fn render(self, tables: &[Table]) -> String {
        let each: fn(&Table) -> String = match self {
            Format::Json => return json::render(tables),
            Format::Csv => return csv::render(tables),
            Format::Html => return html::render(tables),
            Format::Text => text::render,
            Format::Markdown => markdown::render,
            Format::Latex => latex::render,
        };
        let parts: Vec<String> = tables.iter().map(each).collect();
        parts.join("\n")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Text => "text",
            Format::Markdown => "markdown",
            Format::Csv => "csv",
            Format::Json => "json",
            Format::Latex => "latex",
            Format::Html => "html",
        })
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Format> {
        let found = Format::ALL
            .into_iter()
            .find(|form| form.to_string().eq_ignore_ascii_case(name));
        found.ok_or_else(|| Error::UnknownFormat {
            name: name.to_owned(),
            known: Format::ALL.map(|form| form.to_string()).join(", "),
        })
    }
}
