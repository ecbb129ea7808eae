//! Mega-chunk. Ma et al., 2022, "Mega: Moving Average Equipped Gated Attention", arXiv:2209.10655.
//!     A = softmax(Q Kᵀ / √s + w_(j-i)) within chunks of C positions; all else as in Mega, whose moving average crosses chunks
//! Time O(L·C·(s + v)) and O(L·D·h) for the average, memory O(L·(D + v)). L length, D width, s
//! width of queries and keys, v of values, h modes. Equations and code:
//! `models/src/mixers/mega/mod.rs`.
//!
//! # Options
//!
//! `chunk` C (128); `attention`, `shared`, `values`, `modes`, `taps` and `hidden_dropout` as of
//! Mega.
//!
//! # Padding
//!
//! The last chunk of a sequence may be shorter, and padding is never a key.
//!
//! # Departures
//!
//! As of Mega.

use crate::prelude::*;

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "mega_chunk",
    title: "Mega-chunk",
    time: Cost::Linear("O(L·C·E)"),
    reference: Reference::Shared,
    family: Family::Gated,
    variants: &[Variant::paper(super::build, include_str!("chunk.rs"))],
    options: || {
        to_json(&super::Options {
            chunk: 128,
            ..super::Options::default()
        })
    },
    ..super::MODEL
};
