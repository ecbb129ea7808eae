//! Readers on damaged input: any bytes give an error or valid data, without a panic, a hang, or
//! unbounded memory.
//!
//! `LRA_FUZZ=100000 cargo test -p lra-datasets --test fuzz` tries that many inputs per reader; the
//! default is a few hundred.
#![allow(missing_docs, clippy::unwrap_used)]

mod archives;
mod attack;
mod parquet;
mod pictures;
#[path = "../raw/mod.rs"]
mod raw;
mod tables;
