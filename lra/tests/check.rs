//! Faults planted into real runs, and the check that must find them.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{Place, err};
use serde_json::Value;

/// Models of the matrix; the first is the reference for speeds.
const MODELS: [&str; 2] = ["transformer", "linear"];

/// Returns a recipe in which a fault can be planted.
fn recipe(batch: usize, rate: &str) -> String {
    format!(
        "about = 'test'\nsource = 'own'\npublished = false\n\n[tasks.toy]\n\
         data = {{ train = 400, val = 40, test = 40 }}\n\
         block = {{ layers = 1, dim = 32, qkv_dim = 32, heads = 2, mlp_dim = 32 }}\n\
         train = {{ steps = 25, batch = {batch}, learning_rate = {rate}, warmup = 5, eval_every = 25, speed_warmup = 5 }}\n"
    )
}

/// Runs the matrix, `linear` with its own recipe text, and returns the exit code and table of a
/// check.
fn checked(place: &Place, out: &str, linear: &str) -> (Option<i32>, String) {
    for model in MODELS {
        let text = if model == "linear" {
            linear.to_owned()
        } else {
            recipe(8, "1e-3")
        };
        fs::write(place.path().join("planted.toml"), text).unwrap();
        let record = place.ok(&format!(
            "run --task toy --model {model} --recipe planted.toml --threads 1 --quiet --out {out} --json"
        ));
        disguise(place, out, serde_json::from_str(&record).unwrap());
    }
    let words = format!("check {out} --baseline base.csv --speed-threshold 0.99 --junit {out}.xml");
    if !place.path().join("base.csv").exists() {
        place.ok(&format!("{words} --update"));
    }
    let output = place.lra(&words);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(!text.is_empty(), "{}", err(&output));
    (output.status.code(), text)
}

/// Sets the recipe's name in a record to `planted`, because a recipe with a fault has another name.
/// The record is then like that of a fault in the program.
fn disguise(place: &Place, out: &str, mut record: Value) {
    let folder = place.path().join(out).join(record["id"].as_str().unwrap());
    record["recipe"]["name"] = "planted".into();
    fs::write(folder.join("record.json"), record.to_string()).unwrap();
}

/// Returns the rows of `linear`, one for each part of a table that is wider than the terminal.
fn linear(table: &str) -> String {
    let rows = table.lines().filter(|line| line.contains("linear"));
    rows.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_wrong_update_and_more_memory_are_caught() {
    let place = Place::new();
    let (code, table) = checked(&place, "base", &recipe(8, "1e-3"));
    assert_eq!(code, Some(0), "{table}");
    let (code, table) = checked(&place, "again", &recipe(8, "1e-3"));
    assert_eq!(code, Some(0), "the same code must pass: {table}");

    // Losses differ, at the same speed and with the same memory.
    let (code, table) = checked(&place, "wrong", &recipe(8, "1.001e-3"));
    assert_eq!(code, Some(1), "{table}");
    assert!(
        linear(&table).contains(" ! ") && linear(&table).contains("REGRESSED"),
        "{table}"
    );
    let mut coloured = place.command("check wrong --baseline base.csv");
    let coloured = coloured.env("CLICOLOR_FORCE", "1").output().unwrap();
    let coloured = String::from_utf8(coloured.stdout).unwrap();
    let red = |word: &str| coloured.contains(&format!("\x1b[1m\x1b[31m{word}\x1b[0m"));
    assert!(red("REGRESSED"), "{coloured:?}");
    assert!(red("Regression check: FAILED"), "{coloured:?}");
    assert!(
        table.contains("transformer") && table.contains("1 ok"),
        "{table}"
    );

    // Eight times the rows in a step: more memory, and another trace. (Slower too, but the
    // certainty of that depends on the machine.)
    let (code, table) = checked(&place, "large", &recipe(64, "1e-3"));
    assert_eq!(code, Some(1), "{table}");
    assert!(linear(&table).matches(" ! ").count() >= 2, "{table}");
    let xml = fs::read_to_string(place.path().join("large.xml")).unwrap();
    assert!(
        xml.contains("failures=\"1\"") && xml.contains("REGRESSED"),
        "{xml}"
    );
}

/// Behaviour needed by a job on a server: the table in a file, the verdict in the exit code.
#[test]
fn a_table_in_a_file_leaves_the_verdict_to_the_exit_code() {
    let place = Place::new();
    place.ok("run --task toy --model bag --recipe smoke --quiet");
    place.ok("check --baseline base.csv --update");
    let words = "check --baseline base.csv --format markdown --output check.md";
    assert_eq!(place.ok(words), "");
    let read = || fs::read_to_string(place.path().join("check.md")).unwrap();
    assert!(read().contains("Regression check: passed"), "{}", read());
    let log = place.run_folder("runs").join("metrics.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let cut: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains("\"step\":4,"))
        .collect();
    fs::write(&log, cut.join("\n") + "\n").unwrap();
    let said = place.fails(3, "check --baseline new.csv --update");
    assert!(said.contains("line of step 4 is missing"), "{said}");
    fs::remove_file(&log).unwrap();
    let said = place.fails(3, "check --baseline new.csv --update");
    assert!(said.contains("metrics.jsonl is missing"), "{said}");
    assert!(!place.path().join("new.csv").exists());
    let said = place.fails(1, words);
    assert!(
        said.contains("warning: ") && said.contains("metrics.jsonl is missing"),
        "{said}"
    );
    assert!(said.contains("FAILED"), "{said}");
    assert!(read().contains("! missing"), "{}", read());
}

/// A killed run leaves weights and logs, and no record that a baseline could hold.
#[test]
fn a_baseline_does_not_drop_a_run_without_a_record() {
    let place = Place::new();
    place.ok("run --task toy --model bag --recipe smoke --quiet");
    place.ok("run --task toy --model linear --recipe smoke --quiet --out killed");
    let killed = place.run_folder("killed");
    let there = place.path().join("runs").join(killed.file_name().unwrap());
    fs::rename(killed, &there).unwrap();
    fs::remove_file(there.join("record.json")).unwrap();
    let said = place.fails(3, "check --baseline base.csv --update");
    assert!(
        said.contains("unfinished run") && said.contains("--resume") && said.contains("linear"),
        "{said}"
    );
    assert!(!place.path().join("base.csv").exists());
    place.ok("run --task toy --model linear --recipe smoke --quiet --resume");
    let said = err(&place.lra("check --baseline base.csv --update"));
    assert!(
        said.contains("2 cells") && !said.contains("no longer"),
        "{said}"
    );

    // A cell that leaves the baseline is named.
    fs::remove_dir_all(there).unwrap();
    let said = err(&place.lra("check --baseline base.csv --update"));
    assert!(
        said.contains("no longer in base.csv") && said.contains("linear on toy"),
        "{said}"
    );
}

#[test]
fn a_check_without_baseline_or_runs_says_so() {
    let place = Place::new();
    fs::create_dir(place.path().join("runs")).unwrap();
    let text = place.fails(3, "check --baseline none.csv");
    assert!(text.contains("no records under runs"), "{text}");
    place.ok("run --task toy --model bag --recipe smoke --quiet");
    let text = place.fails(3, "check --baseline none.csv");
    assert!(
        text.contains("there is no baseline none.csv: --update makes one"),
        "{text}"
    );
    place.ok("merge runs --output all.csv");
    let text = place.fails(2, "check --baseline none.csv all.csv");
    assert!(text.contains("all.csv is a file of records"), "{text}");
    let text = place.fails(2, "check --baseline none.csv --level 2");
    assert!(text.contains("from 0 up to 1"), "{text}");
}
