//! Estimates of a cell's time and memory: from a finished run with another seed, else from measured
//! steps of batches of one and of two examples. The time is proportional to the step of two; the
//! memory follows the line through both.

use std::collections::HashMap;
use std::time::Duration;

use results::Record;
use results::stats::quantile;

use crate::bench::measure_process::{Answer, request};
use crate::bench::worker::{Measured, Measurement, Reply, Request, Steps};
use crate::error::Result;
use crate::estimate::extrapolate::line;
use crate::estimate::{StepCost, Workload, planned_rows};
use crate::signals::Stop;
use crate::spec::Spec;
use crate::sweep::job::JobOptions;
use crate::sweep::plan::Cell;
use crate::timing::human_duration;
use crate::{limits, load};

/// Estimated time and memory of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Time from its start to its record.
    pub time: Duration,
    /// Peak of memory in bytes, including what a process holds from its start.
    pub peak_bytes: u64,
    /// Basis of the estimate, and what it leaves out.
    pub basis: String,
    /// Remark on the load under which it was measured; empty on a free machine.
    pub load: String,
}

/// Time limit of one measurement.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Estimates cells; those that differ only in the seed are measured once.
pub struct Estimator<'a> {
    options: &'a JobOptions,
    stop: &'a Stop,
    /// Estimates by the settings without the seed.
    known: HashMap<String, Result<Estimate, String>>,
}

impl<'a> Estimator<'a> {
    /// Creates an estimator that knows the finished runs on file among the cells of a sweep.
    pub fn new(
        options: &'a JobOptions,
        stop: &'a Stop,
        cells: &[Cell],
        on_file: &HashMap<String, Record>,
    ) -> Estimator<'a> {
        let mut known = HashMap::new();
        for cell in cells {
            let record = on_file.get(&cell.digest);
            // With other threads it took another time.
            let record = record.filter(|it| it.provenance.threads == options.threads);
            if let Some(estimate) = record.and_then(of_record) {
                known.insert(seedless_digest(cell), Ok(estimate));
            }
        }
        Estimator {
            options,
            stop,
            known,
        }
    }

    /// Returns the estimate for a cell, or the reason why there is none.
    pub fn estimate(&mut self, cell: &Cell) -> Result<Result<Estimate, String>> {
        let digest = seedless_digest(cell);
        if let Some(known) = self.known.get(&digest) {
            return Ok(known.clone());
        }
        let estimate = self.measure(cell)?;
        self.known.insert(digest, estimate.clone());
        Ok(estimate)
    }

    /// Measures steps of one and of two examples. Scales the time of the step of two to a batch,
    /// and extends the line through both peaks of memory.
    fn measure(&self, cell: &Cell) -> Result<Result<Estimate, String>> {
        let resolved = &cell.resolved;
        let one = match self.steps(cell, 1)? {
            Ok(one) => one,
            Err(reason) => return Ok(Err(reason)),
        };
        let two = match self.steps(cell, 2)? {
            Ok(two) => two,
            Err(reason) => return Ok(Err(reason)),
        };
        let (rows, complete) = planned_rows(resolved, &self.options.data);
        let workload = Workload::of_run(&resolved.spec, rows);
        let (time, peak_bytes) = of_steps(&one, &two, workload, resolved.forward_examples());
        let left_out = if complete { "" } else { ", without evaluation" };
        Ok(Ok(Estimate {
            time,
            peak_bytes,
            basis: format!("two small steps{left_out}"),
            load: load::remark(),
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
        self.time(steps, TIME_LIMIT)
    }

    /// Measures steps in a separate process within `limit`. Returns the reason if they cannot be
    /// measured.
    pub fn time(&self, steps: Steps, limit: Duration) -> Result<Result<Measured, String>> {
        let wanted = Request {
            device: self.options.device.clone(),
            threads: self.options.threads,
            memory_limit: self.memory_limit(),
            measurement: Measurement::Steps(Box::new(steps)),
        };
        Ok(match request(&wanted, limit, self.stop)? {
            Answer::Reply(Reply::Steps(measured)) => Ok(measured),
            Answer::Reply(Reply::OutOfMemory { reason }) => Err(format!("out of memory: {reason}")),
            Answer::Reply(Reply::Failed { reason }) | Answer::Crashed(reason) => Err(reason),
            Answer::Reply(Reply::Products { .. }) => {
                Err("the measuring process answered another question".to_owned())
            }
            Answer::TimedOut => Err(format!(
                "a small step takes more than {}",
                human_duration(limit)
            )),
            Answer::Stopped => Err("stopped".to_owned()),
        })
    }

    fn memory_limit(&self) -> usize {
        let free = || limits::free_memory().map(|bytes| (bytes as f64 * 0.9) as usize);
        self.options
            .memory_limit
            .or_else(free)
            .unwrap_or(usize::MAX)
    }
}

/// Returns the time of `workload` and the peak of memory with so many `examples` in a forward pass,
/// from steps of one and of two.
fn of_steps(
    one: &Measured,
    two: &Measured,
    workload: Workload,
    examples: usize,
) -> (Duration, u64) {
    let middle = |measured: &Measured| quantile(&measured.seconds, 0.5).unwrap_or(0.0);
    let per_example = middle(two) / 2.0;
    let cost = StepCost {
        update: per_example * workload.batch,
        // A training example costs as much as three scored ones.
        scored: per_example / 3.0,
    };
    let seconds = workload.seconds(cost);
    let peak = line(
        (1.0, one.peak_bytes as f64),
        (2.0, two.peak_bytes as f64),
        examples as f64,
    );
    let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    (time, one.base_bytes + peak as u64)
}

/// Returns the digest of the settings without the seed.
fn seedless_digest(cell: &Cell) -> String {
    let spec = &cell.resolved.spec;
    let mut seedless: Spec = spec.clone();
    seedless.cell.seed = 0;
    seedless.digest()
}

fn of_record(record: &Record) -> Option<Estimate> {
    let (speed, memory) = (record.speed.as_ref()?, record.memory.as_ref()?);
    let time = Duration::try_from_secs_f64(speed.wall_seconds).ok();
    // The memory of older records is that of training alone.
    let before = record.pretraining.as_ref().map_or(0, |it| it.peak_bytes);
    Some(Estimate {
        time: time.filter(|time| !time.is_zero())?,
        peak_bytes: memory.base_bytes + memory.peak_bytes.max(before),
        basis: format!("seed {} on file", record.seed),
        load: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use results::record::{Pretraining, Rows};

    use super::*;
    use crate::spec::TrainOptions;
    use crate::sweep::testing::{bag, cells, options, timed};

    #[test]
    fn time_is_that_of_the_work_and_memory_that_of_a_forward_pass() {
        let measured = |seconds: &[f64], peak_bytes| Measured {
            seconds: seconds.to_vec(),
            peak_bytes,
            base_bytes: 1000,
            ..Measured::default()
        };
        let one = measured(&[9.0], 50);
        let two = measured(&[1.0, 6.0, 100.0], 70);
        let options = TrainOptions {
            steps: 10,
            batch: 8,
            micro_batch: 4,
            eval_every: 10,
            ..TrainOptions::default()
        };
        let rows = Rows {
            train: 16,
            val: 5,
            test: 20,
        };
        let work = Workload::new(&options, rows);
        let (time, bytes) = of_steps(&one, &two, work, options.forward_examples());
        // Three seconds for each of 80 examples, one for each of 30 that are scored.
        assert_eq!(time, Duration::from_secs(3 * 80 + 30));
        assert_eq!(bytes, 1000 + 50 + 3 * 20);
    }

    #[test]
    fn seeds_share_an_estimate_and_settings_do_not() {
        let digests = |option: &str| {
            let cells = cells(vec![bag(&[option])], vec![0, 7]);
            [0, 1].map(|place| seedless_digest(&cells[place]))
        };
        let [one, other] = ["train.steps=3", "train.steps=4"].map(digests);
        assert_eq!(one[0], one[1]);
        assert_ne!(one[0], other[0]);
    }

    /// With other threads it took another time, and of other settings it says nothing.
    #[test]
    fn a_run_on_file_tells_the_time_of_other_seeds_with_as_many_threads() {
        let (mut record, stop) = (timed(60.0), Stop::never());
        record.seed = 7;
        let mut all = cells(vec![bag(&[])], vec![7, 0]);
        all.extend(cells(vec![bag(&["train.steps=3"])], vec![0]));
        let known = |record: &Record| {
            let on_file = HashMap::from([(all[0].digest.clone(), record.clone())]);
            let options = options();
            let estimator = Estimator::new(&options, &stop, &all, &on_file);
            let of = |cell: &Cell| estimator.known.get(&seedless_digest(cell)).cloned();
            all.iter().map(of).collect::<Vec<_>>()
        };
        for threads in [1, 2, 4, 6] {
            record.provenance.threads = threads;
            assert_eq!(known(&record), [None, None, None], "{threads}");
        }
        record.provenance.threads = options().threads;
        let estimate = |peak_bytes| -> Option<Result<Estimate, String>> {
            Some(Ok(Estimate {
                time: Duration::from_secs(60),
                peak_bytes,
                basis: "seed 7 on file".to_owned(),
                load: String::new(),
            }))
        };
        assert_eq!(known(&record), [estimate(120), estimate(120), None]);
        record.pretraining = Some(Pretraining {
            peak_bytes: 30,
            ..Pretraining::default()
        });
        assert_eq!(known(&record), [estimate(130), estimate(130), None]);
        if let Some(speed) = &mut record.speed {
            speed.wall_seconds = 0.0;
        }
        assert_eq!(known(&record), [None, None, None], "no time is known");
    }
}
