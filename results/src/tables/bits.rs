//! The table of bits gained: models by tasks, each cell the mean over its seeds, with the number of
//! seeds that learned anything.

use serde_json::json;

use super::{capped, endings, every_row, info, origins, status, told};
use crate::agreement::{Agreement, Measure, Selection, select};
use crate::format::counted;
use crate::pivot::{Pivot, PivotRow, TRAINING, mixture};
use crate::published::Source;
use crate::record::Record;
use crate::stats::Sample;
use crate::table::{Best, Cell, Column, MEASURED, Row, Schema, Table};
use crate::tone::Tone;

/// Least number of anchors for an agreement.
pub(super) const FEWEST: usize = 3;

/// Makes the table. It leaves out published figures, which are of another quantity, and models
/// without any bits. A diverged run has 0 bits.
pub(super) fn table(records: &[Record], _against: Option<&Source>) -> Table {
    let pivot = Pivot::new(records, &[TRAINING]);
    let defined: Vec<bool> = (0..pivot.columns.len())
        .map(|at| defined(pivot.rows.iter().flat_map(|row| &row.cells[at]).copied()))
        .collect();
    let known = |run: &&Record| Measure::Bits.reached(run).is_some();
    let shown = |row: &&PivotRow| {
        let mut cells = row.cells.iter().zip(&defined);
        cells.any(|(runs, defined)| *defined && runs.iter().any(known))
    };
    let mut columns = vec![Column::key("model"), Column::key("from")];
    columns.extend(pivot.varying.iter().copied().map(Column::key));
    let values = pivot.columns.iter().zip(&pivot.facts);
    columns.extend(values.map(|(name, facts)| {
        let fields = &[
            "mean",
            "deviation",
            "seeds",
            "trained",
            "trained_mean",
            "status",
        ];
        Column::value(name).info(facts.clone()).holding(fields)
    }));
    let mut ended = Vec::new();
    let mut rows = Vec::new();
    for row in pivot.rows.iter().filter(shown) {
        let mut cells = vec![Cell::text(row.model), Cell::text(MEASURED)];
        cells.extend(row.varying.iter().map(Cell::text));
        let values = row.cells.iter().zip(&defined);
        cells.extend(values.map(|(runs, defined)| cell(runs, *defined)));
        rows.push(Row {
            facts: row.facts.clone(),
            contest: Some(row.contest()),
            ..Row::new(cells)
        });
        for (runs, column) in row.cells.iter().zip(&pivot.columns) {
            ended.extend(told(row.model, column, runs));
            if let Some(mixture) = mixture(runs) {
                ended.push(format!("{} on {column}: seeds of {mixture}.", row.model));
            }
        }
    }
    let mut notes = vec![
        "How much lower the loss is than that of always predicting the class shares, in percent, 0 to 100: the mean over the validations \
         and the final test, so that speed of learning counts; ± sample standard deviation over the seeds."
            .to_owned(),
        "k/n trained: only k of n seeds ended more than 2 % below that loss; their mean follows the colon.".to_owned(),
    ];
    notes.extend(without_prior(&pivot, &defined));
    notes.extend(left_out(&pivot, &defined));
    notes.extend(every_row(&pivot));
    notes.extend(origins(&pivot));
    notes.extend(agreement(records));
    capped(&mut notes, ended);
    let table = Table {
        name: "bits".to_owned(),
        title: "Bits gained, 0 to 100".to_owned(),
        unit: "%".to_owned(),
        columns,
        rows,
        notes,
        schema: Schema {
            info: info!(),
            found: &[
                "mean_percent",
                "deviation_percent",
                "seeds",
                "trained",
                "trained_mean_percent",
                "status",
            ],
        },
    };
    table.with_best("mean", Best::Highest)
}

/// Returns whether bits are defined on the data of these runs. They are not if no scored run has
/// them, because there is no prior loss.
fn defined<'a>(runs: impl Iterator<Item = &'a Record>) -> bool {
    let scored: Vec<&Record> = runs.filter(|run| run.test_accuracy().is_some()).collect();
    scored.is_empty() || scored.iter().any(|run| !has_no_bits(run))
}

fn has_no_bits(run: &Record) -> bool {
    let scores = run.scores.as_ref();
    scores.is_some_and(|scores| scores.test_accuracy.is_some() && scores.bits_gained.is_none())
}

/// Returns a sentence on scored runs without bits, where others have them; `None` if there are
/// none.
fn left_out(pivot: &Pivot, defined: &[bool]) -> Option<String> {
    let cells = pivot
        .rows
        .iter()
        .flat_map(|row| row.cells.iter().zip(defined));
    let runs = cells
        .filter(|(_, defined)| **defined)
        .flat_map(|(runs, _)| runs);
    let count = runs.filter(|run| has_no_bits(run)).count();
    (count > 0).then(|| {
        format!(
            "{} left out: records without bits.",
            counted(count as u64, "run")
        )
    })
}

/// Returns a sentence with the columns that have no bits; `None` if there are none.
fn without_prior(pivot: &Pivot, defined: &[bool]) -> Option<String> {
    let columns = pivot.columns.iter().zip(defined);
    let without: Vec<&str> = columns
        .filter(|(_, defined)| !**defined)
        .map(|(name, _)| name.as_str())
        .collect();
    (!without.is_empty()).then(|| {
        format!(
            "No bits on {}: the loss of the class shares is undefined there, because validation has a label that training lacks.",
            without.join(", ")
        )
    })
}

/// Returns the mean over the seeds, and the number of seeds that learned anything. Without bits it
/// has only the endings of the runs.
fn cell(runs: &[&Record], defined: bool) -> Cell {
    let reached = |run: &&Record| {
        let bits = Measure::Bits.reached(run).filter(|_| defined)?;
        Some((100.0 * bits, trained(run)))
    };
    let reached: Vec<(f64, bool)> = runs.iter().filter_map(reached).collect();
    let all: Vec<f64> = reached.iter().map(|(value, _)| *value).collect();
    let of_trained = reached.iter().filter(|(_, trained)| *trained);
    let of_trained: Vec<f64> = of_trained.map(|(value, _)| *value).collect();
    let words = endings(runs, !all.is_empty());
    let Some(sample) = Sample::of(&all) else {
        if words.is_empty() {
            return Cell::default();
        }
        return Cell::with(words.join(", "), "status", status(&words));
    };
    let mut text = format!("{:.1}", sample.mean);
    if let Some(deviation) = sample.deviation {
        text += &format!(" ±{deviation:.1}");
    }
    let best = Sample::of(&of_trained).map(|sample| sample.mean);
    if of_trained.len() < all.len() {
        text += &format!(", {}/{} trained", of_trained.len(), all.len());
        if let Some(mean) = best {
            text += &format!(": {mean:.1}");
        }
    }
    if !words.is_empty() {
        text += &format!("; {}", words.join(", "));
    }
    Cell {
        text,
        fields: vec![
            ("mean", json!(sample.mean)),
            ("deviation", json!(sample.deviation)),
            ("seeds", json!(all.len())),
            ("trained", json!(of_trained.len())),
            ("trained_mean", json!(best)),
            ("status", status(&words)),
        ],
        tone: match () {
            () if !words.is_empty() => Some(Tone::Bad),
            () if of_trained.len() < all.len() => Some(Tone::Caution),
            () => None,
        },
        ..Cell::default()
    }
}

/// Returns whether a run ended well below the loss of the class shares.
fn trained(run: &Record) -> bool {
    let scores = run.scores.as_ref();
    scores.and_then(|scores| scores.trained()) == Some(true)
}

/// Returns the agreement of the runs with published tables, if they share one protocol and include
/// enough anchors.
fn agreement(records: &[Record]) -> Option<String> {
    let honest = records
        .iter()
        .filter(|it| it.changed_on_the_way().is_none());
    let honest: Vec<Record> = honest.cloned().collect();
    let chosen = select(&honest, &Selection::default()).ok()?;
    let agreement = Agreement::of(&chosen, Some(Measure::Bits), None);
    (agreement.models.len() >= FEWEST).then(|| agreement.line())
}
