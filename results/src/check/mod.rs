//! Regression checks: the runs of a folder compared with a baseline, cell by cell.
//!
//! A baseline is a CSV file with one row per cell, made from records ([`Baseline::of`]). A
//! [`judge`]d cell is held against its row in five aspects: accuracy over the seeds, the trace of
//! the losses, that of the norms of the gradients, peak memory, and speed as a ratio to a reference
//! model of the same task; and its settings and its parameters must be those of the row. What
//! cannot be judged fairly (another processor, a baseline that lacks a column) is said to be so and
//! never counts as passed or failed. What is missing is a failure: a cell of the baseline, or a
//! figure that the baseline has.

mod aspect;
mod baseline;
mod file;
mod judge;
mod junit;
mod show;

pub use aspect::{Aspect, Finding};
pub use baseline::{Baseline, Key, Row};
pub use judge::{Check, Judged, State, Thresholds, judge};
pub use junit::junit;
pub use show::table;
