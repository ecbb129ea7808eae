//! Your own tasks: a folder, and a program with tasks, `examples/own_task`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::common::Place;

/// Fills the folder `birds` with `rows` examples of train, and some of test.
fn birds(place: &Path, rows: usize) {
    let lines = |rows: std::ops::Range<usize>| -> String {
        let line = |row: usize| {
            let label = ["owl", "wren"][row % 2];
            format!(
                "{}\n",
                json!({"text": format!("{row} sings as {label}"), "label": label})
            )
        };
        rows.map(line).collect()
    };
    let folder = place.join("birds");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("train.jsonl"), lines(0..rows)).unwrap();
    fs::write(folder.join("test.jsonl"), lines(rows..rows + 20)).unwrap();
}

#[test]
fn a_folder_is_trained_swept_reported_scored_and_explained() {
    let place = Place::new();
    birds(place.path(), 100);
    let told = place.ok("data show mine:birds");
    for part in [
        "mine:birds",
        "label: 0 (owl)",
        "10 of 100 examples",
        "bag of tokens",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    place.ok("sweep --tasks mine:birds --models linear,bag --recipe smoke --steps 4 --out runs");
    let table = place.ok("report runs --against tay2021");
    assert!(
        table.contains("mine:birds") && table.contains("linear"),
        "{table}"
    );
    let run = "run --task mine:./birds/ --model bag --recipe smoke --steps 4 --quiet";
    let record = place.ok(&format!("{run} --out one --json"));
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["task"]["label"], "mine:birds");
    assert_eq!(record["task"]["source"], "folder");
    assert_eq!(record["task"]["probe"], true);
    assert!(record["task"].get("own").is_none(), "{}", record["task"]);
    // From another folder, too.
    let run = place.run_folder("one");
    let run = run.display();
    place.ok(&format!("score {run}"));
    let told = place.ok(&format!("explain {run}"));
    assert!(told.contains("length"), "{told}");
    let told = place.ok(&format!("replay {run} --out again"));
    assert!(told.contains("equal to the bit"), "{told}");
    let told = place.ok("data list");
    assert!(
        told.contains("mine:birds") && told.contains("folder"),
        "{told}"
    );
}

#[test]
fn a_folder_that_changed_is_not_trained_on_with_old_data() {
    let place = Place::new();
    birds(place.path(), 40);
    let run = "run --task mine:birds --model bag --recipe smoke --steps 2 --quiet";
    place.ok(run);
    let folder = place.run_folder("runs");
    birds(place.path(), 60);
    let message = place.fails(2, &format!("{run} --seed 1"));
    assert!(
        message.contains("lra data make") && message.contains("mine:"),
        "{message}"
    );
    // The weights are those of the stored data, which other verbs take as `run` does.
    for verb in ["score", "explain"] {
        let words = format!("{verb} {}", folder.display());
        for words in [&words, &format!("{words} --set data.max_length=20")] {
            let message = place.fails(2, words);
            assert!(message.contains("--accept-changes"), "{message}");
        }
        place.ok(&format!("{words} --accept-changes"));
    }
    place.ok(&format!("{run} --seed 2 --out accepted --accept-changes"));
    place.ok("data make mine:birds --force");
    place.ok(&format!("{run} --seed 1"));
}

#[test]
fn folders_of_one_name_are_told_apart() {
    let place = Place::new();
    birds(&place.path().join("one"), 40);
    birds(&place.path().join("two"), 60);
    let run = "--model bag --recipe smoke --steps 2 --quiet";
    place.ok(&format!("run --task mine:one/birds {run}"));
    // Its data are not stored yet, and the score is of others.
    let message = place.fails(2, &format!("run --task mine:two/birds {run}"));
    assert!(message.contains("other data"), "{message}");
    let sweep = "sweep --tasks mine:one/birds,mine:two/birds --models bag --recipe smoke --steps 2 --out swept";
    let message = place.fails(2, sweep);
    assert!(message.contains("two folders of one name"), "{message}");
    // A task that is named twice is no clash.
    place.ok("sweep --tasks toy,Toy --models bag --recipe smoke --steps 2 --quiet --out twice");
    // A folder that is gone is named, and one that moved with its runs is found.
    let folder = place.run_folder("runs");
    fs::rename(place.path().join("one"), place.path().join("three")).unwrap();
    let message = place.fails(3, &format!("score {}", folder.display()));
    assert!(message.contains("no such folder"), "{message}");
    fs::rename(place.path().join("three/birds"), place.path().join("birds")).unwrap();
    let mut command = place.command(&format!("score {}", folder.display()));
    let output = command
        .current_dir(place.path().join("two"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_moved_project_has_its_runs_and_its_baseline() {
    let place = Place::new();
    birds(&place.path().join("one"), 40);
    let moved = |folder: &str, words: &str| {
        let mut command = place.command(words);
        let output = command
            .current_dir(place.path().join(folder))
            .output()
            .unwrap();
        let told = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&told).into_owned(),
        )
    };
    let sweep = "sweep --tasks mine:birds --models linear,bag --recipe smoke --steps 2 --quiet";
    let update = "check --baseline ../base.csv --update runs";
    for words in [sweep, update] {
        let (code, told) = moved("one", words);
        assert_eq!(code, Some(0), "{told}");
    }
    let records = fs::read_dir(place.path().join("one/runs"))
        .unwrap()
        .flatten();
    let record = records
        .map(|entry| entry.path().join("record.json"))
        .find(|path| path.exists())
        .unwrap();
    let record: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(record).unwrap()).unwrap();
    let command = record["command"].as_str().unwrap();
    assert!(command.contains("--task=mine:birds "), "{command}");
    assert_eq!(record["task"]["name"], "mine:birds");
    // From beside the folder, too.
    fs::create_dir(place.path().join("one/sub")).unwrap();
    let beside =
        "sweep --tasks mine:../birds --models bag --recipe smoke --steps 2 --quiet --out out";
    assert_eq!(moved("one/sub", beside).0, Some(0));
    let record = fs::read_dir(place.path().join("one/sub/out"))
        .unwrap()
        .flatten();
    let record = record
        .map(|entry| entry.path().join("record.json"))
        .find(|path| path.exists());
    let record = fs::read_to_string(record.unwrap()).unwrap();
    assert!(record.contains("--task=mine:../birds "), "{record}");
    // The same project in another place.
    fs::rename(place.path().join("one"), place.path().join("two")).unwrap();
    let (code, told) = moved("two", sweep);
    assert!(code == Some(0) && told.contains('='), "{told}");
    let (code, told) = moved("two", "check --baseline ../base.csv runs");
    assert_eq!(code, Some(0), "{told}");
    let run = fs::read_dir(place.path().join("two/runs"))
        .unwrap()
        .flatten();
    let run = run
        .map(|entry| entry.file_name())
        .find(|name| name.to_string_lossy().contains("bag"));
    let run = run.unwrap().into_string().unwrap();
    for words in [
        format!("score runs/{run}"),
        format!("replay runs/{run} --quiet"),
    ] {
        let (code, told) = moved("two", &words);
        assert_eq!(code, Some(0), "{words}: {told}");
    }
}

#[test]
fn mistakes_have_exit_codes_and_remedies() {
    let place = Place::new();
    let message = place.fails(3, "run --task mine:birds --model bag");
    assert!(message.contains("there is no such folder"), "{message}");
    birds(place.path(), 40);
    fs::write(place.path().join("birds/val.jsonl"), "{\"text\": \"a\"}\n").unwrap();
    for verb in [
        "run --model bag --task",
        "data show",
        "check-task",
        "list tasks",
    ] {
        let message = place.fails(3, &format!("{verb} mine:birds"));
        assert!(
            message.contains("val.jsonl:1: it has no `label`"),
            "{message}"
        );
    }
    fs::remove_file(place.path().join("birds/val.jsonl")).unwrap();
    let message = place.fails(2, "run --task mine:birds --model bag --recipe tay2021");
    assert!(message.contains("--recipe): mini, smoke"), "{message}");
    let message = place.fails(2, "data make mine:birds --from elsewhere");
    assert!(message.contains("leave --from out"), "{message}");
    let message = place.fails(2, "run --task mine --model bag");
    assert!(message.contains("mine:FOLDER"), "{message}");
    let message = place.fails(2, "check-task");
    assert!(message.contains("no task of its own"), "{message}");
    let told = place.ok("check-task mine:birds");
    assert!(told.contains("11 of 11 promises kept"), "{told}");
    // An example of test that train has, too.
    let train = fs::read_to_string(place.path().join("birds/train.jsonl")).unwrap();
    fs::write(place.path().join("birds/test.jsonl"), train).unwrap();
    let told = place.lra("check-task mine:birds --json");
    assert_eq!(told.status.code(), Some(1));
    let rows: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let broken = rows
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| !row["wrong"].is_null());
    let broken: Vec<_> = broken.map(|row| row["promise"].as_str().unwrap()).collect();
    assert_eq!(broken, ["no_example_is_in_two_splits"]);
}

#[test]
fn a_programs_own_tasks_are_trained_checked_and_recorded() {
    let place = Place::of_example("own_task");
    let all = place.ok("list tasks");
    for name in ["last_marker", "markers_so_far", "equal_markers", "toy"] {
        assert!(all.contains(name), "{all}");
    }
    let few = "--set data.train=200 --set data.val=40 --set data.test=40";
    let told = place.ok(&format!("data show markers_so_far {few}"));
    assert!(told.contains("labels at positions"), "{told}");
    place.ok(&format!("data make last_marker {few}"));
    place.ok(&format!("data verify last_marker {few}"));
    place.ok(&format!(
        "sweep --tasks last_marker,markers_so_far,equal_markers --models bag --recipe smoke --steps 4 {few}"
    ));
    let table = place.ok("report runs");
    for label in ["last_marker@64", "markers_so_far@64", "equal_markers@64"] {
        assert!(table.contains(label), "{table}");
    }
    let told = place.ok("check-task");
    assert_eq!(told.matches("11 of 11 promises kept").count(), 3, "{told}");
    assert!(!told.contains("SOLVES"), "{told}");
    place.ok(&format!(
        "run --task last_marker --model bag --recipe smoke --steps 2 --quiet --out own {few}"
    ));
    let record = place.record("own");
    let own = &record["task"]["own"];
    assert_eq!(own["program"], "own_task");
    assert_eq!(own["crate_name"], env!("CARGO_PKG_NAME"));
    assert_eq!(own["source"].as_str().unwrap().len(), 64);
    let message = Place::new().fails(2, "check-task last_marker");
    assert!(message.contains("unknown task"), "{message}");
}

#[test]
fn a_new_crate_of_a_task_is_made_once() {
    let place = Place::new();
    for kind in ["labels", "positions", "pairs"] {
        let told = place.ok(&format!("new task my_{kind} --kind {kind}"));
        for next in ["data show", "check-task", "run --task"] {
            assert!(told.contains(next), "{told}");
        }
        let folder = place.path().join(format!("my_{kind}"));
        for file in [
            "Cargo.toml",
            "build.rs",
            "src/main.rs",
            "src/task.rs",
            "README.md",
        ] {
            assert!(folder.join(file).is_file(), "{file}");
        }
        let main = fs::read_to_string(folder.join("src/main.rs")).unwrap();
        assert!(main.contains("&task::My"), "{main}");
    }
    let message = place.fails(2, "new task my_pairs");
    assert!(message.contains("is there already"), "{message}");
    let message = place.fails(2, "new task toy");
    assert!(message.contains("such as toy_task"), "{message}");
}
