//! Regression checks: the runs of a folder compared with a baseline, cell by cell.
//!
//! A baseline is a CSV file with one row per cell, made from records ([`Baseline::of`]). [`judge`]
//! compares a cell with its row in five aspects: accuracy over the seeds, the trace of the losses,
//! the trace of the gradient norms, peak memory, and speed as a ratio to a reference model on the
//! same task. The settings and the parameters of the cell must be those of the row. An aspect that
//! cannot be judged fairly (another processor, a baseline without the column) is marked as such and
//! never counts as passed or failed. A missing cell or figure of the baseline is a failure.

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
