//! Regression checks: what got worse is caught, what did not is not.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use crate::common;
use lra_results::check::{
    Aspect, Baseline, Check, Finding, Judged, Row, State, Thresholds, judge, junit, table,
};
use lra_results::metrics::{self, Line};
use lra_results::record::{Dense, DenseGroup, Outcome, Record};
use lra_results::{Format, store};

/// Writes runs as `lra run` leaves them: a folder each, with a log whose losses hang on `loss` up
/// to the last ones, which the record has, with norms of gradients of 1.
fn write(folder: &Path, records: &[Record], loss: f64) {
    write_logs(folder, records, loss, 1.0);
}

fn write_logs(folder: &Path, records: &[Record], loss: f64, norm: f64) {
    for record in records {
        let run = folder.join(&record.id);
        std::fs::create_dir_all(&run).unwrap();
        store::write(&run.join(store::FILE), record).unwrap();
        let steps = record
            .scores
            .as_ref()
            .map_or(3, |scores| scores.steps.max(3)) as usize;
        let every = steps.div_ceil(3);
        let recorded = record.scores.clone().unwrap_or_default();
        let trained = (1..=3).map(|third| {
            let line = Line::Train {
                step: (every * third).min(steps),
                loss: match (third, recorded.train_loss) {
                    (3, Some(last)) => last,
                    _ => loss / third as f64 + record.seed as f64,
                },
                aux: std::collections::BTreeMap::new(),
                weighted_loss: None,
                gradient_norm: norm,
                learning_rate: 1e-3,
                examples: 8,
            };
            serde_json::to_string(&line).unwrap() + "\n"
        });
        let evaluations = record.scores.as_ref().map_or(0, |it| it.evaluations) as usize;
        let scored = (1..=evaluations).map(|evaluation| {
            let line = Line::Validation {
                step: steps * evaluation / evaluations,
                loss: match (evaluation == evaluations, recorded.val_loss) {
                    (true, Some(last)) => last,
                    _ => loss,
                },
                accuracy: 0.3,
                examples: 40,
                dense: None,
            };
            serde_json::to_string(&line).unwrap() + "\n"
        });
        let lines: String = trained.chain(scored).collect();
        std::fs::write(run.join(metrics::FILE), lines).unwrap();
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

/// Returns the matrix with every run of `performer` changed.
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

/// Checks that `performer` alone regressed, and in this aspect alone.
#[track_caller]
fn only(check: &Check, aspect: Aspect) {
    assert!(!check.passed());
    for cell in &check.cells {
        let regressed = cell.key.model == "performer";
        assert_eq!(cell.state == State::Regressed, regressed, "{cell:?}");
        if regressed {
            let worse = |finding: &_| matches!(finding, Finding::Worse(_));
            let found: Vec<_> = cell.findings.iter().map(worse).collect();
            let expected: Vec<_> = (0..Aspect::ALL.len())
                .map(|place| Aspect::ALL[place] == aspect)
                .collect();
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
fn a_cell_that_ran_with_other_settings_is_missing_and_the_remark_says_so() {
    let now = with(|run| run.recipe.overrides = vec!["train.learning_rate=5e-3".to_owned()]);
    let found = check(&cells(&now, 2.5));
    let missing = found.cells.iter().find(|it| it.state == State::Missing);
    let remark = missing.unwrap().remark.clone().unwrap();
    assert!(
        remark.contains("with --set train.learning_rate=5e-3"),
        "{remark}"
    );
}

#[test]
fn outcomes_count_in_both_directions() {
    let diverged = with(|run| {
        run.outcome = Outcome::Diverged {
            step: 3,
            reason: String::new(),
        };
        run.scores = None;
    });
    let (good, bad) = (cells(&matrix(), 2.5), cells(&diverged, 2.5));
    let verdict = |before: &Baseline, now: &Baseline| {
        let judged = judge(before, now, &Thresholds::default());
        let cell = judged.cells.iter().find(|it| it.key.model == "performer");
        let cell = cell.unwrap().clone();
        (cell.state, cell.remark.unwrap())
    };
    let (state, remark) = verdict(&good, &bad);
    assert_eq!(state, State::Regressed);
    assert!(
        remark.starts_with("ended: diverged; in the baseline: scored"),
        "{remark}"
    );
    assert_eq!(verdict(&bad, &good).0, State::Improved);
    let (state, remark) = verdict(&Baseline::default(), &bad);
    assert_eq!(state, State::New);
    assert!(remark.contains("ended as diverged"), "{remark}");
}

#[test]
fn speeds_may_be_left_out() {
    let slow = with(|run| run.speed.as_mut().unwrap().steps_per_second.median /= 9.0);
    let judged = |speed: Option<f64>| {
        let thresholds = Thresholds {
            speed,
            ..Thresholds::default()
        };
        judge(&cells(&matrix(), 2.5), &cells(&slow, 2.5), &thresholds)
    };
    only(&judged(Some(0.25)), Aspect::Speed);
    let found = judged(None);
    assert!(found.passed());
    let text = Format::Text.render(&[table(&found)]);
    assert!(!text.contains("standard errors"), "{text}");
}

/// The steps of a run vary little, and the next run finds the machine under another load.
#[test]
fn a_speed_is_as_uncertain_as_its_seeds_differ() {
    let spread = |factor: f64| {
        let mut records = matrix();
        for run in &mut records {
            let rate = &mut run.speed.as_mut().unwrap().steps_per_second;
            let scale = if run.seed == 0 { factor } else { 1.0 };
            (rate.median, rate.p10, rate.p90) =
                (rate.median * scale, rate.p10 * scale, rate.p90 * scale);
        }
        cells(&records, 2.5).rows[0].speed_error.unwrap()
    };
    assert!(spread(1.0) < 0.1, "{}", spread(1.0));
    assert!(spread(9.0) > 0.5, "{}", spread(9.0));
}

#[test]
fn a_lower_accuracy_is_caught_and_noise_is_not() {
    // Sums are rounded otherwise on another instruction set.
    let lower = |by: f64| {
        let mut records = with(|run| run.scores.as_mut().unwrap().test_accuracy = Some(0.37 - by));
        for run in &mut records {
            run.provenance.host.instructions = "AVX2".to_owned();
        }
        check(&cells(&records, 2.5 + 1e-15))
    };
    only(&lower(0.05), Aspect::Accuracy);
    assert!(lower(0.003).passed());
}

/// With the same losses at every step, another score is one of another evaluation: it fails the
/// check with any number of seeds, and also if it is better.
#[test]
fn another_score_of_the_same_training_is_caught() {
    type Change = fn(&mut Record);
    let changes: [Change; 6] = [
        |run| run.scores.as_mut().unwrap().test_accuracy = Some(0.369),
        |run| run.scores.as_mut().unwrap().test_accuracy = Some(0.5),
        |run| {
            let loss = &mut run.scores.as_mut().unwrap().test_loss;
            *loss = loss.map(|it| it * (1.0 + 1e-9));
        },
        |run| {
            // The mean over the seeds stays.
            let accuracy = &mut run.scores.as_mut().unwrap().test_accuracy;
            *accuracy = Some(0.376 - 0.002 * (run.seed as f64 + 1.0));
        },
        |run| run.scores.as_mut().unwrap().bits_gained = Some(0.125),
        |run| run.scores.as_mut().unwrap().best_step = Some(200),
    ];
    for change in changes {
        let found = check(&cells(&with(change), 2.5));
        only(&found, Aspect::Accuracy);
        let text = Format::Text.render(&[table(&found)]);
        assert!(text.contains("(other scores)"), "{text}");
        assert!(text.contains("so the evaluation"), "{text}");
    }
    // Other vector instructions round otherwise: the last bits of a score say nothing there, and
    // accuracies are judged like those of other trainings.
    for change in changes {
        let mut records = with(change);
        for run in &mut records {
            run.provenance.host.instructions = "AVX2".to_owned();
        }
        let found = check(&cells(&records, 2.5));
        let text = Format::Text.render(&[table(&found)]);
        assert!(!text.contains("(other scores)"), "{text}");
    }
    // A baseline of an older version has no digests of all scores.
    let mut older = cells(&matrix(), 2.5);
    for row in &mut older.rows {
        row.scores.clear();
        row.further_scores.clear();
    }
    let loss = cells(&with(changes[2]), 2.5);
    assert!(judge(&older, &loss, &Thresholds::default()).passed());
    let accuracy = cells(&with(changes[0]), 2.5);
    only(
        &judge(&older, &accuracy, &Thresholds::default()),
        Aspect::Accuracy,
    );
}

/// The scores of labels at positions count with those of whole sequences, each group's too.
#[test]
fn another_score_of_a_group_of_labels_is_caught() {
    let cells_of = |change: fn(&mut Dense)| {
        let records = with(|run| {
            let mut dense = Dense {
                labels: 8,
                accuracy: 0.5,
                loss: 0.7,
                weighted_accuracy: 0.4,
                weighted_loss: 0.9,
                groups: vec![DenseGroup {
                    name: "depth 2".to_owned(),
                    labels: 8,
                    accuracy: 0.5,
                    loss: 0.7,
                    majority: Some(0.25),
                }],
            };
            change(&mut dense);
            run.scores.as_mut().unwrap().test_dense = Some(dense);
        });
        cells(&records, 2.5)
    };
    let before = cells_of(|_| {});
    let changes: [fn(&mut Dense); 5] = [
        |dense| dense.weighted_accuracy = 0.45,
        |dense| dense.weighted_loss = 0.95,
        |dense| dense.groups[0].accuracy = 0.375,
        |dense| dense.groups[0].loss = 0.8,
        |dense| dense.groups[0].majority = Some(0.5),
    ];
    for change in changes {
        let now = cells_of(change);
        only(
            &judge(&before, &now, &Thresholds::default()),
            Aspect::Accuracy,
        );
    }
}

/// Two runs of one specification and seed that differ stand for no cell.
#[test]
fn runs_that_contradict_each_other_are_told() {
    let folder = tempfile::tempdir().unwrap();
    for (place, accuracy) in [("one", 0.37), ("other", 0.2)] {
        let mut records = matrix();
        records.truncate(1);
        records[0].scores.as_mut().unwrap().test_accuracy = Some(accuracy);
        write(&folder.path().join(place), &records, 2.5);
    }
    let cells = Baseline::of(&store::load(folder.path()).unwrap()).unwrap();
    let reason = cells.rows[0].damaged.as_ref().unwrap();
    assert!(reason.contains("differ in scores"), "{reason}");
}

/// An assignment that repeats the recipe makes no cell of its own.
#[test]
fn what_repeats_the_recipe_is_no_change() {
    let repeating = |run: &mut Record| {
        run.recipe.overrides = vec!["train.learning_rate=1e-3".to_owned()];
        run.recipe.repeated = run.recipe.overrides.clone();
    };
    assert!(check(&cells(&with(repeating), 2.5)).passed());
}

/// An empty baseline fails, in words and for servers.
#[test]
fn an_empty_baseline_says_why_it_fails() {
    let found = judge(
        &Baseline::default(),
        &cells(&matrix(), 2.5),
        &Thresholds::default(),
    );
    assert!(!found.passed());
    let text = Format::Text.render(&[table(&found)]);
    assert!(
        text.contains("FAILED because the baseline has no cell"),
        "{text}"
    );
    let xml = junit(&found);
    assert!(
        xml.contains("failures=\"1\"") && xml.contains("<failure"),
        "{xml}"
    );
}

/// A new cell that did not end well is named.
#[test]
fn a_new_cell_that_diverged_is_told() {
    let mut baseline = cells(&matrix(), 2.5);
    baseline.rows.retain(|row| row.key.model != "performer");
    let diverged = with(|run| {
        run.outcome = Outcome::Diverged {
            step: 3,
            reason: "NaN".to_owned(),
        };
        run.scores = None;
    });
    let found = judge(&baseline, &cells(&diverged, 2.5), &Thresholds::default());
    let text = Format::Text.render(&[table(&found)]);
    assert!(
        text.contains("performer on listops: not in the baseline; ended as diverged"),
        "{text}"
    );
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
    only(&check(&now), Aspect::Loss);
    // On other instructions only the end is compared, with a tolerance.
    now.rows[performer].instructions = "AVX2".to_owned();
    assert!(check(&now).passed());
    now.rows[performer].loss = Some(2.0);
    only(&check(&now), Aspect::Loss);
}

#[test]
fn bits_hang_on_the_instruction_set_and_not_on_the_processors_name() {
    let elsewhere = |instructions: &str, loss: f64| {
        let move_to = |run: &mut Record| {
            run.provenance.host.cpu = "Intel Xeon".to_owned();
            run.provenance.host.instructions = instructions.to_owned();
        };
        let mut moved = matrix();
        moved.iter_mut().for_each(move_to);
        check(&cells(&moved, loss))
    };
    assert!(elsewhere("AVX-512", 2.5).passed());
    assert!(!elsewhere("AVX-512", 2.5 + 1e-15).passed());
    assert!(elsewhere("AVX2", 2.5 + 1e-15).passed());
    // Nothing is known of it: that is no equality.
    assert!(elsewhere("", 2.5 + 1e-15).passed());
}

/// Adam divides the scale of gradients out: losses may be the same.
#[test]
fn other_gradients_are_caught_where_losses_are_the_same() {
    let scaled = |norm: f64, instructions: &str| {
        let folder = tempfile::tempdir().unwrap();
        let mut records = matrix();
        for run in &mut records {
            run.provenance.host.instructions = instructions.to_owned();
        }
        write(folder.path(), &records, 2.5);
        records.retain(|run| run.model.name == "performer");
        write_logs(folder.path(), &records, 2.5, norm);
        check(&Baseline::of(&store::load(folder.path()).unwrap()).unwrap())
    };
    assert!(scaled(1.0, "AVX-512").passed());
    only(&scaled(1.0 + 1e-15, "AVX-512"), Aspect::Gradient);
    assert!(scaled(1.0 + 1e-3, "AVX2").passed());
    only(&scaled(2.0, "AVX2"), Aspect::Gradient);
}

#[test]
fn a_measurement_that_is_gone_is_a_failure() {
    type Take = fn(&mut Record);
    let gone: [(Take, Aspect); 3] = [
        (|run| run.memory = None, Aspect::Memory),
        (|run| run.speed = None, Aspect::Speed),
        (
            |run| run.speed.as_mut().unwrap().steps_per_second.median = f64::NAN,
            Aspect::Speed,
        ),
    ];
    for (take, aspect) in gone {
        only(&check(&cells(&with(take), 2.5)), aspect);
        // The change is to one seed only: the other seeds do not make up for it.
        let one = with(|run| {
            if run.seed == 1 {
                take(run);
            }
        });
        only(&check(&cells(&one, 2.5)), aspect);
    }
    let scores: [Take; 2] = [
        |run| run.scores = None,
        |run| run.scores.as_mut().unwrap().test_accuracy = None,
    ];
    for take in scores {
        assert!(!check(&cells(&with(take), 2.5)).passed());
    }

    for log in [None, Some("")] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &matrix(), 2.5);
        let path = folder
            .path()
            .join("listops-performer-1")
            .join(metrics::FILE);
        match log {
            None => std::fs::remove_file(path).unwrap(),
            Some(text) => std::fs::write(path, text).unwrap(),
        }
        let found = check(&Baseline::of(&store::load(folder.path()).unwrap()).unwrap());
        let text = Format::Text.render(&[table(&found)]);
        assert!(!found.passed(), "{text}");
        match log {
            None => assert_eq!(text.matches("! missing").count(), 2, "{text}"),
            Some(_) => assert!(text.contains("holds no training step"), "{text}"),
        }
    }
}

/// A log that is well-formed and yet not the whole log of the run.
#[test]
fn a_log_cut_between_lines_is_told_and_no_baseline() {
    type Change = fn(&[&str]) -> String;
    let changes: [(Change, &str); 11] = [
        (
            |lines| {
                let accuracy =
                    r#"{"event":"validation","step":5000,"loss":1.0,"accuracy":7.0,"examples":8}"#;
                [lines, &[accuracy]].concat().join("\n")
            },
            "the accuracy at step 5000 is not between 0 and 1: 7",
        ),
        (
            |lines| lines[..2].join("\n"),
            "line 2: not a line of a run's log: the log ends at step 3334, although the record has 5,000 steps",
        ),
        (
            |lines| [lines, lines].concat().join("\n"),
            "step 1667 stands after step 5000",
        ),
        (
            |lines| [&lines[..1], &lines[2..]].concat().join("\n"),
            "line 2: not a line of a run's log: the training line of step 3334 is missing",
        ),
        (
            |lines| lines[1..].join("\n"),
            "line 1: not a line of a run's log: the training line of step 1667 is missing",
        ),
        (
            |lines| [&lines[..4], &lines[6..]].concat().join("\n"),
            "the validation lines of steps 400 to 600 are missing, one every 200 steps",
        ),
        (
            |lines| lines[..3].join("\n"),
            "the validation lines of steps 200 to 5000 are missing, one every 200 steps",
        ),
        (
            |lines| lines[..27].join("\n"),
            "the validation line of step 5000 is missing",
        ),
        (
            |lines| {
                lines
                    .join("\n")
                    .replacen("\"gradient_norm\":1.0", "\"gradient_norm\":null", 1)
            },
            "line 1: not a line of a run's log: the norm of the gradient at step 1667 is not a possible norm: NaN",
        ),
        (
            |lines| {
                lines
                    .join("\n")
                    .replacen("\"accuracy\":0.3", "\"accuracy\":null", 1)
            },
            "the accuracy at step 200 is not between 0 and 1: NaN",
        ),
        (
            |lines| lines.join("\n").replacen("\"loss\":", "\"loss\":-", 1),
            "is not a possible loss",
        ),
    ];
    for (change, reason) in changes {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &matrix(), 2.5);
        let path = folder
            .path()
            .join("listops-performer-1")
            .join(metrics::FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let spec = "[train]\nlog_every = 1667\neval_every = 200\n";
        std::fs::write(path.with_file_name("spec.toml"), spec).unwrap();
        std::fs::write(path, change(&lines)).unwrap();
        let now = Baseline::of(&store::load(folder.path()).unwrap()).unwrap();
        let damaged = now.rows.iter().find_map(|row| row.damaged.clone());
        assert!(damaged.unwrap().contains(reason), "{reason}");
        assert!(!check(&now).passed());
    }
}

/// It is as long as the own one, and has its steps.
#[test]
fn a_log_of_another_run_is_told_and_is_in_no_baseline() {
    for (own, other, reason) in [
        (
            "1.69",
            "1.71",
            "no validation has the loss of the record, 1.69",
        ),
        (
            "1.72",
            "1.75",
            "its last training loss is 1.75, that of the record 1.72",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &matrix(), 2.5);
        let log = folder.path().join("listops-linear-0").join(metrics::FILE);
        let text = std::fs::read_to_string(&log).unwrap();
        std::fs::write(&log, text.replace(own, other)).unwrap();
        let now = Baseline::of(&store::load(folder.path()).unwrap()).unwrap();
        let damaged = now.rows.iter().find_map(|row| row.damaged.clone());
        let damaged = damaged.unwrap();
        assert!(damaged.contains("the log of another run") && damaged.contains(reason));
        assert!(!check(&now).passed());
    }
}

/// Records may be kept without their settings.
#[test]
fn a_log_without_settings_is_held_against_itself_and_its_record() {
    type Change = fn(&[&str]) -> String;
    let changes: [(Change, &str); 3] = [
        (
            |lines| [&lines[..2], &lines[4..]].concat().join("\n"),
            "the training lines of steps 1500 to 2000 are missing, one every 500 steps",
        ),
        (
            |lines| lines[3..].join("\n"),
            "the training lines of steps 500 to 1500 are missing, one every 500 steps",
        ),
        (
            |lines| lines[..12].join("\n"),
            "it has 2 validations, the record 25",
        ),
    ];
    for (change, reason) in changes {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &matrix(), 2.5);
        let path = folder.path().join("listops-linear-0").join(metrics::FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let trained = (1..=10).map(|step| lines[2].replace("5000", &(step * 500).to_string()));
        let whole: Vec<String> = trained
            .chain(lines[3..].iter().map(|&line| line.to_owned()))
            .collect();
        let whole: Vec<&str> = whole.iter().map(String::as_str).collect();
        let damaged = |text: String| {
            std::fs::write(&path, text).unwrap();
            let now = Baseline::of(&store::load(folder.path()).unwrap()).unwrap();
            now.rows.iter().find_map(|row| row.damaged.clone())
        };
        assert_eq!(damaged(whole.join("\n")), None);
        let found = damaged(change(&whole)).unwrap();
        assert!(found.contains(reason), "{found}");
    }
}

/// Only the last losses of such runs are compared, and the row says so.
#[test]
fn a_missing_log_is_told_on_either_side() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &matrix(), 2.5);
    let log = folder.path().join("listops-linear-0").join(metrics::FILE);
    std::fs::remove_file(&log).unwrap();
    let without = Baseline::of(&store::load(folder.path()).unwrap()).unwrap();
    let told: Vec<&String> = without
        .rows
        .iter()
        .filter_map(|row| row.unlogged.as_ref())
        .collect();
    assert_eq!(told, [&format!("{} is missing", log.display())]);
    for now in [&without, &cells(&matrix(), 3.5)] {
        let found = judge(&without, now, &Thresholds::default());
        let text = Format::Text.render(&[table(&found)]);
        assert!(text.contains("1.720000 (last only)"), "{text}");
        assert!(
            text.contains("losses on the way were not compared"),
            "{text}"
        );
    }
    let whole = check(&cells(&matrix(), 2.5));
    assert!(!Format::Text.render(&[table(&whole)]).contains("last only"));
}

/// A reference that ran several at a time, or elsewhere, says nothing of the speed of the others.
#[test]
fn the_reference_must_have_run_under_the_same_conditions() {
    let runs = matrix();
    let sound = cells(&runs, 2.5);
    for change in [
        |row: &mut Row| row.jobs = Some(8),
        |row: &mut Row| row.threads = 16,
        |row: &mut Row| row.instructions = "AVX2".to_owned(),
    ] {
        let mut before = sound.clone();
        let reference = before
            .rows
            .iter_mut()
            .find(|row| row.key.model == "transformer");
        let reference = reference.unwrap();
        change(reference);
        reference.steps_per_second = reference.steps_per_second.map(|speed| speed / 3.0);
        let found = judge(&before, &sound, &Thresholds::default());
        let cell = found.cells.iter().find(|cell| cell.key.model == "linear");
        let words = format!("{:?}", cell.unwrap().findings);
        assert!(words.contains("ran under other conditions"), "{words}");
        assert!(found.passed());
    }
}

#[test]
fn the_reference_must_have_been_timed_too() {
    let mut now = matrix();
    for run in now.iter_mut().filter(|run| run.model.name == "transformer") {
        run.speed = None;
    }
    assert!(!check(&cells(&now, 2.5)).passed());
}

#[test]
fn other_settings_or_another_size_are_another_cell() {
    let remark = |change: fn(&mut Record)| {
        let found = check(&cells(&with(change), 2.5));
        assert!(!found.passed());
        let cell = found
            .cells
            .iter()
            .find(|cell| cell.key.model == "performer");
        let cell = cell.unwrap();
        (cell.state, cell.remark.clone().unwrap())
    };
    let (state, text) = remark(|run| run.model.parameters += 1);
    assert_eq!(state, State::Regressed);
    assert_eq!(text, "has 104,587 parameters, the baseline 104,586");
    let (state, text) = remark(|run| run.provenance.spec_digest = "1".repeat(64));
    assert_eq!(state, State::Changed);
    assert!(
        text.starts_with("ran with settings 1111111111111111 "),
        "{text}"
    );
    let (_, text) = remark(|run| run.provenance.spec_digest.clear());
    assert!(text.contains("do not say with which settings"), "{text}");
}

/// Baselines of before these columns existed are read, and what the columns hold is not judged.
#[test]
fn an_older_baseline_is_read_and_judges_what_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.csv");
    cells(&matrix(), 2.5).write(&path).unwrap();
    let mut reader = csv::Reader::from_path(&path).unwrap();
    let head = reader.headers().unwrap().clone();
    let lines = std::iter::once(head).chain(reader.records().map(Result::unwrap));
    let mut old = csv::Writer::from_writer(vec![]);
    for line in lines.collect::<Vec<_>>() {
        old.write_record(line.iter().take(23)).unwrap();
    }
    let old = old.into_inner().unwrap();
    assert!(old.starts_with(b"task,") && !String::from_utf8_lossy(&old).contains("instructions"));
    std::fs::write(&path, old).unwrap();
    let old = Baseline::read(&path).unwrap();
    let found = judge(&old, &cells(&matrix(), 2.5), &Thresholds::default());
    assert!(found.passed(), "{found:?}");
    let gradient = &found.cells[0].findings[2];
    assert_eq!(
        *gradient,
        Finding::Unjudged("not in the baseline".to_owned())
    );
    // The values it has are compared with the runs as ever.
    let hungry = with(|run| run.memory.as_mut().unwrap().peak_bytes *= 2);
    let found = judge(&old, &cells(&hungry, 2.5), &Thresholds::default());
    only(&found, Aspect::Memory);
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
    only(&grown(0.02), Aspect::Memory);
    assert!(grown(0.005).passed());
    // Equal runs of small models differ by some kilobytes.
    let of = |bytes: u64| {
        cells(
            &with(|run| run.memory.as_mut().unwrap().peak_bytes = bytes),
            2.5,
        )
    };
    let judged = |before, now| judge(&of(before), &of(now), &Thresholds::default());
    assert!(judged(466_000, 473_000).passed());
    only(&judged(466_000, 499_000), Aspect::Memory);
    assert!(
        states(&grown(-0.1))
            .iter()
            .any(|(_, state)| *state == State::Improved)
    );
}

#[test]
fn memory_of_another_processor_thread_count_or_method_is_not_judged() {
    let twice = with(|run| run.memory.as_mut().unwrap().peak_bytes *= 2);
    only(&check(&cells(&twice, 2.5)), Aspect::Memory);
    let place = Aspect::ALL
        .iter()
        .position(|aspect| *aspect == Aspect::Memory);
    let changes: [fn(&mut Row); 4] = [
        |row| row.processor = "another".to_owned(),
        |row| row.instructions = "AVX2".to_owned(),
        |row| row.threads += 1,
        |row| row.memory_method = "live heap bytes, counting allocator".to_owned(),
    ];
    for change in changes {
        let mut now = cells(&twice, 2.5);
        now.rows.iter_mut().for_each(change);
        let found = check(&now);
        assert!(found.passed());
        let unjudged =
            |cell: &Judged| matches!(cell.findings[place.unwrap()], Finding::Unjudged(_));
        assert!(found.cells.iter().all(unjudged), "{found:?}");
    }
}

/// No seed speaks for others that ran on other threads, beside other runs or elsewhere.
#[test]
fn seeds_that_ran_otherwise_are_not_described_by_the_first() {
    let unjudged = |aspect: Aspect, change: fn(&mut Record)| {
        let mut records = with(|run| {
            run.memory.as_mut().unwrap().peak_bytes *= 2;
            let rate = &mut run.speed.as_mut().unwrap().steps_per_second;
            if run.model.name != "transformer" {
                rate.median /= 2.0;
            }
        });
        records
            .iter_mut()
            .filter(|run| run.seed == 2)
            .for_each(change);
        let found = check(&cells(&records, 2.5));
        let place = Aspect::ALL.iter().position(|it| *it == aspect).unwrap();
        let mut cells = found.cells.iter();
        assert!(
            cells.all(|cell| matches!(cell.findings[place], Finding::Unjudged(_))),
            "{found:?}"
        );
    };
    for aspect in [Aspect::Memory, Aspect::Speed] {
        unjudged(aspect, |run| run.provenance.threads += 62);
        unjudged(aspect, |run| run.provenance.host.cpu = "another".into());
    }
    unjudged(Aspect::Memory, |run| {
        run.memory.as_mut().unwrap().method = "another".into();
    });
    // Of seeds that ran beside different numbers of others, a speed is that of none.
    let of = |seed: u64| {
        let mut records = matrix();
        for run in &mut records {
            run.provenance.jobs = Some(if run.seed == seed { 2 } else { 1 });
        }
        cells(&records, 2.5)
    };
    let (before, now) = (of(9), of(2));
    assert_eq!((before.rows[0].jobs, now.rows[0].jobs), (Some(1), Some(0)));
}

#[test]
fn a_run_that_was_resumed_after_changes_is_in_no_baseline() {
    let mut records = matrix();
    for run in records.iter_mut().filter(|run| run.seed == 1) {
        run.provenance.accepted_changes = vec!["it was run on other data".into()];
    }
    let now = cells(&records, 2.5);
    for row in &now.rows {
        let damaged = row.damaged.as_ref().unwrap();
        assert!(damaged.contains("other data"), "{damaged}");
    }
    assert!(!check(&now).passed());
}

#[test]
fn runs_on_other_data_or_of_an_edited_model_are_no_seeds_of_one_cell() {
    let own = |source: &str| {
        Some(lra_results::record::OwnCode {
            source: source.to_owned(),
            ..Default::default()
        })
    };
    type Change<'a> = &'a dyn Fn(&mut Record);
    let changes: [(Change, &str); 3] = [
        (
            &|it| it.task.data_digest = "another".to_owned(),
            "the data changed",
        ),
        (
            &|it| it.model.own = own("aaaa"),
            "the source of the model changed",
        ),
        (
            &|it| it.task.data_digest = String::new(),
            "the data changed",
        ),
    ];
    for (change, reason) in changes {
        let mut records = vec![common::run("linear", 0, 0.2), common::run("linear", 1, 0.3)];
        change(&mut records[1]);
        let row = &cells(&records, 2.0).rows[0];
        let told = row.damaged.as_deref().unwrap_or_default();
        assert!(told.contains(reason), "{told}");
    }
}

#[test]
fn a_baseline_has_no_impossible_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.csv");
    let refused = |change: fn(&mut Row)| {
        let mut baseline = cells(&matrix(), 2.5);
        change(&mut baseline.rows[0]);
        baseline.write(&path).unwrap();
        Baseline::read(&path).unwrap_err().to_string()
    };
    for (message, expected) in [
        (
            refused(|row| row.accuracy_deviation = Some(0.9)),
            "accuracy_deviation is 0.9, more than 0.547",
        ),
        (
            refused(|row| (row.accuracy, row.accuracy_deviation) = (None, None)),
            "outcome is scored, but there is no accuracy",
        ),
        (
            refused(|row| {
                (row.seeds, row.accuracy_deviation) = ("4".into(), None);
                row.outcome = "diverged".into();
            }),
            "outcome is diverged, but there is an accuracy",
        ),
        (
            refused(|row| row.outcome = "diverged".into()),
            "outcome is diverged, but there is an accuracy",
        ),
        (
            refused(|row| row.outcome = "99 scored".into()),
            "outcome is '99 scored', which does not fit the 3 seeds",
        ),
        (
            refused(|row| row.outcome = "0 scored, 3 diverged".into()),
            "which does not fit the 3 seeds",
        ),
        (
            refused(|row| {
                (row.outcome, row.accuracy_deviation) = ("1 scored, 3 diverged".into(), None);
            }),
            "which does not fit the 3 seeds",
        ),
        (
            refused(|row| row.outcome = "banana".into()),
            "outcome is 'banana'",
        ),
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_slowdown_is_caught_only_where_the_reference_did_not_slow_down_too() {
    let slowed = |run: &mut Record, factor: f64| {
        let rate = &mut run.speed.as_mut().unwrap().steps_per_second;
        (rate.median, rate.p10, rate.p90) =
            (rate.median / factor, rate.p10 / factor, rate.p90 / factor);
    };
    only(
        &check(&cells(&with(|run| slowed(run, 2.0)), 2.5)),
        Aspect::Speed,
    );
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
    assert_eq!(of(&found, "performer"), State::Changed);
    let mut fewer = matrix();
    fewer.retain(|run| run.model.name != "performer" || run.seed == 0);
    let found = check(&cells(&fewer, 2.5));
    assert_eq!(of(&found, "performer"), State::Changed);
    let cell = found.cells.iter().find(|it| it.state == State::Changed);
    let remark = cell.and_then(|it| it.remark.clone()).unwrap();
    assert!(
        remark.contains("--seeds") && remark.contains("--update"),
        "{remark}"
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
        (
            text.replacen(",2000,", ",many,", 1),
            "line 2: test_rows: not a whole number",
        ),
        (
            text.replacen(",0.36,", ",x,", 1),
            "line 2: accuracy: not a number",
        ),
        (
            text.replacen("task,", "task,task,", 1),
            "has the column task twice",
        ),
        (
            text.clone() + text.lines().nth(1).unwrap() + "\n",
            "occurs twice with the same settings",
        ),
        (
            text.replacen(",scored,", ",Scored,", 1),
            "outcome is 'Scored'",
        ),
        (
            text.replacen(",2000,", ",18446744073709551615,", 1),
            "more than any file has",
        ),
        (
            text.replacen(",cpu,", ",", 1),
            "line 2: its number of fields",
        ),
        (String::new(), "it is empty"),
        // Figures that no run can have.
        (text.replacen(",0.36,", ",3,", 1), "line 2: accuracy is 3"),
        (
            text.replacen(",0.36,", ",-0.1,", 1),
            "line 2: accuracy is -0.1",
        ),
        (
            text.replacen(",0.36,", ",NaN,", 1),
            "line 2: accuracy is NaN",
        ),
        (
            text.replacen(",0.36,", ",1.01,", 1),
            "line 2: accuracy is 1.01",
        ),
        (
            text.replacen(",0.36,", ",inf,", 1),
            "line 2: accuracy is inf",
        ),
        (text.replacen(",1.72,", ",-1,", 1), "line 2: loss is -1"),
        (text.replacen(",1.72,", ",NaN,", 1), "line 2: loss is NaN"),
        (
            text.replacen(",11.0,", ",0,", 1),
            "line 2: steps_per_second is 0",
        ),
        (
            text.replacen(",1 2,", ",1 1,", 1),
            "line 2: the seed 1 occurs twice",
        ),
        (
            text.replacen(",1 2,", ",1 two,", 1),
            "line 2: the seed `two` is not",
        ),
    ] {
        assert_ne!(damaged, text, "{expected}");
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

/// A record with an impossible figure is left out, and its cell fails.
#[test]
fn records_with_figures_that_cannot_be_fail_their_cell_alone() {
    for seeds in [0..3, 1..2] {
        let records = with(|run| {
            if seeds.contains(&run.seed) {
                run.scores.as_mut().unwrap().test_accuracy = Some(3.0);
            }
        });
        let found = check(&cells(&records, 2.5));
        let failed = found.cells.iter().filter(|cell| cell.state.fails());
        let failed: Vec<&Judged> = failed.collect();
        assert_eq!(failed.len(), 1);
        assert_eq!(failed[0].key.model, "performer");
    }
}

/// A word that says how runs ended is never empty.
#[test]
fn a_baseline_without_an_ending_or_test_rows_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.csv");
    cells(&matrix(), 2.5).write(&path).unwrap();
    let whole = std::fs::read_to_string(&path).unwrap();
    for (from, to, field) in [
        (",scored,", ",,", "outcome is empty"),
        (",2000,", ",0,", "test_rows is 0"),
    ] {
        std::fs::write(&path, whole.replace(from, to)).unwrap();
        let refused = Baseline::read(&path).unwrap_err().to_string();
        assert!(
            refused.contains("line 2") && refused.contains(field),
            "{refused}"
        );
    }
}

/// A spreadsheet opens a baseline, and a later check reads it.
#[test]
fn formulas_in_a_baseline_are_text_and_come_back() {
    let evil = "=cmd|' /C calc'!A0\u{1b}[2J";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.csv");
    let baseline = cells(
        &with(|run| {
            run.recipe.overrides = vec![evil.to_owned()];
            run.provenance.host.cpu = format!("@{evil}");
            run.memory.as_mut().unwrap().method = "-1+1".to_owned();
        }),
        2.5,
    );
    baseline.write(&path).unwrap();
    assert_eq!(Baseline::read(&path).unwrap(), baseline);
    assert!(
        judge(
            &baseline,
            &Baseline::read(&path).unwrap(),
            &Thresholds::default()
        )
        .passed()
    );
    let mut reader = csv::Reader::from_path(&path).unwrap();
    for line in reader.records().map(Result::unwrap) {
        for field in &line {
            assert!(!field.starts_with(['=', '+', '-', '@', '\t']), "{field}");
            assert!(!field.contains('\u{1b}'), "{field:?}");
        }
    }
}

/// Returns the words on an aspect of a cell with the figure `before` in the baseline and `now` in
/// the runs. `alter` sets it, with a digest.
fn words_of(aspect: Aspect, alter: fn(&mut Row, f64, &str), before: f64, now: f64) -> String {
    let (mut was, mut is) = (cells(&matrix(), 2.5), cells(&matrix(), 2.5));
    was.rows.truncate(1);
    is.rows.truncate(1);
    alter(&mut was.rows[0], before, "one");
    alter(&mut is.rows[0], now, "another");
    let found = judge(&was, &is, &Thresholds::default());
    assert!(!found.passed());
    let place = Aspect::ALL.iter().position(|one| *one == aspect);
    found.cells[0].findings[place.unwrap()].words().to_owned()
}

/// Norms have no scale that people know, so their change is a share.
#[test]
fn a_change_of_gradients_is_printed_like_one_of_memory() {
    let words = |before: f64, now: f64| {
        let alter = |row: &mut Row, norm: f64, gradients: &str| {
            (row.gradient_norm, row.gradients) = (Some(norm), gradients.to_owned());
        };
        words_of(Aspect::Gradient, alter, before, now)
    };
    assert_eq!(words(1.0, 1.2), "+20.0 %");
    assert_eq!(words(3.0, 1.5), "-50.0 %");
    assert_eq!(words(1.0, 1.0 + 1e-9), "+0.0000001 %");
    assert_eq!(words(0.0, 0.25), "0.0000 → 0.2500");
}

/// Two figures that differ look different, however little they differ; where the last ones are
/// equal, the words say that others are not.
#[test]
fn what_differs_looks_different() {
    let words = |before: f64, now: f64| {
        let alter = |row: &mut Row, loss: f64, trace: &str| {
            (row.loss, row.trace) = (Some(loss), trace.to_owned());
        };
        words_of(Aspect::Loss, alter, before, now)
    };
    assert_eq!(words(1.402_089, 1.402_100), "1.402089 → 1.402100");
    assert_eq!(words(1.402_089, 1.402_089_01), "1.40208900 → 1.40208901");
    let next = f64::from_bits(1.402_089f64.to_bits() + 1);
    let last_bit = words(1.402_089, next);
    let (was, is) = last_bit.split_once(" → ").unwrap();
    assert_ne!(was, is);
    assert_eq!(words(1.402_089, 1.402_089), "differs during training");
}

/// Runs that share a machine are slower: their speeds are held against those of as many at a time.
#[test]
fn speeds_under_another_load_are_not_judged() {
    let at_a_time = |jobs: Option<usize>| {
        let slow = |run: &mut Record| {
            run.provenance.jobs = jobs;
            if run.model.name == "performer" {
                let rate = &mut run.speed.as_mut().unwrap().steps_per_second;
                (rate.median, rate.p10, rate.p90) =
                    (rate.median / 2.0, rate.p10 / 2.0, rate.p90 / 2.0);
            }
        };
        let mut records = matrix();
        records.iter_mut().for_each(slow);
        check(&cells(&records, 2.5))
    };
    only(&at_a_time(Some(1)), Aspect::Speed);
    // An older baseline, or an older record, does not say.
    only(&at_a_time(None), Aspect::Speed);
    let other = at_a_time(Some(2));
    assert!(other.passed(), "{other:?}");
    let text = Format::Text.render(&[table(&other)]);
    assert!(text.contains("(2 at a time, was 1)"), "{text}");
    assert!(
        text.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains("speeds under another load are not compared"),
        "{text}"
    );
}

/// Two seeds that differ much tell nothing: the cell is neither the same nor worse.
#[test]
fn accuracies_that_are_too_uncertain_are_not_called_the_same() {
    let noisy = |by: f64| {
        with(|run| {
            let accuracy = 0.37 + by + 0.1 * (run.seed as f64 - 1.0);
            run.scores.as_mut().unwrap().test_accuracy = Some(accuracy);
        })
    };
    let mut elsewhere = noisy(0.01);
    for run in &mut elsewhere {
        run.provenance.host.instructions = "AVX2".to_owned();
    }
    let found = judge(
        &cells(&noisy(0.0), 2.5),
        &cells(&elsewhere, 2.5 + 1e-15),
        &Thresholds::default(),
    );
    assert!(found.passed());
    let text = Format::Text.render(&[table(&found)]);
    assert!(text.contains("(37.00 → 38.00 ±"), "{text}");
    assert!(text.contains("cannot tell"), "{text}");
}

/// Equal means of wide seeds are as uncertain as any others, unless the runs are the same.
#[test]
fn equal_means_are_the_same_only_where_they_are_certain() {
    let pair = |one: f64, other: f64, rows: usize, loss: f64| {
        let mut records = vec![
            common::run("transformer", 0, one),
            common::run("transformer", 1, other),
        ];
        for record in &mut records {
            record.task.rows.test = rows;
        }
        cells(&records, loss)
    };
    let found = |before: &Baseline, now: &Baseline| {
        let found = judge(before, now, &Thresholds::default());
        let finding = found.cells[0].findings[0].clone();
        (finding.word(), finding.words().to_owned())
    };
    let wide = pair(0.16, 0.36, 2_000, 2.5);
    // No change of an accuracy is larger than a hundred points.
    let unjudged = ("unjudged", "26.00 ±100.0".to_owned());
    assert_eq!(found(&wide, &pair(0.01, 0.51, 2_000, 2.4)), unjudged);
    let (word, words) = found(&wide, &pair(0.17, 0.36, 2_000, 2.4));
    assert_eq!((word, words.as_str()), ("unjudged", "26.00 → 26.50 ±59.5"));
    let same = |shown: &str| ("same", shown.to_owned());
    assert_eq!(found(&wide, &wide), same("26.00"));
    let narrow = |loss: f64| pair(0.26, 0.26, 2_000_000, loss);
    assert_eq!(found(&narrow(2.5), &narrow(2.4)), same("26.00"));
}

/// One more seed that diverges is another ending, and the mean of those that are left is less
/// certain.
#[test]
fn seeds_that_diverge_are_counted() {
    let with_lost = |lost: u64| {
        let mut records = matrix();
        for record in &mut records {
            if record.model.name == "performer" && record.seed >= 3 - lost {
                record.outcome = Outcome::Diverged {
                    step: 9,
                    reason: String::new(),
                };
                record.scores = None;
            }
        }
        cells(&records, 2.5)
    };
    let [one, two] = [1, 2].map(with_lost);
    let judged = |before: &Baseline, now: &Baseline| {
        let found = judge(before, now, &Thresholds::default());
        let cells = found
            .cells
            .iter()
            .filter(|cell| cell.key.model == "performer");
        let remarks: Vec<_> = cells.map(|cell| cell.remark.clone()).collect();
        (found.passed(), remarks)
    };
    let worse = "ended: 1 scored, 2 diverged; in the baseline: 2 scored, 1 diverged".to_owned();
    assert_eq!(judged(&one, &two), (false, vec![Some(worse)]));
    assert_eq!(judged(&one, &one), (true, vec![None]));
}

/// Servers get the figures that people read.
#[test]
fn machines_read_the_figures_of_both_sides() {
    let hungry = with(|run| run.memory.as_mut().unwrap().peak_bytes *= 2);
    let json = Format::Json.render(&[table(&check(&cells(&hungry, 2.5)))]);
    let read: serde_json::Value = serde_json::from_str(&json).unwrap();
    let row = &read[0]["rows"][0];
    assert_eq!(row["model"], "performer");
    assert_eq!(row["memory"]["finding"], "worse");
    assert_eq!(row["memory"]["baseline"], 176.0 * 1024.0 * 1024.0);
    assert_eq!(row["memory"]["now"], 2.0 * 176.0 * 1024.0 * 1024.0);
    assert_eq!(row["accuracy"]["baseline"], row["accuracy"]["now"]);
    assert_eq!(row["verdict"]["verdict"], "REGRESSED");
    assert_eq!(row["about"]["protocol"], "tay2021");
    assert_eq!(read[0]["columns"]["memory"]["unit"], "bytes");
}

#[test]
fn seeds_of_two_programs_or_instruction_sets_are_said_to_be_a_mixture() {
    type Change = fn(&mut Record);
    let changes: [(Change, &str); 3] = [
        (
            |run| run.provenance.host.instructions = "AVX2".to_owned(),
            "2 instruction sets",
        ),
        (
            |run| run.provenance.host.instructions.clear(),
            "2 instruction sets",
        ),
        (
            |run| run.provenance.versions.rustc = "0".to_owned(),
            "2 builds of the program",
        ),
    ];
    assert!(
        cells(&matrix(), 2.5)
            .rows
            .iter()
            .all(|row| row.mixture.is_none())
    );
    for (change, words) in changes {
        let mut records = matrix();
        records
            .iter_mut()
            .filter(|run| run.seed == 1)
            .for_each(change);
        let found = cells(&records, 2.5);
        assert!(
            found
                .rows
                .iter()
                .all(|row| row.mixture.as_deref() == Some(words)),
            "{words}"
        );
    }
}

/// Files of earlier versions have numbers as the command line had them.
#[test]
fn settings_of_a_baseline_are_known_in_any_spelling() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.csv");
    let set = |assignment: &str| {
        let assignment = assignment.to_owned();
        with(move |run| run.recipe.overrides = vec![assignment.clone()])
    };
    let baseline = cells(&set("train.learning_rate=2e-3"), 2.5);
    baseline.write(&path).unwrap();
    let older = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, older.replace("=2e-3", "=0.002")).unwrap();
    assert_eq!(Baseline::read(&path).unwrap(), baseline);
}

/// Returns the finding on `performer` in an aspect.
fn finding(found: &Check, aspect: Aspect) -> Finding {
    let cell = found
        .cells
        .iter()
        .find(|cell| cell.key.model == "performer");
    let place = Aspect::ALL.iter().position(|one| *one == aspect);
    cell.unwrap().findings[place.unwrap()].clone()
}

/// Judges the matrix by itself, with the row of `performer` changed on either side.
fn judged(before: impl Fn(&mut Row), now: impl Fn(&mut Row)) -> Check {
    let sound = cells(&matrix(), 2.5);
    let altered = |alter: &dyn Fn(&mut Row)| {
        let mut rows = sound.clone();
        let own = rows.rows.iter_mut();
        own.filter(|row| row.key.model == "performer")
            .for_each(alter);
        rows
    };
    judge(&altered(&before), &altered(&now), &Thresholds::default())
}

/// The threshold is the share that may be lost, and three standard errors of the ratio of ratios.
#[test]
fn a_slowdown_counts_beyond_the_share_and_three_errors() {
    let of = |factor: f64, errors: [f64; 2], reference: f64| {
        let mut before = cells(&matrix(), 2.5);
        let mut now = before.clone();
        for (rows, error) in [(&mut before, errors[0]), (&mut now, errors[1])] {
            for row in &mut rows.rows {
                let is_reference = row.key.model == "transformer";
                row.speed_error = Some(if is_reference { reference } else { error });
            }
        }
        for row in &mut now.rows {
            if row.key.model == "performer" {
                row.steps_per_second = row.steps_per_second.map(|rate| rate * factor);
            }
        }
        finding(&judge(&before, &now, &Thresholds::default()), Aspect::Speed).word()
    };
    let exact = [0.0, 0.0];
    // A quarter may be lost: -ln(0.75) = 0.2877.
    assert_eq!(of(0.76, exact, 0.0), "same");
    assert_eq!(of(0.74, exact, 0.0), "worse");
    assert_eq!(of(1.32, exact, 0.0), "same");
    assert_eq!(of(1.35, exact, 0.0), "better");
    // Errors of 3 % and 4 % are one of 5 %, and three of them 15 %: -ln(0.66) = 0.4155 is less than
    // 0.2877 + 0.15, -ln(0.63) = 0.462 is more.
    for errors in [[0.03, 0.04], [0.04, 0.03]] {
        assert_eq!(of(0.66, errors, 0.0), "same");
        assert_eq!(of(0.63, errors, 0.0), "worse");
    }
    // The reference has its error on both sides: sqrt(2) 5 %, so that -ln(0.62) = 0.478 is less
    // than 0.2877 + 0.212, and -ln(0.60) = 0.511 is more.
    assert_eq!(of(0.62, exact, 0.05), "same");
    assert_eq!(of(0.60, exact, 0.05), "worse");
}

#[test]
fn what_is_not_known_of_the_machine_is_not_judged() {
    let unknown = judged(|row| row.threads = 0, |row| row.threads = 0);
    for aspect in [Aspect::Memory, Aspect::Speed] {
        assert_eq!(finding(&unknown, aspect).word(), "unjudged", "{aspect:?}");
    }
    let several = judged(|row| row.jobs = Some(0), |row| row.jobs = Some(0));
    assert!(
        finding(&several, Aspect::Speed)
            .words()
            .contains("several numbers")
    );
    // On a GPU nothing is exact, and the last loss may change a little.
    let altered = |loss: f64| {
        let mut before = cells(&matrix(), 2.5);
        before.rows.iter_mut().for_each(|row| {
            row.key.device = "cuda:0".to_owned();
            row.trace.clear();
        });
        let mut now = before.clone();
        for row in &mut now.rows {
            row.trace = "other".to_owned();
            row.loss = row.loss.map(|it| it * loss);
        }
        finding(&judge(&before, &now, &Thresholds::default()), Aspect::Loss)
    };
    assert_eq!(altered(1.005).word(), "same");
    assert!(!altered(1.005).words().contains("last only"));
    assert_eq!(altered(1.02).word(), "worse");
}

/// The same training with another spread of scores was evaluated otherwise, even if the mean is
/// the same.
#[test]
fn another_spread_of_the_same_training_is_caught() {
    let strip = |row: &mut Row| {
        row.scores.clear();
        row.further_scores.clear();
    };
    assert_eq!(
        finding(&judged(strip, strip), Aspect::Accuracy).word(),
        "same"
    );
    let found = judged(strip, |row| {
        strip(row);
        row.accuracy_deviation = row.accuracy_deviation.map(|it| it / 2.0);
    });
    assert_eq!(finding(&found, Aspect::Accuracy).word(), "worse");
}

/// The error of a mean is that of the seeds that were scored, not of all that ran.
#[test]
fn seeds_that_diverged_narrow_no_interval() {
    let of = |outcome: &str| {
        let alter = |row: &mut Row| {
            row.outcome = outcome.to_owned();
            row.seeds = "0 1 2 3 4 5 6 7 8 9".to_owned();
            row.accuracy_deviation = Some(0.012);
            row.test_rows = 1_000_000;
            row.trace.clear();
        };
        let found = judged(alter, |row| {
            alter(row);
            row.accuracy = row.accuracy.map(|it| it + 0.001);
        });
        finding(&found, Aspect::Accuracy)
    };
    assert_eq!(of("scored").word(), "same");
    let few = of("2 scored, 8 diverged");
    assert_eq!(few.word(), "unjudged", "{few:?}");
    assert!(few.words().contains('±'), "{few:?}");
}

#[test]
fn a_better_ending_counts_for_the_same_seeds_and_data_alone() {
    let ended = |row: &mut Row| row.outcome = "2 scored, 1 diverged".to_owned();
    let state = |alter: fn(&mut Row)| {
        let found = judged(ended, alter);
        let cell = found.cells.iter().find(|it| it.key.model == "performer");
        cell.unwrap().state
    };
    assert_eq!(state(|_| ()), State::Improved);
    // A worse figure counts although the ending got better.
    assert_eq!(state(|row| row.accuracy = Some(0.05)), State::Regressed);
    let heavy = |row: &mut Row| row.peak_bytes = row.peak_bytes.map(|it| 2 * it);
    assert_eq!(state(heavy), State::Regressed);
    assert_eq!(state(|row| row.parameters = Some(1)), State::Regressed);
    assert_eq!(state(|row| row.spec = "other".to_owned()), State::Changed);
    assert_eq!(state(|row| row.seeds = "0 1".to_owned()), State::Regressed);
    assert_eq!(state(|row| row.data = "other".to_owned()), State::Regressed);
    let size = judged(|_| (), |row| row.parameters = None);
    assert!(
        !size.passed(),
        "a size that is not known any more is another"
    );
}

/// A cell that no baseline knows is skipped, but not if its figures are of no run.
#[test]
fn a_damaged_new_cell_fails_and_a_sound_one_is_skipped() {
    let known = cells(&matrix(), 2.5);
    let mut now = known.clone();
    let mut row = now.rows[0].clone();
    row.key.model = "bag".to_owned();
    now.rows.push(row);
    let found = judge(&known, &now, &Thresholds::default());
    assert!(found.passed());
    assert!(junit(&found).contains("tests=\"4\" failures=\"0\" skipped=\"1\""));
    now.rows[3].damaged = Some("its log is cut".to_owned());
    let found = judge(&known, &now, &Thresholds::default());
    assert_eq!(found.cells[3].state, State::Regressed);
    assert!(junit(&found).contains("tests=\"4\" failures=\"1\" skipped=\"0\""));
    // What failed comes first, and is marked in each of its aspects.
    let hungry = with(|run| run.memory.as_mut().unwrap().peak_bytes *= 2);
    let shown = table(&check(&cells(&hungry, 2.5)));
    let marked = |cell: &&lra_results::table::Cell| cell.text.starts_with('!');
    let mut cells = shown.rows.iter().flat_map(|row| &row.cells);
    assert_eq!(
        cells.find(marked).unwrap().tone,
        Some(lra_results::Tone::Caution)
    );
}

/// Two runs of one cell and seed contradict each other only if nothing else explains the scores.
#[test]
fn scores_that_something_explains_contradict_nothing() {
    let damaged = |alter: fn(&mut Record)| {
        let first = common::run("linear", 0, 0.37);
        let mut again = common::run("linear", 0, 0.38);
        again.id += "-again";
        again.provenance.created = "2026-11-22T10:00:00Z".to_owned();
        alter(&mut again);
        let cells = cells(&[first, again], 2.5);
        (cells.rows[0].damaged.is_some(), cells.rows[0].accuracy)
    };
    assert_eq!(damaged(|_| ()), (true, Some(0.38)));
    for alter in [
        |it: &mut Record| it.provenance.spec_digest = "other".to_owned(),
        |it: &mut Record| it.task.data_digest = "other".to_owned(),
        |it: &mut Record| it.provenance.versions.sources = "other".to_owned(),
        |it: &mut Record| it.provenance.host.instructions = "AVX2".to_owned(),
    ] {
        assert_eq!(damaged(alter), (false, Some(0.38)));
    }
    // The latest counts, wherever it lies.
    let older = damaged(|it| {
        it.provenance.versions.sources = "other".to_owned();
        it.provenance.created = "2026-11-20T10:00:00Z".to_owned();
    });
    assert_eq!(older, (false, Some(0.37)));
}

/// A speed is as uncertain as its steps: eight tenths of a normal distribution lie within 2.56
/// standard deviations, and a median errs by a quarter more than a mean.
#[test]
fn the_error_of_a_speed_is_that_of_the_median_of_its_steps() {
    let mut run = common::run("linear", 0, 0.37);
    let speed = run.speed.as_mut().unwrap();
    speed.timed_steps = 400;
    let rate = &mut speed.steps_per_second;
    (rate.median, rate.p10, rate.p90) = (10.0, 8.72, 11.28);
    let error = cells(std::slice::from_ref(&run), 2.5).rows[0]
        .speed_error
        .unwrap();
    assert!((error - 1.25 * 0.1 / 20.0).abs() < 1e-12, "{error}");
    // A run that was not scored narrows no error.
    let mut diverged = common::run("linear", 1, 0.37);
    diverged.outcome = Outcome::Diverged {
        step: 1,
        reason: String::new(),
    };
    let error = cells(&[run, diverged], 2.5).rows[0].speed_error.unwrap();
    assert!((error - 1.25 * 0.1 / 20.0).abs() < 1e-12, "{error}");
    // What one seed does not say of its load is not known of the cell.
    let runs = [Some(2), None].into_iter().zip(0..).map(|(jobs, seed)| {
        let mut run = common::run("linear", seed, 0.37);
        run.provenance.jobs = jobs;
        run
    });
    let rows = cells(&runs.collect::<Vec<Record>>(), 2.5).rows;
    assert_eq!(rows[0].jobs, None);
}

#[test]
fn every_figure_of_a_baseline_has_a_range() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("baseline.csv");
    let refusal = |alter: fn(&mut Row)| {
        let mut rows = cells(&matrix(), 2.5);
        alter(&mut rows.rows[0]);
        rows.write(&path).unwrap();
        Baseline::read(&path).err().map(|error| error.to_string())
    };
    type Alter = fn(&mut Row);
    let cases: [(&str, Alter); 11] = [
        ("accuracy is 1.5", |row| row.accuracy = Some(1.5)),
        ("accuracy_deviation is -1", |row| {
            row.accuracy_deviation = Some(-1.0)
        }),
        ("loss is -1", |row| row.loss = Some(-1.0)),
        ("gradient_norm is -1", |row| row.gradient_norm = Some(-1.0)),
        ("peak_bytes is 0", |row| row.peak_bytes = Some(0)),
        ("parameters is 0", |row| row.parameters = Some(0)),
        ("steps_per_second is 0", |row| {
            row.steps_per_second = Some(0.0)
        }),
        ("speed_error is -1", |row| row.speed_error = Some(-1.0)),
        ("test_rows is 0", |row| row.test_rows = 0),
        ("the seed 1 occurs twice", |row| {
            row.seeds = "0 1 1".to_owned()
        }),
        ("does not fit the 2 seeds", |row| {
            row.outcome = "2 scored, 1 diverged".to_owned();
            row.seeds = "0 1".to_owned();
        }),
    ];
    assert_eq!(refusal(|_| ()), None);
    for (told, alter) in cases {
        let message = refusal(alter).unwrap_or_default();
        assert!(
            message.contains(told) && message.contains("line 2"),
            "{told}: {message}"
        );
    }
}
