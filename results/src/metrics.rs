//! The log of a run: losses and scores by step, one JSON object per line, stored with its record.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::format::counted;
use crate::markup::visible;
use crate::record::{Dense, Outcome, Record, Scores, number, numbers};
use crate::{Error, Result, json};

/// Name of the log within a run's folder.
pub const FILE: &str = "metrics.jsonl";
/// Name of the file with the run's settings.
pub(crate) const SETTINGS: &str = "spec.toml";

/// One line of the log. Losses are mean cross-entropies in nats, accuracies fractions from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
    /// Means over the training steps since the previous line.
    Train {
        /// Steps taken so far.
        step: usize,
        /// Mean loss.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// Means of the losses that the model adds, before their weights, by name.
        #[serde(
            default,
            deserialize_with = "numbers",
            skip_serializing_if = "BTreeMap::is_empty"
        )]
        #[schemars(with = "BTreeMap<String, Option<f64>>")]
        aux: BTreeMap<String, f64>,
        /// Mean loss of all labels, if positions have labels too. Training minimises it, together
        /// with `aux`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weighted_loss: Option<f64>,
        /// Mean norm of the gradient before clipping; null if it is not finite.
        #[serde(deserialize_with = "number")]
        #[schemars(with = "Option<f64>")]
        gradient_norm: f64,
        /// Learning rate of the last of them; `rate` on disk.
        #[serde(rename = "rate")]
        learning_rate: f64,
        /// Examples seen so far.
        examples: u64,
    },
    /// The validation split, scored with the weights as they were.
    Validation {
        /// Steps taken so far.
        step: usize,
        /// Mean loss. In logs of older versions it may be non-finite; then the accuracy is not a
        /// score.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// Fraction of correct predictions.
        #[serde(deserialize_with = "number")]
        accuracy: f64,
        /// Examples scored.
        examples: usize,
        /// Labels at positions, where there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dense: Option<Dense>,
    },
    /// A line of a newer version.
    #[serde(other)]
    Unknown,
}

/// Reads the log in a run's folder.
///
/// # Errors
/// The log cannot be read, or one of its lines is damaged. The message names the line.
pub fn read(folder: &Path) -> Result<Vec<Line>> {
    let path = folder.join(FILE);
    let text = disk::read_to_string(&path).map_err(Error::io("read", &path))?;
    let lines = text
        .strip_prefix('\u{feff}')
        .unwrap_or(&text)
        .lines()
        .enumerate();
    let lines = lines.map(|(index, line)| {
        json::read_line(line).map_err(|reason| Error::NotALog {
            path: path.clone(),
            line: index + 1,
            reason,
        })
    });
    lines.collect()
}

/// Returns all scores of a run: those of each validation in its log, then those of its record.
pub(crate) fn scores(lines: &[Line], record: &Record) -> Vec<f64> {
    let mut scores = Vec::new();
    let of_dense = |dense: &Dense| {
        let mut scores = vec![
            dense.accuracy,
            dense.loss,
            dense.weighted_accuracy,
            dense.weighted_loss,
        ];
        for group in &dense.groups {
            scores.extend([group.labels as f64, group.accuracy, group.loss]);
            scores.extend(group.majority);
        }
        scores
    };
    for line in lines {
        if let Line::Validation {
            loss,
            accuracy,
            dense,
            ..
        } = line
        {
            scores.extend([*loss, *accuracy]);
            scores.extend(dense.iter().flat_map(of_dense));
        }
    }
    if let Some(it) = &record.scores {
        let own = [
            it.train_loss,
            it.val_loss,
            it.val_accuracy,
            it.test_loss,
            it.test_accuracy,
        ];
        scores.extend(own.into_iter().flatten());
        let dense = [&it.val_dense, &it.test_dense];
        scores.extend(dense.into_iter().flatten().flat_map(of_dense));
    }
    scores
}

/// Returns a digest over the bits of every loss of a log: equal only if training was identical.
pub fn trace(lines: &[Line]) -> String {
    digest(lines.iter().flat_map(|line| {
        let losses = match line {
            Line::Train {
                loss,
                weighted_loss,
                ..
            } => [Some(*loss), *weighted_loss],
            Line::Validation { loss, dense, .. } => {
                [Some(*loss), dense.as_ref().map(|it| it.weighted_loss)]
            }
            Line::Unknown => [None, None],
        };
        losses.into_iter().flatten()
    }))
}

/// Returns the norms of the gradients in a log. Adam divides out the scale of gradients, so losses
/// hardly show a wrong factor.
pub fn gradient_norms(lines: &[Line]) -> Vec<f64> {
    let norms = lines.iter().filter_map(|line| match line {
        Line::Train { gradient_norm, .. } => Some(*gradient_norm),
        Line::Validation { .. } | Line::Unknown => None,
    });
    norms.collect()
}

/// Returns the reason why a log is not the whole log of a scored run, if it is not, after the line
/// at which that shows: lines missing or repeated, an impossible figure, or another loss than that
/// of the record. `folder` holds the settings of the run; without them, the distance of the lines
/// is taken from the log itself.
pub(crate) fn fault(folder: &Path, lines: &[Line], record: &Record) -> Option<(usize, String)> {
    let scores = record.scores.as_ref()?;
    if record.outcome != Outcome::Scored {
        return None;
    }
    incomplete(folder, lines, scores).or_else(|| contradiction(lines, scores))
}

/// Returns the loss of the record that its log contradicts, after the last line of the log: the
/// training loss of the last interval, and the validation loss, which is that of one validation.
fn contradiction(lines: &[Line], scores: &Scores) -> Option<(usize, String)> {
    let agree = |one: f64, other: f64| (one - other).abs() <= 1e-4 * other.abs();
    let trained = lines.iter().rev().find_map(|line| match line {
        Line::Train { loss, .. } => Some(*loss),
        _ => None,
    });
    let mut validated = lines.iter().filter_map(|line| match line {
        Line::Validation { loss, .. } => Some(*loss),
        _ => None,
    });
    let reason = match (trained, scores.train_loss, scores.val_loss) {
        (Some(logged), Some(recorded), _) if !agree(logged, recorded) => {
            format!("its last training loss is {logged}, that of the record {recorded}")
        }
        (_, _, Some(recorded)) if !validated.any(|logged| agree(logged, recorded)) => {
            format!("no validation has the loss of the record, {recorded}")
        }
        _ => return None,
    };
    Some((
        lines.len(),
        format!("it is the log of another run: {reason}"),
    ))
}

/// Returns the line that is missing or repeated, or the impossible figure, after the line at which
/// it shows.
fn incomplete(folder: &Path, lines: &[Line], scores: &Scores) -> Option<(usize, String)> {
    let numbered = || {
        lines
            .iter()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    };
    if let Some(found) = numbered().find_map(|(at, line)| Some((at, impossible(line)?))) {
        return Some(found);
    }
    let total = usize::try_from(scores.steps).ok()?;
    let periods = Periods::of(folder);
    let trained = numbered().filter_map(|(at, line)| match line {
        Line::Train { step, .. } => Some((at, *step)),
        _ => None,
    });
    let trained: Vec<(usize, usize)> = trained.collect();
    let every = match &periods {
        Some(periods) => periods.log_every,
        None => distance(&trained)?,
    };
    if let Some((at, missing)) = gap(&trained, every, total) {
        let ends = trained.last().is_some_and(|(line, _)| *line == at);
        let steps = counted(scores.steps, "step");
        let reason = match (missing, trained.last()) {
            (Gap::Lines(..), Some((_, last))) if ends && *last < total => {
                format!("the log ends at step {last}, although the record has {steps}")
            }
            (gap, _) => gap.words("training"),
        };
        return Some((at, reason));
    }
    let scored = numbered().filter_map(|(at, line)| match line {
        Line::Validation { step, .. } => Some((at, *step)),
        _ => None,
    });
    let scored: Vec<(usize, usize)> = scored.collect();
    let Some(periods) = periods else {
        let (here, known) = (scored.len() as u64, scores.evaluations);
        return (here != known).then(|| {
            let here = counted(here, "validation");
            (lines.len(), format!("it has {here}, the record {known}"))
        });
    };
    let (at, missing) = gap(&scored, periods.eval_period(total), total)?;
    Some((at.max(1), missing.words("validation")))
}

/// Returns the fault of a line with a figure that no scored run logs.
fn impossible(line: &Line) -> Option<String> {
    let is_size = |figure: f64| figure.is_finite() && figure >= 0.0;
    let (step, figures) = match line {
        Line::Train {
            step,
            loss,
            aux,
            weighted_loss,
            gradient_norm,
            ..
        } => {
            if let Some((name, loss)) = aux.iter().find(|(_, loss)| !loss.is_finite()) {
                let name = visible(name);
                return Some(format!(
                    "the loss {name} at step {step} is not a possible loss: {loss}"
                ));
            }
            let losses = [Some(("loss", *loss)), weighted_loss.map(|it| ("loss", it))];
            let norm = Some(("norm of the gradient", *gradient_norm));
            (step, [losses[0], losses[1], norm])
        }
        Line::Validation {
            step,
            loss,
            accuracy,
            dense,
            ..
        } => {
            if !(0.0..=1.0).contains(accuracy) {
                return Some(format!(
                    "the accuracy at step {step} is not between 0 and 1: {accuracy}"
                ));
            }
            let weighted = dense.as_ref().map(|it| ("loss", it.weighted_loss));
            (step, [Some(("loss", *loss)), weighted, None])
        }
        Line::Unknown => return None,
    };
    let mut figures = figures.into_iter().flatten();
    let (name, figure) = figures.find(|(_, figure)| !is_size(*figure))?;
    let kind = if name == "loss" { "loss" } else { "norm" };
    Some(format!(
        "the {name} at step {step} is not a possible {kind}: {figure}"
    ))
}

/// Updates between the lines of a log.
#[derive(Deserialize)]
struct Periods {
    log_every: usize,
    /// 0 if only the last update is followed by a validation.
    eval_every: usize,
}

impl Periods {
    /// Reads them from the settings in a run's folder, if they are there.
    fn of(folder: &Path) -> Option<Periods> {
        #[derive(Deserialize)]
        struct Settings {
            train: Periods,
        }
        let text = disk::read_to_string(&folder.join(SETTINGS)).ok()?;
        let settings: Settings = toml::from_str(&text).ok()?;
        (settings.train.log_every > 0).then_some(settings.train)
    }

    fn eval_period(&self, total: usize) -> usize {
        match self.eval_every {
            0 => total.max(1),
            period => period,
        }
    }
}

/// Returns the distance of the steps of a log, each after its line: the least one. The last may be
/// shorter, since a run may end at any step. `None` if there are none.
fn distance(steps: &[(usize, usize)]) -> Option<usize> {
    let mut before = 0;
    let distances = steps.iter().map(|(_, step)| {
        let distance = step.saturating_sub(before);
        before = *step;
        distance
    });
    let distances: Vec<usize> = distances.collect();
    let whole = distances.len().max(2) - 1;
    let least = distances.into_iter().take(whole).min()?;
    Some(least.max(1))
}

/// Fault in the order of the steps of a log.
enum Gap {
    /// The lines from the first of these steps to the second are missing, of one line every so many
    /// steps.
    Lines(usize, usize, usize),
    /// The first of these steps stands after the second.
    Order(usize, usize),
    /// The first of these steps lies beyond the second, the last of the run.
    Beyond(usize, usize),
    /// The first of these steps is one that has no line, as there is one every so many steps.
    Unexpected(usize, usize),
}

impl Gap {
    fn words(self, kind: &str) -> String {
        match self {
            Gap::Lines(first, last, _) if first == last => {
                format!("the {kind} line of step {first} is missing")
            }
            Gap::Lines(first, last, 1) => {
                format!("the {kind} lines of steps {first} to {last} are missing")
            }
            Gap::Lines(first, last, every) => {
                format!(
                    "the {kind} lines of steps {first} to {last} are missing, one every {every} steps"
                )
            }
            Gap::Order(step, last) => format!("step {step} stands after step {last}"),
            Gap::Beyond(step, total) => {
                format!("step {step} stands after the last step of the record, {total}")
            }
            Gap::Unexpected(step, every) => {
                format!("step {step} has a {kind} line, although there is one every {every} steps")
            }
        }
    }
}

/// Returns the first fault of the steps of a log, each after its line, with the line at which it
/// shows. There must be a line every so many steps, and one at step `total`.
fn gap(steps: &[(usize, usize)], every: usize, total: usize) -> Option<(usize, Gap)> {
    let next = |step: usize| (step - step % every + every).min(total);
    let (mut last, mut last_line) = (0, 0);
    for &(line, step) in steps {
        if step <= last {
            return Some((line, Gap::Order(step, last)));
        }
        if step > total {
            return Some((line, Gap::Beyond(step, total)));
        }
        let wanted = next(last);
        if step < wanted {
            return Some((line, Gap::Unexpected(step, every)));
        }
        if step > wanted {
            let missing = match step % every {
                0 => step - every,
                rest => step - rest,
            };
            return Some((line, Gap::Lines(wanted, missing, every)));
        }
        (last, last_line) = (step, line);
    }
    (last < total).then(|| (last_line, Gap::Lines(next(last), total, every)))
}

/// Returns a digest over the bits of numbers.
pub(crate) fn digest(numbers: impl Iterator<Item = f64>) -> String {
    let mut digest = Sha256::new();
    numbers.for_each(|number| digest.update(number.to_le_bytes()));
    let digest = digest.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::record::DenseGroup;

    fn train(step: usize, loss: f64) -> Line {
        Line::Train {
            step,
            loss,
            aux: BTreeMap::new(),
            weighted_loss: None,
            gradient_norm: 1.0,
            learning_rate: 1e-3,
            examples: 8,
        }
    }

    #[test]
    fn lines_survive_the_disk_and_a_damaged_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let lines = [train(1, 2.5), train(2, 0.1 + 0.2)];
        let text: Vec<_> = lines
            .iter()
            .map(|line| serde_json::to_string(line).unwrap())
            .collect();
        fs::write(folder.path().join(FILE), text.join("\n")).unwrap();
        assert_eq!(read(folder.path()).unwrap(), lines);
        let marked = format!("\u{feff}{}", text.join("\n"));
        fs::write(folder.path().join(FILE), marked).unwrap();
        assert_eq!(read(folder.path()).unwrap(), lines);
        fs::write(folder.path().join(FILE), "{\"event\":\"tea\"}\n{").unwrap();
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("metrics.jsonl, line 2"), "{error}");
    }

    /// Returns the lines of a run of 40 steps, logged every 10 and validated every 20, with labels
    /// at positions.
    fn whole() -> Vec<Line> {
        let dense = Dense {
            accuracy: 0.5,
            loss: 0.7,
            weighted_loss: 0.6,
            ..Dense::default()
        };
        let validation = |step: usize, loss: f64| Line::Validation {
            step,
            loss,
            accuracy: 0.5,
            examples: 8,
            dense: Some(dense.clone()),
        };
        let mut lines: Vec<Line> = [10, 20, 30, 40].map(|step| train(step, 2.0)).into();
        for line in &mut lines {
            if let Line::Train {
                weighted_loss, aux, ..
            } = line
            {
                *weighted_loss = Some(1.9);
                aux.insert("balance".to_owned(), 0.1);
            }
        }
        lines.insert(2, validation(20, 1.5));
        lines.push(validation(40, 1.4));
        lines
    }

    /// Returns the record of that run.
    fn record() -> Record {
        let text = r#"{
            "schema": 1, "id": "run", "outcome": { "status": "scored" }, "task": {}, "model": {},
            "scores": { "test_accuracy": 0.5, "train_loss": 2.0, "val_loss": 1.5, "steps": 40, "evaluations": 2 }
        }"#;
        serde_json::from_str(text).unwrap()
    }

    /// Returns the fault of the log with one line changed, if the run's settings are there or not.
    fn faults(alter: &dyn Fn(&mut Vec<Line>, &mut Record)) -> [Option<String>; 2] {
        let [bare, settled] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let settings = "[train]\nlog_every = 10\neval_every = 20\n";
        fs::write(settled.path().join(SETTINGS), settings).unwrap();
        let (mut lines, mut record) = (whole(), record());
        alter(&mut lines, &mut record);
        [bare, settled].map(|place| {
            let found = fault(place.path(), &lines, &record);
            found.map(|(line, reason)| format!("{line}: {reason}"))
        })
    }

    #[test]
    fn every_figure_of_a_log_must_be_one() {
        assert_eq!(faults(&|_, _| ()), [None, None]);
        type Alter = fn(&mut Line);
        let wrong: [(&str, Alter); 8] = [
            (
                "the loss at step 20 is not a possible loss: NaN",
                |it| match it {
                    Line::Train { loss, .. } | Line::Validation { loss, .. } => *loss = f64::NAN,
                    Line::Unknown => (),
                },
            ),
            (
                "the loss at step 20 is not a possible loss: -1",
                |it| match it {
                    Line::Train { loss, .. } | Line::Validation { loss, .. } => *loss = -1.0,
                    Line::Unknown => (),
                },
            ),
            ("the loss at step 20 is not a possible loss: -2", |it| {
                if let Line::Train { weighted_loss, .. } = it {
                    *weighted_loss = Some(-2.0);
                }
            }),
            (
                "the loss balance at step 20 is not a possible loss: inf",
                |it| {
                    if let Line::Train { aux, .. } = it {
                        aux.insert("balance".to_owned(), f64::INFINITY);
                    }
                },
            ),
            (
                "the norm of the gradient at step 20 is not a possible norm: -3",
                |it| {
                    if let Line::Train { gradient_norm, .. } = it {
                        *gradient_norm = -3.0;
                    }
                },
            ),
            (
                "the accuracy at step 20 is not between 0 and 1: 1.5",
                |it| {
                    if let Line::Validation { accuracy, .. } = it {
                        *accuracy = 1.5;
                    }
                },
            ),
            (
                "the accuracy at step 20 is not between 0 and 1: NaN",
                |it| {
                    if let Line::Validation { accuracy, .. } = it {
                        *accuracy = f64::NAN;
                    }
                },
            ),
            ("the loss at step 20 is not a possible loss: -4", |it| {
                if let Line::Validation {
                    dense: Some(dense), ..
                } = it
                {
                    dense.weighted_loss = -4.0;
                }
            }),
        ];
        for (reason, alter) in wrong {
            let mut found = 0;
            for place in [1, 2] {
                for told in faults(&|lines, _| alter(&mut lines[place]))
                    .into_iter()
                    .flatten()
                {
                    assert_eq!(told, format!("{}: {reason}", place + 1));
                    found += 1;
                }
            }
            assert!(found == 2 || found == 4, "{reason}: {found}");
        }
        // Of a run that was not scored anything may be missing.
        let ended = faults(&|lines, record| {
            lines.truncate(1);
            record.outcome = Outcome::Interrupted { step: 10 };
        });
        assert_eq!(ended, [None, None]);
    }

    #[test]
    fn lines_that_are_missing_or_too_many_are_told() {
        type Alter = fn(&mut Vec<Line>, &mut Record);
        let cases: [(Alter, [&str; 2]); 7] = [
            (
                |lines, _| drop(lines.remove(1)),
                ["3: the training line of step 20 is missing"; 2],
            ),
            (
                |lines, _| drop(lines.remove(2)),
                [
                    "5: it has 1 validation, the record 2",
                    "5: the validation line of step 20 is missing",
                ],
            ),
            (
                |lines, _| drop(lines.remove(5)),
                [
                    "5: it has 1 validation, the record 2",
                    "3: the validation line of step 40 is missing",
                ],
            ),
            (
                |lines, _| {
                    let again = lines[2].clone();
                    lines.insert(3, again);
                },
                [
                    "7: it has 3 validations, the record 2",
                    "4: step 20 stands after step 20",
                ],
            ),
            (
                |lines, _| {
                    lines.remove(5);
                    lines.remove(2);
                },
                [
                    "4: it has 0 validations, the record 2",
                    "1: the validation lines of steps 20 to 40 are missing, one every 20 steps",
                ],
            ),
            (
                |lines, _| lines.push(train(50, 2.0)),
                ["7: step 50 stands after the last step of the record, 40"; 2],
            ),
            (
                |_, record| record.scores.as_mut().unwrap().steps = 60,
                ["5: the log ends at step 40, although the record has 60 steps"; 2],
            ),
        ];
        for (alter, expected) in cases {
            let expected = expected.map(|told| Some(told.to_owned()));
            assert_eq!(faults(&alter), expected);
        }
        // Where only the end is validated, it is one validation.
        let place = tempfile::tempdir().unwrap();
        let settings = "[train]\nlog_every = 10\neval_every = 0\n";
        fs::write(place.path().join(SETTINGS), settings).unwrap();
        let mut lines = whole();
        lines.remove(2);
        let mut one = record();
        one.scores.as_mut().unwrap().val_loss = Some(1.4);
        assert_eq!(fault(place.path(), &lines, &one), None);
    }

    /// Losses are equal to four digits, since records of older versions have `f32` ones.
    #[test]
    fn a_log_has_the_losses_of_its_record() {
        let with = |train: f64, val: f64| {
            let [found, _] = faults(&|_, record| {
                let scores = record.scores.as_mut().unwrap();
                (scores.train_loss, scores.val_loss) = (Some(train), Some(val));
            });
            found
        };
        for (train, val) in [(2.0, 1.5), (2.0, 1.4), (2.0 + 1.9e-4, 1.5 - 1.4e-4)] {
            assert_eq!(with(train, val), None);
        }
        let other = with(2.001, 1.5).unwrap();
        assert!(other.contains("its last training loss is 2, that of the record 2.001"));
        let other = with(2.0, 1.501).unwrap();
        assert!(other.contains("no validation has the loss of the record, 1.501"));
    }

    #[test]
    fn labels_at_positions_are_scores_and_a_part_of_the_trace() {
        let (lines, mut run) = (whole(), record());
        let dense = |accuracy: f64| {
            Some(Dense {
                accuracy,
                loss: 0.25,
                weighted_accuracy: 0.3,
                weighted_loss: 0.8,
                groups: vec![DenseGroup {
                    labels: 3,
                    accuracy: 0.1,
                    loss: 0.9,
                    majority: Some(0.2),
                    ..DenseGroup::default()
                }],
                ..Dense::default()
            })
        };
        let own = run.scores.as_mut().unwrap();
        (own.val_dense, own.test_dense) = (dense(0.75), dense(0.625));
        (own.val_accuracy, own.test_loss) = (Some(0.4), Some(1.6));
        let expected = [
            &[1.5, 0.5, 0.5, 0.7, 0.0, 0.6][..],
            &[1.4, 0.5, 0.5, 0.7, 0.0, 0.6],
            &[2.0, 1.5, 0.4, 1.6, 0.5],
            &[0.75, 0.25, 0.3, 0.8, 3.0, 0.1, 0.9, 0.2],
            &[0.625, 0.25, 0.3, 0.8, 3.0, 0.1, 0.9, 0.2],
        ];
        assert_eq!(scores(&lines, &run), expected.concat());
        for place in [0, 2] {
            let mut other = whole();
            match &mut other[place] {
                Line::Train { weighted_loss, .. } => *weighted_loss = Some(1.8),
                Line::Validation { dense, .. } => dense.as_mut().unwrap().weighted_loss = 0.5,
                Line::Unknown => (),
            }
            assert_ne!(trace(&other), trace(&lines), "line {place}");
        }
    }

    #[test]
    fn the_trace_sees_the_last_bit_of_a_loss() {
        let trace_of = |loss: f64| trace(&[train(1, 2.5), train(2, loss)]);
        assert_eq!(trace_of(0.3), trace_of(0.3));
        assert_ne!(trace_of(0.3), trace_of(0.1 + 0.2));
    }
}
