//! Records on disk: what is written is read back, old and damaged files included.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use lra_results::record::{Dense, DenseGroup, Outcome, Record, SCHEMA, Scores, Speed, StartedFrom};
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

/// Older versions wrote ordinals such as 2th.
#[test]
fn trivial_predictors_have_their_names_of_today() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(store::FILE);
    let name = |written: &str| {
        let mut record = version_1();
        record.baselines[0].name = written.to_owned();
        store::write(&path, &record).unwrap();
        store::read(&path).unwrap().baselines[0].name.clone()
    };
    assert_eq!(
        name("disc distance (every 2th training row)"),
        "disc distance (one training row in 2)"
    );
    for other in ["first token", "mine (every nth training row)"] {
        assert_eq!(name(other), other);
    }
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
        (
            "/scores/test_accuracy",
            "NaN".into(),
            "scores.test_accuracy: text \"NaN\" instead of a number at line 1",
        ),
        (
            "/scores/steps",
            (-1).into(),
            "scores.steps: number -1 instead of a whole number from 0",
        ),
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
        ("/task/source", "".into(), "task.source is missing"),
        ("/task/label", "".into(), "task.label is missing"),
        ("/model/name", "".into(), "model.name is missing"),
        ("/recipe/name", "".into(), "recipe.name is missing"),
        ("/seed", Value::Null, "seed is missing"),
        ("/created", "yesterday".into(), "created is \"yesterday\""),
        (
            "/created",
            "2026-13-45T99:99:99Z".into(),
            "not a date and time",
        ),
    ];
    for (field, value, told) in cases {
        let mut record: Value = serde_json::from_str(VERSION_1).unwrap();
        match value {
            Value::Null => drop(record.as_object_mut().unwrap().remove(&field[1..])),
            value => *record.pointer_mut(field).unwrap() = value.clone(),
        }
        fs::write(&path, record.to_string()).unwrap();
        let error = store::read(&path).unwrap_err().to_string();
        assert!(
            error.contains("record.json is not a run record") && error.contains(told),
            "{field}: {error}"
        );
        assert!(error.ends_with("; restore it"), "{error}");
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
        "foreign: not a run record: `schema` is missing at line 1 column 19; restore it, or move it away"
    );
    assert!(
        skipped[2].starts_with("truncated: not a run record: it is cut off at line"),
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
    assert!(!none.to_string().contains("make that folder"), "{none}");
    assert!(!none.is_of_content(), "nothing is known of its content");
    let damaged = store::read(&store.path().join("foreign").join(store::FILE));
    assert!(damaged.unwrap_err().is_of_content());
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

/// Every figure of a record is checked, and its ends are those of its kind.
#[test]
fn every_figure_has_a_range() {
    const SHARES: [&str; 16] = [
        "/scores/test_accuracy",
        "/scores/val_accuracy",
        "/scores/bits_gained",
        "/scores/test_dense/accuracy",
        "/scores/test_dense/weighted_accuracy",
        "/scores/test_dense/groups/0/accuracy",
        "/scores/test_dense/groups/0/majority",
        "/scores/val_dense/accuracy",
        "/scores/val_dense/weighted_accuracy",
        "/scores/val_dense/groups/0/accuracy",
        "/scores/val_dense/groups/0/majority",
        "/pretraining/share",
        "/pretraining/val_accuracy",
        "/baselines/0/accuracy",
        "/baselines/1/accuracy",
        "/speed/overhead_share",
    ];
    const SIZES: [&str; 25] = [
        "/scores/test_loss",
        "/scores/val_loss",
        "/scores/train_loss",
        "/scores/prior_loss",
        "/scores/test_dense/loss",
        "/scores/test_dense/weighted_loss",
        "/scores/test_dense/groups/0/loss",
        "/scores/val_dense/loss",
        "/scores/val_dense/weighted_loss",
        "/scores/val_dense/groups/0/loss",
        "/pretraining/val_loss",
        "/pretraining/train_loss",
        "/pretraining/wall_seconds",
        "/speed/steps_per_second/median",
        "/speed/steps_per_second/p10",
        "/speed/steps_per_second/p90",
        "/speed/examples_per_second",
        "/speed/tokens_per_second",
        "/speed/achieved_flops_per_second",
        "/speed/phases/transfer",
        "/speed/phases/forward",
        "/speed/phases/backward",
        "/speed/phases/optimizer",
        "/speed/training_seconds",
        "/speed/wall_seconds",
    ];
    let dense = serde_json::json!({
        "labels": 4, "accuracy": 0.5, "loss": 0.5, "weighted_accuracy": 0.5, "weighted_loss": 0.5,
        "groups": [{ "name": "near", "labels": 4, "accuracy": 0.5, "loss": 0.5, "majority": 0.5 }],
    });
    let mut whole: Value = serde_json::from_str(VERSION_1).unwrap();
    for (name, value) in [
        ("test_dense", dense.clone()),
        ("val_dense", dense),
        ("bits_gained", 0.5.into()),
        ("prior_loss", 2.3.into()),
    ] {
        whole["scores"][name] = value;
    }
    whole["pretraining"] = serde_json::json!({
        "kind": "masked", "share": 0.15, "val_loss": 2.0, "val_accuracy": 0.5, "train_loss": 2.0,
        "wall_seconds": 3.0,
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(store::FILE);
    let refusal = |field: &str, value: f64| {
        let mut record = whole.clone();
        *record.pointer_mut(field).unwrap() = value.into();
        fs::write(&path, record.to_string()).unwrap();
        store::read(&path).err().map(|error| error.to_string())
    };
    for (fields, good, bad) in [
        (&SHARES[..], [0.0, 1.0], [-0.01, 1.01]),
        (&SIZES, [0.0, 1e12], [-0.01, -1e12]),
    ] {
        for field in fields {
            for value in good {
                assert_eq!(refusal(field, value), None, "{field}: {value}");
            }
            let name = field[1..].replace('/', ".");
            let name = name.replace(".0", "[0]").replace(".1", "[1]");
            for value in bad {
                let told = refusal(field, value).unwrap_or_default();
                assert!(
                    told.contains(&format!("{name} is {value}")),
                    "{field}: {told}"
                );
            }
        }
    }
    // Older records say neither how many rows there were nor anything of memory.
    for row in ["train", "val", "test"] {
        whole["task"]["rows"][row] = 0.into();
    }
    whole["memory"] = Value::Null;
    fs::write(&path, whole.to_string()).unwrap();
    assert!(store::read(&path).is_ok());
}

/// What a divergence is told of: the step of the weights that were scored, and the figure.
#[test]
fn a_divergence_found_on_reading_has_its_step_and_its_figure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(store::FILE);
    let mut whole: Value = serde_json::from_str(VERSION_1).unwrap();
    whole["scores"]["best_step"] = 150.into();
    whole["scores"]["steps"] = 200.into();
    whole["pretraining"] = serde_json::json!({
        "kind": "next", "val_loss": 2.0, "val_accuracy": 0.5, "train_loss": 2.0,
    });
    let read = |alter: &dyn Fn(&mut Value)| {
        let mut record = whole.clone();
        alter(&mut record);
        fs::write(&path, record.to_string()).unwrap();
        store::read(&path).unwrap()
    };
    for (field, words) in [
        ("/scores/val_loss", "the validation loss"),
        ("/scores/val_accuracy", "the validation accuracy"),
        ("/scores/test_loss", "the test loss"),
        ("/scores/test_accuracy", "the test accuracy"),
        (
            "/pretraining/val_loss",
            "the validation loss of pretraining",
        ),
        (
            "/pretraining/val_accuracy",
            "the validation accuracy of pretraining",
        ),
    ] {
        let back = read(&|it| *it.pointer_mut(field).unwrap() = Value::Null);
        let expected = format!("diverged at step 150: {words} is not finite");
        assert_eq!(back.outcome.to_string(), expected);
        let scores = back.scores.unwrap();
        assert_eq!(
            (scores.best_step, scores.test_loss),
            (None, None),
            "{field}"
        );
        let learned = back.pretraining.unwrap();
        let kept = [learned.val_loss, learned.val_accuracy];
        let lost = ["/pretraining/val_loss", "/pretraining/val_accuracy"];
        assert_eq!(kept.map(|it| it.is_none()), lost.map(|it| it == field));
    }
    let back = read(&|it| {
        it["scores"].as_object_mut().unwrap().remove("best_step");
        it["scores"]["test_loss"] = Value::Null;
    });
    assert!(
        back.outcome
            .to_string()
            .starts_with("diverged at step 200:")
    );
    // A training loss that is not finite is left out, and is no divergence.
    for field in ["/scores/train_loss", "/pretraining/train_loss"] {
        let back = read(&|it| *it.pointer_mut(field).unwrap() = Value::Null);
        assert_eq!(back.outcome, Outcome::Scored, "{field}");
        let losses = [
            back.scores.unwrap().train_loss,
            back.pretraining.unwrap().train_loss,
        ];
        let at = usize::from(field.starts_with("/pretraining"));
        assert!(losses[at].is_none() && losses[1 - at].is_some(), "{field}");
    }
}

#[test]
fn figures_are_finite_only_if_all_are() {
    let whole = crate::common::run("linear", 0, 0.5).speed.unwrap();
    assert!(whole.is_finite());
    let unknown = Speed {
        overhead_share: f64::NAN,
        ..whole.clone()
    };
    assert!(unknown.is_finite(), "the overhead may be unknown");
    let alter: [fn(&mut Speed) -> &mut f64; 12] = [
        |it| &mut it.steps_per_second.median,
        |it| &mut it.steps_per_second.p10,
        |it| &mut it.steps_per_second.p90,
        |it| &mut it.examples_per_second,
        |it| &mut it.tokens_per_second,
        |it| &mut it.achieved_flops_per_second,
        |it| &mut it.phases.transfer,
        |it| &mut it.phases.forward,
        |it| &mut it.phases.backward,
        |it| &mut it.phases.optimizer,
        |it| &mut it.training_seconds,
        |it| &mut it.wall_seconds,
    ];
    for (place, alter) in alter.into_iter().enumerate() {
        let mut speed = whole.clone();
        *alter(&mut speed) = f64::NAN;
        assert!(!speed.is_finite(), "figure {place}");
    }
    let whole = Dense {
        groups: vec![DenseGroup::default(), DenseGroup::default()],
        ..Dense::default()
    };
    assert!(whole.is_finite());
    let alter: [fn(&mut Dense) -> &mut f64; 6] = [
        |it| &mut it.accuracy,
        |it| &mut it.loss,
        |it| &mut it.weighted_accuracy,
        |it| &mut it.weighted_loss,
        |it| &mut it.groups[1].accuracy,
        |it| &mut it.groups[1].loss,
    ];
    for (place, alter) in alter.into_iter().enumerate() {
        let mut dense = whole.clone();
        *alter(&mut dense) = f64::INFINITY;
        assert!(!dense.is_finite(), "figure {place}");
    }
}

/// Where positions have labels, they decide with the weights that training gives them.
#[test]
fn labels_at_positions_decide_where_there_are_any() {
    let dense = |accuracy: f64, loss: f64| {
        Some(Dense {
            accuracy: 0.9,
            loss: 0.1,
            weighted_accuracy: accuracy,
            weighted_loss: loss,
            ..Dense::default()
        })
    };
    let plain = Scores {
        val_accuracy: Some(0.5),
        val_loss: Some(1.2),
        test_loss: Some(1.9),
        prior_loss: Some(2.0),
        ..Scores::default()
    };
    let labelled = Scores {
        val_dense: dense(0.7, 0.8),
        test_dense: dense(0.6, 1.97),
        ..plain.clone()
    };
    for (scores, accuracy, loss, trained) in
        [(&plain, 0.5, 1.2, true), (&labelled, 0.7, 0.8, false)]
    {
        assert_eq!(scores.deciding_accuracy(), Some(accuracy));
        assert_eq!(scores.deciding_loss(), Some(loss));
        assert_eq!(scores.trained(), Some(trained));
    }
    // Two percent below the loss of the class shares is not enough, more is.
    for (loss, trained) in [(1.97, false), (1.961, false), (1.959, true)] {
        let scores = Scores {
            test_loss: Some(loss),
            ..plain.clone()
        };
        assert_eq!(scores.trained(), Some(trained), "{loss}");
    }
}

#[test]
fn only_some_endings_are_final() {
    let reason = String::new;
    for (outcome, is_final) in [
        (Outcome::Scored, true),
        (
            Outcome::Diverged {
                step: 1,
                reason: reason(),
            },
            true,
        ),
        (Outcome::Unknown, true),
        (Outcome::Failed { reason: reason() }, false),
        (Outcome::OutOfMemory { reason: reason() }, false),
        (Outcome::Interrupted { step: 1 }, false),
    ] {
        assert_eq!(outcome.is_final(), is_final, "{outcome}");
    }
}

#[test]
fn a_task_says_what_its_data_are_and_a_device_is_named_once() {
    let mut run = crate::common::run("linear", 0, 0.5);
    assert_eq!(
        (run.task.title(), run.task.genuine()),
        ("listops".into(), true)
    );
    run.task.partial = true;
    assert_eq!(run.task.title(), "listops (partial)");
    assert!(run.task.genuine(), "a part of the data is of the task");
    run.task.altered = vec!["a row is another".to_owned()];
    assert_eq!(run.task.title(), "listops (partial, altered)");
    assert!(!run.task.genuine());
    run.task.source = "synthetic".to_owned();
    assert_eq!(run.task.title(), "listops (synthetic, partial, altered)");
    let made = &mut run.provenance;
    made.host.device = "NVIDIA H100".to_owned();
    for (device, accelerator) in [("cuda:0", "NVIDIA H100"), ("cuda:0 NVIDIA H100", "")] {
        made.device = device.to_owned();
        assert_eq!(made.accelerator(), accelerator);
    }
    let digest = "0123456789abcdef";
    assert_eq!(StartedFrom::assignment(digest), "from=0123456789ab");
    assert_eq!(StartedFrom::assignment("0123"), "from=0123");
}

#[test]
fn a_newer_schema_is_refused_and_a_store_has_so_many_levels() {
    let store = tempfile::tempdir().unwrap();
    let put = |at: &str, id: &str, schema: u32| {
        let folder = store.path().join(at);
        fs::create_dir_all(&folder).unwrap();
        let record = Record {
            id: id.to_owned(),
            schema,
            ..version_1()
        };
        store::write(&folder.join(store::FILE), &record).unwrap();
    };
    let levels: Vec<String> = (1..=store::DEPTH).map(|level| level.to_string()).collect();
    put(&levels.join("/"), "deepest", SCHEMA);
    put(&format!("{}/beyond", levels.join("/x")), "beyond", SCHEMA);
    // A sweep leaves its lock and its log; one alone is of something else.
    for (name, files) in [
        ("lock", &[store::SWEEP_LOCK][..]),
        ("log", &[store::SWEEP_LOG]),
        ("swept", &[store::SWEEP_LOCK, store::SWEEP_LOG]),
    ] {
        fs::create_dir(store.path().join(name)).unwrap();
        for file in files {
            fs::write(store.path().join(name).join(file), "").unwrap();
        }
    }
    let loaded = store::load(store.path()).unwrap();
    let ids: Vec<_> = loaded.records.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["deepest"]);
    assert_eq!(loaded.unfinished, [store.path().join("swept")]);
    put("newer", "newer", SCHEMA + 1);
    let error = store::load(store.path()).unwrap_err().to_string();
    assert!(error.contains("newer"), "{error}");
}

#[test]
fn only_unfinished_files_of_writers_are_cleared() {
    let folder = tempfile::tempdir().unwrap();
    for name in [".writing-ab12", ".hidden", store::FILE] {
        fs::write(folder.path().join(name), "").unwrap();
    }
    lra_results::clear_unfinished(folder.path()).unwrap();
    let there = |name: &str| folder.path().join(name).exists();
    assert!(!there(".writing-ab12") && there(".hidden") && there(store::FILE));
}

/// Records of one id that differ are runs of their own; only a copy is left out.
#[test]
fn another_record_of_the_same_id_is_no_copy() {
    let place = tempfile::tempdir().unwrap();
    let other = Record {
        seed: version_1().seed + 1,
        ..version_1()
    };
    for (folder, record) in [("a", version_1()), ("b", other), ("c", version_1())] {
        let folder = place.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        store::write(&folder.join(store::FILE), &record).unwrap();
    }
    let loaded = store::load(place.path()).unwrap();
    assert_eq!((loaded.records.len(), loaded.copies), (2, 1));
}
