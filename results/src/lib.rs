//! Records of runs, and the tables made from them.
//!
//! One run leaves one [`Record`]: what was run, on what, with which outcome. A [`store`] is a
//! folder of them. [`tables`] sorts records into a grid of models by tasks, folds the seeds of each
//! cell, and sets [`published`] figures and trivial baselines beside them where they may stand
//! there. The [`table::Table`] that comes out is rendered by [`Format`]: text, Markdown, CSV, JSON,
//! LaTeX. [`splice`] keeps tables in prose fresh.
//!
//! Nothing here trains, reads a tensor or prints: the functions take records and return values.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agreement;
mod atomic;
pub mod average;
pub mod bench;
pub mod card;
pub mod chart;
pub mod check;
pub mod equivalence;
mod error;
mod format;
mod markup;
pub mod meaning;
pub mod metrics;
pub mod page;
mod pivot;
pub mod published;
pub mod record;
mod render;
pub mod splice;
pub mod stats;
pub mod store;
pub mod summary;
pub mod table;
pub mod tables;
pub mod verdict;

pub use atomic::{clear_unfinished, write};
pub use bench::Bench;
pub use error::{Error, Result};
pub use format::wrap;
pub use record::{Outcome, Record};
pub use render::{Format, document, markdown, set_width, width};
