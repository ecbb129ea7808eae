//! Weights of finished runs, used again: `lra score`, `lra compare`, `lra explain`, `lra diff`.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{Place, TINY, err};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Returns the path of the only run under `out`, as an argument.
fn run_of(place: &Place, out: &str) -> String {
    let folder = place.run_folder(out);
    let relative = folder.strip_prefix(place.path()).unwrap();
    relative.to_str().unwrap().to_owned()
}

/// Models with dropout, random features, batch statistics and labels at positions, with the best
/// and the last weights.
#[test]
fn the_test_split_scores_as_the_record_says_to_the_bit() {
    let place = Place::new();
    for (out, words) in [
        ("performer", "--model performer"),
        (
            "s4d",
            "--model s4d:block.norm=batch_masked --set train.select=last",
        ),
        ("local", "--model local --set data.dense=true"),
    ] {
        place.ok(&format!("{TINY} {words} --out {out}"));
        let (record, run) = (place.record(out), run_of(&place, out));
        let scored = json(&place.ok(&format!(
            "score {run} --json --quiet --predictions {out}.csv"
        )));
        let scores = &record["scores"];
        assert_eq!(scored["accuracy"], scores["test_accuracy"], "{out}");
        assert_eq!(scored["loss"], scores["test_loss"], "{out}");
        assert_eq!(scored["baselines"], record["baselines"], "{out}");
        if out == "local" {
            assert_eq!(scored["dense"]["loss"], scores["test_dense"]["loss"]);
        }
        let text = fs::read_to_string(place.path().join(format!("{out}.csv"))).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 40);
        let number = |row: &csv::StringRecord, column: usize| row[column].parse::<f64>().unwrap();
        let right = rows.iter().filter(|row| row[1] == row[2]).count();
        let accuracy = scored["accuracy"].as_f64().unwrap();
        assert!((right as f64 / 40.0 - accuracy).abs() < 1e-12);
        let loss = rows.iter().map(|row| number(row, 3)).sum::<f64>() / 40.0;
        assert!((loss - scored["loss"].as_f64().unwrap()).abs() < 1e-6);
        for row in &rows {
            assert_eq!(row.len(), 4 + 10);
            let logits = (4..14).map(|column| number(row, column));
            let best = logits.clone().fold(f64::MIN, f64::max);
            let first = logits.clone().position(|logit| logit == best).unwrap();
            assert_eq!(row[2], first.to_string());
        }
    }
}

#[test]
fn other_splits_lengths_and_parts_can_be_scored() {
    let place = Place::new();
    place.ok(&format!(
        "{TINY} --model linear --set embed.positions=sinusoid --out runs"
    ));
    let run = run_of(&place, "runs");
    let val = json(&place.ok(&format!(
        "score {run} --split val --limit 7 --json --quiet --predictions val.jsonl"
    )));
    assert_eq!(
        (&val["split"], &val["examples"]),
        (&"val".into(), &7.into())
    );
    let lines = fs::read_to_string(place.path().join("val.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 7);
    assert_eq!(json(lines.lines().next().unwrap())["row"], 0);
    let longer = "--set data.max_length=100 --set data.min_length=65";
    let scored = place.ok(&format!("score {run} --quiet {longer}"));
    assert!(scored.contains("listops@100"), "{scored}");
    // A note that both runs share is printed once.
    let compared = err(&place.lra(&format!("compare {run} {run} --quiet {longer}")));
    let notes = compared.matches("was trained for sequences of up to");
    assert_eq!(notes.count(), 1, "{compared}");
    // Weights that exist for each position do not fit.
    place.ok(&format!("{TINY} --model linformer --out fixed"));
    let run = run_of(&place, "fixed");
    let longer = format!("score {run} --quiet --set data.max_length=100");
    let message = place.fails(2, &longer);
    assert!(
        message.contains("leave data.max_length as it was in the run"),
        "{message}"
    );
    let best = place.run_folder("fixed").join("best.safetensors");
    fs::write(&best, &fs::read(&best).unwrap()[..100]).unwrap();
    let message = place.fails(3, &longer);
    assert!(message.contains("best.safetensors is damaged"), "{message}");
}

/// Kernels, layers and constants that a model derives from the longest length are those of the run.
#[test]
fn shorter_data_is_scored_by_the_model_of_the_run() {
    let place = Place::new();
    for model in ["chordmixer", "dss"] {
        place.ok(&format!(
            "run --task selective_copy --model {model} --recipe smoke --steps 2 --set data.tokens=4 --set data.train_length=16 \
             --set data.max_length=64 --set data.train=60 --set data.val=20 --set data.test=20 --out {model} -q"
        ));
        let run = run_of(&place, model);
        let loss = |words: &str| {
            let score = place.ok(&format!("score {run} --split val --json --quiet {words}"));
            json(&score)["dense"]["loss"].as_f64().unwrap()
        };
        let (own, shorter) = (loss(""), loss("--set data.max_length=16"));
        assert!((own - shorter).abs() < 1e-5 * own, "{own} {shorter}");
    }
}

#[test]
fn two_runs_are_compared_example_by_example() {
    let place = Place::new();
    place.ok(&format!("{TINY} --model linear --out a"));
    place.ok(&format!("{TINY} --model bag --out b"));
    let (a, b) = (run_of(&place, "a"), run_of(&place, "b"));
    let same = json(&place.ok(&format!("compare {a} {a} --json --quiet")));
    assert_eq!(
        (same["difference"].as_f64(), same["mcnemar_p"].as_f64()),
        (Some(0.0), Some(1.0))
    );
    let found = json(&place.ok(&format!("compare {a} {b} --json --quiet")));
    let count = |name: &str| found[name].as_u64().unwrap();
    let names = [
        "both_right",
        "first_alone_right",
        "second_alone_right",
        "neither_right",
    ];
    assert_eq!(names.map(count).iter().sum::<u64>(), 40);
    let accuracy = |side: &str| found[side]["accuracy"].as_f64().unwrap();
    let difference = accuracy("first") - accuracy("second");
    assert!((difference - found["difference"].as_f64().unwrap()).abs() < 1e-12);
    let text = place.ok(&format!("compare {a} {b} --quiet"));
    assert!(text.contains("McNemar") && text.contains("A - B"), "{text}");
    place.ok("run --task toy --model bag --recipe smoke --quiet --out c");
    let c = run_of(&place, "c");
    let message = place.fails(2, &format!("compare {a} {c} --quiet"));
    assert!(message.contains("of different data"), "{message}");
}

#[test]
fn a_score_is_broken_down_and_the_worst_examples_are_shown() {
    let place = Place::new();
    place.ok(&format!("{TINY} --model linear --out runs"));
    let run = run_of(&place, "runs");
    let text = place.ok(&format!("explain {run} --quiet --show 2"));
    for words in ["depth", "length", "lists", "as 9", "answer:", "predicted"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let json = place.ok(&format!("explain {run} --quiet --show 2 --format json"));
    let tables: Value = serde_json::from_str(&json).unwrap();
    let names: Vec<&str> = tables
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["table"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["properties", "confusion", "examples"]);
    let first = &tables[0]["rows"][0];
    assert!(
        first["values"]["most"].is_u64() && first["loss"]["loss_nats"].is_number(),
        "{first}"
    );
    assert_eq!(tables[2]["rows"].as_array().unwrap().len(), 2);
    let csv = place.ok(&format!("explain {run} --quiet --show 1 --format csv"));
    let mut lines = csv::Reader::from_reader(csv.as_bytes());
    let header = lines.headers().unwrap().clone();
    for name in [
        "least",
        "most",
        "accuracy_percent",
        "loss_nats",
        "recall_percent",
        "predicted",
        "count",
        "example",
    ] {
        assert!(header.iter().any(|it| it == name), "{name}: {header:?}");
    }
    let counts = lines
        .records()
        .filter(|it| &it.as_ref().unwrap()[0] == "confusion")
        .count();
    assert_eq!(counts, 100);
    let message = place.fails(2, &format!("explain {run} --quiet --png x.png"));
    assert!(message.contains("are not pictures"), "{message}");
    // A name that cannot be written is refused before anything is read.
    for words in [
        "score no-run --predictions nowhere/all.csv",
        "explain no-run --format html --output nowhere/all.html",
        "explain no-run --png nowhere/all.png",
    ] {
        let message = place.fails(3, words);
        assert!(
            message.contains("cannot write into nowhere"),
            "{words}: {message}"
        );
    }
    let tiny = "--set data.train=64 --set data.val=16 --set data.test=16 --set train.steps=2";
    place.ok(&format!(
        "run --task pathfinder --recipe smoke --model bag --quiet {tiny} --out pictures"
    ));
    let run = run_of(&place, "pictures");
    let text = place.ok(&format!("explain {run} --quiet --png x.png"));
    assert!(text.contains("distance of the discs"), "{text}");
    let png = fs::read(place.path().join("x.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG"));
    let page = place.ok(&format!("explain {run} --quiet --format html"));
    for part in [
        "<!doctype html>",
        "id=\"examples\"",
        "src=\"data:image/png;base64,iVBOR",
        "distance of the discs",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn two_runs_differ_in_settings_and_facts() {
    let place = Place::new();
    place.ok("run --task toy --model bag --recipe smoke --quiet --out a");
    place.ok(
        "run --task toy --model bag --recipe smoke --quiet --set train.steps=7 --threads 1 --out b",
    );
    let (a, b) = (run_of(&place, "a"), run_of(&place, "b"));
    let text = place.ok(&format!("diff {a} {b}"));
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let steps = lines.iter().position(|line| *line == "train.steps A: 20");
    assert!(steps.is_some_and(|at| lines[at + 1] == "B: 7"), "{text}");
    let found = json(&place.ok(&format!("diff {a} {b} --json")));
    let steps = serde_json::json!({"setting": "train.steps", "first": 20, "second": 7});
    assert_eq!(found["settings"], Value::Array(vec![steps]));
    let found = json(&place.ok(&format!("diff {a} {a} --json")));
    assert_eq!(found["settings"], Value::Array(Vec::new()));
    assert_eq!(found["facts"], Value::Array(Vec::new()));
}

#[test]
fn only_finished_runs_on_their_own_data_are_scored() {
    let place = Place::new();
    let message = place.fails(2, "score runs");
    assert!(message.contains("name a run folder"), "{message}");
    place.ok("run --task toy --model bag --recipe smoke --quiet --out runs");
    let run = run_of(&place, "runs");
    let message = place.fails(2, &format!("score {run} --set train.batch=2"));
    assert!(message.contains("data.*"), "{message}");
    let message = place.fails(2, &format!("score {run} --set data.max_lenght=2"));
    assert!(message.contains("max_length"), "{message}");
    let folder = place.run_folder("runs");
    let record = fs::read(folder.join("record.json")).unwrap();
    fs::remove_file(folder.join("record.json")).unwrap();
    let message = place.fails(2, &format!("score {run}"));
    assert!(message.contains("--resume"), "{message}");
    let text = String::from_utf8(record.clone()).unwrap();
    let digest = json(&text)["task"]["data_digest"]
        .as_str()
        .unwrap()
        .to_owned();
    let other = text.replace(&digest, &digest.chars().rev().collect::<String>());
    fs::write(folder.join("record.json"), other).unwrap();
    let message = place.fails(2, &format!("score {run}"));
    assert!(message.contains("other data"), "{message}");
    fs::write(folder.join("record.json"), record).unwrap();
    let best = folder.join("best.safetensors");
    let mut weights = fs::read(&best).unwrap();
    let last = weights.len() - 1;
    weights[last] ^= 1;
    fs::write(&best, weights).unwrap();
    let message = place.fails(3, &format!("score {run}"));
    assert!(message.contains("best.safetensors"), "{message}");
    fs::remove_file(&best).unwrap();
    let message = place.fails(3, &format!("score {run}"));
    assert!(message.contains("weights of the run are gone"), "{message}");
}

#[test]
fn a_record_is_replayed_to_the_bit() {
    let place = Place::new();
    place.ok(
        "run --task toy --model performer --recipe smoke --quiet --set train.steps=7 --out runs",
    );
    let run = run_of(&place, "runs");
    let text = place.ok(&format!("replay {run} --quiet"));
    assert!(text.contains("equal to the bit"), "{text}");
    // Of a record with another score, the difference is named.
    let file = place.run_folder("runs").join("record.json");
    let mut record = json(&fs::read_to_string(&file).unwrap());
    record["scores"]["test_loss"] = 1.25.into();
    let other = place.path().join("other.json");
    fs::write(&other, record.to_string()).unwrap();
    // What is on file is never compared in place of a new run.
    let message = place.fails(2, "replay other.json --quiet");
    assert!(
        message.contains("nothing was trained: --force"),
        "{message}"
    );
    let message = place.fails(2, &format!("replay {run} --quiet --force --out runs"));
    assert!(message.contains("the recorded run itself"), "{message}");
    let output = place.lra("replay other.json --quiet --json --force");
    assert_eq!(output.status.code(), Some(1));
    let found = json(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(found["differences"][0]["score"], "test_loss");
    assert_eq!(found["differences"].as_array().unwrap().len(), 1);
    record["spec_digest"] = "0".repeat(64).into();
    fs::write(&other, record.to_string()).unwrap();
    let message = place.fails(2, "replay other.json --quiet");
    assert!(message.contains("other settings"), "{message}");
    let message = place.fails(3, "replay nothing.json --quiet");
    assert!(message.contains("nothing.json"), "{message}");
}
