//! Comparison of each accuracy with a published figure.

use std::collections::BTreeMap;

use serde_json::json;

use super::{capped, endings, status};
use crate::equivalence::{Equivalence, LEVEL, MARGIN, Score, margin};
use crate::pivot::{Pivot, TRAINING, mixture};
use crate::published::{Comparison, Source, compare};
use crate::record::Record;
use crate::table::{Cell, Column, MISSING, Row, Schema, Table};

/// Returns one row per cell with a figure in the source.
pub(super) fn table(records: &[Record], against: Option<&Source>) -> Table {
    let pivot = Pivot::new(records, &[TRAINING]);
    let mut columns = vec![Column::key("task"), Column::key("model")];
    columns.extend(pivot.varying.iter().copied().map(Column::key));
    columns.extend([
        Column::value("ours").holding(&["mean", "seeds", "status"]),
        Column::value("interval").holding(&["low", "high"]),
        Column::value("published").holding(&["mean", MISSING]),
        Column::value("difference").holding(&["difference"]),
        Column::text("verdict").holding(&["verdict", "margin"]),
    ]);
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
            let ours = Score::of(runs);
            counted |= ours.as_ref().is_some_and(|ours| ours.seeds == 1);
            let scored = ours.as_ref().map_or(0, |ours| ours.seeds);
            let words = endings(runs, scored > 0);
            if scored > 0 && scored < runs.len() {
                remarks.push(format!(
                    "{} on {column}: mean and interval are over {scored} of {} seeds; {}.",
                    row.model,
                    runs.len(),
                    words.join(", ")
                ));
            }
            if let Some(mixture) = mixture(runs) {
                remarks.push(format!("{} on {column}: seeds of {mixture}.", row.model));
            }
            let margin = margin(source, figure);
            if margin > MARGIN {
                remarks.push(format!(
                    "{} on {column}: the margin is {margin} points, the spread that {} prints.",
                    row.model, source.alias
                ));
            }
            let verdict = Verdict::of(ours.as_ref(), figure.value, margin, footing);
            let mut cells = vec![Cell::text(column), Cell::text(row.model)];
            cells.extend(row.varying.iter().map(Cell::text));
            let shown = ours.map(|ours| format!("{:.2}", ours.mean));
            let shown: Vec<String> = shown
                .into_iter()
                .chain((!words.is_empty()).then(|| words.join(", ")))
                .collect();
            cells.push(Cell {
                text: shown.join(" "),
                fields: vec![
                    ("mean", json!(ours.map(|ours| ours.mean))),
                    ("seeds", json!(scored)),
                    ("status", status(&words)),
                ],
                ..Cell::default()
            });
            let interval = ours.as_ref().and_then(|ours| ours.interval);
            cells.push(interval.map_or_else(Cell::default, |(low, high)| Cell {
                text: format!("{low:.2} to {high:.2}"),
                fields: vec![("low", json!(low)), ("high", json!(high))],
                ..Cell::default()
            }));
            cells.push(match figure.value {
                // A score on other data has nothing to do with the task, so the figure is not
                // shown.
                _ if !run.task.genuine() => Cell::default(),
                Some(value) => Cell::with(figure.text(), "mean", value),
                None => Cell::with(figure.text(), MISSING, figure.text()),
            });
            let difference = ours.as_ref().zip(figure.value);
            let difference = difference.filter(|_| footing != Footing::Apart);
            cells.push(difference.map_or_else(Cell::default, |(ours, theirs)| {
                let points = ours.mean - theirs;
                Cell::with(format!("{points:+.2}"), "difference", points)
            }));
            cells.push(verdict.cell(margin));
            let mut facts = vec![("against", source.alias.into())];
            facts.extend(row.facts.iter().chain(&pivot.facts[index]).cloned());
            rows.push(Row {
                facts,
                ..Row::new(cells)
            });
        }
    }
    let apart = apart.into_iter();
    notes.extend(
        apart.map(|(reasons, cells)| format!("Not comparable: {}: {reasons}.", cells.join(", "))),
    );
    capped(&mut notes, remarks);
    let alias = against.map_or("no source", |source| source.alias);
    let shown = |verdict: &str| {
        let mut verdicts = rows.iter().filter_map(|row| row.cells.last());
        verdicts.any(|cell| cell.text == verdict)
    };
    let mut legend = vec![format!(
        "reproduced: our {:.0} % interval for the mean over seeds lies within {MARGIN} points of the published figure, or within the \
         spread that the source prints, if that is larger, and no seed diverged; differs: the interval lies wholly outside; cannot \
         tell: it lies partly inside, or seeds diverged. The interval is Student's. Its spread is at least the error of counting \
         right answers on the test split, so that seeds with equal scores have an interval too; more seeds narrow it.",
        100.0 * LEVEL
    )];
    if counted {
        legend.push("Where there is one seed, the interval is that of counting right answers on the test split: it knows nothing of other seeds, so there is no verdict.".to_owned());
    }
    if shown(OTHER_RECIPE) {
        legend.push(format!("other recipe: the recipe does not follow source {alias}, so a difference says nothing about the model."));
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
        schema: Schema {
            info: &[
                "task",
                "model",
                "against",
                "variant",
                "recipe",
                "set",
                "precision",
                "device",
                "source",
                "protocol",
                "data",
            ],
            found: &[
                "ours_mean_percent",
                "seeds",
                "status",
                "low_percent",
                "high_percent",
                "published_percent",
                MISSING,
                "difference_percent",
                "verdict",
                "margin_percent",
            ],
        },
    }
}

/// Relation between a run of ours and a published figure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Footing {
    /// Both learned the same task by the same recipe.
    SameRecipe,
    /// Both learned the same task, ours by another published recipe.
    OtherRecipe,
    /// Not the same task, or not a published recipe.
    Apart,
}

const OTHER_RECIPE: &str = "other recipe";

/// The verdict on a cell.
enum Verdict {
    /// It cannot be compared with the figure; the reason in words.
    Not(&'static str),
    /// The result of the comparison.
    Judged(Equivalence),
}

impl Verdict {
    /// Judges a score by a figure in percent. Only runs with the source's own recipe are judged.
    fn of(ours: Option<&Score>, theirs: Option<f64>, margin: f64, footing: Footing) -> Verdict {
        match (footing, ours, theirs) {
            (Footing::Apart, _, _) => Verdict::Not("not comparable"),
            (_, None, _) => Verdict::Not("no score of ours"),
            (_, _, None) => Verdict::Not("no number published"),
            (Footing::OtherRecipe, _, _) => Verdict::Not(OTHER_RECIPE),
            (Footing::SameRecipe, Some(ours), Some(theirs)) => {
                Verdict::Judged(Equivalence::of(ours, theirs, margin))
            }
        }
    }

    fn cell(&self, margin: f64) -> Cell {
        match self {
            Verdict::Not(words) => Cell::with(*words, "verdict", *words),
            Verdict::Judged(found) => Cell {
                text: found.words(),
                fields: vec![("verdict", json!(found.word())), ("margin", json!(margin))],
                ..Cell::default()
            },
        }
    }
}
