//! Regression checks: the runs of a folder held against a baseline, cell by cell.
//!
//! A baseline is a CSV file with one row per cell, made from records ([`Baseline::of`]). A [`judge`]d cell is
//! held against its row in four aspects: accuracy over the seeds, the trace of the losses, peak memory, and speed as
//! a ratio to a reference model of the same task. What cannot be judged fairly (another processor, a single
//! noisy timing) is said to be so and never counts as passed or failed. A cell of the baseline that is not there is a failure.

mod baseline;
mod judge;
mod junit;
mod show;

pub use baseline::{Baseline, Key, Row};
pub use judge::{Aspect, Check, Finding, Judged, State, Thresholds, judge};
pub use junit::junit;
pub use show::table;
