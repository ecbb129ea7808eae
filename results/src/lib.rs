//! Records of runs, and the tables made from them.
//!
//! Each run leaves one [`Record`]: its settings, its machine and its outcome. A [`store`] is a
//! folder of records. [`tables`] arranges records in a grid of models by tasks, averages over the
//! seeds of each cell, and adds [`published`] figures and trivial baselines where a comparison is
//! allowed. [`Format`] renders the resulting [`table::Table`] as text, Markdown, CSV, JSON or
//! LaTeX. [`splice`] updates tables in text files.
//!
//! This crate does not train, read tensors or print: its functions take records and return values.
//!
//! # Example
//! ```
//! use lra_results::{Format, Record, tables};
//!
//! let text = r#"{
//!     "schema": 1, "id": "toy-bag-smoke-s0-0a1b2c3d", "outcome": { "status": "scored" },
//!     "task": { "name": "toy", "label": "toy", "source": "generated" },
//!     "model": { "name": "bag" }, "scores": { "test_accuracy": 0.75 }
//! }"#;
//! let records: Vec<Record> = vec![serde_json::from_str(text)?];
//! let table = tables::find("accuracy")?.make(&records, None);
//! assert!(Format::Markdown.render(&[table]).contains("75.00"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agreement;
mod atomic;
pub mod average;
pub mod bench;
pub mod card;
pub mod chart;
pub mod check;
pub mod committed;
mod csv_lines;
pub mod equivalence;
mod error;
mod format;
pub mod imported;
mod json;
mod markup;
pub mod meaning;
pub mod metrics;
pub mod own_file;
pub mod page;
pub mod paired;
mod pivot;
pub mod published;
pub mod record;
mod render;
pub mod site;
pub mod splice;
pub mod stats;
pub mod store;
pub mod summary;
pub mod table;
pub mod tables;
mod tone;
pub mod verdict;

pub use atomic::{check_folder, clear_unfinished, write};
pub use bench::Bench;
pub use error::{Error, Result};
pub use format::{apart, counted, fold, grouped, listed, scaled, wrap};
pub use json::read_line;
pub use pivot::mixture;
pub use record::{Outcome, Record};
pub use render::{Format, document, markdown, on_terminal, set_width, width};
pub use tone::Tone;
