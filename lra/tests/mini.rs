//! `lra mini`: score cards of the small protocol.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{self, Place};
use serde_json::Value;

/// Assignments that make every generated task tiny.
const TINY: &str = "--set train.steps=2 --set train.warmup=1 --set train.batch=2 --set train.eval_every=1 \
                    --set train.eval_examples=4 --set data.train=8 --set data.val=4 --set data.test=4";

#[test]
fn a_card_ranks_a_model_among_those_of_a_table() {
    let place = Place::new();
    // The built-in table contains no results on these data.
    let text = place.ok(&format!("mini bag --glance --seeds 0,1 --quiet {TINY}"));
    assert!(text.contains("bag: no rank"), "{text}");
    assert!(
        text.contains("--glance runs the generated tasks only"),
        "{text}"
    );
    assert!(
        text.contains("listops") && text.contains("best trivial"),
        "{text}"
    );

    place.ok("merge runs --output table.csv");
    let cards = place.ok(&format!(
        "mini linear --glance --seeds 0 --table table.csv --json --quiet {TINY}"
    ));
    let cards: Value = serde_json::from_str(&cards).unwrap();
    let card = &cards[0];
    assert_eq!(
        (&card["model"], &card["of"]),
        (&"linear".into(), &2.into()),
        "{card}"
    );
    let rank = card["rank"].as_u64().unwrap();
    assert!((1..=2).contains(&rank), "{card}");
    let left_out = card["left_out"].as_array().unwrap();
    assert!(left_out.iter().any(|it| it["task"] == "image"), "{card}");

    // Runs on file are neither repeated nor planned.
    let words = format!("mini linear --glance --seeds 0 --table table.csv {TINY}");
    let again = place.lra(&words);
    let told = common::err(&again);
    let again = String::from_utf8(again.stdout).unwrap();
    assert!(again.contains("linear: rank"), "{again}");
    assert!(!told.contains("plan "), "{told}");
    assert!(told.contains("on file    linear: "), "{told}");
    // Models with other settings are no table to rank in.
    let other = words.replace("train.steps=2", "train.steps=1");
    let other = place.ok(&format!("{other} --quiet"));
    assert!(other.contains("linear: no rank"), "{other}");
    assert!(
        text.contains("pathfinder@32") && text.contains("lra data fetch image"),
        "{text}"
    );
    // A dry run plans, and leaves no folder of a run.
    let plan = place.lra(&format!(
        "mini local --glance --seeds 0 --out dry --dry-run {TINY}"
    ));
    let told = common::err(&plan);
    assert!(plan.status.success() && told.contains("plan "), "{told}");
    assert!(!place.path().join("dry").exists(), "{told}");
    // Without a model it prints the table, which has all models of the file.
    let ranks = place.ok("mini --table table.csv");
    assert!(ranks.contains("Ranks over all tasks"), "{ranks}");
    let first = ranks
        .lines()
        .find(|line| line.trim_start().starts_with("1 "));
    assert!(first.is_some_and(|line| line.contains(" bag ")), "{ranks}");
    let ranks: Value = serde_json::from_str(&place.ok("mini --json")).unwrap();
    let rows = ranks[0]["rows"].as_array().unwrap();
    assert!(rows.len() > 28, "{}", rows.len());
    place.fails(2, "mini nothing_of_that_name --glance");
}

/// An error about a table says what `--table` takes, and does not advise to train.
#[test]
fn a_table_that_is_none_is_told_with_what_is_one() {
    let place = Place::new();
    fs::create_dir(place.path().join("empty")).unwrap();
    fs::write(place.path().join("notes.txt"), "none\n").unwrap();
    fs::write(place.path().join("other.csv"), "model,rank\nbag,1\n").unwrap();
    for (table, told) in [
        ("missing", "cannot read missing: "),
        ("missing.csv", "cannot read missing.csv: "),
        ("empty", "no records under empty"),
        ("notes.txt", "neither a folder of runs nor a CSV file"),
        ("other.csv", "other.csv, line 1: not a run record"),
    ] {
        for words in ["mini", "mini linear --glance"] {
            let message = place.fails(3, &format!("{words} --table {table}"));
            assert!(
                message.contains(told)
                    && message.contains("--table takes a folder of runs by `lra mini`")
                    && !message.contains("`lra run`"),
                "{words} {table}: {message}"
            );
        }
    }
    assert!(!place.path().join("runs").exists());
}

#[test]
fn a_card_is_not_made_of_scores_that_have_changed() {
    let place = Place::new();
    let words = format!("mini bag --glance --seeds 0 --quiet {TINY}");
    let card = place.ok(&words);
    let again = place.lra(&words);
    let told = common::err(&again);
    assert!(told.contains("on file, the oldest since"), "{told}");
    let json: Value = serde_json::from_str(&place.ok(&format!("{words} --json"))).unwrap();
    let old = json[0]["on_file"].as_array().unwrap();
    assert!(!old.is_empty() && old[0]["created"].is_string(), "{json}");
    let mut records = fs::read_dir(place.path().join("runs")).unwrap();
    let record = records.next().unwrap().unwrap().path().join("record.json");
    let text = fs::read_to_string(&record).unwrap();
    let (before, after) = text.split_once("\"sources\": \"").unwrap();
    fs::write(
        &record,
        format!("{before}\"sources\": \"aaaa{}", &after[4..]),
    )
    .unwrap();
    for json in ["", " --json"] {
        let output = place.lra(&format!("{words}{json}"));
        assert_eq!(output.status.code(), Some(2));
        assert!(
            output.stdout.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        let told = common::err(&output);
        assert!(
            told.contains("another build")
                && told.contains("--redo-changed")
                && told.contains("--accept-changes"),
            "{told}"
        );
    }
    assert_eq!(place.ok(&format!("{words} --accept-changes")), card);
    place.ok(&format!("{words} --redo-changed"));
    place.ok(&words);
}

#[test]
fn a_whole_card_is_planned_and_says_what_the_block_adds() {
    let place = Place::new();
    let output = place.lra(&format!("mini lstm --seeds 0 {TINY}"));
    let told = common::err(&output);
    assert!(output.status.success(), "{told}");
    // Data that are not there are told before anything runs, with a remedy.
    let line = "left out   image: ";
    let at = told.find(line).unwrap_or_else(|| panic!("{told}"));
    assert!(told[at..].contains("lra data fetch image"), "{told}");
    assert!(at < told.find("plan ").unwrap(), "{told}");
    // Text and Retrieval have settings, and do not count.
    assert!(
        !told.contains("retrieval") && !told.contains("text"),
        "{told}"
    );
    for planned in [
        "plan       lstm: ",
        "           listops@64: 1 run, about ",
        "           learning rates: ",
        "           block of X-formers: 2 runs, about ",
    ] {
        assert!(told.contains(planned), "{planned}: {told}");
    }
    assert!(told.contains(" left"), "{told}");
    let card = String::from_utf8(output.stdout).unwrap();
    assert!(card.contains("block adds"), "{card}");
    assert!(!told.contains("stand-in"), "{told}");
    assert!(
        card.lines().all(|line| line.chars().count() <= 100),
        "{card}"
    );
}
