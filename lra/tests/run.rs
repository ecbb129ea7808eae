//! A cell from the command line to the tables.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use common::{Place, TINY};
use serde_json::Value;

#[test]
fn every_model_goes_from_the_command_line_to_the_table() {
    let place = Place::new();
    let listed: Value = serde_json::from_str(&place.ok("list models --json")).unwrap();
    for model in listed.as_array().unwrap() {
        let name = model["name"].as_str().unwrap();
        place.ok(&format!("{TINY} --model {name}"));
    }
    for table in ["accuracy", "speed", "memory"] {
        let text = place.ok(&format!("report --table {table}"));
        for model in listed.as_array().unwrap() {
            assert!(text.contains(model["name"].as_str().unwrap()), "{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }
    // The tables that a page has markers for, and no others.
    let page = place.path().join("page.md");
    let marker = |name: &str| format!("<!-- lra:{name} -->\n<!-- /lra:{name} -->\n");
    fs::write(&page, marker("speed") + &marker("comparison")).unwrap();
    place.ok("report --splice page.md");
    let text = fs::read_to_string(&page).unwrap();
    for found in [
        "**Training speed",
        "| synthesizer",
        "recipe smoke",
        "not comparable",
    ] {
        assert!(text.contains(found), "{found}: {text}");
    }
    assert!(!text.contains("Peak memory"), "{text}");
}

#[test]
fn toy_is_learned() {
    let place = Place::new();
    let json = place.ok("run --task toy --model transformer --recipe laptop --json");
    let record: Value = serde_json::from_str(&json).unwrap();
    let majority = record["baselines"][0]["accuracy"].as_f64().unwrap();
    let score = record["scores"]["test_accuracy"].as_f64().unwrap();
    assert!(
        score > majority + 0.2,
        "{score} is not far above {majority}"
    );
}

/// A store that is marked as altered marks every run on it.
#[test]
fn runs_on_altered_data_say_so() {
    let place = Place::new();
    let words = "run --task toy --model bag --recipe smoke --quiet";
    place.ok(words);
    assert_eq!(place.record("runs")["task"]["altered"], Value::Null);
    let entry = fs::read_dir(place.path().join("data/store")).unwrap();
    let mut folders = entry.map(|entry| entry.unwrap().path());
    let entry = folders.find(|path| path.is_dir()).unwrap();
    let path = entry.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    manifest["altered"] = serde_json::json!(["one row is another"]);
    fs::write(&path, manifest.to_string()).unwrap();

    let shown = place.ok(&format!("{words} --force"));
    assert!(shown.contains("ALTERED: one row is another"), "{shown}");
    let record = place.record("runs");
    assert_eq!(record["task"]["altered"][0], "one row is another");
    let table = place.ok("report --table accuracy");
    assert!(table.contains("(altered)"), "{table}");
}

#[test]
fn the_record_is_complete() {
    let place = Place::new();
    place.ok(&format!("{TINY} --model linear"));
    let record = place.record("runs");
    assert_eq!(record["outcome"]["status"], "scored");
    for pointer in [
        "/task/data_digest",
        "/spec_digest",
        "/host/cpu",
        "/host/instructions",
        "/versions/candle",
        "/scores/test_accuracy",
        "/scores/val_accuracy",
        "/scores/train_loss",
        "/speed/steps_per_second/median",
        "/speed/phases/backward",
        "/memory/peak_bytes",
        "/memory/resident_bytes",
        "/model/parameters",
    ] {
        let value = record.pointer(pointer).unwrap_or(&Value::Null);
        assert!(
            value.as_str().is_some_and(|text| !text.is_empty())
                || value.as_f64().is_some_and(|x| x > 0.0),
            "{pointer}"
        );
    }
    assert_eq!(record["scores"]["steps"], 20);
    assert_eq!(record["recipe"]["overrides"].as_array().unwrap().len(), 3);
    let baselines: Vec<_> = record["baselines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].clone())
        .collect();
    assert!(baselines.len() >= 3, "{baselines:?}");
}

#[test]
fn a_finished_run_is_shown_and_not_repeated() {
    let place = Place::new();
    let first = place.ok(&format!("{TINY} --model bag --json"));
    let second = place.ok(&format!("{TINY} --model bag --json"));
    assert_eq!(first, second, "the record on file is printed");
    let third: Value =
        serde_json::from_str(&place.ok(&format!("{TINY} --model bag --json --force"))).unwrap();
    assert_eq!(third["outcome"]["status"], "scored");
}

#[test]
fn without_a_terminal_there_are_no_bars_and_no_colours() {
    let place = Place::new();
    let output = place.lra("run --task toy --model bag --recipe smoke");
    assert!(output.status.success());
    for stream in [&output.stdout, &output.stderr] {
        assert!(
            !stream.contains(&0x1b) && !stream.contains(&b'\r'),
            "{}",
            String::from_utf8_lossy(stream)
        );
    }
}

#[test]
fn running_out_of_memory_is_a_record_wherever_it_happens() {
    let place = Place::new();
    // 20 MiB of weights, 40 MiB of their moments, then gradients: the limits are met at each of them.
    let words = format!(
        "{TINY} --force --model transformer --set block.dim=512 --set block.qkv_dim=512 --set block.mlp_dim=4096"
    );
    for (limit, weights_fit) in [(8, false), (16, false), (32, true), (48, true), (64, true)] {
        let message = place.fails(4, &format!("{words} --memory-limit {limit}M"));
        assert!(message.contains("out of memory"), "{message}");
        let record = place.record("runs");
        assert_eq!(record["outcome"]["status"], "out_of_memory", "{limit} MiB");
        let weights = 4 * record["model"]["parameters"].as_u64().unwrap();
        assert_eq!(weights < limit << 20, weights_fit, "{weights} bytes");
    }
    assert!(place.ok("report --table accuracy").contains("transformer"));
}

#[test]
fn a_diverging_run_is_a_record() {
    let place = Place::new();
    let settings = "--set train.rate=1e30 --set train.clip=0.0 --set train.warmup=0 --set train.schedule=constant";
    let output = place.lra(&format!("{TINY} --model transformer {settings}"));
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(place.record("runs")["outcome"]["status"], "diverged");
}
