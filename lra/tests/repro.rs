//! `lra repro`: published cells and what it takes to reproduce them.

#![allow(clippy::unwrap_used)]

mod common;

use common::Place;
use serde_json::Value;

#[test]
fn cells_are_listed_cheapest_first_and_fit_the_terminal() {
    let place = Place::new();
    let table = place.ok("repro --list");
    assert!(
        table.lines().all(|line| line.chars().count() <= 100),
        "{table}"
    );
    let cells: Value = serde_json::from_str(&place.ok("repro --list --json")).unwrap();
    let flops: Vec<f64> = cells
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["flops"].as_f64().unwrap())
        .collect();
    assert!(flops.len() > 100 && flops.is_sorted());
    let of_one = place.ok("repro --list s4");
    assert!(
        of_one.contains("s4d") && !of_one.contains("performer"),
        "{of_one}"
    );
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
        (&plan["source"], &plan["seeds"]),
        (&"gu2022s4d".into(), &serde_json::json!([1, 2]))
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
    let message = place.fails(2, "repro nystromformer --budget 1s --dry-run --threads 2");
    assert!(message.contains("no cell fits into 1 s"), "{message}");
    // Files that nobody has brought: the same error as that of a run.
    let message = place.fails(3, "repro s4 text s4d");
    assert!(message.contains("lra data"), "{message}");
}
