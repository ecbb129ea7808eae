//! What cells take on this machine, judged by small steps of their models.
//!
//! A step of every cell would take longer than a list may. So each model makes one small step, and a cell takes its
//! floating point operations over those per second of that step. `lra repro SOURCE TASK MODEL --dry-run` measures the cell's own.

use std::collections::HashMap;
use std::path::Path;

use datasets::{Protocol, Source};
use results::stats::quantile;

use crate::bench::worker::Steps;
use crate::error::Result;
use crate::repro::cell::PublishedCell;
use crate::sweep::estimator::Estimator;

/// The sequences of the small steps, in tokens.
const LENGTH: usize = 512;
/// Their number.
const BATCH: usize = 2;
/// The model that stands for one which cannot make the small step.
const STAND_IN: &str = "transformer";
/// Settings of the small steps: one block of the width that most recipes have.
const WIDTH: &[&str] = &[
    "block.dim=256",
    "block.qkv_dim=256",
    "block.mlp_dim=512",
    "block.heads=4",
    "block.layers=1",
];

/// The time of one seed of a cell.
#[derive(Clone, Copy, Debug)]
pub struct CellTime {
    /// Floating point operations, every sequence at its full length.
    pub flops: f64,
    /// Seconds; absent where no model could be measured.
    pub seconds: Option<f64>,
    /// Whether the sizes of the splits were known; if not, evaluation is left out.
    pub complete: bool,
}

/// Floating point operations per second of each model, as far as they were measured.
pub struct Speeds<'a> {
    estimator: &'a Estimator<'a>,
    known: HashMap<String, Option<f64>>,
}

impl<'a> Speeds<'a> {
    /// No model is measured yet.
    pub fn new(estimator: &'a Estimator<'a>) -> Self {
        Speeds {
            estimator,
            known: HashMap::new(),
        }
    }

    /// The time of a cell, whose model is measured where it was not before.
    pub fn time(
        &mut self,
        cell: &PublishedCell,
        protocol: Protocol,
        data: &Path,
    ) -> Result<CellTime> {
        let (flops, complete) = cell.flops(protocol, data)?;
        let own = self.of(&cell.figure.entry)?;
        let speed = match own {
            Some(speed) => Some(speed),
            None => self.of(STAND_IN)?,
        };
        Ok(CellTime {
            flops,
            seconds: speed.map(|speed| flops / speed),
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

    /// The operations per second of one small step; none if the model cannot make it.
    fn measure(&self, model: &str) -> Result<Option<f64>> {
        let steps = small_step(model);
        let Ok(resolved) = steps.resolve() else {
            return Ok(None);
        };
        // Forward, and twice that backward.
        let flops = 3 * BATCH as u64 * resolved.blank()?.0.flops(1, LENGTH);
        let measured = self.estimator.time(steps)?.ok();
        let seconds = measured.and_then(|it| quantile(&it.seconds, 0.5));
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
        least: 1,
        seconds: 0.02,
        most: 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::cell;

    /// A model that cannot make the small step would be judged by another's.
    #[test]
    fn models_of_offered_cells_make_the_small_step() {
        for cell in cell::all().unwrap() {
            let resolved = small_step(&cell.figure.entry).resolve();
            assert!(resolved.is_ok(), "{}", cell.figure.entry);
        }
    }
}
