//! Runs that start from the weights of another run.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::{Place, TINY, header_length};
use serde_json::Value;

/// Returns the bytes of the tensors of a safetensors file by name.
fn tensors(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let start = 8 + header_length(&bytes);
    let header: Value = serde_json::from_slice(&bytes[8..start]).unwrap();
    let entries = header.as_object().unwrap().iter();
    entries
        .filter(|(name, _)| *name != "__metadata__")
        .map(|(name, entry)| {
            let at = |end: usize| start + entry["data_offsets"][end].as_u64().unwrap() as usize;
            (name.clone(), bytes[at(0)..at(1)].to_vec())
        })
        .collect()
}

/// Returns the path of the only run under `out`, as an argument.
fn run_of(place: &Place, out: &str) -> String {
    place.run_folder(out).display().to_string()
}

/// A run on ListOps whose weights do not move.
const STILL: &str = "--set train.steps=1 --set train.learning_rate=0.0";

#[test]
fn a_run_starts_from_the_weights_of_another_task_and_lists_those_that_do_not_fit() {
    let place = Place::new();
    // The widths of the recipe on ListOps.
    let widths = "--set block.dim=32 --set block.mlp_dim=32 --set head.hidden=32";
    let source = format!("run --task toy --recipe smoke --quiet --steps 6 --model linear {widths}");
    place.ok(&format!("{source} --out best"));
    place.ok(&format!("{source} --set train.select=last --out last"));
    let without = format!("{TINY} --model linear {STILL}");
    place.ok(&format!("{without} --out none"));
    for out in ["best", "last"] {
        let run = run_of(&place, out);
        let to = format!("from_{out}");
        place.ok(&format!("{without} --from {run} --out {to}"));
        let record = place.record(&to);
        let from = &record["from"];
        assert_eq!(from["run"], place.record(out)["id"]);
        let fresh: Vec<&str> = from["fresh"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it.as_str().unwrap())
            .collect();
        assert!(fresh.iter().any(|it| it.starts_with("head.")), "{fresh:?}");
        assert!(
            fresh.iter().all(|it| it.contains(" here and ")),
            "{fresh:?}"
        );
        let [there, here, random] =
            [out, &to, "none"].map(|out| tensors(&place.run_folder(out).join("best.safetensors")));
        let mut taken = 0;
        for (name, value) in &here {
            let is_fresh = fresh.iter().any(|it| it.split(' ').next() == Some(name));
            let expected = if is_fresh { &random } else { &there };
            assert!(value == &expected[name], "{name} in {to}");
            taken += u64::from(!is_fresh);
        }
        assert_eq!(from["taken"].as_u64(), Some(taken));
        assert!(taken > 0);
        let digest = from["weights"].as_str().unwrap();
        let set = format!("from={}", &digest[..12]);
        let overrides = record["recipe"]["overrides"].as_array().unwrap();
        assert!(overrides.contains(&set.clone().into()), "{overrides:?}");
        let forbidden = record["model"]["rule_violation"].as_str().unwrap();
        assert!(forbidden.contains("weights of another run"), "{forbidden}");
        // The run from random weights has a row of its own.
        let table = place.ok("report . --table accuracy --format csv");
        let ours = |line: &&str| line.contains(",linear,") && line.contains("listops");
        let mut rows = table.lines().filter(ours);
        assert!(rows.clone().count() > 1, "{table}");
        let with = rows.clone().filter(|line| line.contains(&set)).count();
        assert_eq!(with, 1, "{table}");
        assert!(rows.any(|line| !line.contains("from=")), "{table}");
    }
    assert_ne!(place.record("none")["id"], place.record("from_best")["id"]);
    // The best and the last weights are the same ones after so few steps, or not; the digest tells.
    let digest = |out: &str| place.record(out)["from"]["weights"].clone();
    let weights = |out: &str| tensors(&place.run_folder(out).join("best.safetensors"));
    let same = weights("from_best") == weights("from_last");
    assert_eq!(digest("from_best") == digest("from_last"), same);
}

#[test]
fn a_start_that_cannot_be_is_refused_and_a_replay_asks_for_the_weights() {
    let place = Place::new();
    place.ok("run --task toy --recipe smoke --quiet --steps 2 --model bag --out bag");
    let run = run_of(&place, "bag");
    let toy = "run --task toy --recipe smoke --quiet --steps 2 --out from";
    let message = place.fails(2, &format!("{toy} --model linear --from {run}"));
    assert!(
        message.contains("its model is bag, not linear"),
        "{message}"
    );
    let wider = "--model bag --set block.dim=24 --set block.mlp_dim=20 --set head.hidden=9";
    let message = place.fails(2, &format!("{TINY} {wider} --from {run} --out from"));
    assert!(message.contains("no weight of that run"), "{message}");
    let message = place.fails(
        2,
        &format!("{toy} --model bag --pretrain masked --from {run}"),
    );
    assert!(message.contains("leave out one of them"), "{message}");
    let message = place.fails(2, &format!("{toy} --model bag --from nowhere"));
    assert!(message.contains("nowhere holds no run"), "{message}");
    assert!(!place.path().join("from").exists());

    place.ok(&format!("{toy} --model bag --from {run}"));
    let record = run_of(&place, "from");
    let message = place.fails(2, &format!("replay {record} --quiet"));
    assert!(message.contains("with --from RUN"), "{message}");
    let text = place.ok(&format!("replay {record} --from {run} --quiet"));
    assert!(text.contains("equal to the bit"), "{text}");
    let message = place.fails(2, &format!("replay {run} --from {run} --quiet"));
    assert!(message.contains("leave --from out"), "{message}");
    place.ok("run --task toy --recipe smoke --quiet --steps 3 --model bag --out other");
    let other = run_of(&place, "other");
    let message = place.fails(2, &format!("replay {record} --from {other} --quiet"));
    assert!(message.contains("--from has other weights"), "{message}");
}
