//! Labels at single positions, from the data to the record and its tables.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{Place, assert_same, err, saved};
use serde_json::Value;

/// A run of ListOps with labels at brackets, some steps long.
const DENSE: &str = "run --task listops --recipe smoke --model s4d --set data.dense=true --set data.min_length=8 --set data.max_length=48 \
    --set data.train=200 --set data.val=40 --set data.test=40 --set block.dim=16 --set block.qkv_dim=16 --set block.heads=2 --set block.layers=1 \
    --set train.steps=8 --set train.batch=8 --set train.eval_every=4 --set train.log_every=2 --set train.checkpoint_every=2 --set train.bucket=2";

#[test]
fn a_run_scores_positions_by_group_beside_whole_sequences() {
    let place = Place::new();
    let shown = place.ok(&format!("{DENSE} --out runs"));
    assert!(shown.contains("positions"), "{shown}");
    let record = place.record("runs");
    assert!(
        record["task"]["label"]
            .as_str()
            .unwrap()
            .ends_with("-dense")
    );
    let scores = &record["scores"];
    let number = |value: &Value| value.as_f64().unwrap();
    for split in ["test_dense", "val_dense"] {
        let dense = &scores[split];
        let groups = dense["groups"].as_array().unwrap();
        assert_eq!(groups[0]["name"], "depth 1");
        let counts = groups.iter().map(|it| it["labels"].as_u64().unwrap());
        assert_eq!(counts.sum::<u64>(), dense["labels"].as_u64().unwrap());
        // Each expression has one list of depth 1.
        assert_eq!(groups[0]["labels"], 40);
        let parts = groups
            .iter()
            .map(|it| number(&it["loss"]) * number(&it["labels"]));
        let mean = parts.sum::<f64>() / number(&dense["labels"]);
        assert!((mean - number(&dense["loss"])).abs() < 1e-9);
        assert!(number(&dense["weighted_loss"]) > 0.0);
    }
    let groups = scores["test_dense"]["groups"].as_array().unwrap();
    assert!(groups.iter().all(|it| it["majority"].is_f64()));
    assert!(scores["val_dense"]["groups"][0]["majority"].is_null());
    // The prior of all labels together, near ln 10; bits gained are relative to it.
    assert!((1.8..2.8).contains(&number(&scores["prior_loss"])));
    assert!((0.0..1.0).contains(&number(&scores["bits_gained"])));
    let log = fs::read_to_string(place.run_folder("runs").join("metrics.jsonl")).unwrap();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for line in &lines {
        match line["event"].as_str().unwrap() {
            "train" => assert!(number(&line["weighted_loss"]) > 0.0),
            _ => assert!(line["dense"]["groups"].is_array()),
        }
    }
    let table = place.ok("report runs --table dense --format csv");
    for row in ["whole sequences", "all positions", "depth 1", "depth 2"] {
        assert!(table.contains(row), "{table}");
    }
    // Read again, it is the same record.
    let again = place.ok(&format!("{DENSE} --out runs --json"));
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["scores"], record["scores"]);
}

#[test]
fn threads_and_micro_batches_and_a_resumed_run_agree() {
    let place = Place::new();
    for threads in ["1", "3"] {
        let mut command = place.command(&format!("{DENSE} --out threads{threads}"));
        let output = command.env("RAYON_NUM_THREADS", threads).output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
    }
    let folder = |out: &str| place.run_folder(out);
    assert_same(&folder("threads1"), &folder("threads3"));
    // Killed after its first checkpoint, and resumed.
    let mut command = place.command(&format!("{DENSE} --out cut"));
    let output = command.env("LRA_FAULTS", "rename:5:die").output().unwrap();
    assert!(!output.status.success() && saved(&place, "cut"));
    place.ok(&format!("{DENSE} --out cut --resume"));
    assert_same(&folder("threads1"), &folder("cut"));
    let last = "--set train.select=last --set block.norm=layer";
    let unsorted = DENSE.replace("train.bucket=2", "train.bucket=0");
    let loss = |out: &str, micro: usize| {
        place.ok(&format!(
            "{unsorted} {last} --micro-batch {micro} --out {out}"
        ));
        let record = place.record(out);
        let dense = &record["scores"]["test_dense"];
        dense["weighted_loss"].as_f64().unwrap()
    };
    let (whole, parts) = (loss("whole", 0), loss("parts", 3));
    assert!((whole - parts).abs() < 1e-4 * whole, "{whole} {parts}");
}

#[test]
fn settings_of_labels_at_positions_are_refused_where_there_are_none() {
    let place = Place::new();
    let toy = "run --task toy --recipe smoke --model linear";
    let error = place.fails(2, &format!("{toy} --set data.dense=true"));
    assert!(error.contains("data.dense"), "{error}");
    let error = place.fails(2, &format!("{toy} --set train.sequence_weight=2"));
    assert!(
        error.contains("only whole sequences of this data have labels"),
        "{error}"
    );
    let error = place.fails(2, &format!("{DENSE} --set train.sequence_weight=0"));
    assert!(error.contains("sequence_weight"), "{error}");
    let official = "run --task pathfinder --source official --recipe smoke --model linear";
    let error = place.fails(2, &format!("{official} --set data.dense=true"));
    assert!(error.contains("one label each"), "{error}");
}

#[test]
fn data_show_tells_the_labels_at_positions() {
    let place = Place::new();
    let shown = place.ok("data show listops --set data.dense=true --set data.min_length=8 --set data.max_length=48 --set data.train=50 \
         --set data.val=10 --set data.test=10");
    assert!(shown.contains("labels at positions"), "{shown}");
    assert!(shown.contains("depth 1"), "{shown}");
}
