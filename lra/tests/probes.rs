//! Probes as tasks like any other, and permuted positions.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::Place;
use serde_json::Value;

/// Returns the names and the numbers of labels of the groups of the test split.
fn groups(record: &Value) -> Vec<(String, u64)> {
    let groups = record["scores"]["test_dense"]["groups"].as_array().unwrap();
    let group = |it: &Value| {
        let name = it["name"].as_str().unwrap().to_owned();
        (name, it["labels"].as_u64().unwrap())
    };
    groups.iter().map(group).collect()
}

#[test]
fn every_probe_trains_and_is_tested_beyond_the_trained_length() {
    let place = Place::new();
    for (task, classes, names) in [
        ("mqar", 128, &["length 16", "length 32", "length 64"][..]),
        ("selective_copy", 16, &["length 32", "length 64"]),
        (
            "state_tracking",
            60,
            &["length 1 to 16", "length 17 to 32", "length 33 to 64"],
        ),
        ("needle", 64, &["length 16", "length 64"]),
    ] {
        let words = format!("run --task {task} --model transformer --recipe smoke --out {task}");
        let output = place.lra(&words);
        assert!(output.status.success(), "{}", crate::common::err(&output));
        let told = crate::common::err(&output);
        assert!(told.contains("tested up to 64"), "{told}");
        let record = place.record(task);
        assert_eq!(record["task"]["classes"], classes, "{task}");
        assert_eq!(record["task"]["probe"], true);
        assert_eq!(record["task"]["label"], format!("{task}@64*"));
        let found: Vec<String> = groups(&record).into_iter().map(|it| it.0).collect();
        assert_eq!(found, names, "{task}");
        // Validation is as long as training.
        let val = record["scores"]["val_dense"]["groups"].as_array().unwrap();
        assert!(
            val.len() < names.len() || task == "mqar" && val.len() == 2,
            "{val:?}"
        );
        assert!(record["baselines"].as_array().unwrap().len() >= 3);
    }
    let told = place.fails(2, "run --task word-problem --model bag --recipe smoke");
    assert!(told.contains("did you mean 'state_tracking'"), "{told}");
}

/// Checks that parity has two classes, although the task allows more.
#[test]
fn a_small_group_has_few_classes() {
    let place = Place::new();
    place.ok("run --task state_tracking --model gru --recipe smoke --set data.group=parity");
    let record = place.record("runs");
    assert_eq!(record["task"]["classes"], 2);
    assert_eq!(record["task"]["label"], "state_tracking@parity-64*");
    let prior = record["scores"]["prior_loss"].as_f64().unwrap();
    assert!((prior - 2.0_f64.ln()).abs() < 0.05, "{prior}");
}

#[test]
fn probes_are_swept_and_shown_like_other_tasks() {
    let place = Place::new();
    let sweep = "sweep --tasks mqar,needle --models bag,linear --recipe smoke --seeds 0..1 --out s";
    let table = place.ok(sweep);
    assert!(
        table.contains("mqar@64*") && table.contains("needle@64*"),
        "{table}"
    );
    let dense = place.ok("report s --table dense --format csv");
    assert!(dense.contains("length 64"), "{dense}");
    let shown = place.ok("data show state_tracking --recipe smoke --split test");
    for words in [
        "product: ",
        "length 33 to 64",
        "last token",
        "bag of tokens",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let verified = place.ok("data verify mqar --recipe smoke");
    assert!(
        verified.contains("every label follows from the tokens"),
        "{verified}"
    );
    let listed = place.ok("list tasks");
    assert!(listed.contains("selective_copy"), "{listed}");
}

/// A weight that the recipe has for labels at positions does not stand in the way of data without.
#[test]
fn whole_rows_train_by_the_default_recipe() {
    let place = Place::new();
    let small = "--set data.train=64 --set data.val=8 --set data.test=8 --set train.steps=10 --set train.warmup=1 --set train.eval_every=5";
    let words = format!("run --task selective_copy --model bag {small}");
    place.ok(&format!("{words} --out dense"));
    place.ok(&format!("{words} --set data.dense=false --out whole"));
    assert_eq!(place.record("dense")["recipe"]["name"], "mini");
    let whole = place.record("whole");
    assert_eq!(whole["task"]["label"], "selective_copy@256*-whole");
    assert!(whole["scores"]["test_dense"].is_null());
    let weight = "--set data.dense=false --set train.sequence_weight=2 --out refused";
    let told = place.fails(2, &format!("{words} {weight}"));
    assert!(told.contains("only whole sequences"), "{told}");
}

/// A run of listops whose model does not know the order of its tokens.
const BAG: &str = "run --task listops --recipe smoke --model bag --set embed.positions=none --set embed.dropout=0.0 \
    --set block.dropout=0.0 --set data.dense=true --set data.train=100 --set data.val=40 --set data.test=40";

#[test]
fn permuted_positions_change_nothing_but_the_order() {
    let place = Place::new();
    let run = |words: &str, out: &str| {
        place.ok(&format!("{words} --out {out}"));
        place.record(out)
    };
    let plain = run(BAG, "plain");
    let permuted = run(&format!("{BAG} --set data.permute=5"), "permuted");
    let label = plain["task"]["label"].as_str().unwrap();
    assert_eq!(permuted["task"]["label"], format!("{label}-permute5"));
    let digest = |record: &Value| record["spec_digest"].clone();
    assert_ne!(digest(&plain), digest(&permuted));
    let zero = run(&format!("{BAG} --set data.permute=0"), "zero");
    assert_eq!(digest(&plain), digest(&zero));
    // One stored entry, in either order.
    assert_eq!(
        plain["task"]["data_digest"],
        permuted["task"]["data_digest"]
    );
    let entries = fs::read_dir(place.path().join("data/store")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| !name.starts_with('.')).count(), 1);
    // The labels are at the same tokens, by the same groups.
    assert_eq!(groups(&plain), groups(&permuted));
    let loss = |record: &Value| record["scores"]["test_loss"].as_f64().unwrap();
    let dense = |record: &Value| record["scores"]["test_dense"]["loss"].as_f64().unwrap();
    for of in [loss, dense] {
        let (one, other) = (of(&plain), of(&permuted));
        assert!((one - other).abs() < 1e-4 * one, "{one} {other}");
    }
    // It is scored on permuted rows, and on no other permutation of them.
    let folder = place.run_folder("permuted");
    let folder = folder.display();
    let score: Value = serde_json::from_str(&place.ok(&format!("score {folder} --json"))).unwrap();
    assert_eq!(score["data"], permuted["task"]["label"]);
    let told = place.fails(2, &format!("score {folder} --set data.max_length=65"));
    assert!(
        told.contains("data.permute = 5 draws another permutation"),
        "{told}"
    );
    // A model that reads neighbours sees another task.
    let conv = BAG.replace("--model bag", "--model conv");
    let one = run(&conv, "conv");
    let other = run(&format!("{conv} --set data.permute=5"), "permuted_conv");
    assert!((loss(&one) - loss(&other)).abs() > 1e-4 * loss(&one));
}

#[test]
fn permutations_are_refused_by_value_and_told_by_data() {
    let place = Place::new();
    let toy = "run --task toy --recipe smoke --model bag";
    let told = place.fails(2, &format!("{toy} --set data.permute=-1"));
    assert!(told.contains("data.permute = -1"), "{told}");
    let told = place.fails(2, &format!("{toy} --set data.permute=yes"));
    assert!(told.contains("data.permute"), "{told}");
    let output = place.lra("data show toy --set data.permute=4");
    assert!(output.status.success());
    let told = crate::common::err(&output);
    assert!(
        told.contains("toy@permute4") && told.contains("keep their order"),
        "{told}"
    );
    // Images keep their grid, and pairs their two sequences.
    for words in [
        "--task pathfinder --model linear --recipe smoke",
        "--task retrieval:synthetic --model linear --recipe smoke",
    ] {
        let few = "--set data.train=8 --set data.val=4 --set data.test=4 --set data.permute=2";
        place.ok(&format!("run {words} {few} --out images"));
    }
}
