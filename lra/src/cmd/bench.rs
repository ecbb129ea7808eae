//! `lra bench`: the efficiency table.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use results::bench::{Bench, Outcome, against_base};

use crate::bench::preflight::Limits;
use crate::bench::session::{LEAST, Plan, Session, TIME_LIMIT};
use crate::bench::worker;
use crate::cli::bench::BenchArgs;
use crate::cmd;
use crate::error::{Class, Classify, Error, Result, in_writing};
use crate::model_choice::ModelChoice;
use crate::progress::Reporter;
use crate::signals::Stop;
use crate::{device, host, limits, overlay, provenance, run_folder, runtime, suggest};

/// Defaults of the effort of a session.
struct Effort {
    rounds: usize,
    per_round: Duration,
    warmup: usize,
    batch: Option<usize>,
    time_limit: Duration,
}

const FULL: Effort = Effort {
    rounds: 5,
    per_round: Duration::from_secs(2),
    warmup: 3,
    batch: None,
    time_limit: TIME_LIMIT,
};

const QUICK: Effort = Effort {
    rounds: 3,
    per_round: Duration::from_millis(500),
    warmup: 1,
    batch: Some(4),
    time_limit: Duration::from_secs(60),
};

/// Runs the command.
pub fn run(arguments: &BenchArgs) -> Result<ExitCode> {
    if let Some(file) = &arguments.show {
        let cells = results::bench::read(file).class(Class::Data)?;
        if cells.is_empty() {
            let file = disk::escape(&file.display().to_string());
            return Err(Error::new(
                Class::Data,
                format!("{file} holds no measurement"),
            ));
        }
        show(arguments, &cells)?;
        return Ok(ExitCode::SUCCESS);
    }
    let plan = plan(arguments)?;
    suggest::source(&arguments.against)?;
    let stop = Stop::on_signals().during(Class::Run, "installing signal handlers")?;
    let reporter = Reporter::new(arguments.quiet);
    fs::create_dir_all(&arguments.out)
        .map_err(|error| run_folder::not_made(&arguments.out, error))?;
    let (id, path) = claim(&arguments.out)?;
    let measured = measure_all(&plan, &id, &path, &reporter, &stop);
    if fs::metadata(&path).is_ok_and(|file| file.len() == 0) {
        // Nothing was measured. If the file cannot be removed, it stays empty.
        let _ = fs::remove_file(&path);
    }
    let (whole, cells) = measured?;
    show(arguments, &cells)?;
    if path.exists() {
        reporter.say(&format!("kept in {}", path.display()));
    }
    if !whole {
        return Ok(Class::Interrupted.into());
    }
    let failed = |cell: &Bench| matches!(cell.outcome, Outcome::Failed { .. });
    let slower = against_base(&cells, arguments.speed_threshold).is_some_and(|it| !it.passed);
    Ok(match (cells.iter().any(failed), slower) {
        (true, _) => Class::Run.into(),
        (false, true) => Class::Check.into(),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// Runs a session. Returns whether it came to its end, and the cells that were tried.
fn measure_all(
    plan: &Plan,
    id: &str,
    path: &Path,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<(bool, Vec<Bench>)> {
    let mut session = Session::new(plan, id, path.to_owned(), reporter, stop)?;
    let whole = session.run()?;
    Ok((whole, session.tried()))
}

/// Rounds against another build: with ten rounds, an interval for the median leaves out the least
/// and the largest ratio.
const BASE_ROUNDS: usize = 10;
/// Least number of rounds against another build: fewer have no interval at 95 %.
const LEAST_BASE_ROUNDS: usize = 6;

/// Takes a name for a session that no other has, and makes its file, which is empty until the first
/// measurement. Returns the name and the file.
fn claim(folder: &Path) -> Result<(String, PathBuf)> {
    let now = host::now().replace(':', "-");
    let mut number = 1;
    loop {
        let id = match number {
            1 => now.clone(),
            number => format!("{now}-{number:03}"),
        };
        let path = folder.join(format!("{id}.jsonl"));
        match File::options().write(true).create_new(true).open(&path) {
            Ok(_) => return Ok((id, path)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(in_writing(format!("making {}", path.display()))(error)),
        }
    }
}

/// Answers a request for a measurement: the hidden command.
pub fn measure() -> Result<ExitCode> {
    worker::run()?;
    Ok(ExitCode::SUCCESS)
}

fn plan(arguments: &BenchArgs) -> Result<Plan> {
    let effort = if arguments.quick { QUICK } else { FULL };
    let models = match arguments.models.as_slice() {
        [] => ModelChoice::both_ways(),
        names => {
            let chosen = names.iter().map(|name| ModelChoice::parse(name));
            chosen.collect::<Result<Vec<_>>>()?
        }
    };
    let mut lengths = arguments.lengths.clone();
    lengths.sort_unstable();
    lengths.dedup();
    let batch = arguments.batch.or(effort.batch);
    let mut assignments: Vec<String> = batch
        .map(|n| format!("train.batch={n}"))
        .into_iter()
        .collect();
    assignments.extend(arguments.assignments.iter().cloned());
    let of_length = |it: &&String| overlay::key(it) == "data.max_length";
    if let Some(other) = assignments.iter().find(of_length) {
        return Err(Error::usage(format!(
            "{other}: --lengths has the lengths to measure"
        )));
    }
    let of_warm_up = |it: &&String| overlay::key(it) == "train.speed_warmup";
    if let Some(other) = assignments.iter().find(of_warm_up) {
        return Err(Error::usage(format!(
            "{other}: bench has a warm-up of its own, of {} steps a process",
            effort.warmup
        )));
    }
    let most_of_it = || limits::free_memory().map(|bytes| (bytes as f64 * 0.9) as usize);
    let memory = arguments.memory_limit.or_else(most_of_it);
    let memory = memory.ok_or_else(|| {
        Error::usage("the system does not tell how much memory is free; give --memory-limit")
    })?;
    let device = device::select(&arguments.device)?;
    // Heap bytes say nothing about the memory of a GPU, which reports by itself when it is full.
    let foreseen = match device.is_cpu() {
        true => memory,
        false => usize::MAX,
    };
    let base = arguments.base.as_ref().map(|program| {
        fs::canonicalize(program).during(
            Class::Usage,
            format!("finding the program {}", program.display()),
        )
    });
    let base = base.transpose()?;
    let rounds = match (arguments.rounds, &base) {
        (Some(rounds), _) => rounds as usize,
        (None, Some(_)) => BASE_ROUNDS,
        (None, None) => effort.rounds,
    };
    if base.is_some() && rounds < LEAST_BASE_ROUNDS {
        let message = format!(
            "--base needs at least {LEAST_BASE_ROUNDS} rounds: fewer do not tell a change from noise"
        );
        return Err(Error::usage(message));
    }
    let per_round = arguments.per_round.unwrap_or(effort.per_round);
    let threads = runtime::threads(arguments.threads);
    Ok(Plan {
        base,
        models,
        lengths,
        recipe: arguments.recipe.clone(),
        assignments,
        rounds,
        warmup: effort.warmup,
        seconds: per_round.as_secs_f64(),
        limits: Limits {
            memory: foreseen,
            time: arguments.time_limit.unwrap_or(effort.time_limit),
            steps: effort.warmup + LEAST,
        },
        heap_limit: memory,
        provenance: provenance::of_process(&device, threads),
        memory_method: device::method(&device),
        device: arguments.device.clone(),
        threads,
    })
}

fn show(arguments: &BenchArgs, cells: &[Bench]) -> Result<()> {
    if arguments.json {
        return cmd::print_json(&cells);
    }
    let source = suggest::source(&arguments.against)?;
    let change = against_base(cells, arguments.speed_threshold);
    let mut tables: Vec<_> = change.map(|it| it.table).into_iter().collect();
    tables.extend(results::bench::tables(cells, Some(source)));
    cmd::print_tables(arguments.format, &tables)
}
