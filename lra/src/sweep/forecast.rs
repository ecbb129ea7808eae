//! Forecast of the time of many runs of one model, from an estimate of one run for each data set
//! and block: runs that differ in their numbers of steps take times in proportion to their work.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use models::Family;

use crate::error::Result;
use crate::estimate::{Workload, planned_rows};
use crate::sweep::estimator::Estimator;
use crate::sweep::plan::Cell;

/// Seconds per forward pass of an example, by the data set and the family of the block.
pub struct Forecast {
    data: PathBuf,
    pace: HashMap<(String, Option<Family>), f64>,
}

impl Forecast {
    /// Creates a forecast that knows nothing; `data` is the folder of stored data.
    pub fn new(data: PathBuf) -> Forecast {
        Forecast {
            data,
            pace: HashMap::new(),
        }
    }

    /// Estimates a cell, unless one of the same data and block is known. Returns the reason if it
    /// cannot be estimated.
    pub fn learn(&mut self, cell: &Cell, estimator: &mut Estimator<'_>) -> Result<Option<String>> {
        let kind = kind(cell);
        if self.pace.contains_key(&kind) {
            return Ok(None);
        }
        Ok(match estimator.estimate(cell)? {
            Ok(estimate) => {
                let pace = estimate.time.as_secs_f64() / self.passes(cell);
                self.pace.insert(kind, pace);
                None
            }
            Err(reason) => Some(reason),
        })
    }

    /// Returns the time that a cell takes, if one of the same data and block is known.
    pub fn time(&self, cell: &Cell) -> Option<Duration> {
        let pace = self.pace.get(&kind(cell))?;
        Duration::try_from_secs_f64(pace * self.passes(cell)).ok()
    }

    fn passes(&self, cell: &Cell) -> f64 {
        let (rows, _) = planned_rows(&cell.resolved, &self.data);
        Workload::of_run(&cell.resolved.spec, rows).passes()
    }
}

fn kind(cell: &Cell) -> (String, Option<Family>) {
    (cell.column(), cell.resolved.family)
}
