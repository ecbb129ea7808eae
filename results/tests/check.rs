//! Regression checks: what got worse is caught, what did not is not.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;

use lra_results::check::{Baseline, Check, State, Thresholds, judge, junit, table};
use lra_results::metrics::{self, Line};
use lra_results::record::{Outcome, Record};
use lra_results::{Format, store};

/// Writes runs as `lra run` leaves them: a folder each, with a log whose losses hang on `loss`.
fn write(folder: &Path, records: &[Record], loss: f64) {
    for record in records {
        let run = folder.join(&record.id);
        std::fs::create_dir_all(&run).unwrap();
        store::write(&run.join(store::FILE), record).unwrap();
        let lines = (1..=3).map(|step| {
            let line = Line::Train {
                step,
                loss: loss / step as f64 + record.seed as f64,
                gradient_norm: 1.0,
                rate: 1e-3,
                examples: 8,
            };
            serde_json::to_string(&line).unwrap() + "\n"
        });
        std::fs::write(run.join(metrics::FILE), lines.collect::<String>()).unwrap();
    }
}

fn cells(records: &[Record], loss: f64) -> Baseline {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), records, loss);
    Baseline::of(&store::load(folder.path()).unwrap()).unwrap()
}

fn matrix() -> Vec<Record> {
    let models = ["transformer", "performer", "linear"];
    let runs = models
        .into_iter()
        .flat_map(|model| (0..3).map(move |seed| (model, seed)));
    runs.map(|(model, seed)| common::run(model, seed, 0.37 + seed as f64 * 0.002))
        .collect()
}

/// The matrix with every run of `performer` changed.
fn with(change: impl Fn(&mut Record)) -> Vec<Record> {
    let mut records = matrix();
    records
        .iter_mut()
        .filter(|record| record.model.name == "performer")
        .for_each(change);
    records
}

fn check(now: &Baseline) -> Check {
    judge(&cells(&matrix(), 2.5), now, &Thresholds::default())
}

fn states(check: &Check) -> Vec<(String, State)> {
    check
        .cells
        .iter()
        .map(|cell| (cell.key.model.clone(), cell.state))
        .collect()
}

/// Checks that `performer` alone regressed, and in the aspect of this place alone.
#[track_caller]
fn only(check: &Check, aspect: usize) {
    assert!(!check.passed());
    for cell in &check.cells {
        let regressed = cell.key.model == "performer";
        assert_eq!(cell.state == State::Regressed, regressed, "{cell:?}");
        if regressed {
            let worse = |finding: &_| matches!(finding, lra_results::check::Finding::Worse(_));
            let found: Vec<_> = cell.findings.iter().map(worse).collect();
            let expected: Vec<_> = (0..4).map(|place| place == aspect).collect();
            assert_eq!(found, expected, "{cell:?}");
        }
    }
}

#[test]
fn the_same_again_passes() {
    let again = check(&cells(&matrix(), 2.5));
    assert!(again.passed());
    assert!(
        states(&again)
            .iter()
            .all(|(_, state)| *state == State::Passed),
        "{again:?}"
    );
}

#[test]
fn a_lower_accuracy_is_caught_and_noise_is_not() {
    let lower = |by: f64| {
        check(&cells(
            &with(|run| run.scores.as_mut().unwrap().test_accuracy = Some(0.37 - by)),
            2.5,
        ))
    };
    only(&lower(0.05), 0);
    assert!(lower(0.003).passed());
}

#[test]
fn another_loss_is_caught_by_its_last_bit() {
    let mut now = cells(&matrix(), 2.5);
    let performer = now
        .rows
        .iter()
        .position(|row| row.key.model == "performer")
        .unwrap();
    now.rows[performer] = cells(&matrix(), 2.5 + 1e-15).rows[performer].clone();
    only(&check(&now), 1);
    // On another processor only the end is compared, with a tolerance.
    now.rows[performer].processor = "another".to_owned();
    assert!(check(&now).passed());
    now.rows[performer].loss = Some(2.0);
    only(&check(&now), 1);
}

#[test]
fn more_memory_is_caught() {
    let grown = |share: f64| {
        check(&cells(
            &with(|run| {
                let memory = run.memory.as_mut().unwrap();
                memory.peak_bytes = (memory.peak_bytes as f64 * (1.0 + share)) as u64;
            }),
            2.5,
        ))
    };
    only(&grown(0.02), 2);
    assert!(grown(0.005).passed());
    assert!(
        states(&grown(-0.1))
            .iter()
            .any(|(_, state)| *state == State::Improved)
    );
}

#[test]
fn a_slowdown_is_caught_only_where_the_reference_did_not_slow_down_too() {
    let slowed = |run: &mut Record, factor: f64| {
        let rate = &mut run.speed.as_mut().unwrap().steps_per_second;
        (rate.median, rate.p10, rate.p90) =
            (rate.median / factor, rate.p10 / factor, rate.p90 / factor);
    };
    only(&check(&cells(&with(|run| slowed(run, 2.0)), 2.5)), 3);
    assert!(check(&cells(&with(|run| slowed(run, 1.1)), 2.5)).passed());
    let mut all = matrix();
    all.iter_mut().for_each(|run| slowed(run, 3.0));
    assert!(check(&cells(&all, 2.5)).passed());
}

#[test]
fn missing_new_failed_and_changed_cells() {
    let mut now = matrix();
    now.retain(|run| run.model.name != "linear");
    now.push(common::run("bag", 0, 0.2));
    let found = check(&cells(&now, 2.5));
    assert!(!found.passed());
    let of = |check: &Check, model: &str| {
        states(check)
            .into_iter()
            .find(|(name, _)| name == model)
            .unwrap()
            .1
    };
    assert_eq!(
        (of(&found, "linear"), of(&found, "bag")),
        (State::Missing, State::New)
    );

    let failed = Outcome::Failed {
        reason: "it broke".to_owned(),
    };
    let found = check(&cells(&with(|run| run.outcome = failed.clone()), 2.5));
    assert_eq!(of(&found, "performer"), State::Regressed);
    let found = check(&cells(
        &with(|run| run.task.data_digest = "other".to_owned()),
        2.5,
    ));
    assert_eq!(of(&found, "performer"), State::Regressed);
    let mut fewer = matrix();
    fewer.retain(|run| run.model.name != "performer" || run.seed == 0);
    assert_eq!(
        of(&check(&cells(&fewer, 2.5)), "performer"),
        State::Regressed
    );
    assert!(
        !judge(
            &Baseline::default(),
            &cells(&matrix(), 2.5),
            &Thresholds::default()
        )
        .passed()
    );
}

#[test]
fn a_baseline_survives_its_file_and_a_damaged_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("smoke.csv");
    let baseline = cells(&common::dozen(), 2.5);
    baseline.write(&path).unwrap();
    assert_eq!(Baseline::read(&path).unwrap(), baseline);
    let text = std::fs::read_to_string(&path).unwrap();
    for (damaged, expected) in [
        (text.replacen("task,", "tusk,", 1), "its first line is not"),
        (text.replacen(",2000,", ",many,", 1), "line: 2"),
        (text.replacen(",cpu,", ",", 1), "line: 2"),
        (String::new(), "its first line is not"),
    ] {
        std::fs::write(&path, damaged).unwrap();
        let error = Baseline::read(&path).unwrap_err().to_string();
        assert!(
            error.contains("smoke.csv") && error.contains(expected),
            "{error}"
        );
    }
}

#[test]
fn what_people_and_servers_read() {
    let mut now = with(|run| run.memory.as_mut().unwrap().peak_bytes *= 2);
    now.retain(|run| run.model.name != "linear");
    let found = check(&cells(&now, 2.5));
    let text = Format::Text.render(&[table(&found)]);
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    insta::assert_snapshot!(Format::Markdown.render(&[table(&found)]));
    insta::assert_snapshot!(junit(&found));
}
