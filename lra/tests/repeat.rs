//! Equal settings give equal bits, with any number of threads and any number of kills.

#![allow(clippy::unwrap_used)]

use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Instant;

use crate::common::{LONGER, Place, TINY, assert_same, err, kill, products, saved, until};

#[test]
fn the_number_of_threads_changes_no_bit_and_the_seed_changes_all() {
    let state_space = "s4d --set block.norm=batch_masked --set train.bucket=3";
    for model in ["transformer", "performer", state_space] {
        let place = Place::new();
        for (out, threads, seed) in [
            ("one", "1", 0),
            ("two", "2", 0),
            ("three", "3", 0),
            ("other", "2", 1),
        ] {
            let mut command =
                place.command(&format!("{TINY} --model {model} --out {out} --seed {seed}"));
            let output = command.env("RAYON_NUM_THREADS", threads).output().unwrap();
            assert!(output.status.success(), "{}", err(&output));
        }
        let folder = |out: &str| place.run_folder(out);
        assert_same(&folder("one"), &folder("two"));
        assert_same(&folder("one"), &folder("three"));
        assert!(products(&folder("one")) != products(&folder("other")));
    }
}

#[test]
fn micro_batches_make_the_update_of_the_whole_batch() {
    let place = Place::new();
    for (out, micro) in [("whole", 0), ("parts", 3)] {
        place.ok(&format!(
            "{TINY} --model linear --out {out} --micro-batch {micro} --set train.select=last"
        ));
    }
    let loss = |out: &str| place.record(out)["scores"]["train_loss"].as_f64().unwrap();
    let (whole, parts) = (loss("whole"), loss("parts"));
    assert!(
        (whole - parts).abs() < 1e-4 * whole,
        "{whole} is not {parts}"
    );
}

/// Scores depend on the padded length of a batch here, which its parts share.
#[test]
fn micro_batches_are_padded_like_the_whole_batch_where_padding_counts() {
    let place = Place::new();
    let cell = "run --task listops --model cosformer --recipe smoke --steps 1 --set model.horizon=padded \
                --set train.learning_rate=0 --set train.warmup=0";
    for (out, micro) in [("whole", 0), ("parts", 3)] {
        let bucket = "--set train.bucket=1";
        place.ok(&format!(
            "{cell} {bucket} --out {out} --micro-batch {micro}"
        ));
    }
    let loss = |out: &str| place.record(out)["scores"]["test_loss"].as_f64().unwrap();
    let (whole, parts) = (loss("whole"), loss("parts"));
    assert!(
        (whole - parts).abs() < 1e-6 * whole,
        "{whole} is not {parts}"
    );
    let sorted = place.lra(&format!("{cell} --set train.bucket=4 --out sorted"));
    assert!(
        err(&sorted).contains("computes with the padded length"),
        "{}",
        err(&sorted)
    );
    let message = place.fails(
        2,
        "run --task listops --model linear --recipe smoke --set head.pooling=padded_mean --set train.bucket=4",
    );
    assert!(
        message.contains("divides by the padded length"),
        "{message}"
    );
}

#[test]
fn a_warm_up_of_the_whole_run_is_told() {
    let place = Place::new();
    let told = |words: &str| {
        let output = place.lra(&format!(
            "run --task toy --model bag --recipe smoke --steps 4 {words}"
        ));
        assert!(output.status.success(), "{}", err(&output));
        err(&output).contains("the learning rate never reaches")
    };
    assert!(told("--set train.warmup=4 --out long"));
    assert!(!told("--set train.warmup=1 --out short"));
}

#[test]
fn micro_batches_under_batch_norm_are_told_and_elsewhere_no_reason_not_to_compare() {
    let place = Place::new();
    let run = |out: &str, words: &str| {
        let words = format!(
            "run --task text:synthetic --recipe smoke --steps 2 --micro-batch 2 --out {out} {words}"
        );
        let output = place.lra(&words);
        assert!(output.status.success(), "{}", err(&output));
        let shown = String::from_utf8(output.stdout.clone()).unwrap();
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        (
            err(&output),
            shown,
            place.record(out)["recipe"]["batching"].clone(),
        )
    };
    let split = "BatchNorm's statistics are over 2 examples instead of 4";
    let (said, shown, batching) = run("split", "--model transformer:block.norm=batch");
    assert!(
        said.contains(split) && shown.matches(split).count() == 2,
        "{said}{shown}"
    );
    assert_eq!(batching["batch_norm"], true);
    let (said, shown, batching) = run("whole", "--model linear --set train.log_every=1");
    assert!(!said.contains("BatchNorm") && !shown.contains("BatchNorm"));
    let reasons = shown.split("not comparable:").nth(1).unwrap();
    let reasons = reasons.split(" recipe smoke (").next().unwrap();
    assert!(
        reasons.contains("train.steps=2") && !reasons.contains("micro_batch"),
        "{reasons}"
    );
    assert!(!reasons.contains("log_every"), "{reasons}");
    assert_eq!(batching["forward"], 2);
}

/// Returns a run of some seconds with a checkpoint every other step, lines of the log that span
/// checkpoints, and running statistics.
fn longer() -> String {
    format!(
        "run --task listops --model performer --set train.bucket=3 {LONGER} --set train.log_every=3 \
         --set block.norm=batch_masked"
    )
}

fn start(place: &Place, words: &str) -> Child {
    place
        .command(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn killed_ten_times_and_resumed_it_ends_with_the_same_weights() {
    let place = Place::new();
    let words = longer().replace("steps=400", "steps=120");
    let began = Instant::now();
    place.ok(&format!("{words} --out whole"));
    let whole = began.elapsed();
    // A different moment in each life, from "hardly started" to "nearly through".
    for life in 0..10u32 {
        let mut child = start(&place, &format!("{words} --out killed --resume"));
        sleep(whole.mul_f64(0.15 + 0.05 * f64::from(life * 7 % 10)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    place.ok(&format!("{words} --out killed --resume"));
    assert_same(&place.run_folder("whole"), &place.run_folder("killed"));
    let score = |out: &str| place.record(out)["scores"].clone();
    assert_eq!(score("whole"), score("killed"));
}

#[cfg(unix)]
#[test]
fn interrupted_it_leaves_a_record_and_goes_on_to_the_same_weights() {
    let place = Place::new();
    let words = longer();
    place.ok(&format!("{words} --out whole"));
    let mut child = start(&place, &format!("{words} --out stopped"));
    until("a checkpoint is written", || saved(&place, "stopped"));
    kill(child.id(), libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(place.record("stopped")["outcome"]["status"], "interrupted");
    let refused = place.fails(2, &format!("{words} --out stopped"));
    assert!(refused.contains("--resume"), "{refused}");
    place.ok(&format!("{words} --out stopped --resume"));
    assert_same(&place.run_folder("whole"), &place.run_folder("stopped"));
}
