//! Comparison of each accuracy with a published figure.

use std::collections::BTreeMap;

use super::capped;
use super::judged::{self, Judged, OTHER_RECIPE, found};
use crate::pivot::{Pivot, TRAINING};
use crate::published::Source;
use crate::record::Record;
use crate::table::{Cell, Column, Schema, Table};

/// Returns one row per cell with a figure in the source.
pub(super) fn table(records: &[Record], against: Option<&Source>) -> Table {
    let pivot = Pivot::new(records, &[TRAINING]);
    let mut columns = vec![Column::key("task"), Column::key("model")];
    columns.extend(pivot.varying.iter().copied().map(Column::key));
    columns.extend(Judged::columns());
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    let mut remarks = Vec::new();
    let mut counted = false;
    let mut apart: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (index, column) in pivot.columns.iter().enumerate() {
        for row in &pivot.rows {
            let Some(source) = against else {
                continue;
            };
            let Some(found) = Judged::of(&row.cells[index], source) else {
                continue;
            };
            let cell = format!("{} on {column}", row.model);
            remarks.extend(found.remarks(&cell));
            if !found.reasons.is_empty() {
                apart
                    .entry(found.reasons.join(", "))
                    .or_default()
                    .push(cell);
            }
            counted |= found.ours.is_some_and(|ours| ours.seeds == 1);
            let mut cells = vec![Cell::text(column), Cell::text(row.model)];
            cells.extend(row.varying.iter().map(Cell::text));
            cells.extend(found.cells());
            rows.push(judged::row(cells, source, &row.facts, &pivot.facts[index]));
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
    let mut legend = vec![judged::legend()];
    if counted {
        legend.push(judged::ONE_SEED.to_owned());
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
            info: judged::INFO,
            found: found!(),
        },
    }
}
