//! Durations of cells on this machine, estimated from small steps of their models.
//!
//! Measuring a step of every cell would take too long for a list. So each model makes a few small
//! steps, and the duration of a cell is its floating point operations divided by the operations per
//! second of the fastest of them, which other load disturbs least. A model that cannot make the
//! step, or not in time, is assumed to be as fast as the Transformer. `lra repro SOURCE TASK MODEL
//! --dry-run` measures the cell itself.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use datasets::{Protocol, Source};
use results::stats::quantile;

use crate::bench::worker::Steps;
use crate::error::Result;
use crate::repro::cell::PublishedCell;
use crate::sweep::estimator::Estimator;

/// Sequence length of the small steps, in tokens.
const LENGTH: usize = 256;
/// Model whose speed is assumed for one that cannot make the small step.
const STAND_IN: &str = "transformer";
/// Examples of a small step: with one alone, what a model computes once a step would count most.
const BATCH: usize = 8;
/// Longest time that the small steps of a model may take.
const STEP_LIMIT: Duration = Duration::from_secs(10);
/// Longest time for which models are measured for one list.
const LIST_LIMIT: Duration = Duration::from_secs(15);
/// Settings of the small steps: one block as wide as those of small published models.
const WIDTH: &[&str] = &[
    "block.dim=128",
    "block.qkv_dim=128",
    "block.mlp_dim=256",
    "block.heads=4",
    "block.layers=1",
];

/// Time of one seed of a cell.
#[derive(Clone, Copy, Debug)]
pub struct CellTime {
    /// Floating point operations, every sequence at its full length.
    pub flops: f64,
    /// Seconds; absent if no model could be measured.
    pub seconds: Option<f64>,
    /// True if the model's own step was measured; if not, it is assumed to be as fast as the
    /// Transformer.
    pub own: bool,
    /// True if the sizes of the splits were known; if not, evaluation is left out.
    pub complete: bool,
}

/// Floating point operations per second of each model, as far as they were measured.
pub struct Speeds<'a> {
    estimator: &'a Estimator<'a>,
    began: Instant,
    known: HashMap<String, Option<f64>>,
    /// Reason why the first model that was not measured was not.
    failure: Option<String>,
}

impl<'a> Speeds<'a> {
    /// Creates speeds with no model measured yet.
    pub fn new(estimator: &'a Estimator<'a>) -> Self {
        Speeds {
            estimator,
            began: Instant::now(),
            known: HashMap::new(),
            failure: None,
        }
    }

    /// Returns the reason why no speed is known; `None` if one is.
    pub fn failure(&self) -> Option<&str> {
        let none = self.known.values().all(Option::is_none);
        self.failure.as_deref().filter(|_| none)
    }

    /// Returns the time of a cell; its model is measured if it was not before.
    pub fn time(
        &mut self,
        cell: &PublishedCell,
        protocol: Protocol,
        data: &Path,
    ) -> Result<CellTime> {
        let (flops, complete) = cell.flops(protocol, data)?;
        let stand_in = self.of(STAND_IN)?;
        let own = self.of(&cell.figure.entry)?;
        let speed = own.or(stand_in);
        Ok(CellTime {
            flops,
            seconds: speed.map(|speed| flops / speed),
            own: own.is_some(),
            complete,
        })
    }

    fn of(&mut self, model: &str) -> Result<Option<f64>> {
        if let Some(known) = self.known.get(model) {
            return Ok(*known);
        }
        let speed = self.measure(model)?;
        self.known.insert(model.to_owned(), speed);
        Ok(speed)
    }

    /// Returns the operations per second of the fastest small step; `None` if the model makes none.
    fn measure(&mut self, model: &str) -> Result<Option<f64>> {
        if self.began.elapsed() > LIST_LIMIT {
            return Ok(None);
        }
        let steps = small_step(model);
        let Ok(resolved) = steps.resolve() else {
            return Ok(None);
        };
        // One forward pass, and a backward pass of twice its cost.
        let flops = 3 * resolved.meta()?.0.flops(BATCH, LENGTH);
        let measured = match self.estimator.time(steps, STEP_LIMIT)? {
            Ok(measured) => measured,
            Err(reason) => {
                self.failure.get_or_insert(reason);
                return Ok(None);
            }
        };
        let seconds = quantile(&measured.seconds, 0.0);
        Ok(seconds
            .filter(|seconds| *seconds > 0.0)
            .map(|seconds| flops as f64 / seconds))
    }
}

fn small_step(model: &str) -> Steps {
    let mut assignments: Vec<String> = WIDTH.iter().map(|it| (*it).to_owned()).collect();
    assignments.extend([
        format!("data.max_length={LENGTH}"),
        "data.min_length=64".to_owned(),
        format!("train.batch={BATCH}"),
    ]);
    Steps {
        task: "listops".to_owned(),
        source: Source::Generated,
        model: model.to_owned(),
        recipe: "smoke".to_owned(),
        assignments,
        warmup: 1,
        least: 2,
        seconds: 0.05,
        most: 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::cell;
    use crate::signals::Stop;
    use crate::sweep::testing::options;

    #[test]
    fn a_cell_takes_its_operations_at_the_speed_of_its_model_or_of_the_transformer() {
        let cells = cell::all().unwrap();
        let other = |cell: &&PublishedCell| cell.figure.entry != STAND_IN;
        let cell = cells.iter().find(other).unwrap();
        let (options, stop) = (options(), Stop::never());
        let estimator = Estimator::new(&options, &stop, &[], &HashMap::new());
        let time = |own: Option<f64>, stand_in: Option<f64>| {
            let mut speeds = Speeds::new(&estimator);
            speeds.known.insert(cell.figure.entry.clone(), own);
            speeds.known.insert(STAND_IN.to_owned(), stand_in);
            let time = speeds.time(cell, Protocol::Tay2021, Path::new("nowhere"));
            time.unwrap()
        };
        let measured = time(Some(4e9), Some(2e9));
        assert_eq!(measured.seconds, Some(measured.flops / 4e9));
        assert!(measured.own);
        let assumed = time(None, Some(2e9));
        assert_eq!(assumed.seconds, Some(assumed.flops / 2e9));
        assert!(!assumed.own);
        assert_eq!(time(None, None).seconds, None);
    }

    /// A model that cannot make the small step would get the speed of another model.
    #[test]
    fn models_of_offered_cells_make_the_small_step() {
        for cell in cell::all().unwrap() {
            let resolved = small_step(&cell.figure.entry).resolve();
            assert!(resolved.is_ok(), "{}", cell.figure.entry);
        }
    }
}
