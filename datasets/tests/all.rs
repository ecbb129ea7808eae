//! All tests of the crate that need no process of their own: one program, so that what they share
//! is compiled and linked once.

#![allow(missing_docs, clippy::unwrap_used)]

mod raw;
mod shared;
mod support;

mod altered;
mod archives;
mod baselines;
mod beside;
mod conformance;
mod dense;
mod every_task;
mod found;
mod image;
mod listops;
mod listops_published;
mod mine;
mod pathfinder_images;
mod pathfinder_release;
mod pathfinder_statistics;
mod pathfinder_task;
mod probes;
mod release;
mod retrieval;
mod store;
mod text;
mod toy;
