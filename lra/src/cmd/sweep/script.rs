//! `lra sweep --emit`: the sweep as a job script.

use std::time::Duration;

use crate::cli::sweep::SweepArgs;
use crate::error::{Class, Classify, Error, Result};
use crate::runtime;
use crate::signals::Stop;
use crate::sweep::batch_job::{BatchSystem, Job, OF_TORCH, VOLUME};
use crate::sweep::estimator::Estimator;
use crate::sweep::plan::Cell;
use crate::sweep::time_left::makespan;

/// Ratio of a process's memory to the memory its allocator counts, for retained free blocks, code
/// and stacks.
const BESIDE_HEAP: f64 = 1.25;
/// Most elements of an array by default: the usual limit of clusters, less one.
const MOST_ELEMENTS: usize = 1000;
/// Reserve of time on top of the estimate: for loading data, and for nodes that are slower than
/// this machine.
const RESERVE: (f64, Duration) = (1.5, Duration::from_secs(600));

/// Returns this sweep as a job script: this command line without the words that request the script.
pub(super) fn script(
    system: BatchSystem,
    arguments: &SweepArgs,
    cells: &[Cell],
    estimator: &mut Estimator<'_>,
    stop: &Stop,
) -> Result<String> {
    let mut words = Vec::new();
    // 0 stands for all cores, and an element only has those that it asks for.
    let all_cores = |word: &str| arguments.threads == 0 && word.starts_with("--threads=");
    let mut given = std::env::args_os().skip(1);
    while let Some(word) = given.next() {
        let word = word.into_string().map_err(|word| {
            let word = word.to_string_lossy();
            Error::usage(format!(
                "'{word}' is not Unicode and cannot stand in a script"
            ))
        })?;
        let of_script = ["--emit=", "--array=", "--sbatch="];
        match word.as_str() {
            "--emit" | "--array" | "--sbatch" => {
                given.next();
            }
            "--threads" if arguments.threads == 0 => {
                given.next();
            }
            "--estimate" => {}
            told if all_cores(told) => {}
            told if of_script.iter().any(|name| told.starts_with(name)) => {}
            _ => words.push(word),
        }
    }
    let jobs = arguments.jobs();
    let given = |word: &String| word == "--threads" || word.starts_with("--threads=");
    if !matches!(system, BatchSystem::Shell) && !words.iter().any(given) {
        // As many threads as the element asks for cores, also where cores are not confined.
        words.push(format!("--threads={jobs}"));
    }
    // An element has cores, memory and GPUs for as many runs at a time.
    let usual = cells.len().div_ceil(jobs).min(MOST_ELEMENTS);
    let elements = arguments.array.map_or(usual, |n| n as usize);
    let elements = elements.min(cells.len());
    if matches!(system, BatchSystem::Kubernetes) {
        let data = arguments.place.data.iter();
        for (option, folder) in [("--out", &arguments.out)]
            .into_iter()
            .chain(data.map(|it| ("--data", it)))
        {
            if folder.is_absolute() && !folder.starts_with(VOLUME) {
                return Err(Error::usage(format!(
                    "{option} {}: a container keeps only what is on the volume at {VOLUME}; give a folder there, or a relative one",
                    folder.display()
                )));
            }
        }
    }
    let memory = arguments.memory_limit;
    let memory = memory.map(|bytes| (bytes as f64 * jobs as f64 * BESIDE_HEAP) as usize);
    let program = std::env::current_exe().during(Class::Run, "finding this program")?;
    let time = match arguments.estimate {
        true => Some(time_limit(cells, elements, jobs, estimator, stop)?),
        false => None,
    };
    let job = Job {
        elements,
        cores: arguments.threads.max(jobs),
        memory,
        time,
        gpus: arguments
            .devices()
            .iter()
            .filter(|it| it.starts_with("cuda"))
            .count(),
        directives: &arguments.sbatch,
        program: &program,
        arguments: &words,
        of_torch: of_torch(),
    };
    job.script(system)
}

/// Returns the environment variables with a mixer in PyTorch that are set.
fn of_torch() -> Vec<(&'static str, String)> {
    let set = |name: &'static str| {
        let value = std::env::var(name).ok()?;
        (!value.is_empty()).then_some((name, value))
    };
    OF_TORCH.into_iter().filter_map(set).collect()
}

/// Returns the threads that all runs of the sweep have together: those of this machine, or of an
/// element of a script, which passes as many as it asks for cores.
pub fn threads(arguments: &SweepArgs) -> usize {
    match (arguments.emit, arguments.threads) {
        (Some(BatchSystem::Shell) | None, asked) => runtime::threads(asked),
        (Some(_), 0) => arguments.jobs(),
        (Some(_), asked) => asked,
    }
}

/// Returns the time of the longest element, with a reserve. Cells are distributed to the elements
/// in turn.
fn time_limit(
    cells: &[Cell],
    elements: usize,
    jobs: usize,
    estimator: &mut Estimator<'_>,
    stop: &Stop,
) -> Result<Duration> {
    let mut times = vec![Vec::new(); elements.max(1)];
    for (index, cell) in cells.iter().enumerate() {
        let estimate = estimator.estimate(cell)?;
        if stop.requested() {
            return Err(Error::new(
                Class::Interrupted,
                "stopped before the script was written",
            ));
        }
        let estimate = estimate
            .map_err(|reason| Error::usage(format!("--estimate: {}: {reason}", cell.title())))?;
        times[index % elements].push(estimate.time);
    }
    let longest = times.into_iter().map(|times| makespan(times, jobs));
    let longest = longest.max().unwrap_or_default().as_secs_f64();
    let asked = Duration::try_from_secs_f64(RESERVE.0 * longest).unwrap_or(Duration::MAX);
    Ok(asked.saturating_add(RESERVE.1))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::sweep::testing::{bag, cells, options, timed};

    /// The reserve is half of the time and ten minutes.
    #[test]
    fn the_time_limit_is_that_of_the_longest_element_with_a_reserve() {
        let settings = [bag(&["train.steps=3"]), bag(&["train.steps=4"])];
        let [short, long] = settings.map(|model| cells(vec![model], vec![0, 1, 2]));
        let on_file = HashMap::from([
            (short[0].digest.clone(), timed(10.0)),
            (long[0].digest.clone(), timed(1000.0)),
        ]);
        let all: Vec<Cell> = short.into_iter().chain(long).collect();
        let (options, stop) = (options(), Stop::never());
        let mut estimator = Estimator::new(&options, &stop, &all, &on_file);
        let mut limit = |elements, jobs| {
            let limit = time_limit(&all, elements, jobs, &mut estimator, &stop).unwrap();
            limit.as_secs_f64().round()
        };
        assert_eq!(limit(1, 1), 1.5 * 3030.0 + 600.0);
        assert_eq!(limit(1, 2), 1.5 * 2010.0 + 600.0);
        // In turn: short, short, long; short, long, long.
        assert_eq!(limit(2, 1), 1.5 * 2010.0 + 600.0);
        assert_eq!(limit(6, 1), 1.5 * 1000.0 + 600.0);
    }
}
