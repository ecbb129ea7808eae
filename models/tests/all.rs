//! All tests of the crate that need no process of their own: one program, so that what they share
//! is compiled and linked once.

#![allow(clippy::unwrap_used)]

mod components;
mod dense;
mod initial_values;
mod options;
mod parity;
mod patterns;
mod published_sizes;
mod structure;
mod values;
