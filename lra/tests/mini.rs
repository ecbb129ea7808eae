//! `lra mini`: score cards of the small protocol.

#![allow(clippy::unwrap_used)]

use crate::common::Place;
use serde_json::Value;

/// Assignments that make every generated task tiny.
const TINY: &str = "--set train.steps=2 --set train.warmup=1 --set train.eval_every=1 --set train.eval_examples=20 \
                    --set data.train=64 --set data.val=20 --set data.test=20";

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
    assert!(left_out.iter().any(|it| it["task"] == "text"), "{card}");

    // Runs on file are not repeated.
    let again = place.ok(&format!(
        "mini linear --glance --seeds 0 --table table.csv {TINY}"
    ));
    assert!(again.contains("linear: rank"), "{again}");
    place.fails(2, "mini");
    place.fails(2, "mini nothing_of_that_name --glance");
}
