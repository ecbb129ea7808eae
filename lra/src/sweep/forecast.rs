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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_choice::ModelChoice;
    use crate::signals::Stop;
    use crate::sweep::plan::Matrix;
    use crate::sweep::testing::{bag, matrix, options, timed};

    /// Returns a forecast that has learned from the first cell, for which a record of 1,494 seconds
    /// is on file.
    fn learned(cells: &[Cell]) -> Forecast {
        let (options, stop) = (options(), Stop::never());
        let on_file = HashMap::from([(cells[0].digest.clone(), timed(1494.0))]);
        let mut estimator = Estimator::new(&options, &stop, cells, &on_file);
        let mut forecast = Forecast::new(PathBuf::from("nowhere"));
        assert_eq!(forecast.time(&cells[0]), None, "nothing is known yet");
        assert_eq!(forecast.learn(&cells[0], &mut estimator).unwrap(), None);
        forecast
    }

    #[test]
    fn time_is_in_proportion_to_the_passes() {
        let of = |options: &[&str], length| {
            let rows = ["data.train=16", "data.val=4", "data.test=6"];
            let mut matrix = matrix(vec![bag(options)], vec![0]);
            matrix.assignments = rows.map(str::to_owned).to_vec();
            matrix.assignments.push("train.eval_examples=0".to_owned());
            matrix.assignments.push(format!("data.max_length={length}"));
            matrix.cells().unwrap().remove(0)
        };
        // 3 passes for each of 20 x 8 examples, and 3 x 4 + 6 that are scored: 498.
        let cells = [of(&[], 32), of(&["train.steps=40"], 32), of(&[], 16)];
        let forecast = learned(&cells);
        let seconds = |cell| forecast.time(cell).map(|it| it.as_secs_f64().round());
        assert_eq!(seconds(&cells[0]), Some(1494.0));
        // Of 40 x 8, and 5 x 4 + 6: 986.
        assert_eq!(seconds(&cells[1]), Some(3.0 * 986.0));
        assert_eq!(seconds(&cells[2]), None, "other data take another time");
    }

    #[test]
    fn another_block_takes_another_time() {
        let of = |assignments: &[&str]| {
            let lstm = ModelChoice {
                model: "lstm",
                options: Vec::new(),
            };
            let matrix = Matrix {
                tasks: vec!["listops".parse().unwrap()],
                recipes: vec!["mini".to_owned()],
                assignments: assignments.iter().map(|it| (*it).to_owned()).collect(),
                ..matrix(vec![lstm], vec![0])
            };
            matrix.cells().unwrap().remove(0)
        };
        let cells = [of(&[]), of(&[results::card::SAME_BLOCK])];
        let forecast = learned(&cells);
        assert!(forecast.time(&cells[0]).is_some());
        assert_eq!(forecast.time(&cells[1]), None);
    }
}
