//! A session: rounds over lengths over models, saved after every measurement.

use std::path::PathBuf;
use std::time::Duration;

use candle_core::{DType, Device};
use datasets::Source;
use models::{Classifier, Parameters};
use results::bench::{Base, Bench, Outcome, Round, SCHEMA};
use results::record::{Provenance, canonical};
use results::stats::quantile;

use crate::bench::measure_process::{Answer, request, request_from};
use crate::bench::preflight::{Limits, Sample, predict_skip};
use crate::bench::worker::{Measured, Measurement, Reply, Request, Steps};
use crate::error::{Class, Classify, Result};
use crate::model_choice::ModelChoice;
use crate::progress::Reporter;
use crate::signals::Stop;
use crate::spec::Resolved;
use crate::timing::human_duration;
use crate::{host, provenance};

/// The task whose shape is measured: byte-level text, as in the published table.
pub const TASK: &str = "text";

/// Rows and columns of the matrices whose product measures the machine's speed.
const PRODUCT: usize = 1024;
/// Seconds of products per round.
const PRODUCT_SECONDS: f64 = 0.5;

/// Plan of the measurements: cells, rounds and limits.
pub struct Plan {
    /// Another build of this program to compare with.
    pub base: Option<PathBuf>,
    /// Models, each with options.
    pub models: Vec<ModelChoice>,
    /// Lengths in tokens, shortest first.
    pub lengths: Vec<usize>,
    /// Recipe that the sizes are taken from.
    pub recipe: String,
    /// Assignments that override the recipe's settings.
    pub assignments: Vec<String>,
    /// Number of rounds.
    pub rounds: usize,
    /// Untimed steps of each process.
    pub warmup: usize,
    /// Seconds for which each process times steps.
    pub seconds: f64,
    /// Limits of each process.
    pub limits: Limits,
    /// Device.
    pub device: String,
    /// Provenance of the figures, without the settings.
    pub provenance: Provenance,
    /// Method by which peaks of memory are measured on the device.
    pub memory_method: &'static str,
    /// Most live heap bytes of each process.
    pub heap_limit: usize,
    /// Threads of each process.
    pub threads: usize,
}

/// Fewest steps that a process times.
pub const LEAST: usize = 2;
/// Most steps that a process times.
const MOST: usize = 200;

/// A session in progress.
pub struct Session<'a> {
    plan: &'a Plan,
    path: PathBuf,
    reporter: &'a Reporter,
    stop: &'a Stop,
    /// Cells by model, then by length.
    cells: Vec<Vec<(Steps, Bench)>>,
}

impl<'a> Session<'a> {
    /// Resolves every cell, so that a wrong setting is found before anything is measured. `path` is
    /// the file to write.
    pub fn new(
        plan: &'a Plan,
        id: &str,
        path: PathBuf,
        reporter: &'a Reporter,
        stop: &'a Stop,
    ) -> Result<Session<'a>> {
        let common = Bench {
            schema: SCHEMA,
            session: id.to_owned(),
            base: plan.base.as_ref().map(|program| Base {
                program: program.display().to_string(),
                ..Base::default()
            }),
            warmup_steps: plan.warmup,
            memory_method: plan.memory_method.to_owned(),
            provenance: plan.provenance.clone(),
            ..Bench::default()
        };
        let of_model = |model: &ModelChoice| -> Result<Vec<(Steps, Bench)>> {
            let lengths = plan.lengths.iter();
            lengths
                .map(|length| cell(plan, &common, model, *length))
                .collect()
        };
        let cells = plan.models.iter().map(of_model).collect::<Result<_>>()?;
        Ok(Session {
            plan,
            path,
            reporter,
            stop,
            cells,
        })
    }

    /// Measures everything. Returns false if it was stopped before the end.
    pub fn run(&mut self) -> Result<bool> {
        let (rounds, lengths, models) = (
            self.plan.rounds,
            self.plan.lengths.len(),
            self.plan.models.len(),
        );
        let total = rounds * lengths * models;
        self.reporter.start("bench", 0, Some(total as u64));
        let mut done = 0;
        for round in 0..rounds {
            if !self.matrix_products()? {
                return self.end(false);
            }
            for length in 0..lengths {
                for place in 0..models {
                    // Every other round runs in reverse order, so that a machine that warms up or
                    // cools down favours no model.
                    let model = if round % 2 == 0 {
                        place
                    } else {
                        models - 1 - place
                    };
                    let (steps, bench) = &self.cells[model][length];
                    let what = format!("{} at {}", bench.label(), bench.length);
                    self.reporter.at(done, &what);
                    let request = self.with_limits(Measurement::Steps(Box::new(steps.clone())));
                    if !self.measure(round, model, length, &request)? {
                        return self.end(false);
                    }
                    done += 1;
                }
            }
        }
        self.end(true)
    }

    fn end(&mut self, whole: bool) -> Result<bool> {
        self.reporter.stop();
        self.save()?;
        Ok(whole)
    }

    /// Returns the cells that have been tried.
    pub fn tried(&self) -> Vec<Bench> {
        let cells = self.cells.iter().flatten().map(|(_, bench)| bench);
        cells
            .filter(|bench| !bench.rounds.is_empty() || bench.outcome != Outcome::Measured)
            .cloned()
            .collect()
    }

    fn with_limits(&self, measurement: Measurement) -> Request {
        Request {
            device: self.plan.device.clone(),
            threads: self.plan.threads,
            memory_limit: self.plan.heap_limit,
            measurement,
        }
    }

    /// Measures the speed of matrix products on this machine now. Returns false if a stop is
    /// requested.
    fn matrix_products(&mut self) -> Result<bool> {
        let products = Measurement::Products {
            size: PRODUCT,
            seconds: PRODUCT_SECONDS,
        };
        let answer = request(
            &self.with_limits(products),
            self.plan.limits.time,
            self.stop,
        )?;
        match answer {
            Answer::Stopped => return Ok(false),
            Answer::Reply(Reply::Products { flops_per_second }) => {
                for (_, bench) in self.cells.iter_mut().flatten() {
                    let best = bench.matmul_flops_per_second.get_or_insert(0.0);
                    *best = best.max(flops_per_second);
                }
            }
            // The figure is only a scale for the others.
            _ => self.reporter.say("matrix products could not be measured"),
        }
        Ok(true)
    }

    /// Measures one cell once more, unless it has ended. Returns false if a stop is requested.
    fn measure(
        &mut self,
        round: usize,
        model: usize,
        length: usize,
        wanted: &Request,
    ) -> Result<bool> {
        let samples = self.shorter(model, length);
        let limits = &self.plan.limits;
        let bench = &mut self.cells[model][length].1;
        if bench.outcome != Outcome::Measured {
            return Ok(true);
        }
        let flops = bench.flops_per_step as f64;
        let peak = bench.matmul_flops_per_second;
        let skipped = predict_skip(&samples, bench.length, flops, peak, limits);
        let skipped = skipped.filter(|_| bench.rounds.is_empty());
        match skipped {
            Some(skipped) => {
                if let Some(base) = &mut bench.base {
                    base.outcome = skipped.clone();
                }
                bench.outcome = skipped;
            }
            None => {
                for &build in Build::turns(self.plan.base.is_some(), round) {
                    // What ended badly ends so again.
                    let ended_before = bench
                        .base
                        .as_ref()
                        .is_some_and(|base| base.outcome != Outcome::Measured);
                    if build == Build::Base && ended_before {
                        continue;
                    }
                    let answer = match (build, &self.plan.base) {
                        (Build::Base, Some(program)) => {
                            request_from(program, wanted, limits.time, self.stop)?
                        }
                        _ => request(wanted, limits.time, self.stop)?,
                    };
                    let (rounds, outcome) = match (build, &mut bench.base) {
                        (Build::Base, Some(base)) => (&mut base.rounds, &mut base.outcome),
                        _ => (&mut bench.rounds, &mut bench.outcome),
                    };
                    match ended(answer, limits.time) {
                        None => return Ok(false),
                        Some(Ok(measured)) => rounds.push(as_round(round, measured)),
                        Some(Err(ending)) => *outcome = ending,
                    }
                }
            }
        }
        bench.provenance.created = host::now();
        if bench.outcome != Outcome::Measured {
            let line = format!("{} at {}: {}", bench.label(), bench.length, bench.outcome);
            self.reporter.say(&line);
        }
        self.save()?;
        Ok(true)
    }

    /// Returns the samples of the shorter lengths of a model.
    fn shorter(&self, model: usize, length: usize) -> Vec<Sample> {
        let shorter = self.cells[model][..length].iter();
        shorter
            .filter_map(|(_, bench)| {
                let seconds: Vec<f64> = bench
                    .rounds
                    .iter()
                    .flat_map(|round| round.seconds.iter().copied())
                    .collect();
                Some(Sample {
                    length: bench.length,
                    seconds: quantile(&seconds, 0.5)?,
                    peak_bytes: bench.peak_bytes()? as f64,
                    flops: bench.flops_per_step as f64,
                })
            })
            .collect()
    }

    fn save(&self) -> Result<()> {
        results::bench::write(&self.path, &self.tried()).class(Class::Run)
    }
}

/// One of the two builds that a session may compare.
#[derive(Clone, Copy, PartialEq)]
enum Build {
    Own,
    Base,
}

impl Build {
    /// Returns the builds that measure a cell in a round, in order. The two swap places from round
    /// to round, so that going first is no advantage.
    fn turns(both: bool, round: usize) -> &'static [Build] {
        match (both, round % 2) {
            (false, _) => &[Build::Own],
            (true, 0) => &[Build::Base, Build::Own],
            (true, _) => &[Build::Own, Build::Base],
        }
    }
}

/// Returns the measurement, or the outcome that took its place; `None` if this process is to stop.
fn ended(answer: Answer, limit: Duration) -> Option<std::result::Result<Measured, Outcome>> {
    Some(Err(match answer {
        Answer::Stopped => return None,
        Answer::Reply(Reply::Steps(measured)) => return Some(Ok(measured)),
        Answer::Reply(Reply::OutOfMemory { reason }) => Outcome::OutOfMemory { reason },
        Answer::Reply(Reply::Failed { reason }) | Answer::Crashed(reason) => {
            Outcome::Failed { reason }
        }
        Answer::Reply(Reply::Products { .. }) => Outcome::Failed {
            reason: "the measuring process answered another question".to_owned(),
        },
        Answer::TimedOut => Outcome::TimedOut {
            reason: match limit.as_secs() {
                0 => format!("the limit is {} ms", limit.as_millis()),
                _ => format!("the limit is {}", human_duration(limit)),
            },
        },
    }))
}

fn as_round(round: usize, measured: Measured) -> Round {
    let Measured {
        seconds,
        phases,
        peak_bytes,
        base_bytes,
        resident_bytes,
        // Rounds are compared by wall time.
        processor_seconds: _,
        // Rounds report live heap bytes, which other programs do not disturb.
        resident_base_bytes: _,
        resident_peak_bytes: _,
    } = measured;
    Round {
        round,
        seconds,
        phases,
        peak_bytes,
        base_bytes,
        resident_bytes,
    }
}

/// Returns a cell before its first measurement.
fn cell(plan: &Plan, common: &Bench, model: &ModelChoice, length: usize) -> Result<(Steps, Bench)> {
    let mut assignments = plan.assignments.clone();
    assignments.push(format!("data.max_length={length}"));
    assignments.extend(model.assignments());
    let steps = Steps {
        task: TASK.to_owned(),
        source: Source::Synthetic,
        model: model.model.to_owned(),
        recipe: plan.recipe.clone(),
        assignments,
        warmup: plan.warmup,
        least: LEAST,
        seconds: plan.seconds,
        most: MOST,
    };
    let resolved = steps.resolve()?;
    let (flops, parameters) = cost(&resolved, length)?;
    let bench = Bench {
        model: model.model.to_owned(),
        options: model.options.iter().map(|it| canonical(it)).collect(),
        length,
        batch: resolved.spec.train.batch,
        flops_per_step: flops,
        parameters,
        recipe: resolved.recipe_of_record(),
        own: provenance::own_model(resolved.model)?,
        provenance: Provenance {
            spec_digest: resolved.spec.digest(),
            precision: resolved.spec.train.precision.to_string(),
            ..common.provenance.clone()
        },
        ..common.clone()
    };
    Ok((steps, bench))
}

/// Returns the FLOPs of a step and the number of parameters of the model, without building it.
fn cost(resolved: &Resolved, length: usize) -> Result<(u64, u64)> {
    let shape = resolved.data_shape()?;
    let meta = Parameters::meta(&Device::Cpu, DType::F32);
    let model_shape = resolved.model_shape(&shape);
    let classifier = Classifier::new(
        resolved.model,
        &model_shape,
        &resolved.model_options(),
        &meta,
    )
    .during(
        Class::Usage,
        format!(
            "{} cannot be built with these settings",
            resolved.model.name
        ),
    )?;
    // One forward pass, and a backward pass of twice its cost.
    let flops = 3 * classifier.flops(resolved.spec.train.batch, length);
    Ok((flops, meta.elements() as u64))
}

/// The default limit on the time of one measurement.
pub const TIME_LIMIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use results::record::Phases;

    use super::*;

    #[test]
    fn two_builds_take_turns_in_going_first() {
        let first = |round| matches!(Build::turns(true, round), [Build::Base, Build::Own]);
        let second = |round| matches!(Build::turns(true, round), [Build::Own, Build::Base]);
        assert!(first(0) && second(1) && first(2) && second(3));
        for round in 0..2 {
            assert!(matches!(Build::turns(false, round), [Build::Own]));
        }
    }

    fn plan() -> Plan {
        Plan {
            base: None,
            models: vec![ModelChoice::parse("linear:block.layers=3").unwrap()],
            lengths: vec![64, 128],
            recipe: "smoke".to_owned(),
            assignments: vec!["train.batch=5".to_owned(), "block.layers=1".to_owned()],
            rounds: 1,
            warmup: 4,
            seconds: 0.25,
            limits: Limits {
                memory: 1 << 30,
                time: TIME_LIMIT,
                steps: LEAST,
            },
            device: "cpu".to_owned(),
            provenance: Provenance::default(),
            memory_method: "heap",
            heap_limit: 1 << 30,
            threads: 1,
        }
    }

    /// The figures of a cell are of the settings that its process gets.
    #[test]
    fn a_cell_has_the_settings_of_the_session_and_then_those_of_its_model() {
        let plan = plan();
        let of = |length| cell(&plan, &Bench::default(), &plan.models[0], length).unwrap();
        let (steps, bench) = of(64);
        assert_eq!((steps.warmup, steps.least, steps.seconds), (4, LEAST, 0.25));
        let wanted = [
            "train.batch=5",
            "block.layers=1",
            "data.max_length=64",
            "block.layers=3",
        ];
        assert_eq!(steps.assignments, wanted);
        let resolved = steps.resolve().unwrap();
        assert_eq!(resolved.spec.block.layers, 3);
        let (classifier, parameters) = resolved.meta().unwrap();
        assert_eq!(bench.parameters, parameters.elements() as u64);
        // A backward pass costs two forward passes.
        assert_eq!(bench.flops_per_step, 3 * classifier.flops(5, 64));
        assert_eq!((bench.length, bench.batch), (64, 5));
        assert_eq!(bench.options, ["block.layers=3"]);
        assert!(of(128).1.flops_per_step > bench.flops_per_step);
    }

    fn measured(seconds: &[f64]) -> Measured {
        Measured {
            seconds: seconds.to_vec(),
            processor_seconds: vec![7.0],
            phases: Phases {
                forward: 0.5,
                ..Phases::default()
            },
            peak_bytes: 1,
            base_bytes: 2,
            resident_bytes: 3,
            resident_base_bytes: 4,
            resident_peak_bytes: 5,
        }
    }

    #[test]
    fn a_round_has_the_times_and_the_live_bytes_of_its_process() {
        let round = as_round(6, measured(&[0.25, 0.5]));
        let wanted = Round {
            round: 6,
            seconds: vec![0.25, 0.5],
            phases: measured(&[]).phases,
            peak_bytes: 1,
            base_bytes: 2,
            resident_bytes: 3,
        };
        assert_eq!(round, wanted);
    }

    #[test]
    fn a_process_ends_with_a_measurement_or_a_reason() {
        let second = Duration::from_secs(1);
        let of = |answer, limit| ended(answer, limit).unwrap().unwrap_err().to_string();
        let why = || "why".to_owned();
        assert_eq!(
            of(Answer::TimedOut, 90 * second),
            "time out: the limit is 1 min 30 s"
        );
        assert_eq!(
            of(Answer::TimedOut, second / 4),
            "time out: the limit is 250 ms"
        );
        for (answer, told) in [
            (
                Answer::Reply(Reply::OutOfMemory { reason: why() }),
                "no memory: why",
            ),
            (
                Answer::Reply(Reply::Failed { reason: why() }),
                "failed: why",
            ),
            (Answer::Crashed(why()), "failed: why"),
        ] {
            assert_eq!(of(answer, second), told);
        }
        assert!(ended(Answer::Stopped, second).is_none());
        let reply = Answer::Reply(Reply::Steps(measured(&[0.5])));
        let found = ended(reply, second).unwrap().unwrap();
        assert_eq!((found.seconds, found.peak_bytes), (vec![0.5], 1));
    }

    /// The time of a length is estimated from the shorter ones of the same model.
    #[test]
    fn samples_are_those_of_the_shorter_lengths_of_a_model() {
        let mut plan = plan();
        plan.models.push(ModelChoice::parse("bag").unwrap());
        plan.lengths = vec![64, 128, 256];
        let (reporter, stop) = (Reporter::new(true), Stop::never());
        let path = PathBuf::from("nowhere");
        let mut session = Session::new(&plan, "now", path, &reporter, &stop).unwrap();
        assert!(session.tried().is_empty());
        let cell = &mut session.cells[1][1].1;
        let round = |round, seconds: &[f64], peak_bytes| Round {
            peak_bytes,
            ..as_round(round, measured(seconds))
        };
        // The middle of all steps, and the highest peak.
        cell.rounds = vec![round(0, &[1.0, 4.0, 2.0], 9), round(1, &[3.0, 8.0], 7)];
        let flops = cell.flops_per_step as f64;
        assert!(session.shorter(1, 0).is_empty() && session.shorter(1, 1).is_empty());
        assert!(session.shorter(0, 2).is_empty());
        let samples = session.shorter(1, 2);
        assert_eq!(samples.len(), 1);
        let Sample {
            length,
            seconds,
            peak_bytes,
            flops: of_sample,
        } = samples[0];
        assert_eq!((length, seconds, peak_bytes), (128, 3.0, 9.0));
        assert_eq!(of_sample, flops);
        session.cells[0][2].1.outcome = Outcome::TimedOut {
            reason: String::new(),
        };
        let tried = session.tried();
        let names: Vec<_> = tried
            .iter()
            .map(|it| (it.model.as_str(), it.length))
            .collect();
        assert_eq!(names, [("linear", 256), ("bag", 128)]);
        assert!(
            tried
                .iter()
                .all(|it| it.session == "now" && it.warmup_steps == 4)
        );
    }
}
