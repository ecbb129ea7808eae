//! Comparison of each cell of a baseline with the same cell of the current runs.

use std::collections::HashMap;

use super::aspect::{self, Aspect, Finding};
use super::baseline::{Baseline, Key, Row};
use crate::format::{counted, grouped};
use crate::tone::Tone;

/// Differences from which a cell counts as worse.
#[derive(Clone, Debug, PartialEq)]
pub struct Thresholds {
    /// Level of the one-sided test on accuracies, such as 0.99: the fraction of unchanged cells
    /// that pass it.
    pub level: f64,
    /// Fraction by which the last loss may change where the trace cannot be exact, such as 0.01.
    pub loss: f64,
    /// Fraction by which the mean norm of the gradients may change there, such as 0.1.
    pub gradient: f64,
    /// Fraction by which peak memory may grow, such as 0.01.
    pub memory: f64,
    /// Fraction of its speed relative to the reference that a cell may lose beyond the noise, such
    /// as 0.25. Absent: speeds are not judged.
    pub speed: Option<f64>,
    /// Registry name of the model that speeds are divided by.
    pub reference: String,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds {
            level: 0.99,
            loss: 0.01,
            gradient: 0.1,
            memory: 0.01,
            speed: Some(0.25),
            reference: "transformer".to_owned(),
        }
    }
}

/// The verdict on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing got worse.
    Passed,
    /// Nothing got worse and something got better.
    Improved,
    /// Something got worse.
    Regressed,
    /// Run with other seeds, data or settings, so that nothing can be compared.
    Changed,
    /// In the baseline, but not run.
    Missing,
    /// Run, but not in the baseline.
    New,
}

impl State {
    /// Returns its name.
    pub fn word(self) -> &'static str {
        match self {
            State::Passed => "ok",
            State::Improved => "improved",
            State::Regressed => "REGRESSED",
            State::Changed => "CHANGED",
            State::Missing => "MISSING",
            State::New => "new",
        }
    }

    /// Returns what it means for the check.
    pub(super) fn tone(self) -> Option<Tone> {
        match self {
            State::Improved => Some(Tone::Good),
            _ => self.fails().then_some(Tone::Bad),
        }
    }

    /// Returns whether this verdict fails the check.
    pub fn fails(self) -> bool {
        matches!(self, State::Regressed | State::Changed | State::Missing)
    }
}

/// The judgement of one cell.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Identity of the cell.
    pub key: Key,
    /// The verdict.
    pub state: State,
    /// The findings, in the order of display; empty for a cell that is missing or new.
    pub findings: Vec<Finding>,
    /// The figures of the baseline and of the runs, in the order of [`Aspect::ALL`].
    pub figures: Vec<(Option<f64>, Option<f64>)>,
    /// True if the cell is new and not all of its seeds were scored.
    pub ended_badly: bool,
    /// Reason why there is nothing to compare, or why the cell differs from that of the baseline.
    pub remark: Option<String>,
}

/// A whole check.
#[derive(Clone, Debug)]
pub struct Check {
    /// Every cell of the baseline, then the new ones.
    pub cells: Vec<Judged>,
    /// Thresholds of the judgement.
    pub thresholds: Thresholds,
}

impl Check {
    /// Returns whether no cell regressed, changed or is missing. An empty baseline passes nothing.
    pub fn passed(&self) -> bool {
        self.nothing_compared().is_none() && !self.cells.iter().any(|cell| cell.state.fails())
    }

    /// Returns why nothing could be compared, if the baseline has no cell.
    pub fn nothing_compared(&self) -> Option<&'static str> {
        let known = self.cells.iter().any(|cell| cell.state != State::New);
        (!known).then_some(
            "the baseline has no cell, so nothing was compared; --update writes one from the runs",
        )
    }
}

/// The rows of a baseline by key; of several with the same key, the first.
pub(super) struct Cells<'a> {
    rows: HashMap<&'a Key, &'a Row>,
    references: HashMap<[&'a str; 7], &'a Row>,
}

impl<'a> Cells<'a> {
    fn of(baseline: &'a Baseline, reference: &str) -> Cells<'a> {
        let last_to_first = || baseline.rows.iter().rev();
        let references = last_to_first().filter(|row| row.key.model == reference);
        Cells {
            rows: last_to_first().map(|row| (&row.key, row)).collect(),
            references: references
                .map(|row| (row.key.but_for_the_model(), row))
                .collect(),
        }
    }

    /// Returns the row of the reference model with the other settings of `key`.
    pub(super) fn reference(&self, key: &Key) -> Option<&'a Row> {
        self.references.get(&key.but_for_the_model()).copied()
    }
}

/// Compares every cell of a baseline with the cells of the current runs.
pub fn judge(baseline: &Baseline, now: &Baseline, thresholds: &Thresholds) -> Check {
    let known = Cells::of(baseline, &thresholds.reference);
    let run = Cells::of(now, &thresholds.reference);
    let judged = baseline
        .rows
        .iter()
        .map(|before| match run.rows.get(&before.key) {
            Some(row) => compare(before, row, (&known, &run), thresholds),
            None => Judged {
                key: before.key.clone(),
                state: State::Missing,
                findings: vec![],
                figures: figures(Some(before), None),
                ended_badly: false,
                remark: Some(absence(&before.key, now)),
            },
        });
    let new = now
        .rows
        .iter()
        .filter(|row| !known.rows.contains_key(&row.key));
    let new = new.map(|row| {
        let ended = (!row.all_scored()).then(|| format!("ended as {}", row.outcome));
        let remarks = ["not in the baseline".to_owned()].into_iter();
        let remarks = remarks.chain(row.damaged.clone()).chain(ended);
        Judged {
            key: row.key.clone(),
            // What stands for no run is no news.
            state: match row.damaged {
                Some(_) => State::Regressed,
                None => State::New,
            },
            findings: vec![],
            figures: figures(None, Some(row)),
            ended_badly: !row.all_scored(),
            remark: Some(remarks.collect::<Vec<_>>().join("; ")),
        }
    });
    Check {
        cells: judged.chain(new).collect(),
        thresholds: thresholds.clone(),
    }
}

/// Returns the remark on a cell of the baseline that was not run. It names the settings with which
/// the model ran instead, if it did.
fn absence(key: &Key, now: &Baseline) -> String {
    let others = now.rows.iter().map(|row| &row.key);
    let mut others = others.filter(|other| other.same_model_and_task(key));
    let Some(other) = others.next() else {
        return "in the baseline, but no record of it was found".to_owned();
    };
    let set = match other.set.is_empty() {
        true => "without --set".to_owned(),
        false => format!("with --set {}", other.set),
    };
    let (recipe, precision) = (&other.recipe, &other.precision);
    format!(
        "in the baseline, but no record of it was found: the model ran with other settings (recipe {recipe}, {set}, {precision} on {})",
        other.device
    )
}

fn figures(before: Option<&Row>, now: Option<&Row>) -> Vec<(Option<f64>, Option<f64>)> {
    let figure = |aspect: Aspect, row: Option<&Row>| row.and_then(|row| aspect.figure(row));
    let pairs = Aspect::ALL.map(|aspect| (figure(aspect, before), figure(aspect, now)));
    pairs.into()
}

fn compare(before: &Row, row: &Row, cells: (&Cells, &Cells), thresholds: &Thresholds) -> Judged {
    let unlike = |state: State, remark: String| Judged {
        key: row.key.clone(),
        state,
        findings: vec![],
        figures: figures(Some(before), Some(row)),
        ended_badly: false,
        remark: Some(remark),
    };
    if let Some(damaged) = &row.damaged {
        return unlike(State::Regressed, damaged.clone());
    }
    // Where all seeds are scored now, the figures are compared as well.
    let ended = (before.outcome != row.outcome).then(|| {
        format!(
            "ended: {}; in the baseline: {}",
            row.outcome, before.outcome
        )
    });
    let better = row.all_scored() && row.seeds == before.seeds && row.data == before.data;
    if let (Some(ended), false) = (&ended, better) {
        return unlike(State::Regressed, ended.clone());
    }
    if row.data != before.data {
        let remark = format!("its data is not that of the baseline ({ANEW})");
        return unlike(State::Changed, remark);
    }
    if row.seeds != before.seeds {
        let remark = format!(
            "ran with seeds {}, the baseline has {} (run the same ones with --seeds, or {})",
            row.seeds, before.seeds, ANEW
        );
        return unlike(State::Changed, remark);
    }
    let findings = aspect::findings(before, row, ended.is_none(), cells, thresholds);
    let settings = other_settings(before, row);
    let size = other_size(before, row);
    let any = |of: fn(&Finding) -> bool| findings.iter().any(of);
    let state = if size.is_some() || any(|finding| matches!(finding, Finding::Worse(_))) {
        State::Regressed
    } else if settings.is_some() {
        State::Changed
    } else if ended.is_some() || any(|finding| matches!(finding, Finding::Better(_))) {
        State::Improved
    } else {
        State::Passed
    };
    Judged {
        key: row.key.clone(),
        state,
        findings,
        figures: figures(Some(before), Some(row)),
        ended_badly: false,
        remark: ended
            .into_iter()
            .chain(settings)
            .chain(size)
            .reduce(|all, one| all + "; " + &one),
    }
}

/// The way out where a change of seeds, data or settings is meant.
const ANEW: &str = "if that is meant, write the baseline anew with --update";

/// Runs with other settings answer another question, even if their names are equal.
fn other_settings(before: &Row, row: &Row) -> Option<String> {
    if before.spec.is_empty() || before.spec == row.spec {
        return None;
    }
    Some(match row.spec.as_str() {
        "" => "its records do not say with which settings they ran".to_owned(),
        spec => format!(
            "ran with settings {spec}, the baseline with {} ({ANEW})",
            before.spec
        ),
    })
}

fn other_size(before: &Row, row: &Row) -> Option<String> {
    let was = before.parameters?;
    let is = row.parameters.unwrap_or(0);
    (is != was).then(|| {
        let (is, was) = (counted(is, "parameter"), grouped(was));
        format!("has {is}, the baseline {was}")
    })
}
