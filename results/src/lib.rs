//! Records of runs, and the tables made from them.
//!
//! One run leaves one [`Record`]: what was run, on what, with which outcome. A [`store`] is a folder
//! of them.
//!
//! Nothing here trains, reads a tensor or prints: the functions take records and return values.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod atomic;
mod error;
pub mod record;
pub mod store;

pub use error::{Error, Result};
pub use record::{Outcome, Record};
