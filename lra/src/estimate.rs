//! Estimates of time and memory.
//!
//! ```text
//! lra run      RunEstimator: its own first timed steps, for the remaining work
//! lra sweep    sweep/estimator.rs: a record of another seed, else steps of one and two examples
//! lra bench    bench/preflight.rs: steps at two shorter lengths and the power law through them
//! ```
//!
//! The amount of work is a [`Workload`], and its cost is the product with a [`StepCost`]; lines and
//! power laws are in [`extrapolate`].

pub mod extrapolate;
mod workload;

use std::time::Duration;

pub use self::workload::{Workload, planned_rows};
use crate::timing::{StepTime, Timings, human_duration};

/// Cost of training in seconds.
#[derive(Clone, Copy, Debug)]
pub struct StepCost {
    /// Seconds per update.
    pub update: f64,
    /// Seconds per scored example: a forward pass.
    pub scored: f64,
}

/// Estimates the duration of a run from its first timed steps, once.
#[derive(Default)]
pub struct RunEstimator {
    timings: Timings,
    done: bool,
}

/// Steps timed before the duration of a run is estimated.
const TIMED_STEPS: usize = 3;

impl RunEstimator {
    /// Adds the time of the step that brought a run to `step` updates. Returns the line to print
    /// once enough steps are timed; returns nothing before and after.
    pub fn add(
        &mut self,
        time: StepTime,
        warms_up: bool,
        step: usize,
        workload: &Workload,
    ) -> Option<String> {
        if self.done {
            return None;
        }
        self.timings.add(time, warms_up);
        let timed = self.timings.steps.len();
        if timed < TIMED_STEPS {
            return None;
        }
        self.done = true;
        let cost = StepCost {
            update: self.timings.steps.iter().sum::<f64>() / timed as f64,
            scored: self.timings.phases.forward / timed as f64 / workload.batch,
        };
        let (left, speed) = (workload.after(step).seconds(cost), 1.0 / cost.update);
        Some(format!(
            "time       about {} to go, at {speed:.2} steps/s",
            in_words(left)
        ))
    }
}

fn in_words(seconds: f64) -> String {
    human_duration(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use results::record::{Phases, Rows};

    use super::*;
    use crate::spec::TrainOptions;

    #[test]
    fn the_estimate_counts_steps_and_evaluations() {
        let options = TrainOptions {
            steps: 108,
            batch: 10,
            eval_every: 50,
            eval_examples: 0,
            ..TrainOptions::default()
        };
        let rows = Rows {
            train: 50,
            val: 100,
            test: 200,
        };
        let workload = Workload::new(&options, rows);
        let small = Rows { train: 4, ..rows };
        assert_eq!(
            [workload.batch, Workload::new(&options, small).batch],
            [10.0, 4.0],
            "no batch is larger than the data"
        );
        assert_eq!(
            workload.scored,
            3 * 100 + 100 + 200,
            "three evaluations, the selected weights again, the test split"
        );
        let mut estimator = RunEstimator::default();
        let phases = Phases {
            forward: 1.0,
            ..Phases::default()
        };
        let time = StepTime {
            seconds: 4.0,
            phases,
        };
        for step in 1..=7 {
            assert_eq!(estimator.add(time, step <= 5, step, &workload), None);
        }
        // 100 steps of 4 s and 600 examples of 0.1 s.
        let line = estimator.add(time, false, 8, &workload);
        assert_eq!(
            line.as_deref(),
            Some("time       about 7 min 40 s to go, at 0.25 steps/s")
        );
        let again = estimator.add(time, false, 9, &workload);
        assert_eq!(again, None, "said once");
    }
}
