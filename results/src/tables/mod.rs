//! The tables that records make.

mod averages;
mod comparison;
mod grid;

use std::fmt;
use std::str::FromStr;

use crate::published::Source;
use crate::record::Record;
use crate::table::Table;
use crate::{Error, Result};
use grid::Quantity;

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Test accuracy in percent, with the trivial baselines and published figures.
    Accuracy,
    /// Training steps per second.
    Speed,
    /// Peak memory.
    Memory,
    /// Mean accuracy over the tasks, by every convention in use.
    Averages,
    /// Each accuracy held against a published figure: difference, interval, verdict.
    Comparison,
}

impl Kind {
    /// All of them, in the order they are shown in.
    pub const ALL: [Kind; 5] = [
        Kind::Accuracy,
        Kind::Speed,
        Kind::Memory,
        Kind::Averages,
        Kind::Comparison,
    ];

    /// Those that are shown unless one is asked for.
    pub const USUAL: [Kind; 3] = [Kind::Accuracy, Kind::Speed, Kind::Memory];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Accuracy => "accuracy",
            Kind::Speed => "speed",
            Kind::Memory => "memory",
            Kind::Averages => "averages",
            Kind::Comparison => "comparison",
        })
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Kind> {
        let found = Kind::ALL.into_iter().find(|kind| kind.to_string() == name);
        found.ok_or_else(|| Error::UnknownTable {
            name: name.to_owned(),
            known: Kind::ALL.map(|kind| kind.to_string()).join(", "),
        })
    }
}

/// Makes a table.
///
/// Runs that differ in anything but the seed never share a cell. Published figures of `against` are
/// set beside the accuracies they may be compared with; a note says why others are not.
pub fn table(kind: Kind, records: &[Record], against: Option<&Source>) -> Table {
    match kind {
        Kind::Accuracy => grid::table(Quantity::Accuracy, records, against),
        Kind::Speed => grid::table(Quantity::Speed, records, against),
        Kind::Memory => grid::table(Quantity::Memory, records, against),
        Kind::Averages => averages::table(records, against),
        Kind::Comparison => comparison::table(records, against),
    }
}

/// Adds sentences, but not so many that nobody reads them.
fn capped(notes: &mut Vec<String>, mut more: Vec<String>) {
    const MOST: usize = 8;
    let left = more.len().saturating_sub(MOST);
    more.truncate(MOST);
    notes.extend(more);
    if left > 0 {
        notes.push(format!("... and {left} more like these."));
    }
}
