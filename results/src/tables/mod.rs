//! Tables made from records.

mod averages;
mod bits;
mod comparison;
mod dense;
mod grid;
mod judged;
mod probes;
mod ranks;
mod reproduced;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::format::counted;
use crate::pivot::Pivot;
use crate::published::Source;
use crate::record::{Outcome, Record};
use crate::table::{Table, or_null};
use crate::{Error, Result};
use grid::Quantity;

pub use probes::{Probed, profile};
pub(crate) use probes::{before_permutation, is_order_of};

/// A kind of table made from records.
#[derive(Debug)]
pub struct TableKind {
    /// Its name.
    pub name: &'static str,
    /// Summary of its contents, in a line.
    pub summary: &'static str,
    /// True if `lra report` prints it without `--table`. An HTML page has every table.
    pub by_default: bool,
    make: fn(&[Record], Option<&Source>) -> Table,
}

/// All tables, in the order of display.
pub static TABLES: &[TableKind] = &[
    TableKind {
        name: "accuracy",
        summary: "Test accuracy in percent, with the trivial baselines and published figures",
        by_default: true,
        make: |records, against| grid::table(Quantity::Accuracy, records, against),
    },
    TableKind {
        name: "speed",
        summary: "Training steps per second",
        by_default: true,
        make: |records, against| grid::table(Quantity::Speed, records, against),
    },
    TableKind {
        name: "memory",
        summary: "Peak memory",
        by_default: true,
        make: |records, against| grid::table(Quantity::Memory, records, against),
    },
    TableKind {
        name: "averages",
        summary: "Mean accuracy over the tasks, by every convention in use",
        by_default: false,
        make: averages::table,
    },
    TableKind {
        name: "comparison",
        summary: "Each accuracy beside a published figure: difference, interval, verdict",
        by_default: false,
        make: comparison::table,
    },
    TableKind {
        name: "reproduced",
        summary: "Published cells run by their own recipes: verdict, differences, hours, machine",
        by_default: false,
        make: reproduced::table,
    },
    TableKind {
        name: "bits",
        summary: "Bits gained, with the seeds that trained and the agreement with published tables",
        by_default: false,
        make: bits::table,
    },
    TableKind {
        name: "ranks",
        summary: "Ranks of the models over all tasks, with intervals, bits gained and accuracy on each task",
        by_default: false,
        make: ranks::table,
    },
    TableKind {
        name: "dense",
        summary: "Accuracy on labels at single positions, by their groups, beside that on whole sequences",
        by_default: false,
        make: dense::table,
    },
    TableKind {
        name: "probes",
        summary: "Accuracy on the probes (recall, copying, keeping a state, distance), by length",
        by_default: false,
        make: probes::table,
    },
];

impl TableKind {
    /// Makes the table.
    ///
    /// Runs that differ in anything but the seed never share a cell. Published figures of `against`
    /// are beside the accuracies they may be compared with. A note gives the reason why others are
    /// not.
    pub fn make(&self, records: &[Record], against: Option<&Source>) -> Table {
        (self.make)(records, against)
    }
}

/// Returns the table of ranks.
pub(crate) fn ranks(records: &[Record]) -> Table {
    ranks::table(records, None)
}

/// Returns the table of probes.
pub(crate) fn probes(records: &[Record]) -> Table {
    probes::table(records, None)
}

/// Finds a table by its name.
///
/// # Errors
/// No table has this name.
pub fn find(name: &str) -> Result<&'static TableKind> {
    let found = TABLES.iter().find(|kind| kind.name == name);
    found.ok_or_else(|| {
        let known: Vec<&str> = TABLES.iter().map(|kind| kind.name).collect();
        Error::UnknownTable {
            name: name.to_owned(),
            known: known.join(", "),
        }
    })
}

/// Names of the facts that a row of a table by task and model has for machines: those of the model
/// and its setting, those in between that a table has of its own, and those of the data.
macro_rules! info {
    ($($own:literal),*) => {
        &[
            "model", "from", "variant", "recipe", "set", "precision", "device", $($own,)* "task", "source",
            "protocol", "data",
        ]
    };
}
use info;

/// Returns the endings of the runs of a cell that were not scored, such as `2 diverged`; the word
/// alone if the cell has no score.
pub(crate) fn endings(runs: &[&Record], has_score: bool) -> Vec<String> {
    let mut endings: Vec<&str> = runs.iter().map(|run| run.outcome.word()).collect();
    endings.retain(|word| *word != Outcome::Scored.word());
    endings.sort_unstable();
    let groups = endings.chunk_by(|a, b| a == b);
    let words = groups.map(|group| match has_score || group.len() < runs.len() {
        true => format!("{} {}", group.len(), group[0]),
        false => group[0].to_owned(),
    });
    words.collect()
}

/// Returns words as a value for machines: null if there are none.
fn status(words: &[String]) -> Value {
    or_null(&words.join(", "))
}

/// Returns a sentence for every run of a cell that was not scored.
fn told(model: &str, column: &str, runs: &[&Record]) -> Vec<String> {
    let ended = runs.iter().filter(|run| run.outcome != Outcome::Scored);
    ended
        .map(|run| format!("{model} on {column}, seed {}: {}", run.seed, run.outcome))
        .collect()
}

/// The note on seeds if every cell has one.
pub(crate) const ONE_SEED: &str = "One seed per cell.";

/// The start of the note on the settings of all rows.
pub(crate) const EVERY_ROW: &str = "Every row";

/// Returns a sentence with the settings that all rows share, if there are any.
fn every_row(pivot: &Pivot) -> Option<String> {
    let constant = pivot.constant.iter();
    let constant: Vec<_> = constant.map(|(name, of)| format!("{name} {of}")).collect();
    (!constant.is_empty()).then(|| format!("{EVERY_ROW}: {}.", constant.join(", ")))
}

/// Returns a sentence with the origin of the data of each column.
fn origins(pivot: &Pivot) -> impl Iterator<Item = String> {
    let columns = pivot.columns.iter().zip(&pivot.origins);
    columns.map(|(column, origin)| format!("{column}: {origin}."))
}

/// Returns sentences on what the cells do not show: several revisions, runs left out.
fn left_unsaid(pivot: &Pivot) -> Vec<String> {
    let mut notes = Vec::new();
    if pivot.revisions.len() > 1 {
        let of = |(revision, models): (&String, &BTreeSet<&str>)| {
            let models: Vec<&str> = models.iter().copied().collect();
            format!("{revision} ({})", some_of(&models))
        };
        let revisions: Vec<String> = pivot.revisions.iter().map(of).collect();
        notes.push(format!(
            "Runs of several revisions of the program (+ modified): {}.",
            revisions.join(", ")
        ));
    }
    if pivot.repeats > 0 {
        notes.push(format!(
            "{} left out: of several runs of a seed, the latest one with a score counts.",
            counted(pivot.repeats as u64, "run")
        ));
    }
    notes
}

/// Returns the first words of a list, and the number of the others.
fn some_of(words: &[&str]) -> String {
    const MOST: usize = 4;
    match words.get(MOST..) {
        Some([_, _, ..]) => {
            let others = words.len() - MOST;
            format!("{} and {others} more", words[..MOST].join(", "))
        }
        _ => words.join(", "),
    }
}

/// Adds sentences, but not so many that they go unread.
fn capped(notes: &mut Vec<String>, mut more: Vec<String>) {
    const MOST: usize = 8;
    let left = more.len().saturating_sub(MOST);
    more.truncate(MOST);
    notes.extend(more);
    if left > 0 {
        notes.push(format!("... and {left} more like these."));
    }
}
