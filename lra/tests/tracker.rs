//! Runs in the formats of experiment trackers.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::Place;

/// Returns the only entry of a folder.
fn only(folder: &Path) -> PathBuf {
    let entries: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries[0].clone()
}

/// A run, trained with one tracker and asked for again with the others.
#[test]
fn a_run_is_written_for_each_tracker_and_a_finished_one_is_not_trained_again() {
    let place = Place::new();
    let words = "run --task toy --model bag --recipe smoke --quiet --steps 20 --out runs";
    place.ok(&format!("{words} --tracker mlflow"));
    let folder = place.run_folder("runs");
    assert!(!folder.join("wandb").exists());
    let trained = fs::read(folder.join("record.json")).unwrap();
    place.ok(&format!("{words} --tracker wandb,Trackio"));
    assert_eq!(fs::read(folder.join("record.json")).unwrap(), trained);

    let log = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<serde_json::Value> = lines.collect();
    let logged: Vec<(u64, f64)> = lines
        .iter()
        .filter(|line| line["event"] == "train")
        .map(|line| {
            (
                line["step"].as_u64().unwrap(),
                line["loss"].as_f64().unwrap(),
            )
        })
        .collect();
    let store = folder.join("mlruns/7107169");
    let mut runs = fs::read_dir(&store).unwrap().map(|it| it.unwrap().path());
    let run = runs.find(|path| path.is_dir()).unwrap();
    let losses = fs::read_to_string(run.join("metrics/train/loss")).unwrap();
    let losses: Vec<(u64, f64)> = losses
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(
                words[0].parse::<u64>().unwrap() > 1_500_000_000_000,
                "{line}"
            );
            (words[2].parse().unwrap(), words[1].parse().unwrap())
        })
        .collect();
    assert_eq!(losses, logged);
    let steps = fs::read_to_string(run.join("params/train.steps")).unwrap();
    assert_eq!(steps, "20");
    let record: serde_json::Value = serde_json::from_slice(&trained).unwrap();
    let test = fs::read_to_string(run.join("metrics/test/accuracy")).unwrap();
    let accuracy = record["scores"]["test_accuracy"].as_f64().unwrap();
    assert_eq!(
        test.split(' ').nth(1).unwrap().parse::<f64>().unwrap(),
        accuracy
    );

    let log = fs::read(only(&only(&folder.join("wandb")))).unwrap();
    assert_eq!(log[..7], *b":W&B\xe1\xbe\0");
    let table = fs::read_to_string(only(&folder.join("trackio"))).unwrap();
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let header = reader.headers().unwrap().clone();
    assert_eq!((&header[0], &header[1]), ("step", "timestamp"));
    let column = header.iter().position(|it| it == "train/loss").unwrap();
    let rows = reader.records().map(Result::unwrap);
    let losses: Vec<(u64, f64)> = rows
        .filter(|row| !row[column].is_empty())
        .map(|row| (row[0].parse().unwrap(), row[column].parse().unwrap()))
        .collect();
    assert_eq!(losses, logged);

    let message = place.fails(2, &format!("{words} --tracker comet"));
    assert!(message.contains("mlflow"), "{message}");
    place.ok(&format!("{words} --force"));
    assert!(!folder.join("mlruns").exists(), "of the run before");
}

#[test]
fn a_sweep_writes_its_runs_for_trackers() {
    let place = Place::new();
    let words = "sweep --tasks toy --models bag --recipe smoke --steps 2 --quiet --out runs";
    place.ok(&format!("{words} --tracker trackio"));
    assert!(place.run_folder("runs").join("trackio").is_dir());
}
