//! Models that are compared with PyTorch.

#![allow(clippy::unwrap_used)]

use models::{MODELS, Reference};

const PEERS: &str = concat!(
    include_str!("../benches/peers/eager.py"),
    include_str!("../benches/peers/packages.py"),
    include_str!("../benches/peers/hugging_face.py"),
    include_str!("../benches/peers/state_spaces.py"),
);
const REASONS: &str = include_str!("../benches/peers/compare.py");

/// Returns the names of models that have a peer, without options.
fn peers() -> Vec<&'static str> {
    let marks = PEERS
        .lines()
        .filter_map(|line| line.strip_prefix("@peer(\""));
    marks
        .map(|rest| rest.split(['"', ':']).next().unwrap())
        .collect()
}

/// Returns the names of models that have no peer, with a reason.
fn without() -> Vec<&'static str> {
    let (_, rest) = REASONS.split_once("\nWITHOUT = {").unwrap();
    let (entries, _) = rest.split_once('}').unwrap();
    let names = entries
        .lines()
        .filter_map(|line| line.strip_prefix("    \""));
    names.map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
fn what_is_held_against_a_package_stands_beside_it_or_says_why_not() {
    for model in MODELS {
        let (peer, reason) = (
            peers().contains(&model.name),
            without().contains(&model.name),
        );
        assert!(
            !(peer && reason),
            "{}: a peer, and why it has none",
            model.name
        );
        if model.reference == Reference::Package {
            assert!(
                peer || reason,
                "{}: neither `@peer` in lra/benches/peers nor a reason in WITHOUT of compare.py",
                model.name
            );
        }
    }
}

#[test]
fn peers_and_reasons_are_of_models_that_there_are() {
    for name in peers().into_iter().chain(without()) {
        assert!(MODELS.iter().any(|model| model.name == name), "{name}");
    }
    assert!(peers().len() > 20);
}
