//! Each accuracy held against a published figure.

use std::collections::BTreeMap;

use serde_json::json;

use super::capped;
use crate::format::percent;
use crate::pivot::{Pivot, TRAINING};
use crate::published::{Comparison, Source, compare};
use crate::record::{Outcome, Record};
use crate::stats::{Sample, binomial_error};
use crate::table::{Cell, Column, Row, Table};

/// The level of the intervals.
const LEVEL: f64 = 0.95;
/// Standard errors on either side of a single score that make an interval of [`LEVEL`].
const REACH: f64 = 1.96;

/// One row per cell that the source has a figure for.
pub(super) fn table(records: &[Record], against: Option<&Source>) -> Table {
    let pivot = Pivot::new(records, &[TRAINING]);
    let mut columns = vec![Column::key("task"), Column::key("model")];
    columns.extend(pivot.varying.iter().copied().map(Column::key));
    columns.extend(["ours", "interval", "published", "difference"].map(Column::value));
    columns.push(Column::text("verdict"));
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    let mut remarks = Vec::new();
    let mut counted = false;
    let mut apart: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (index, column) in pivot.columns.iter().enumerate() {
        for row in &pivot.rows {
            let runs = &row.cells[index];
            let (Some(run), Some(source)) = (runs.first(), against) else {
                continue;
            };
            let (figure, footing) = match compare(run, source) {
                Comparison::Absent => continue,
                Comparison::Beside {
                    figure,
                    same_recipe,
                    caveats,
                } => {
                    let caveats = caveats.into_iter();
                    remarks.extend(
                        caveats.map(|caveat| format!("{} on {column}: {caveat}.", row.model)),
                    );
                    let footing = if same_recipe {
                        Footing::SameRecipe
                    } else {
                        Footing::OtherRecipe
                    };
                    (figure, footing)
                }
                Comparison::Apart { figure, reasons } => {
                    let cell = format!("{} on {column}", row.model);
                    apart.entry(reasons.join(", ")).or_default().push(cell);
                    (figure, Footing::Apart)
                }
            };
            let ours = Ours::of(runs);
            counted |= ours.as_ref().is_some_and(|ours| ours.seeds == 1);
            let theirs = figure.value.map(|value| value / 100.0);
            let verdict = word(ours.as_ref(), theirs, footing);
            let mut cells = vec![Cell::text(column), Cell::text(row.model)];
            cells.extend(row.varying.iter().map(Cell::text));
            cells.push(ours.as_ref().map_or_else(
                || Cell::text(runs[0].outcome.word()),
                |ours| Cell::with(percent(ours.mean), "mean", 100.0 * ours.mean),
            ));
            cells.push(ours.as_ref().map_or_else(Cell::default, |ours| Cell {
                text: format!("{} to {}", percent(ours.low), percent(ours.high)),
                fields: vec![
                    ("low", json!(100.0 * ours.low)),
                    ("high", json!(100.0 * ours.high)),
                ],
                ..Cell::default()
            }));
            cells.push(match figure.value {
                // A score on other data has nothing to do with the task: not even the figure is shown.
                _ if !run.task.genuine() => Cell::default(),
                Some(value) => Cell::with(figure.text(), "mean", value),
                None => Cell::text(figure.text()),
            });
            let difference = ours.as_ref().zip(theirs);
            let difference = difference.filter(|_| footing != Footing::Apart);
            cells.push(difference.map_or_else(Cell::default, |(ours, theirs)| {
                let points = 100.0 * (ours.mean - theirs);
                Cell::with(format!("{points:+.2}"), "difference", points)
            }));
            cells.push(Cell::text(verdict));
            rows.push(Row::new(cells));
        }
    }
    let apart = apart.into_iter();
    notes.extend(
        apart.map(|(reasons, cells)| format!("Not comparable: {}: {reasons}.", cells.join(", "))),
    );
    capped(&mut notes, remarks);
    let alias = against.map_or("no source", |source| source.alias);
    let shown = |verdict: &str| {
        let verdicts = rows.iter().filter_map(|row| row.cells.last());
        verdicts.filter(|cell| cell.text.contains(verdict)).count() > 0
    };
    let mut legend = vec![format!(
        "reproduced: the published figure lies within our {:.0} % interval for the mean over seeds; better or worse: it lies below or above.",
        100.0 * LEVEL
    )];
    if counted {
        legend.push("Where there is one seed, the interval is that of counting right answers on the test split: it knows nothing of other seeds.".to_owned());
    }
    if shown(ONE_SEED) {
        legend.push(format!(
            "{ONE_SEED}: above, below or near the published figure is all that one seed can say."
        ));
    }
    if shown(OTHER_RECIPE) {
        legend.push(format!("other recipe: trained otherwise than in {alias}, so a difference says nothing about the model."));
    }
    notes.splice(..0, legend);
    if rows.is_empty() {
        notes = vec![format!("No cell of these records has a figure in {alias}.")];
    }
    Table {
        name: "comparison".to_owned(),
        title: format!("Test accuracy against {alias}, %"),
        unit: "%".to_owned(),
        columns,
        rows,
        notes,
    }
}

/// How a run of ours and a published figure stand to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Footing {
    /// The same task, learned by the same recipe.
    SameRecipe,
    /// The same task, learned by another published recipe.
    OtherRecipe,
    /// Not the same task, or not a published recipe.
    Apart,
}

const OTHER_RECIPE: &str = "other recipe";
const ONE_SEED: &str = "1 seed";

/// A mean over seeds and how sure it is, as fractions.
struct Ours {
    mean: f64,
    low: f64,
    high: f64,
    /// How many seeds were scored. Of a single one the interval is from the count of right answers.
    seeds: usize,
}

impl Ours {
    fn of(runs: &[&Record]) -> Option<Ours> {
        let scored = runs.iter().filter(|run| run.outcome == Outcome::Scored);
        let values: Vec<f64> = scored.filter_map(|run| run.test_accuracy()).collect();
        let sample = Sample::of(&values)?;
        let (low, high) = sample.interval(LEVEL).unwrap_or_else(|| {
            let error = binomial_error(sample.mean, runs[0].task.rows.test);
            (sample.mean - REACH * error, sample.mean + REACH * error)
        });
        Some(Ours {
            mean: sample.mean,
            low: low.max(0.0),
            high: high.min(1.0),
            seeds: sample.count,
        })
    }
}

/// The verdict. Better or worse is only said of several seeds trained by the source's own recipe.
fn word(ours: Option<&Ours>, theirs: Option<f64>, footing: Footing) -> String {
    let (ours, theirs) = match (footing, ours, theirs) {
        (Footing::Apart, _, _) => return "not comparable".to_owned(),
        (_, None, _) => return "no score of ours".to_owned(),
        (_, _, None) => return "no number published".to_owned(),
        (Footing::OtherRecipe, _, _) => return OTHER_RECIPE.to_owned(),
        (Footing::SameRecipe, Some(ours), Some(theirs)) => (ours, theirs),
    };
    let [over, under, within] = match ours.seeds {
        1 => ["above", "below", "near"],
        _ => ["better", "worse", "reproduced"],
    };
    let found = match theirs {
        theirs if theirs < ours.low => over,
        theirs if theirs > ours.high => under,
        _ => within,
    };
    match ours.seeds {
        1 => format!("{found} ({ONE_SEED})"),
        _ => found.to_owned(),
    }
}
