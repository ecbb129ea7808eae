//! `lra`: the Long Range Arena benchmark harness, as a library with a program.
//!
//! It is the only crate that combines tasks, models and results. [`main_with`] parses, dispatches,
//! and formats errors. Each command is a file in `cmd/`.
//!
//! # A custom model
//! A program of a few lines extends `lra` by one model, which every command supports, including
//! `lra sweep` and `lra bench`. This is `examples/own_model.rs`: a card ([`models::Model`]),
//! options and a mixer ([`models::Mixer`]). `lra new model NAME` writes a crate with this content.
//! Train the example with `cargo run --release --example own_model -- run --task listops --model
//! neighbours`.
//!
//! A task of your own is made in the same way: a type that implements [`datasets::Task`], passed in
//! [`Own`]. `lra new task NAME` writes its crate.
//!
//! ```ignore
#![doc = include_str!("../examples/own_model.rs")]
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod banner;
mod batch;
mod bench;
mod cell;
mod checkpoint;
mod child;
mod cli;
mod cmd;
mod colour;
mod damaged;
mod device;
mod digest;
mod error;
mod estimate;
mod eval;
mod fetch;
mod host;
mod initial;
mod limits;
mod load;
mod memory;
mod memory_limit;
mod milestone;
mod model_choice;
mod optim;
mod output;
mod output_lock;
mod overlay;
mod own_crate;
mod panics;
mod permute;
mod progress;
mod provenance;
mod recipe;
mod repro;
mod resident;
mod run_folder;
mod runtime;
mod schedule;
mod shell;
mod signals;
mod spec;
mod stderr;
mod step;
mod suggest;
mod sweep;
mod task_choice;
mod timing;
mod torch;
mod tracker;
mod train;
mod trained;

pub use datasets;
pub use models;
pub use own_crate::{Crate, Own};

use std::io::{self, Write};
use std::process::ExitCode;

use crate::cli::{Cli, Verb};

#[global_allocator]
static ALLOCATOR: memory::CountingAllocator = memory::CountingAllocator;

/// Runs the program with the models and tasks of the registries.
#[must_use]
pub fn main() -> ExitCode {
    main_with(Own::default())
}

/// Runs the program with custom models and tasks, as [`main_with`] does, and names their crate in
/// records: pass `this_crate!()`.
#[must_use]
pub fn main_of<'a>(built_from: Crate, own: impl Into<Own<'a>>) -> ExitCode {
    own_crate::set(built_from);
    main_with(own)
}

/// Runs the program with custom models and tasks in addition to those of the registries: a list of
/// models, `&[&MODEL]`, or an [`Own`] with tasks. It must be called once, from `main`.
#[must_use]
pub fn main_with<'a>(own: impl Into<Own<'a>>) -> ExitCode {
    if let Err(error) = runtime::check_start() {
        stderr::error(&error);
        return error.class.into();
    }
    let own = own.into();
    child::take_name();
    signals::survive_file_limit();
    // Where the handler cannot be installed, a bus error ends the process without words.
    let _ = signals::explain_bus_errors();
    let torch = torch::from_environment().map_err(|error| error.to_string());
    let registered = torch.and_then(|torch| {
        let models: Vec<_> = own.models.iter().copied().chain(torch).collect();
        models::register(&models).map_err(|error| error.to_string())
    });
    let registered = registered
        .and_then(|()| own_crate::check_settings(own.models).map_err(|error| error.to_string()));
    let registered = registered.and_then(|()| own_crate::register_tasks(own.tasks));
    if let Err(error) = registered.and_then(|()| disk::check_locks_variable()) {
        stderr::error(&error);
        return error::Class::Usage.into();
    }
    if let Some(columns) = output::columns() {
        results::set_width(columns);
    }
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(said) => return answer(&said),
    };
    let outcome = match &cli.verb {
        // They check what they need themselves, which is more.
        Verb::Run(_)
        | Verb::Score(_)
        | Verb::Compare(_)
        | Verb::Explain(_)
        | Verb::Replay(_)
        | Verb::Data(_)
        | Verb::Measure
        | Verb::CheckModel(_)
        | Verb::CheckTask(_)
        | Verb::Parity(_) => Ok(()),
        _ => runtime::check_room(),
    };
    // It reports a lack of memory to its parent.
    if !matches!(cli.verb, Verb::Measure) {
        memory_limit::end_when_refused();
    }
    let outcome = outcome.and_then(|()| match cli.verb {
        Verb::Run(arguments) => cmd::run::run(&arguments),
        Verb::Sweep(arguments) => cmd::sweep::run(&arguments),
        Verb::Tour(arguments) => cmd::tour::run(&arguments),
        Verb::Bench(arguments) => cmd::bench::run(&arguments),
        Verb::Measure => cmd::bench::measure(),
        Verb::Data(verb) => cmd::data::run(&verb),
        Verb::Report(arguments) => cmd::report::run(&arguments),
        Verb::Publish(arguments) => cmd::publish::run(&arguments),
        Verb::Repro(arguments) => cmd::repro::run(&arguments),
        Verb::Agree(arguments) => cmd::agree::run(&arguments),
        Verb::Mini(arguments) => cmd::mini::run(&arguments),
        Verb::Merge(arguments) => cmd::merge::run(&arguments),
        Verb::Import(arguments) => cmd::import::run(&arguments),
        Verb::Score(arguments) => cmd::score::run(&arguments),
        Verb::Compare(arguments) => cmd::compare::run(&arguments),
        Verb::Explain(arguments) => cmd::explain::run(&arguments),
        Verb::Replay(arguments) => cmd::replay::run(&arguments),
        Verb::Diff(arguments) => cmd::diff::run(&arguments),
        Verb::Check(arguments) => cmd::check::run(&arguments),
        Verb::List(arguments) => cmd::list::run(&arguments),
        Verb::CheckModel(arguments) => cmd::check_model::run(&arguments),
        Verb::CheckTask(arguments) => cmd::check_task::run(&arguments),
        Verb::Completions { shell } => cmd::shell::completions(shell),
        Verb::Man { folder } => cmd::shell::man(&folder),
        Verb::New(verb) => cmd::new::run(&verb),
        Verb::Parity(arguments) => cmd::parity::run(&arguments),
    });
    outcome.unwrap_or_else(|error| {
        stderr::error(&error);
        error.class.into()
    })
}

/// Prints the result of the command-line parser: help and version as results, errors as errors.
/// Names from other programs are answered with those of this one.
fn answer(said: &clap::Error) -> ExitCode {
    if let Some(message) = cli::unknown::explained(said) {
        stderr::error(message);
        return error::Class::Usage.into();
    }
    if said.use_stderr() {
        // Words of the command line may hold what a terminal would obey.
        let text = said.render().to_string();
        if text.lines().any(|line| disk::escape(line) != line) {
            stderr::line(text.trim_end());
            return error::Class::Usage.into();
        }
    }
    let printed = said.print().and_then(|()| io::stdout().flush());
    match printed {
        Err(error) if !said.use_stderr() && error.kind() != io::ErrorKind::BrokenPipe => {
            stderr::error(format!("writing to standard output: {error}"));
            error::Class::Run.into()
        }
        _ if said.use_stderr() => error::Class::Usage.into(),
        _ => ExitCode::SUCCESS,
    }
}
