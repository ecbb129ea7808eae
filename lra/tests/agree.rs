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
    let text = place.ok("agree");
    assert!(text.contains("rho") && text.contains("3 anchors"), "{text}");
    let tables: Value =
        serde_json::from_str(&place.ok("agree --format json --half tuning")).unwrap();
    assert!(tables.to_string().contains("\"auc\""), "{tables}");
    place.ok("merge runs --output all.csv");
    assert_eq!(
        place.ok("agree all.csv --by accuracy"),
        place.ok("agree runs --by accuracy")
    );
    let message = place.fails(2, "agree --recipe mini");
    assert!(message.contains("smoke"), "{message}");
    let message = place.fails(2, "agree --set train.steps=3");
    assert!(message.contains("train.steps=3"), "{message}");
    let message = place.fails(2, "agree --format html");
    assert!(message.contains("lra report"), "{message}");
    let message = place.fails(3, "agree --half sealed");
    assert!(message.contains("no anchor"), "{message}");
    place.fails(3, "agree missing.csv");
}
