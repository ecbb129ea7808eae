//! Cells, their states and the options of their runs, for tests.

use std::path::PathBuf;

use datasets::Protocol;
use results::record::{Memory, Speed};
use serde_json::json;

use crate::error::Class;
use crate::model_choice::ModelChoice;
use crate::sweep::job::{Failure, JobOptions};
use crate::sweep::plan::{Cell, Matrix};
use crate::sweep::scheduler::State;
use crate::tracker::TrackerKind;

/// Returns options of which none is a default.
pub fn options() -> JobOptions {
    JobOptions {
        data: PathBuf::from("found"),
        data_option: Some(PathBuf::from("typed")),
        out: PathBuf::from("-out"),
        device: "cuda:7".to_owned(),
        threads: 3,
        jobs: 2,
        memory_limit: Some(1 << 30),
        accept_changes: true,
        trackers: vec![TrackerKind::Mlflow, TrackerKind::Wandb],
    }
}

/// Returns a matrix of Toy by the recipe `smoke`.
pub fn matrix(models: Vec<ModelChoice>, seeds: Vec<u64>) -> Matrix {
    Matrix {
        tasks: vec!["toy".parse().unwrap()],
        models,
        recipes: vec!["smoke".to_owned()],
        seeds,
        protocol: Protocol::Clean,
        assignments: Vec::new(),
    }
}

/// Returns the model `bag` with these options.
pub fn bag(options: &[&str]) -> ModelChoice {
    ModelChoice {
        model: "bag",
        options: options.iter().map(|it| (*it).to_owned()).collect(),
    }
}

/// Returns the cells of models on Toy.
pub fn cells(models: Vec<ModelChoice>, seeds: Vec<u64>) -> Vec<Cell> {
    matrix(models, seeds).cells().unwrap()
}

/// Returns the record of a run with an outcome and these validation accuracy and loss; its test
/// accuracy goes down as that of validation goes up.
fn record(status: serde_json::Value, accuracy: f64, loss: f64) -> results::Record {
    serde_json::from_value(json!({
        "schema": 1,
        "id": "toy-bag-smoke-s0-0a1b2c3d",
        "outcome": status,
        "task": { "name": "toy", "label": "toy", "source": "generated" },
        "model": { "name": "bag" },
        "recipe": { "name": "smoke" },
        "scores": {
            "val_accuracy": accuracy, "val_loss": loss, "test_accuracy": 1.0 - accuracy, "test_loss": loss,
            "steps": 20, "examples_seen": 160, "evaluations": 2,
        },
    }))
    .unwrap()
}

/// Returns the state of a cell that was scored.
pub fn scored(accuracy: f64, loss: f64) -> State {
    scored_by(record(json!({ "status": "scored" }), accuracy, loss))
}

fn scored_by(record: results::Record) -> State {
    State::Scored {
        record: Box::new(record),
        fresh: true,
        not_compared: None,
    }
}

/// Returns the record of a run with as many threads as [`options`] has, which took this time.
pub fn timed(wall_seconds: f64) -> results::Record {
    let mut record = record(json!({ "status": "scored" }), 0.5, 1.0);
    record.provenance.threads = options().threads;
    record.speed = Some(Speed {
        training_seconds: wall_seconds / 2.0,
        wall_seconds,
        ..Speed::default()
    });
    record.memory = Some(Memory {
        base_bytes: 100,
        peak_bytes: 20,
        resident_bytes: 900,
        ..Memory::default()
    });
    record
}

/// Returns the state of a cell that was scored on data with labels at positions: accuracy and loss
/// on whole sequences, and both over all labels, by which settings are chosen.
pub fn scored_densely(whole: (f64, f64), all: (f64, f64)) -> State {
    let mut record = record(json!({ "status": "scored" }), whole.0, whole.1);
    if let Some(scores) = &mut record.scores {
        scores.val_dense = Some(results::record::Dense {
            weighted_accuracy: all.0,
            weighted_loss: all.1,
            ..results::record::Dense::default()
        });
    }
    scored_by(record)
}

/// Returns the state of a cell whose run diverged after a validation.
pub fn diverged(accuracy: f64, loss: f64) -> State {
    let status = json!({ "status": "diverged", "step": 9, "reason": "the loss is not finite" });
    State::Failed(Failure {
        record: Some(Box::new(record(status, accuracy, loss))),
        ..Failure::new(Class::Run, "diverged")
    })
}
