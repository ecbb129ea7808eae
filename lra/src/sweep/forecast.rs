//! What a cell will take: from a twin with another seed on file, else from two small training steps.

use std::collections::HashMap;
use std::time::Duration;

use datasets::Store;
use results::Record;
use results::record::Rows;
use results::stats::quantile;
use serde_json::Value;

use crate::bench::probe::{Answer, ask};
use crate::bench::worker::{Measured, Reply, Request, Steps, Work as Measurement};
use crate::error::Result;
use crate::estimate::Work;
use crate::limits;
use crate::signals::Stop;
use crate::spec::{Resolved, Spec};
use crate::sweep::job::Common;
use crate::sweep::plan::Cell;

/// The time and the memory of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// From its start to its record.
    pub time: Duration,
    /// Peak of memory, what a process holds from its start included.
    pub peak_bytes: u64,
    /// How this is known, and what it leaves out.
    pub basis: String,
}

/// Most time of one probe.
const LIMIT: Duration = Duration::from_secs(120);

/// Foretells cells, each kind once.
pub struct Oracle<'a> {
    common: &'a Common,
    stop: &'a Stop,
    /// By settings without the seed.
    known: HashMap<String, Result<Forecast, String>>,
}

impl<'a> Oracle<'a> {
    /// An oracle that knows the finished runs on file among the cells of a sweep.
    pub fn new(
        common: &'a Common,
        stop: &'a Stop,
        cells: &[Cell],
        on_file: &HashMap<String, Record>,
    ) -> Oracle<'a> {
        let mut known = HashMap::new();
        for cell in cells {
            if let Some(forecast) = on_file.get(&cell.digest).and_then(of_record) {
                known.insert(kind(cell), Ok(forecast));
            }
        }
        Oracle {
            common,
            stop,
            known,
        }
    }

    /// What a cell will take, or why that cannot be told.
    pub fn ask(&mut self, cell: &Cell) -> Result<Result<Forecast, String>> {
        let kind = kind(cell);
        if let Some(known) = self.known.get(&kind) {
            return Ok(known.clone());
        }
        let forecast = self.probe(cell)?;
        self.known.insert(kind, forecast.clone());
        Ok(forecast)
    }

    /// Measures steps of one and of two examples, and draws lines through them.
    fn probe(&self, cell: &Cell) -> Result<Result<Forecast, String>> {
        let resolved = &cell.resolved;
        let one = match self.steps(cell, 1)? {
            Ok(one) => one,
            Err(reason) => return Ok(Err(reason)),
        };
        let two = match self.steps(cell, 2)? {
            Ok(two) => two,
            Err(reason) => return Ok(Err(reason)),
        };
        let middle = |measured: &Measured| quantile(&measured.seconds, 0.5).unwrap_or(0.0);
        let per_example = middle(&two) / 2.0;
        let (rows, complete) = rows(resolved, self.common);
        let work = Work::new(&resolved.spec.train, rows);
        // A training example passes through the model three times as often as one that is scored.
        let seconds = work.passes() / 3.0 * per_example;
        let examples = resolved.spec.train.forward_examples() as f64;
        let (first, second) = (one.peak_bytes as f64, two.peak_bytes as f64);
        let grown = first + (second - first).max(0.0) * (examples - 1.0);
        let left_out = if complete {
            ""
        } else {
            ", evaluation left out"
        };
        Ok(Ok(Forecast {
            time: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
            peak_bytes: one.base_bytes + grown as u64,
            basis: format!("two small steps{left_out}"),
        }))
    }

    fn steps(&self, cell: &Cell, batch: usize) -> Result<Result<Measured, String>> {
        let settings = &cell.resolved.spec.cell;
        let mut assignments = cell.resolved.overrides.clone();
        assignments.extend([
            format!("train.batch={batch}"),
            "train.micro_batch=0".to_owned(),
        ]);
        let steps = Steps {
            task: settings.task.clone(),
            source: settings.source,
            model: settings.model.clone(),
            recipe: cell.recipe.clone(),
            assignments,
            warmup: 1,
            least: 1,
            seconds: 0.05,
            most: 5,
        };
        let request = Request {
            device: self.common.device.clone(),
            threads: self.common.threads,
            memory_limit: self.memory_limit(),
            work: Measurement::Steps(Box::new(steps)),
        };
        Ok(match ask(&request, LIMIT, self.stop)? {
            Answer::Reply(Reply::Steps(measured)) => Ok(measured),
            Answer::Reply(Reply::OutOfMemory { reason }) => Err(format!("out of memory: {reason}")),
            Answer::Reply(Reply::Failed { reason }) | Answer::Crashed(reason) => Err(reason),
            Answer::Reply(Reply::Products { .. }) => {
                Err("another question was answered".to_owned())
            }
            Answer::TimedOut => Err("a small step takes more than a minute".to_owned()),
            Answer::Stopped => Err("stopped".to_owned()),
        })
    }

    fn memory_limit(&self) -> usize {
        let free = || limits::free_memory().map(|bytes| (bytes as f64 * 0.9) as usize);
        self.common.memory_limit.or_else(free).unwrap_or(usize::MAX)
    }
}

/// What cells that differ in the seed alone have in common.
fn kind(cell: &Cell) -> String {
    let spec = &cell.resolved.spec;
    let mut seedless: Spec = spec.clone();
    seedless.cell.seed = 0;
    seedless.digest()
}

fn of_record(record: &Record) -> Option<Forecast> {
    let (speed, memory) = (record.speed.as_ref()?, record.memory.as_ref()?);
    let time = Duration::try_from_secs_f64(speed.wall_seconds).ok();
    Some(Forecast {
        time: time.filter(|time| !time.is_zero())?,
        peak_bytes: memory.base_bytes + memory.peak_bytes,
        basis: format!("seed {} on file", record.seed),
    })
}

/// Rows of the splits, and whether they are known: from the data if it is there, else from the settings if they say. Of
/// unknown data, evaluation is left out, and batches are taken to be whole.
fn rows(resolved: &Resolved, common: &Common) -> (Rows, bool) {
    let spec = &resolved.spec;
    if let Ok(splits) = Store::new(&common.data).open(resolved.task, &spec.data_key()) {
        let rows = Rows {
            train: splits.train.len(),
            val: splits.val.len(),
            test: splits.test.len(),
        };
        return (rows, true);
    }
    let published = spec.cell.source == datasets::Source::Official;
    let said = |name: &str| {
        let rows = spec.data.get(name).filter(|_| !published);
        rows.and_then(Value::as_u64).map(|rows| rows as usize)
    };
    match (said("train"), said("val"), said("test")) {
        (Some(train), Some(val), Some(test)) => (Rows { train, val, test }, true),
        _ => {
            let train = spec.train.batch;
            let rows = Rows {
                train,
                ..Rows::default()
            };
            (rows, false)
        }
    }
}
