//! `lra`: the Long Range Arena benchmark harness.
//!
//! The only crate that knows tasks, models and results together. `main` parses, dispatches, and words errors; each
//! verb is a file in `cmd/`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod banner;
mod batch;
mod bench;
mod cell;
mod checkpoint;
mod child;
mod cli;
mod cmd;
mod device;
mod error;
mod estimate;
mod eval;
mod fetch;
mod host;
mod limits;
mod memory;
mod memory_limit;
mod model_choice;
mod optim;
mod overlay;
mod panics;
mod progress;
mod recipe;
mod run_folder;
mod runtime;
mod schedule;
mod signals;
mod spec;
mod stderr;
mod step;
mod suggest;
mod sweep;
mod task_choice;
mod tensorboard;
mod timing;
mod train;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Verb};

#[global_allocator]
static ALLOCATOR: memory::CountingAllocator = memory::CountingAllocator;

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Run(arguments) => cmd::run::run(&arguments),
        Verb::Sweep(arguments) => cmd::sweep::run(&arguments),
        Verb::Bench(arguments) => cmd::bench::run(&arguments),
        Verb::Measure => cmd::bench::measure(),
        Verb::Data(verb) => cmd::data::run(&verb),
        Verb::Report(arguments) => cmd::report::run(&arguments),
        Verb::Check(arguments) => cmd::check::run(&arguments),
        Verb::List(arguments) => cmd::list::run(&arguments),
        Verb::Parity(arguments) => cmd::parity::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        stderr::line(&format!("error: {error}"));
        error.class.into()
    })
}
