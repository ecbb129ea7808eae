//! Runs of the anchors, which `lra agree` compares.

use lra_results::agreement::{Published, anchors};
use lra_results::record::{Record, Scores};

use super::run;

/// Returns a run of a model on a task with so many bits gained.
pub fn cell(model: &str, task: &str, seed: u64, bits: f64) -> Record {
    let mut record = run(model, seed, 0.5);
    record.task.name = task.to_owned();
    record.task.label = format!("{task}@64");
    record.task.data_digest = task.to_owned();
    record.recipe.name = "mini".to_owned();
    record.scores = Some(Scores {
        test_accuracy: Some(0.5),
        bits_gained: Some(bits),
        ..Scores::default()
    });
    record
}

/// Returns every anchor on two tasks with two seeds: on the first as published, on the second
/// turned round.
pub fn records() -> Vec<Record> {
    let mut records = Vec::new();
    for anchor in anchors() {
        let average = Published::of(&anchor.model).unwrap().average() / 100.0;
        for seed in 0..2 {
            records.push(cell(&anchor.model, "listops", seed, average));
            records.push(cell(&anchor.model, "image", seed, 1.0 - average));
        }
    }
    records
}
