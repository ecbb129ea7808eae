//! The tasks of the Long Range Arena as plain integers: generators, readers, and the on-disk store.
//!
//! A [`Task`] writes its three splits as rows of bytes with a label. A [`Store`] keeps
//! them in memory-mapped files under `<data>/store`, one folder per [`Key`] (task version, source,
//! protocol and options), so that data is made once, opens in milliseconds, and is shared between
//! processes. [`Summary`] and [`Verification`] describe and check a stored entry.
//!
//! Guarantees of a task: the same options give the same bytes on every machine and with any number
//! of threads; byte `s` of a row means model id `s + first_id`; rows are not padded here. This
//! crate has no tensors, no network and no printing: progress goes through [`Progress`], and text
//! is returned as `String`.
//!
//! A program adds tasks of its own with [`tasks::register`]; [`prelude`] has the names that they
//! import, and [`conformance`] what they promise. A folder is a task, too ([`tasks::mine`]).
//! # Example
//! ```
//! use lra_datasets::{Key, SplitName, Store, tasks};
//!
//! let folder = tempfile::tempdir()?;
//! let store = Store::new(folder.path());
//! let toy = tasks::find("toy").ok_or("no such task")?;
//! let splits = store.open_or_build(toy, &Key::default_of(toy), None, &())?;
//! let test = splits.get(SplitName::Test);
//! assert!(test.len() > 0 && test.label(0) < 4);
//! println!("{:?} is of class {}", test.tokens(0, 0), test.label(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod archive;
mod baseline;
mod build_checkpoint;
mod check;
pub mod command;
pub mod conformance;
mod contact_sheet;
mod dense;
mod digest;
mod duplicates;
mod error;
mod files;
mod histogram;
mod info;
mod key;
mod lines;
mod literal;
mod locate;
mod logistic;
mod manifest;
mod numpy;
mod options;
mod origin;
mod parquet;
mod pickle;
pub mod prelude;
mod prior;
mod progress;
mod remote;
mod rng;
pub mod shuffle;
mod source_checks;
mod split;
mod split_writer;
mod store;
mod summary;
mod synthetic;
mod task;
pub mod tasks;
mod verified_files;
mod verify;
mod words;

pub use archive::{check_archive, unlike_archive, unlike_archive_beginning};
pub use baseline::{Baseline, DenseBaseline, MAJORITY, bag_of_tokens, first_token, majority};
pub use build_checkpoint::BuildCheckpoint;
pub use check::Check;
pub use contact_sheet::{Picture, contact_sheet};
pub use dense::{Dense, DenseLabels, DenseRow, UNLABELLED};
pub use digest::Digest;
pub use error::{Class, Error, Result};
pub use histogram::{Bin, Lengths};
pub use info::{Protocol, Shape, Source, TaskInfo};
pub use key::{Key, canonical_json};
pub use manifest::{Fact, Known, Manifest, PerSplit, SplitManifest, SplitName};
pub use prior::prior_loss;
pub use progress::Progress;
pub use remote::Remote;
pub use split::{Split, Splits};
pub use split_writer::SplitWriter;
pub use store::{Entry, OtherRawFiles, RawFiles, Store};
pub use summary::{SplitSummary, Summary};
pub use task::{Request, Task};
pub use tasks::TASKS;
pub use verify::Verification;
pub use words::{of_deserializer, of_json};
