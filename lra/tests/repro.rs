//! `lra repro`: published cells and the requirements for reproducing them.

#![allow(clippy::unwrap_used)]

use crate::common::Place;
use serde_json::Value;

#[test]
fn cells_are_listed_cheapest_first_and_fit_the_terminal() {
    let place = Place::new();
    let table = place.ok("repro --list");
    assert!(
        table.lines().all(|line| line.chars().count() <= 100),
        "{table}"
    );
    // Each list measures its models, and this has fewer of them.
    let cells: Value = serde_json::from_str(&place.ok("repro tay2021 --list --json")).unwrap();
    let number = |it: &Value, key: &str| it[key].as_f64().unwrap();
    let cells = cells.as_array().unwrap();
    let seconds: Vec<f64> = cells
        .iter()
        .map(|it| number(it, "seconds_per_seed"))
        .collect();
    assert!(seconds.len() > 40 && seconds.is_sorted() && seconds[0] > 0.0);
    assert!(cells.iter().all(|it| number(it, "flops") > 0.0));
    assert!(cells.iter().any(|it| number(it, "differences") > 0.0));
    // A printed FAIL is no number, but a word.
    let printed = |it: &Value| it["published"].is_number() != it["missing"].is_string();
    assert!(cells.iter().all(printed));
    assert!(cells.iter().any(|it| it["missing"] == "FAIL"));
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "about hours",
        "a rough estimate",
        "are not offered: no recipe follows",
    ] {
        assert!(words.contains(part), "{part}: {table}");
    }
    // S4D shares the recipe of S4, and is a source of its own.
    let of_one: Value = serde_json::from_str(&place.ok("repro s4 --list --json")).unwrap();
    let of_one = of_one.as_array().unwrap();
    assert!(!of_one.is_empty());
    assert!(of_one.iter().all(|it| it["source"] == "s4"), "{of_one:?}");
}

#[test]
fn cells_that_are_not_offered_have_a_reason_each() {
    let place = Place::new();
    let table = place.ok("repro --unoffered mega");
    assert!(
        table.contains("recipe mega is made for other models")
            && table.lines().all(|line| line.chars().count() <= 100),
        "{table}"
    );
    let all: Value = serde_json::from_str(&place.ok("repro --unoffered --json")).unwrap();
    let all = all.as_array().unwrap();
    assert!(all.len() > 100 && all.iter().all(|it| it["reason"].is_string()));
    let message = place.fails(2, "repro mega text transformer");
    assert!(
        message.contains("recipe mega is made for other models") && message.contains("tay2021"),
        "{message}"
    );
}

#[test]
fn a_plan_takes_names_as_a_run_does() {
    let place = Place::new();
    let message = place.fails(2, "repro s4 imdb s4d");
    assert!(message.contains("did you mean 'text'?"), "{message}");
    let message = place.fails(2, "repro s4 text s4dd");
    assert!(message.contains("did you mean 's4d'?"), "{message}");
}

#[test]
fn a_plan_names_the_figure_the_differences_and_the_cost() {
    let place = Place::new();
    let plan = place.ok("repro nystromformer listops transformer --dry-run --threads 2");
    for part in [
        "published",
        "37.10 %",
        "recipe nystromformer",
        "protocol tay2021",
        "per seed",
        "two small steps",
    ] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    assert!(
        plan.lines().all(|line| line.chars().count() <= 100),
        "{plan}"
    );
    let plan = place.ok("repro s4 text s4d --dry-run --json --seeds 1..3");
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(
        (&plan["source"], &plan["key"], &plan["seeds"]),
        (
            &"s4d".into(),
            &"gu2022s4d".into(),
            &serde_json::json!([1, 2])
        )
    );
    assert_eq!(plan["trivial_percent"], 65.51);
    assert!(plan["memory_bytes"].is_number());
    let data = &plan["data"];
    assert_eq!(
        (&plan["data_source"], &data["state"]),
        (&"official".into(), &"not here".into())
    );
    assert!(
        data["command"].as_str().unwrap().contains("lra data"),
        "{data}"
    );
    assert!(!place.path().join("runs").exists(), "nothing was run");
}

#[test]
fn what_cannot_be_reproduced_is_said() {
    let place = Place::new();
    let message = place.fails(2, "repro");
    assert!(message.contains("repro --list"), "{message}");
    let message = place.fails(2, "repro s5 text performer");
    assert!(message.contains("tay2021"), "{message}");
    let message = place.fails(
        2,
        "repro nystromformer listops transformer --budget 1s --threads 2",
    );
    assert!(message.contains("more than the budget"), "{message}");
    let words = "repro nystromformer --budget 1s --dry-run --threads 2";
    let message = place.fails(2, words);
    assert!(
        message.contains("no cell that was measured fits into 1 s")
            && message.contains("left out: it would take")
            && message.contains("left out unmeasured"),
        "{message}"
    );
    // The source prints no such figure, or has no cell at all.
    let message = place.fails(2, "repro tay2021 toy performer");
    assert!(
        message.contains("tay2021 prints no accuracy of performer on toy"),
        "{message}"
    );
    let message = place.fails(2, "repro skyformer text skyformer");
    assert!(message.contains("--unoffered skyformer"), "{message}");
    let message = place.fails(2, "repro s4 --seeds 0..3");
    assert!(message.contains("--seeds is for one cell"), "{message}");
    // Missing files: the same error as that of a run.
    let message = place.fails(3, "repro s4 text s4d");
    assert!(message.contains("lra data"), "{message}");
}

/// A recipe that is not the first of its source has cells, and a recipe stands for the sources that
/// it follows.
#[test]
fn cells_are_listed_by_any_recipe() {
    let place = Place::new();
    let cells = |words: &str| -> Vec<Value> {
        let cells = place.ok(&format!("repro {words} --json"));
        serde_json::from_str(&cells).unwrap()
    };
    let paper = cells("tay2021 --recipe tay2021-paper");
    assert!(!paper.is_empty());
    assert!(paper.iter().all(|it| it["recipe"] == "tay2021-paper"));
    assert_eq!(cells("tay2021-paper").len(), paper.len());
}

#[test]
fn nothing_to_plan_is_an_error_with_the_reason() {
    let place = Place::new();
    for (words, reason) in [
        ("repro s5 --recipe mega", "recipe mega does not follow s5"),
        ("repro mini", "recipe mini follows no published source"),
        (
            "repro --list --recipe mini",
            "recipe mini follows no published source",
        ),
        ("repro external", "no cell to train"),
        ("repro external --budget 1h", "no cell to train"),
        ("repro megalodon --json", "no cell to train"),
    ] {
        let message = place.fails(2, words);
        assert!(message.contains(reason), "{words}: {message}");
    }
}
