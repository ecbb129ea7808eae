//! Records on disk: what is written is read back, old and damaged files included.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use lra_results::record::{Outcome, Record, SCHEMA};
use lra_results::store;
use serde_json::Value;

/// A complete record of schema 1 as first released. Never edit it: it stands for files on users'
/// disks.
const VERSION_1: &str = include_str!("records/version-1.json");

fn version_1() -> Record {
    serde_json::from_str(VERSION_1).unwrap()
}

#[test]
fn version_1_loads_forever() {
    let record = version_1();
    assert_eq!(record.schema, 1);
    assert_eq!(record.outcome, Outcome::Scored);
    assert_eq!(record.task.label, "listops@256");
    assert_eq!(record.task.rows.test, 2000);
    assert_eq!(record.recipe.overrides, ["train.steps=200"]);
    assert_eq!(record.majority(), Some(0.1705));
    assert_eq!(record.test_accuracy(), Some(0.3845));
    let speed = record.speed.unwrap();
    assert_eq!(speed.steps_per_second.p90, 11.9);
    assert_eq!(speed.phases.backward, 9.5);
    assert_eq!(record.memory.unwrap().peak_bytes, 182_452_224);
    assert_eq!(record.provenance.revision.unwrap().commit, "ded051b");
}

#[test]
fn writing_keeps_every_key_and_value_and_ends_with_the_provenance() {
    assert_eq!(
        SCHEMA, 1,
        "keep the old fixture, and compare a new one here"
    );
    let written = serde_json::to_value(version_1()).unwrap();
    let original: Value = serde_json::from_str(VERSION_1).unwrap();
    assert_eq!(written, original);
    let keys: Vec<&String> = written.as_object().unwrap().keys().collect();
    let order = "schema id outcome task model recipe seed scores baselines speed memory created command spec_digest \
                 precision device threads host versions revision";
    assert_eq!(keys, order.split(' ').collect::<Vec<_>>());
}

#[test]
fn missing_fields_take_defaults_and_unknown_ones_are_passed_over() {
    let record: Record = serde_json::from_str(
        r#"{ "schema": 7, "id": "x", "outcome": { "status": "paused", "until": "tomorrow" },
             "task": { "name": "listops", "colour": "green" }, "model": { "name": "bag" }, "scores": null,
             "mood": [1, 2] }"#,
    )
    .unwrap();
    assert_eq!(record.outcome, Outcome::Unknown);
    assert_eq!(record.task.label, "");
    assert!(record.scores.is_none() && record.speed.is_none() && record.baselines.is_empty());
}

#[test]
fn every_outcome_survives_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(store::FILE);
    let reason = "no room for 3 GB".to_owned();
    for outcome in [
        Outcome::Scored,
        Outcome::Failed {
            reason: reason.clone(),
        },
        Outcome::Diverged {
            step: 3,
            reason: reason.clone(),
        },
        Outcome::OutOfMemory { reason },
        Outcome::Interrupted { step: 9 },
    ] {
        let record = Record {
            outcome,
            ..version_1()
        };
        store::write(&path, &record).unwrap();
        assert_eq!(store::read(&path).unwrap(), record);
    }
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "no temporary file stays"
    );
}

#[test]
fn an_undefined_figure_does_not_cost_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(store::FILE);
    let mut record = version_1();
    record.speed.as_mut().unwrap().overhead_share = f64::NAN;
    store::write(&path, &record).unwrap();
    let back = store::read(&path).unwrap();
    assert!(back.speed.unwrap().overhead_share.is_nan());
    assert_eq!(back.scores, record.scores);
}

/// Older versions called such runs scored, and JSON spells what is not finite `null`.
#[test]
fn a_score_that_is_not_finite_makes_a_record_a_diverged_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(store::FILE);
    for name in ["test_loss", "test_accuracy", "val_loss", "val_accuracy"] {
        let mut record: Value = serde_json::from_str(VERSION_1).unwrap();
        record["scores"][name] = Value::Null;
        fs::write(&path, record.to_string()).unwrap();
        let back = store::read(&path).unwrap();
        let ending = back.outcome.to_string();
        assert!(
            ending.starts_with("diverged") && ending.contains("is not finite"),
            "{name}: {ending}"
        );
        assert_eq!(back.test_accuracy(), None);
        let scores = back.scores.as_ref().unwrap();
        assert_eq!([scores.val_accuracy, scores.val_loss], [None; 2]);
        store::write(&path, &back).unwrap();
        assert!(!fs::read_to_string(&path).unwrap().contains("_loss\": null"));
    }
    // A run that was never scored is no divergence.
    let mut record: Value = serde_json::from_str(VERSION_1).unwrap();
    record["scores"]
        .as_object_mut()
        .unwrap()
        .remove("test_loss");
    fs::write(&path, record.to_string()).unwrap();
    assert_eq!(store::read(&path).unwrap().test_accuracy(), Some(0.3845));
}

/// Every reader of records refuses them, with the file and the field.
#[test]
fn a_record_with_a_figure_that_cannot_be_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(store::FILE);
    let cases: &[(&str, Value, &str)] = &[
        (
            "/scores/test_accuracy",
            1.5.into(),
            "scores.test_accuracy is 1.5",
        ),
        (
            "/scores/test_accuracy",
            (-0.1).into(),
            "scores.test_accuracy is -0.1",
        ),
        ("/scores/val_accuracy", 2.into(), "scores.val_accuracy is 2"),
        ("/scores/test_loss", (-1).into(), "scores.test_loss is -1"),
        (
            "/scores/train_loss",
            (-0.5).into(),
            "scores.train_loss is -0.5",
        ),
        ("/scores/steps", (-1).into(), "-1"),
        (
            "/baselines/0/accuracy",
            17.05.into(),
            "baselines[0].accuracy is 17.05",
        ),
        (
            "/speed/steps_per_second/median",
            (-3).into(),
            "speed.steps_per_second.median is -3",
        ),
        (
            "/speed/phases/backward",
            (-1).into(),
            "speed.phases.backward is -1",
        ),
        (
            "/speed/wall_seconds",
            (-1).into(),
            "speed.wall_seconds is -1",
        ),
        ("/memory/peak_bytes", 0.into(), "memory.peak_bytes is 0"),
        ("/task/rows/test", 0.into(), "task.rows.test is 0"),
    ];
    for (field, value, told) in cases {
        let mut record: Value = serde_json::from_str(VERSION_1).unwrap();
        *record.pointer_mut(field).unwrap() = value.clone();
        fs::write(&path, record.to_string()).unwrap();
        let error = store::read(&path).unwrap_err().to_string();
        assert!(
            error.contains("record.json is not a run record") && error.contains(told),
            "{field}: {error}"
        );
        let loaded = store::load(folder.path()).unwrap();
        assert_eq!((loaded.records.len(), loaded.damaged()), (0, 1), "{field}");
        assert!(loaded.skipped[0].1.contains(told), "{:?}", loaded.skipped);
    }
    // What a run that failed has not measured is no figure.
    let mut record: Value = serde_json::from_str(VERSION_1).unwrap();
    record["outcome"] = serde_json::json!({ "status": "failed" });
    record["memory"]["peak_bytes"] = 0.into();
    fs::write(&path, record.to_string()).unwrap();
    let failed = store::read(&path).unwrap();
    assert_eq!(failed.outcome.to_string(), "failed", "without a reason");
}

#[test]
fn runs_without_a_record_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, file: &str, text: &str| {
        fs::create_dir_all(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join(file), text).unwrap();
    };
    run("finished", store::FILE, VERSION_1);
    run("finished", "spec.toml", "");
    run("group/killed", "metrics.jsonl", "");
    run("begun", "spec.toml", "");
    run("group/notes", "notes.txt", "");
    let loaded = store::load(folder.path()).unwrap();
    assert_eq!(loaded.records.len(), 1);
    let killed = ["begun", "group/killed"].map(|name| folder.path().join(name));
    assert_eq!(loaded.unfinished, killed);
}

#[test]
fn a_store_is_searched_in_depth_and_names_what_it_skips() {
    let store = tempfile::tempdir().unwrap();
    let put = |at: &str, text: &str| {
        let folder = store.path().join(at);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(store::FILE), text).unwrap();
    };
    let named = |id: &str| {
        let record = Record {
            id: id.to_owned(),
            ..version_1()
        };
        serde_json::to_string(&record).unwrap()
    };
    put("a", &named("a"));
    put("records/listops/b", &named("b"));
    put("copy", &named("a"));
    put("foreign", "{\"name\": \"package\"}");
    put("truncated", &VERSION_1[..VERSION_1.len() / 2]);
    put(".writing-x/c", &named("c"));
    fs::create_dir(store.path().join("still running")).unwrap();

    let loaded = store::load(store.path()).unwrap();
    let ids: Vec<_> = loaded
        .records
        .iter()
        .map(|record| record.id.as_str())
        .collect();
    assert_eq!(ids, ["a", "b"]);
    let skipped: Vec<_> = loaded
        .skipped
        .iter()
        .map(|(path, reason)| {
            let folder = path.parent().unwrap().file_name().unwrap();
            format!("{}: {reason}", folder.to_string_lossy())
        })
        .collect();
    assert!(skipped[0].starts_with("copy: copy of ") && skipped[0].ends_with("record.json"));
    assert_eq!(
        skipped[1],
        "foreign: not a run record: missing field `schema` at line 1 column 19"
    );
    assert!(
        skipped[2].starts_with("truncated: not a run record: EOF while parsing"),
        "{skipped:?}"
    );
    assert_eq!((skipped.len(), loaded.damaged()), (3, 2));

    let one = store::load(&store.path().join("a")).unwrap();
    assert_eq!(one.records.len(), 1);
    let none = store::load(Path::new("no/such/folder")).unwrap_err();
    assert!(
        none.to_string().starts_with("cannot read no/such/folder: "),
        "{none}"
    );
}

#[test]
#[cfg(unix)]
fn a_folder_that_refuses_is_named_and_keeps_the_old_record() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("gone").join(store::FILE);
    let error = store::write(&missing, &version_1())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot write into ") && error.contains("gone"),
        "{error}"
    );
}

/// Editors of Windows put a byte order mark before what they save.
#[test]
fn byte_order_marks_are_no_part_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(store::FILE);
    fs::write(&path, format!("\u{feff}{VERSION_1}")).unwrap();
    assert_eq!(store::read(&path).unwrap().id, version_1().id);
}
