//! Readers against damaged input: whatever the bytes, an error or valid data, no panic, no hang, no memory without bound.
//!
//! `LRA_FUZZ=100000 cargo test -p lra-datasets --test fuzz` tries so many inputs per reader; by default it is a few hundred.
#![allow(missing_docs, clippy::unwrap_used)]

mod archives;
mod attack;
mod parquet;
mod pictures;
#[path = "../raw/mod.rs"]
mod raw;
mod tables;
