//! Self-pretraining: the same bits after any interruption, and weights that training begins with.

#![allow(clippy::unwrap_used)]
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Instant;

use crate::common::{Place, TINY, assert_same, err, kill, until};
use serde_json::Value;

/// A run of some seconds, half of which is pretraining, with a checkpoint every other step.
const LONGER: &str = "run --task listops --model performer --recipe smoke --quiet --pretrain masked --set data.train=400 \
    --set data.val=40 --set data.test=40 --set train.steps=200 --set pretrain.steps=120 --set train.eval_every=10 \
    --set train.checkpoint_every=2 --set model.redraw=7";

fn begun(place: &Place, words: &str) -> Child {
    let mut command = place.command(words);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Asserts that the files of both phases do not differ.
fn assert_same_phases(left: &Path, right: &Path) {
    assert_same(left, right);
    for name in ["pretrain-metrics.jsonl", "pretrain-best.safetensors"] {
        let [left, right] = [left, right].map(|folder| fs::read(folder.join(name)).unwrap());
        assert!(left == right, "{name} differs");
    }
}

/// Returns the parts of a record that equal runs have in common.
fn results(place: &Place, out: &str) -> [Value; 2] {
    let mut record = place.record(out);
    for measured in ["wall_seconds", "peak_bytes"] {
        record["pretraining"][measured].take();
    }
    [record["scores"].take(), record["pretraining"].take()]
}

#[test]
fn killed_in_either_phase_it_ends_with_the_same_weights() {
    let place = Place::new();
    let began = Instant::now();
    place.ok(&format!("{LONGER} --out whole"));
    let whole = began.elapsed();
    for life in 0..8u32 {
        let mut child = begun(&place, &format!("{LONGER} --out killed --resume"));
        sleep(whole.mul_f64(0.1 + 0.05 * f64::from(life * 5 % 8)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    place.ok(&format!("{LONGER} --out killed --resume"));
    assert_same_phases(&place.run_folder("whole"), &place.run_folder("killed"));
    assert_eq!(results(&place, "whole"), results(&place, "killed"));
}

#[test]
fn interrupted_in_either_phase_it_is_on_record_and_goes_on() {
    let place = Place::new();
    place.ok(&format!("{LONGER} --out whole --threads 1"));
    let words = format!("{LONGER} --out stopped --resume --threads 2");
    for checkpoint in ["pretrain-checkpoint.safetensors", "checkpoint.safetensors"] {
        let child = begun(&place, &words);
        until("a checkpoint is written", || {
            let mut folders = fs::read_dir(place.path().join("stopped"))
                .into_iter()
                .flatten();
            let folder = folders.next().and_then(Result::ok);
            folder.is_some_and(|folder| folder.path().join(checkpoint).exists())
        });
        kill(child.id(), libc::SIGTERM);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", err(&output));
        let record = place.record("stopped");
        assert_eq!(record["outcome"]["status"], "interrupted");
        assert_eq!(record["scores"]["test_accuracy"], Value::Null);
        assert!(record["pretraining"]["steps"].as_u64().unwrap() > 0);
        let trained = record["scores"]["steps"].as_u64().unwrap() > 0;
        assert_eq!(trained, checkpoint == "checkpoint.safetensors");
        assert_eq!(record["outcome"]["step"], record["scores"]["steps"]);
    }
    place.ok(&words);
    assert_same_phases(&place.run_folder("whole"), &place.run_folder("stopped"));
    assert_eq!(results(&place, "whole"), results(&place, "stopped"));
}

#[test]
fn a_causal_model_predicts_what_follows_and_two_towers_are_two_sequences() {
    let place = Place::new();
    let next = format!("{TINY} --model transformer --set model.attention=causal --pretrain next");
    let screen = place.ok(&format!("{next} --out next"));
    assert!(screen.contains("pretrained  next"), "{screen}");
    let record = place.record("next");
    assert_eq!(record["pretraining"]["kind"], "next");
    assert!(record["pretraining"]["val_loss"].as_f64().unwrap() < 3.2);
    let forbidden = record["model"]["rule_violation"].as_str().unwrap();
    assert!(forbidden.contains("pretrained"), "{forbidden}");

    let pairs = "run --task retrieval --source synthetic --model linear --recipe smoke --quiet --pretrain masked \
        --set train.steps=4 --set pretrain.steps=6 --set pretrain.batch=2 --set train.micro_batch=1 --out pairs";
    place.ok(pairs);
    let pretraining = place.record("pairs")["pretraining"].clone();
    assert_eq!(
        (
            pretraining["steps"].as_u64(),
            pretraining["examples_seen"].as_u64()
        ),
        (Some(6), Some(12))
    );
    assert_eq!(pretraining["share"], 0.15);
}

/// The peak is that of the whole run, and a replay compares the scores of both phases.
#[test]
fn pretraining_counts_in_the_peak_and_in_a_replay() {
    let place = Place::new();
    let words = format!(
        "{TINY} --model linear --pretrain masked --set pretrain.steps=4 --set pretrain.batch=64"
    );
    place.ok(&format!("{words} --out runs"));
    let record = place.record("runs");
    let peak = |of: &Value| of["peak_bytes"].as_u64().unwrap();
    assert_eq!(peak(&record["memory"]), peak(&record["pretraining"]));
    let folder = place.run_folder("runs");
    let text = fs::read_to_string(folder.join("record.json")).unwrap();
    let mut other: Value = serde_json::from_str(&text).unwrap();
    other["pretraining"]["val_loss"] = 1.5.into();
    other["pretraining"]["wall_seconds"] = 1e9.into();
    fs::write(place.path().join("other.json"), other.to_string()).unwrap();
    let output = place.lra("replay other.json --quiet --json --out again");
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = told["differences"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["score"].as_str())
        .collect();
    assert_eq!(names, ["pretraining.val_loss"]);
}

#[test]
fn training_begins_with_what_was_learned_and_the_decoder_is_gone() {
    let place = Place::new();
    let words = "run --task toy --model linear --recipe smoke --quiet --pretrain masked --set pretrain.steps=20 \
        --set train.steps=1 --set train.learning_rate=0.0 --set pretrain.learning_rate=1e-3 --out runs";
    place.ok(words);
    let folder = place.run_folder("runs");
    let names = |file: &str| {
        let bytes = fs::read(folder.join(file)).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        let tensors: Vec<(String, Vec<u8>)> = (header.as_object().unwrap().iter())
            .filter(|(name, _)| *name != "__metadata__")
            .map(|(name, tensor)| {
                let at = |index: usize| {
                    8 + length + tensor["data_offsets"][index].as_u64().unwrap() as usize
                };
                (name.clone(), bytes[at(0)..at(1)].to_vec())
            })
            .collect();
        tensors
    };
    let (learned, trained) = (
        names("pretrain-best.safetensors"),
        names("best.safetensors"),
    );
    assert!(
        learned
            .iter()
            .all(|(name, _)| !name.starts_with("pretrain."))
    );
    // At a learning rate of 0 no weight moves.
    for tensor in &learned {
        assert!(trained.contains(tensor), "{}", tensor.0);
    }
    let message = place.fails(
        2,
        "run --task toy --model performer --recipe smoke --pretrain next",
    );
    assert!(
        message.contains("pretrain.kind = next")
            && message.contains("no option that makes it causal"),
        "{message}"
    );
    let message = place.fails(
        2,
        "run --task toy --model funnel --recipe smoke --pretrain masked --set block.layers=3",
    );
    assert!(message.contains("one per token"), "{message}");
}

/// The warm-up of both phases is train.warmup, and pretraining may be shorter.
#[test]
fn a_warm_up_longer_than_pretraining_is_told() {
    let place = Place::new();
    let told = |more: &str| {
        let words =
            "run --task toy --model linear --recipe smoke --pretrain masked --set train.warmup=3";
        let output = place.lra(&format!("{words} {more}"));
        assert!(output.status.success(), "{}", err(&output));
        err(&output).contains("in pretraining")
    };
    assert!(told("--set pretrain.steps=2"));
    assert!(!told("--set pretrain.steps=4"));
}
