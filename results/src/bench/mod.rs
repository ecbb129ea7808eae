//! The efficiency benchmark: the stored measurements of its cells, and the tables made from them.
//!
//! A session of `lra bench` is one file of JSON lines, a [`Bench`] per line, each complete with its
//! provenance. As with [`Record`](crate::Record), a field that an older file lacks takes its
//! default.

mod break_even;
mod cells;
mod change;
mod grid;
mod outcome;
mod possible;
mod setting;
mod tables;

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::{counted, grouped};
use crate::record::{OwnCode, Phases, Provenance, Recipe, Spread, assignments};
use crate::stats::{quantile, weighted_quantile};
use crate::store::Schema;
use crate::{Error, Result, atomic, json};

pub use break_even::BreakEven;
pub(crate) use grid::{Alike, Grid, GridRow};

pub use change::{Change, Comparison, Verdict, against_base};
pub use outcome::Outcome;
pub use tables::tables;

/// The model that ratios refer to.
pub const REFERENCE: &str = "transformer";

/// The version written into new lines. It grows when the meaning of a field changes, not when one
/// is added.
pub const SCHEMA: u32 = 1;

/// One cell: a model at a length, measured over several rounds, each in its own process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bench {
    /// [`SCHEMA`] of the program that wrote the line.
    pub schema: u32,
    /// The session's id, which is also the name of its file.
    pub session: String,
    /// Registry name of the model.
    pub model: String,
    /// The model's options that differ from the defaults, such as `attention=materialised`.
    #[serde(default, deserialize_with = "assignments")]
    pub options: Vec<String>,
    /// Tokens per example.
    pub length: usize,
    /// Examples per step.
    #[serde(default)]
    pub batch: usize,
    /// Outcome of the measurement.
    pub outcome: Outcome,
    /// The measurements, in the order of the rounds.
    #[serde(default)]
    pub rounds: Vec<Round>,
    /// Measurements of another build of the program, taken in turn with this one's, where the
    /// session compared the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Steps at the start of each round that are not in its `seconds`.
    #[serde(default)]
    pub warmup_steps: usize,
    /// Floating point operations of one step by formula; a multiply-add counts as two.
    #[serde(default)]
    pub flops_per_step: u64,
    /// The most floating point operations per second that matrix products reached on this machine
    /// in this session.
    #[serde(default)]
    pub matmul_flops_per_second: Option<f64>,
    /// Trained parameters.
    #[serde(default)]
    pub parameters: u64,
    /// Method by which peaks of memory were measured.
    #[serde(default)]
    pub memory_method: String,
    /// Recipe that sets the sizes.
    #[serde(default)]
    pub recipe: Recipe,
    /// The source of a model that is none of the registry's, and its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<OwnCode>,
    /// Origin of these figures.
    #[serde(flatten)]
    pub provenance: Provenance,
}

/// Measurements of the same cell by another build of the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Base {
    /// The other build of the program.
    pub program: String,
    /// Outcome of the measurement.
    pub outcome: Outcome,
    /// The measurements, in the order of the rounds.
    pub rounds: Vec<Round>,
}

/// Measurements of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Round {
    /// Number of the round, counted from 0. The processes of a round ran one after the other.
    pub round: usize,
    /// Seconds of each timed step.
    pub seconds: Vec<f64>,
    /// Time of these steps by phase.
    pub phases: Phases,
    /// High-water mark of memory, beyond the base.
    pub peak_bytes: u64,
    /// Bytes that the process held before it built the model; 0 where a cell's method does not
    /// subtract them.
    pub base_bytes: u64,
    /// The process's resident size at the end.
    pub resident_bytes: u64,
}

impl Round {
    /// Returns the median step time.
    fn median(&self) -> Option<f64> {
        quantile(&self.seconds, 0.5)
    }
}

impl Bench {
    /// Returns the model with its options, as tables print it: `transformer (materialised)`,
    /// `transformer (block.layers=2)`. The value of a variant or form of attention says enough.
    pub fn label(&self) -> String {
        let values = self
            .options
            .iter()
            .map(|option| match option.split_once('=') {
                Some(("variant" | "attention", value)) => value,
                _ => option,
            });
        let values: Vec<&str> = values.collect();
        match values.is_empty() {
            true => self.model.clone(),
            false => format!("{} ({})", self.model, values.join(", ")),
        }
    }

    /// Returns whether this is a cell of the reference model: softmax attention with the defaults
    /// of the registry.
    pub fn is_reference(&self) -> bool {
        self.model == REFERENCE && self.options.is_empty()
    }

    /// Returns the rounds of a completely measured cell; none of any other.
    fn measured(&self) -> &[Round] {
        match self.outcome {
            Outcome::Measured => &self.rounds,
            _ => &[],
        }
    }

    /// Returns the steps per second: the median over the rounds of their medians, and percentiles
    /// of all steps. Every round counts the same, however many steps it had time for.
    pub fn steps_per_second(&self) -> Option<Spread> {
        let rates = self.measured().iter().flat_map(|round| {
            let weight = 1.0 / round.seconds.len() as f64;
            round
                .seconds
                .iter()
                .map(move |seconds| (1.0 / seconds, weight))
        });
        let rates: Vec<(f64, f64)> = rates.collect();
        Some(Spread {
            median: rate(self.measured())?,
            p10: weighted_quantile(&rates, 0.1)?,
            p90: weighted_quantile(&rates, 0.9)?,
        })
    }

    /// Returns the highest memory peak of a completely measured cell.
    pub fn peak_bytes(&self) -> Option<u64> {
        self.measured().iter().map(|round| round.peak_bytes).max()
    }

    /// Returns the speed of this cell as a multiple of `other`'s: the median over the rounds that
    /// both have, so that a slow phase of the machine affects both.
    pub fn speed_over(&self, other: &Bench) -> Option<f64> {
        if self.outcome != Outcome::Measured || other.outcome != Outcome::Measured {
            return None;
        }
        quantile(&speed_ratios(&self.rounds, &other.rounds), 0.5)
    }

    /// Returns the memory this cell needs as a multiple of `other`'s.
    pub fn memory_over(&self, other: &Bench) -> Option<f64> {
        let theirs = other.peak_bytes().filter(|bytes| *bytes > 0)?;
        Some(self.peak_bytes()? as f64 / theirs as f64)
    }
}

/// Returns the steps per second: the median over the rounds of those of their median steps.
fn rate(rounds: &[Round]) -> Option<f64> {
    let medians = rounds.iter().filter_map(Round::median);
    let rates: Vec<f64> = medians.map(|seconds| 1.0 / seconds).collect();
    quantile(&rates, 0.5)
}

/// Returns the least and the most of some counts in words: `2 rounds`, `1 to 2 rounds`.
fn range_words(counts: impl Iterator<Item = usize>, noun: &str) -> Option<String> {
    let ends = |(least, most): (usize, usize), count: (usize, usize)| {
        (least.min(count.0), most.max(count.1))
    };
    let (least, most) = counts.map(|count| (count, count)).reduce(ends)?;
    let most_words = counted(most as u64, noun);
    Some(match least == most {
        true => most_words,
        false => format!("{} to {most_words}", grouped(least as u64)),
    })
}

/// Returns the speeds of `mine` as multiples of those of `theirs`, one ratio per round that both
/// have.
fn speed_ratios(mine: &[Round], theirs: &[Round]) -> Vec<f64> {
    let ratios = mine.iter().filter_map(|mine| {
        let theirs = theirs.iter().find(|it| it.round == mine.round)?;
        Some(theirs.median()? / mine.median()?)
    });
    ratios.collect()
}

/// Writes the cells of a session to a file, replacing it as a whole: a reader sees the old file or
/// the new one.
///
/// # Errors
/// The folder is missing, read-only or full.
pub fn write(path: &Path, cells: &[Bench]) -> Result<()> {
    let mut text = Vec::new();
    for (cell, line) in cells.iter().zip(1..) {
        serde_json::to_writer(&mut text, cell).map_err(|error| Error::NotABench {
            path: path.to_owned(),
            line,
            reason: error.to_string(),
        })?;
        text.push(b'\n');
    }
    atomic::write(path, &text)
}

/// Reads the cells of a session.
///
/// # Errors
/// The file cannot be read, or one of its lines is not a cell or has an impossible figure.
pub fn read(path: &Path) -> Result<Vec<Bench>> {
    let text = disk::read_to_string(path).map_err(Error::io("read", path))?;
    let lines = text
        .strip_prefix('\u{feff}')
        .unwrap_or(&text)
        .lines()
        .enumerate();
    lines
        .map(|(index, line)| {
            let wrong = |reason: String| Error::NotABench {
                path: path.to_owned(),
                line: index + 1,
                reason,
            };
            let schema: Schema = json::read_line(line).map_err(wrong)?;
            schema.check(SCHEMA, path)?;
            let cell: Bench = json::read_line(line).map_err(wrong)?;
            cell.check().map_err(wrong)?;
            Ok(cell)
        })
        .collect()
}
