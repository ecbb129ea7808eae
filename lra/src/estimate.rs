//! How long a run will take here, and how long the full task would.

use std::time::Duration;

use datasets::{Source, Splits};
use results::record::Rows;
use serde_json::Value;

use crate::error::Result;
use crate::recipe::Recipe;
use crate::spec::{Resolved, RunRequest, TrainOptions};
use crate::timing::{StepTime, Timings, human_duration};

/// The amount of work in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Updates.
    pub steps: usize,
    /// Examples per update, on average over an epoch.
    pub batch: f64,
    /// Examples scored at each evaluation.
    pub val: usize,
    /// Updates between evaluations.
    pub eval_period: usize,
    /// Examples scored over the whole run.
    pub scored: usize,
}

impl Workload {
    /// The work of a run over splits of these sizes.
    pub fn new(options: &TrainOptions, rows: Rows) -> Self {
        let val = match options.eval_examples {
            0 => rows.val,
            most => most.min(rows.val),
        };
        let evaluations = options.steps.div_ceil(options.eval_period());
        // The selected weights are scored on the validation split once more, and on the test split.
        let scored = (evaluations + 1) * val + rows.test;
        let batches = rows.train.div_ceil(options.batch).max(1);
        Workload {
            steps: options.steps,
            batch: rows.train as f64 / batches as f64,
            val,
            eval_period: options.eval_period(),
            scored,
        }
    }

    /// What is left after `step` updates.
    fn after(self, step: usize) -> Self {
        Workload {
            steps: self.steps - step,
            scored: self.scored - step / self.eval_period * self.val,
            ..self
        }
    }

    /// Examples that pass through the model, a training example counting three times: forward and twice that backward.
    pub fn passes(self) -> f64 {
        3.0 * self.steps as f64 * self.batch + self.scored as f64
    }
}

/// The full task beside a reduced one.
pub struct FullTask {
    /// The recipe that trains it.
    pub recipe: String,
    /// Its task label.
    pub label: String,
    /// Its FLOPs over this run's.
    pub flops_ratio: f64,
}

impl FullTask {
    /// Compares the FLOPs of the full recipe with `flops`, those of the run by a reduced recipe. `None` if the recipe is not a
    /// reduced one, the full one has no settings for the task, or the data is a stand-in.
    pub fn of(resolved: &Resolved, splits: &Splits, flops: f64) -> Result<Option<FullTask>> {
        let Some(recipe) = &resolved.recipe.body.full else {
            return Ok(None);
        };
        let cell = &resolved.spec.cell;
        let request = RunRequest {
            task: &cell.task,
            model: &cell.model,
            recipe,
            source: Some(cell.source),
            protocol: cell.protocol,
            seed: cell.seed,
            assignments: &[],
        };
        let known = Recipe::load(recipe)?.body.tasks.contains_key(&cell.task);
        if !known || cell.source == Source::Synthetic {
            return Ok(None);
        }
        let full = request.resolve()?;
        let shape = full.task.shape(&full.spec.data)?;
        // Drawn splits are as large as the recipe says; published ones are as large here as there.
        let drawn = cell.source == Source::Generated;
        let rows = |name: &str, here: usize| {
            let said = full.spec.data.get(name).filter(|_| drawn);
            said.and_then(Value::as_u64)
                .map_or(here, |rows| rows as usize)
        };
        let rows = Rows {
            train: rows("train", splits.train.len()),
            val: rows("val", splits.val.len()),
            test: rows("test", splits.test.len()),
        };
        let workload = Workload::new(&full.spec.train, rows);
        let per_example = full.blank()?.0.flops(1, shape.max_length);
        Ok(Some(FullTask {
            recipe: recipe.clone(),
            label: shape.label,
            flops_ratio: workload.passes() * per_example as f64 / flops,
        }))
    }
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
    /// Adds the time of the step that brought a run to `step` updates. Returns the lines to print once enough steps are
    /// timed, and nothing before and after.
    pub fn add(
        &mut self,
        time: StepTime,
        warms_up: bool,
        step: usize,
        workload: &Workload,
        full: Option<&FullTask>,
    ) -> Vec<String> {
        if self.done {
            return Vec::new();
        }
        self.timings.add(time, warms_up);
        let timed = self.timings.steps.len();
        if timed < TIMED_STEPS {
            return Vec::new();
        }
        self.done = true;
        let seconds = self.timings.steps.iter().sum::<f64>() / timed as f64;
        let forward = self.timings.phases.forward / timed as f64 / workload.batch;
        let takes = |workload: &Workload| {
            workload.steps as f64 * seconds + workload.scored as f64 * forward
        };
        let (left, speed) = (takes(&workload.after(step)), 1.0 / seconds);
        let mut lines = vec![format!(
            "time       about {} to go, at {speed:.2} steps/s",
            in_words(left)
        )];
        if let Some(FullTask {
            recipe,
            label,
            flops_ratio,
        }) = full
        {
            let whole = in_words(takes(workload) * flops_ratio);
            lines.push(format!("full task  {label} by recipe {recipe} would take about {whole} here, judged by FLOPs"));
        }
        lines
    }
}

fn in_words(seconds: f64) -> String {
    human_duration(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::record::Phases;

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
            assert!(
                estimator
                    .add(time, step <= 5, step, &workload, None)
                    .is_empty()
            );
        }
        // 100 steps of 4 s and 600 examples of 0.1 s.
        let lines = estimator.add(time, false, 8, &workload, None);
        assert_eq!(
            lines,
            ["time       about 7 min 40 s to go, at 0.25 steps/s"]
        );
        assert!(
            estimator.add(time, false, 9, &workload, None).is_empty(),
            "said once"
        );
    }
}
