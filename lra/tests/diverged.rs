//! Losses and weights that are not finite: the run diverged, and none of its results is ever a
//! score.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use crate::common::{Place, TINY, err, header_length};
use serde_json::Value;

/// A run of one step whose weights overflow, which only scoring shows.
const OVERFLOWING: &str = "run --task listops --recipe smoke --quiet --set data.train=64 --set data.val=16 --set data.test=16 \
    --steps 1 --set train.warmup=0 --set train.schedule=constant --set train.learning_rate=1e38";

/// Returns every file of a run except the weights, as text.
fn texts(folder: &Path) -> String {
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let texts = files.filter(|file| {
        file.extension()
            .is_some_and(|it| it == "json" || it == "jsonl")
    });
    texts
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

/// Asserts that the runs of a folder make a baseline, pass a check against it, and are resumed
/// without a message of damage.
fn is_judged(place: &Place, words: &str, out: &str) {
    let update = format!("check {out} --baseline {out}.csv --update");
    let message = place.fails(1, &update);
    assert!(message.contains("--allow-failed"), "{message}");
    place.ok(&format!("{update} --allow-failed"));
    place.ok(&format!(
        "check {out} --baseline {out}.csv --speed-threshold 0.99 --memory-threshold 0.5"
    ));
    let message = place.fails(4, &format!("{words} --resume"));
    assert!(message.contains("diverged"), "{message}");
    assert!(!message.contains("damaged"), "{message}");
}

#[test]
fn weights_that_overflow_are_no_score_and_never_the_best() {
    let place = Place::new();
    for (model, select) in [("linear", "best"), ("transformer", "last"), ("bag", "best")] {
        let words =
            format!("{OVERFLOWING} --model {model} --set train.select={select} --out {model}");
        place.fails(4, &words);
        let (folder, record) = (place.run_folder(model), place.record(model));
        assert_eq!(record["outcome"]["status"], "diverged", "{model}");
        let reason = record["outcome"]["reason"].as_str().unwrap();
        assert_eq!(reason, "the validation loss is not finite");
        for score in [
            "test_accuracy",
            "test_loss",
            "val_accuracy",
            "val_loss",
            "best_step",
        ] {
            assert!(record["scores"].get(score).is_none(), "{model}: {score}");
        }
        assert!(!folder.join("best.safetensors").exists());
        let logs = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
        assert!(!logs.contains("null"), "{logs}");
        is_judged(&place, &words, model);
    }
}

#[test]
fn a_pretraining_that_overflows_ends_the_run() {
    let place = Place::new();
    let words = format!("{OVERFLOWING} --model linear --pretrain masked --set pretrain.steps=1");
    place.fails(4, &words);
    let (folder, record) = (place.run_folder("runs"), place.record("runs"));
    let reason = record["outcome"]["reason"].as_str().unwrap();
    assert_eq!(reason, "the validation loss is not finite in pretraining");
    assert!(record["pretraining"].get("best_step").is_none(), "{record}");
    assert!(!folder.join("pretrain-best.safetensors").exists());
    assert!(!texts(&folder).contains("\"val_loss\""));
    is_judged(&place, &words, "runs");
}

/// The score from before a run diverged does not make its settings the best of a search.
#[test]
fn a_search_passes_over_settings_that_diverge() {
    let place = Place::new();
    let output = place.lra(
        "sweep --tasks listops --models linear --recipe smoke --quiet --steps 3 --set train.warmup=2 \
         --set train.eval_every=1 --set data.train=64 --set data.val=16 --set data.test=16 \
         --grid train.learning_rate=1e-3,1e38",
    );
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, best) = text.split_once("Best settings").unwrap();
    assert!(best.contains("train.learning_rate=1e-3"), "{text}");
    let row = best
        .lines()
        .find(|line| line.contains("listops@64  linear"));
    assert!(row.is_some_and(|row| !row.contains("1e38")), "{text}");
    let words: Vec<&str> = best.split_whitespace().collect();
    let words = words.join(" ");
    assert!(words.contains("1e38 (1 of 1 seed diverged)"), "{text}");
}

/// Rewrites the state of training within a checkpoint as an older version left it, without a
/// checksum.
fn rewrite_state(file: &Path, change: impl Fn(&mut Value)) {
    let whole = fs::read(file).unwrap();
    let end = 8 + header_length(&whole);
    let mut header: Value = serde_json::from_slice(&whole[8..end]).unwrap();
    let text = header["__metadata__"]["state"].as_str().unwrap();
    let mut state: Value = serde_json::from_str(text).unwrap();
    for key in ["sha256", "metrics_sha256", "timings_sha256"] {
        state.as_object_mut().unwrap().remove(key).unwrap();
    }
    change(&mut state);
    header["__metadata__"]["state"] = state.to_string().into();
    let mut text = header.to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut old = (text.len() as u64).to_le_bytes().to_vec();
    old.extend(text);
    old.extend(&whole[end..]);
    fs::write(file, old).unwrap();
}

/// Older versions called such runs scored and wrote `null` for values that were not finite.
#[test]
fn nulls_of_older_versions_are_read_as_divergence() {
    let place = Place::new();
    let words = format!("{TINY} --model bag");
    place.ok(&words);
    let folder = place.run_folder("runs");
    let mut record = place.record("runs");
    for loss in ["test_loss", "val_loss"] {
        record["scores"][loss] = Value::Null;
    }
    fs::write(folder.join("record.json"), record.to_string()).unwrap();
    let log = folder.join("metrics.jsonl");
    let lines = fs::read_to_string(&log).unwrap();
    let lines = lines.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if line["event"] == "validation" {
            line["loss"] = Value::Null;
        }
        line.to_string() + "\n"
    });
    fs::write(&log, lines.collect::<String>()).unwrap();
    is_judged(&place, &words, "runs");
    for form in ["text", "csv", "json"] {
        let table = place.ok(&format!("report runs --table accuracy --format {form}"));
        assert!(table.contains("diverged"), "{table}");
    }

    fs::remove_file(folder.join("record.json")).unwrap();
    rewrite_state(&folder.join("checkpoint.safetensors"), |state| {
        state["last"]["loss"] = Value::Null;
        state["best"]["loss"] = Value::Null;
        // The log was rewritten, too.
        state["metrics_bytes"] = 0.into();
    });
    let message = place.fails(4, &format!("{words} --resume"));
    assert!(message.contains("diverged"), "{message}");
    assert_eq!(place.record("runs")["outcome"]["status"], "diverged");
}

/// A damaged log is the fault of its own cell only, and no baseline is made from it.
#[test]
fn a_check_judges_the_rest_where_one_log_is_cut_or_empty() {
    let place = Place::new();
    let cells = "sweep --tasks toy --models bag,linear --recipe smoke --steps 4 --quiet";
    place.ok(cells);
    place.ok("check --baseline base.csv --update");
    let base = fs::read(place.path().join("base.csv")).unwrap();
    let folders = fs::read_dir(place.path().join("runs")).unwrap();
    let mut folders = folders.map(|folder| folder.unwrap().path());
    let bag = folders
        .find(|it| it.to_string_lossy().contains("-bag-"))
        .unwrap();
    let log = bag.join("metrics.jsonl");
    let whole = fs::read(&log).unwrap();
    for left in [whole.len() / 2, 0] {
        fs::write(&log, &whole[..left]).unwrap();
        let output = place.lra("check --baseline base.csv --speed-threshold 0.99");
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
        let table = String::from_utf8(output.stdout).unwrap();
        let row = |model: &str| table.lines().find(|line| line.contains(model)).unwrap();
        assert!(row("bag").contains("REGRESSED"), "{table}");
        assert!(row("linear").contains("ok"), "{table}");
        assert!(table.contains("metrics.jsonl"), "{table}");
        let message = place.fails(3, "check --baseline base.csv --update");
        assert!(message.contains("metrics.jsonl"), "{message}");
        assert_eq!(fs::read(place.path().join("base.csv")).unwrap(), base);
    }
}
