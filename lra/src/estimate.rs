//! How long a run will take here, and how long the full task would.

use std::time::Duration;

use datasets::{Source, Splits};
use results::record::Rows;
use serde_json::Value;

use crate::error::Result;
use crate::recipe::Recipe;
use crate::spec::{Resolved, TrainOptions, Wish};
use crate::timing::{StepTime, Timings, for_people};

/// The amount of work in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
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

impl Work {
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
        Work {
            steps: options.steps,
            batch: rows.train as f64 / batches as f64,
            val,
            eval_period: options.eval_period(),
            scored,
        }
    }

    /// What is left after `step` updates.
    fn after(self, step: usize) -> Self {
        Work {
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
pub struct Full {
    /// The recipe that trains it.
    pub recipe: String,
    /// Its task label.
    pub label: String,
    /// Its FLOPs over this run's.
    pub times: f64,
}

impl Full {
    /// How much more work the full recipe of a reduced one does; `flops` are those of the run. `None` if the recipe is not a
    /// reduced one, the full one has no settings for the task, or the data is a stand-in.
    pub fn of(resolved: &Resolved, splits: &Splits, flops: f64) -> Result<Option<Full>> {
        let Some(recipe) = &resolved.recipe.body.full else {
            return Ok(None);
        };
        let cell = &resolved.spec.cell;
        let wish = Wish {
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
        let full = wish.resolve()?;
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
        let work = Work::new(&full.spec.train, rows);
        let per_example = full.blank()?.0.flops(1, shape.max_length);
        Ok(Some(Full {
            recipe: recipe.clone(),
            label: shape.label,
            times: work.passes() * per_example as f64 / flops,
        }))
    }
}

/// Watches the first steps of a session.
#[derive(Default)]
pub struct Probe {
    timings: Timings,
    told: bool,
}

/// Steps timed before the duration of a run is estimated.
const PROBED_STEPS: usize = 3;

impl Probe {
    /// Hears of the step that brought a run to `step` updates. Once enough steps are timed, returns what to tell.
    pub fn add(
        &mut self,
        time: StepTime,
        warms_up: bool,
        step: usize,
        work: &Work,
        full: Option<&Full>,
    ) -> Vec<String> {
        if self.told {
            return Vec::new();
        }
        self.timings.add(time, warms_up);
        let timed = self.timings.steps.len();
        if timed < PROBED_STEPS {
            return Vec::new();
        }
        self.told = true;
        let seconds = self.timings.steps.iter().sum::<f64>() / timed as f64;
        let forward = self.timings.phases.forward / timed as f64 / work.batch;
        let takes = |work: &Work| work.steps as f64 * seconds + work.scored as f64 * forward;
        let (left, speed) = (takes(&work.after(step)), 1.0 / seconds);
        let mut lines = vec![format!(
            "time       about {} to go, at {speed:.2} steps/s",
            people(left)
        )];
        if let Some(Full {
            recipe,
            label,
            times,
        }) = full
        {
            let whole = people(takes(work) * times);
            lines.push(format!("full task  {label} by recipe {recipe} would take about {whole} here, judged by FLOPs"));
        }
        lines
    }
}

fn people(seconds: f64) -> String {
    for_people(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
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
        let work = Work::new(&options, rows);
        let small = Rows { train: 4, ..rows };
        assert_eq!(
            [work.batch, Work::new(&options, small).batch],
            [10.0, 4.0],
            "no batch is larger than the data"
        );
        assert_eq!(
            work.scored,
            3 * 100 + 100 + 200,
            "three evaluations, the selected weights again, the test split"
        );
        let mut probe = Probe::default();
        let phases = Phases {
            forward: 1.0,
            ..Phases::default()
        };
        let time = StepTime {
            seconds: 4.0,
            phases,
        };
        for step in 1..=7 {
            assert!(probe.add(time, step <= 5, step, &work, None).is_empty());
        }
        // 100 steps of 4 s and 600 examples of 0.1 s.
        let lines = probe.add(time, false, 8, &work, None);
        assert_eq!(
            lines,
            ["time       about 7 min 40 s to go, at 0.25 steps/s"]
        );
        assert!(
            probe.add(time, false, 9, &work, None).is_empty(),
            "said once"
        );
    }
}
