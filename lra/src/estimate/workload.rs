//! How much work a run is, and how much the full task of a reduced one.

use std::path::Path;

use datasets::{Source, Splits, Store};
use results::record::Rows;
use serde_json::Value;

use super::StepCost;
use crate::error::Result;
use crate::recipe::Recipe;
use crate::spec::{Resolved, RunRequest, Spec, TrainOptions};

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

    /// The work of a pretraining over splits of these sizes.
    pub fn of_pretraining(options: &TrainOptions, rows: Rows) -> Self {
        let work = Workload::new(options, rows);
        // Nothing is scored at its end.
        Workload {
            scored: work.scored - work.val - rows.test,
            ..work
        }
    }

    /// The work of a run by these settings.
    pub fn of_run(spec: &Spec, rows: Rows) -> Self {
        let training = Workload::new(&spec.train, rows);
        if spec.pretrain.is_off() {
            return training;
        }
        let before = spec.pretrain.training(&spec.train);
        training.and(Workload::of_pretraining(&before, rows))
    }

    /// This and other work, whose updates are counted in those of this one.
    pub fn and(self, other: Self) -> Self {
        let updates = other.steps as f64 * other.batch / self.batch;
        Workload {
            steps: self.steps + updates.ceil() as usize,
            scored: self.scored + other.scored,
            ..self
        }
    }

    /// What is left after `step` updates.
    pub(super) fn after(self, step: usize) -> Self {
        Workload {
            steps: self.steps - step,
            scored: self.scored - step / self.eval_period * self.val,
            ..self
        }
    }

    /// Seconds that the work takes at these times per update and per scored example.
    pub fn seconds(self, cost: StepCost) -> f64 {
        self.steps as f64 * cost.update + self.scored as f64 * cost.scored
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

/// Rows of the splits, and whether they are known: from the data if it is there, else from the settings if they say. Of
/// unknown data, evaluation is left out, and batches are taken to be whole.
pub fn planned_rows(resolved: &Resolved, data: &Path) -> (Rows, bool) {
    let spec = &resolved.spec;
    if let Ok(splits) = Store::new(data).open(resolved.task, &spec.data_key()) {
        let rows = Rows {
            train: splits.train.len(),
            val: splits.val.len(),
            test: splits.test.len(),
        };
        return (rows, true);
    }
    let published = spec.cell.source == Source::Official;
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
