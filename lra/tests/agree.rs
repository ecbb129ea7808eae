//! `lra agree` on runs of anchors.

#![allow(clippy::unwrap_used)]

use crate::common::Place;
use serde_json::Value;

#[test]
fn runs_are_held_against_published_tables() {
    let place = Place::new();
    let models = "s4d,fnet,linear,bag";
    place.ok(&format!(
        "sweep --tasks toy --models {models} --recipe smoke --steps 2 --set data.train=64 --quiet"
    ));
    let text = place.ok("agree runs");
    assert!(text.contains("rho") && text.contains("3 anchors"), "{text}");
    let tables: Value =
        serde_json::from_str(&place.ok("agree runs --format json --half tuning")).unwrap();
    assert!(tables.to_string().contains("\"auc\""), "{tables}");
    place.ok("merge runs --output all.csv");
    assert_eq!(
        place.ok("agree all.csv --by accuracy"),
        place.ok("agree runs --by accuracy")
    );
    let message = place.fails(2, "agree runs --recipe mini");
    assert!(message.contains("smoke"), "{message}");
    let message = place.fails(2, "agree runs --set train.steps=3");
    assert!(message.contains("train.steps=3"), "{message}");
    let message = place.fails(2, "agree runs --format html");
    assert!(message.contains("lra report"), "{message}");
    let message = place.fails(3, "agree runs --half sealed");
    assert!(message.contains("no anchor"), "{message}");
    place.fails(3, "agree missing.csv");
    // Without a path: the table that the program has.
    let text = place.ok("agree");
    assert!(text.contains("AUC") && text.contains("tuning"), "{text}");
}
