//! Amount of work of a run.

use std::path::Path;

use datasets::Store;
use results::record::Rows;
use serde_json::Value;

use super::StepCost;
use crate::spec::{Resolved, Spec, TrainOptions};

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
    /// Returns the work of a run over splits of these sizes.
    pub fn new(options: &TrainOptions, rows: Rows) -> Self {
        let val = match options.eval_examples {
            0 => rows.val,
            most => most.min(rows.val),
        };
        let evaluations = options.steps.div_ceil(options.eval_period());
        // The selected weights are scored once more on the validation split, and on the test split.
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

    /// Returns the work of a pretraining over splits of these sizes.
    pub fn of_pretraining(options: &TrainOptions, rows: Rows) -> Self {
        let work = Workload::new(options, rows);
        // Nothing is scored at the end of a pretraining.
        Workload {
            scored: work.scored - work.val - rows.test,
            ..work
        }
    }

    /// Returns the work of a run with these settings.
    pub fn of_run(spec: &Spec, rows: Rows) -> Self {
        let training = Workload::new(&spec.train, rows);
        if spec.pretrain.is_off() {
            return training;
        }
        let before = spec.pretrain.training(&spec.train);
        training.and(Workload::of_pretraining(&before, rows))
    }

    /// Returns the sum of this and other work, with the updates of the other counted in updates of
    /// this one.
    pub fn and(self, other: Self) -> Self {
        let updates = other.steps as f64 * other.batch / self.batch;
        Workload {
            steps: self.steps + updates.ceil() as usize,
            scored: self.scored + other.scored,
            ..self
        }
    }

    /// Returns the remaining work after `step` updates.
    pub(super) fn after(self, step: usize) -> Self {
        Workload {
            steps: self.steps - step,
            scored: self.scored - step / self.eval_period * self.val,
            ..self
        }
    }

    /// Returns the seconds that the work takes at these times per update and per scored example.
    pub fn seconds(self, cost: StepCost) -> f64 {
        self.steps as f64 * cost.update + self.scored as f64 * cost.scored
    }

    /// Returns the work in forward passes of an example. A training example counts three times: one
    /// forward pass, and a backward pass of twice its cost.
    pub fn passes(self) -> f64 {
        3.0 * self.steps as f64 * self.batch + self.scored as f64
    }
}

/// Returns the rows of the splits, and whether they are known: from the data if it is stored, else
/// from the settings if they give them. For unknown data, evaluation is left out, and batches are
/// assumed to be full.
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
    let published = spec.cell.source.reads_files();
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

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: Rows = Rows {
        train: 50,
        val: 30,
        test: 20,
    };

    fn options(change: impl FnOnce(&mut TrainOptions)) -> TrainOptions {
        let mut options = TrainOptions {
            steps: 10,
            batch: 20,
            eval_every: 4,
            ..TrainOptions::default()
        };
        change(&mut options);
        options
    }

    #[test]
    fn every_evaluation_scores_as_many_examples_as_there_are() {
        // After updates 4, 8 and 10, once more at the end, and the test split.
        for (eval_examples, val) in [(0, 30), (7, 7), (30, 30), (31, 30)] {
            let work = Workload::new(&options(|it| it.eval_examples = eval_examples), ROWS);
            assert_eq!((work.val, work.scored), (val, 4 * val + 20));
        }
        let often = Workload::new(&options(|it| it.eval_every = 5), ROWS);
        assert_eq!(
            often.scored,
            3 * 30 + 20,
            "the last period ends with the run"
        );
        // Batches of 20, 20 and 10 rows.
        assert!((often.batch - 50.0 / 3.0).abs() < 1e-12);
        let before = Workload::of_pretraining(&options(|_| ()), ROWS);
        assert_eq!(before.scored, 3 * 30, "nothing is scored at its end");
    }

    #[test]
    fn work_is_counted_in_updates_and_in_passes() {
        let small = Workload::new(&options(|it| it.batch = 50), ROWS);
        let large = Workload::new(&options(|it| (it.steps, it.batch) = (3, 100)), ROWS);
        assert_eq!((small.batch, large.batch), (50.0, 50.0));
        let half = Workload {
            batch: 25.0,
            ..large
        };
        let both = small.and(half);
        assert_eq!(
            (both.steps, both.batch),
            (10 + 2, 50.0),
            "1.5 updates of this size"
        );
        assert_eq!(both.scored, small.scored + half.scored);
        assert_eq!(small.passes(), 3.0 * 10.0 * 50.0 + 140.0);
        let cost = StepCost {
            update: 2.0,
            scored: 0.5,
        };
        assert_eq!(small.seconds(cost), 2.0 * 10.0 + 0.5 * 140.0);
        // Two evaluations are over after nine updates.
        let rest = small.after(9);
        assert_eq!((rest.steps, rest.scored), (1, 140 - 60));
    }

    fn resolve(task: &str, source: Option<datasets::Source>, assignments: &[&str]) -> Resolved {
        let assignments: Vec<String> = assignments.iter().map(|it| (*it).to_owned()).collect();
        let request = crate::spec::RunRequest {
            task,
            model: "transformer",
            recipe: "smoke",
            source,
            protocol: datasets::Protocol::Clean,
            seed: 0,
            assignments: &assignments,
        };
        request.resolve().unwrap()
    }

    #[test]
    fn pretraining_is_work_with_its_own_updates() {
        let own = ["train.steps=10", "train.batch=50", "train.eval_every=5"];
        let plain = resolve("toy", None, &own).spec;
        assert_eq!(Workload::of_run(&plain, ROWS).scored, 3 * 30 + 20);
        let pretrain = [
            "pretrain.kind=masked",
            "pretrain.steps=8",
            "pretrain.batch=25",
        ];
        let spec = resolve("toy", None, &[&own[..], &pretrain].concat()).spec;
        let work = Workload::of_run(&spec, ROWS);
        // Eight updates of half as many examples, and two evaluations.
        assert_eq!((work.steps, work.batch), (10 + 4, 50.0));
        assert_eq!(work.scored, 3 * 30 + 20 + 2 * 30);
    }

    #[test]
    fn rows_are_those_of_the_stored_data_else_those_of_the_settings() {
        let place = tempfile::tempdir().unwrap();
        let planned = |resolved: &Resolved| {
            let (rows, complete) = planned_rows(resolved, place.path());
            ([rows.train, rows.val, rows.test], complete)
        };
        let sizes = ["data.train=7", "data.val=5", "data.test=3"];
        let drawn = resolve("toy", None, &sizes);
        assert_eq!(planned(&drawn), ([7, 5, 3], true));
        // The sizes in the settings of published data are those of a stand-in.
        let official = Some(datasets::Source::Official);
        let published = resolve("text", official, &["train.batch=6"]);
        assert!(published.spec.data["train"].is_u64());
        assert_eq!(planned(&published), ([6, 0, 0], false));
        let key = published.spec.data_key();
        let files = |split: &str, count: usize| {
            for number in 0..count {
                for (class, rating) in [("neg", 1), ("pos", 10)] {
                    let folder = place.path().join(format!("raw/aclImdb/{split}/{class}"));
                    std::fs::create_dir_all(&folder).unwrap();
                    let text = format!("{split} {class} {number}");
                    std::fs::write(folder.join(format!("{number}_{rating}.txt")), text).unwrap();
                }
            }
        };
        files("train", 30);
        files("test", 4);
        let store = Store::new(place.path());
        let raw = place.path().join("raw");
        let splits = store
            .open_or_build(published.task, &key, Some(&raw), &())
            .unwrap();
        let rows = [&splits.train, &splits.val, &splits.test].map(datasets::Split::len);
        assert_eq!((rows[0] + rows[1], rows[2]), (60, 8));
        assert_eq!(planned(&published), (rows, true));
    }
}
