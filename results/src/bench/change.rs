//! Comparison of two builds of the program, which measure every cell in turn, round by round. A
//! slow phase of the machine affects both, so their ratio shows changes that would be noise between
//! separate runs.

use serde_json::json;

use super::setting::{self, info};
use super::tables::times;
use super::{Bench, Outcome, range_words, speed_ratios};
use crate::format::short;
use crate::stats::{median_interval, quantile};
use crate::table::{Cell, Column, Row, Schema, Table};
use crate::tone::Tone;

/// The level of the intervals.
const LEVEL: f64 = 0.95;

/// Speed of a build, as a multiple of the base's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The median over the rounds.
    pub ratio: f64,
    /// Its 95 % interval; `None` for too few rounds.
    pub interval: Option<(f64, f64)>,
}

/// The verdict on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No slower than allowed, over the whole interval.
    Same,
    /// Only a part of the interval is slower than allowed.
    Unsure,
    /// Faster, by more than the allowed loss.
    Faster,
    /// Slower than allowed.
    Slower,
    /// Measured by the base, but not by this build.
    Lost,
    /// Not measured by the base, so there is nothing to compare with.
    New,
    /// Measured by neither build.
    Neither,
    /// Too few rounds for an interval.
    Unjudged,
}

impl Verdict {
    /// Returns the word in the table.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Same => "ok",
            Verdict::Unsure => "cannot tell",
            Verdict::Faster => "faster",
            Verdict::Slower => "SLOWER",
            Verdict::Lost => "LOST",
            Verdict::New => "new",
            Verdict::Neither => "not measured",
            Verdict::Unjudged => "too few rounds",
        }
    }

    /// Returns what it means for the comparison.
    fn tone(self) -> Option<Tone> {
        match self {
            Verdict::Faster => Some(Tone::Good),
            Verdict::Unsure => Some(Tone::Caution),
            _ => self.fails().then_some(Tone::Bad),
        }
    }

    /// Returns whether this verdict fails the comparison.
    pub fn fails(self) -> bool {
        matches!(self, Verdict::Slower | Verdict::Lost)
    }
}

/// The cells of a session, compared with their base.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// One row per cell.
    pub table: Table,
    /// Returns whether cells were compared and none of them got slower.
    pub passed: bool,
}

impl Bench {
    /// Returns this build's speed over the base's, from the rounds that both measured.
    pub fn change(&self) -> Option<Change> {
        let ratios = speed_ratios(&self.rounds, &self.base.as_ref()?.rounds);
        Some(Change {
            ratio: quantile(&ratios, 0.5)?,
            interval: median_interval(&ratios, LEVEL),
        })
    }

    /// Returns the verdict, if a fraction `threshold` of the speed may be lost, such as 0.1.
    pub fn verdict(&self, threshold: f64) -> Option<Verdict> {
        let base = self.base.as_ref()?;
        let measured = (
            base.outcome == Outcome::Measured && !base.rounds.is_empty(),
            self.outcome == Outcome::Measured && !self.rounds.is_empty(),
        );
        Some(match (measured, self.change()) {
            ((false, true), _) => Verdict::New,
            ((false, false), _) => Verdict::Neither,
            ((true, false), _) => Verdict::Lost,
            ((true, true), None) => Verdict::Unjudged,
            ((true, true), Some(change)) => match change.interval {
                None => Verdict::Unjudged,
                Some((_, high)) if high < 1.0 - threshold => Verdict::Slower,
                Some((low, _)) if low > 1.0 / (1.0 - threshold) => Verdict::Faster,
                Some((low, _)) if low < 1.0 - threshold => Verdict::Unsure,
                Some(_) => Verdict::Same,
            },
        })
    }
}

/// Judges the cells of a session by the fraction of its speed that a build may lose, such as 0.1.
/// Returns `None` if the session had no base. A session without a compared cell has not passed.
pub fn against_base(cells: &[Bench], threshold: f64) -> Option<Comparison> {
    let judged: Vec<(&Bench, Verdict)> = cells
        .iter()
        .filter_map(|cell| Some((cell, cell.verdict(threshold)?)))
        .collect();
    let (first, _) = judged.first()?;
    let program = first.base.as_ref().map(|base| base.program.clone())?;
    let known =
        |verdict: &Verdict| !matches!(verdict, Verdict::New | Verdict::Neither | Verdict::Unjudged);
    let any = judged.iter().any(|(_, verdict)| known(verdict));
    let passed = any && !judged.iter().any(|(_, verdict)| verdict.fails());

    let columns = [
        Column::key("model"),
        Column::key("length").holding(&["length"]),
        Column::value("base, steps/s").holding(&["value"]),
        Column::value("steps/s").holding(&["value"]),
        Column::value("times").holding(&["value"]),
        Column::value("interval").holding(&["low", "high"]),
        Column::value("memory").holding(&["value"]),
        Column::text("verdict"),
    ];
    let rows = judged.iter().map(|(cell, verdict)| row(cell, *verdict));
    let rounds = judged.iter().map(|(cell, _)| cell.measured().len());
    let rounds = range_words(rounds.filter(|count| *count > 0), "round");
    let mut notes = vec![format!(
        "times: speed over that of {program}, the median of the ratios within {} in which the two take turns, with its \
         {:.0} % interval by ranks; memory: peak over peak.",
        rounds.as_deref().unwrap_or("0 rounds"),
        100.0 * LEVEL
    )];
    notes.push(format!(
        "SLOWER: the whole interval lies below {:.2}, more than {:.0} % of the speed is lost; cannot tell: a part of it \
         does; LOST: only the base measured it; new: only this build did; not measured: neither did.",
        1.0 - threshold,
        100.0 * threshold
    ));
    if !any {
        notes.insert(0, "No cell could be compared.".to_owned());
    }
    let unlike = judged.iter().filter_map(|(cell, _)| {
        let base = cell.base.as_ref()?;
        (base.outcome != Outcome::Measured).then(|| {
            let place = format!("{} at {}", cell.label(), cell.length);
            format!("{place}, base: {}.", base.outcome)
        })
    });
    notes.extend(unlike);
    let title = if passed { "passed" } else { "FAILED" };
    Some(Comparison {
        passed,
        table: Table {
            name: "bench-change".to_owned(),
            title: format!("Speed against the base: {title}"),
            unit: String::new(),
            columns: columns.into(),
            rows: rows.collect(),
            notes,
            schema: Schema {
                info: info!("model", "length"),
                found: &[
                    "base_steps_per_second",
                    "steps_per_second",
                    "times",
                    "low",
                    "high",
                    "memory",
                    "verdict",
                ],
            },
        },
    })
}

fn row(cell: &Bench, verdict: Verdict) -> Row {
    let rate = |rounds: &[super::Round]| {
        let rate = super::rate(rounds);
        rate.map_or_else(Cell::default, |rate| Cell::with(short(rate), "value", rate))
    };
    // Builds that include the memory held at the start are not compared with builds that do not.
    let peak = |rounds: &[super::Round]| {
        let highest = rounds.iter().max_by_key(|round| round.peak_bytes)?;
        Some((highest.peak_bytes, highest.base_bytes > 0))
    };
    let base = cell.base.as_ref().map_or(&[][..], |base| &base.rounds);
    let change = cell.change();
    let interval = change.and_then(|change| change.interval);
    let ratio = |ratio: f64| Cell::with(format!("{}×", times(ratio)), "value", ratio);
    let peaks = peak(&cell.rounds).zip(peak(base));
    let memory = peaks.filter(|(mine, theirs)| theirs.0 > 0 && mine.1 == theirs.1);
    let cells = vec![
        Cell::text(cell.label()),
        Cell::with(cell.length.to_string(), "length", cell.length),
        rate(base),
        rate(&cell.rounds),
        change.map_or_else(Cell::default, |change| ratio(change.ratio)),
        interval.map_or_else(Cell::default, |(low, high)| Cell {
            text: format!("{} to {}", times(low), times(high)),
            fields: vec![("low", json!(low)), ("high", json!(high))],
            ..Cell::default()
        }),
        memory.map_or_else(Cell::default, |((mine, _), (theirs, _))| {
            ratio(mine as f64 / theirs as f64)
        }),
        Cell::text(verdict.word()).toned(verdict.tone()),
    ];
    Row {
        facts: setting::facts(cell),
        ..Row::new(cells)
    }
}
