//! All tests of the crate that need no process of their own: one program, so that what they share
//! is compiled and linked once.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;
mod readers;

mod agree;
mod bench;
mod check;
mod corpus;
mod data;
mod dense;
mod diverged;
mod docs;
mod errors;
mod faults;
mod files;
mod from;
mod import;
mod list;
mod mini;
mod module_graph;
mod on_file;
mod own_model;
mod own_task;
mod peers;
mod pretrain;
mod probes;
mod publish;
mod recovery;
mod repeat;
mod repro;
mod run;
mod score;
mod stop;
mod sweep;
mod tls;
mod tour;
mod tracker;
mod workflows;
