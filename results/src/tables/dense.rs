//! The table of labels at positions: models by tasks, a row for whole sequences, one for all
//! positions and one for each group of them.

use serde_json::json;

use super::{capped, endings, every_row, info, origins, status, told};
use crate::format::percent;
use crate::pivot::{Pivot, TRAINING};
use crate::published::Source;
use crate::record::{Outcome, Record};
use crate::stats::Sample;
use crate::table::{Cell, Column, MEASURED, Row, Schema, Table};

/// Names of the rows that are not groups.
const WHOLE: &str = "whole sequences";
const ALL: &str = "all positions";

/// Makes the table of runs that have such labels, and of those on the same data that were not
/// scored.
pub(super) fn table(records: &[Record], _against: Option<&Source>) -> Table {
    let scored = || records.iter().filter(|run| run.test_dense().is_some());
    let same_data = |one: &Record, other: &Record| {
        (&one.task.label, &one.task.data_digest) == (&other.task.label, &other.task.data_digest)
    };
    let labelled: Vec<Record> = records
        .iter()
        .filter(|run| {
            let ended = run.outcome != Outcome::Scored;
            run.test_dense().is_some() || ended && scored().any(|other| same_data(run, other))
        })
        .cloned()
        .collect();
    let pivot = Pivot::new(&labelled, &[TRAINING]);
    let mut columns = vec![Column::key("model"), Column::key("from")];
    columns.extend(pivot.varying.iter().copied().map(Column::key));
    columns.push(Column::key("labels"));
    let values = pivot.columns.iter().zip(&pivot.facts);
    columns.extend(values.map(|(name, facts)| {
        let fields = &["mean", "deviation", "seeds", "majority", "status"];
        Column::value(name).info(facts.clone()).holding(fields)
    }));
    let mut rows = Vec::new();
    let mut ended = Vec::new();
    for row in &pivot.rows {
        for (runs, column) in row.cells.iter().zip(&pivot.columns) {
            ended.extend(told(row.model, column, runs));
        }
        let mut names = vec![WHOLE.to_owned(), ALL.to_owned()];
        let found = row
            .cells
            .iter()
            .flatten()
            .filter_map(|run| run.test_dense());
        for group in found.flat_map(|it| &it.groups) {
            if !names.contains(&group.name) {
                names.push(group.name.clone());
            }
        }
        for name in names {
            let mut cells = vec![Cell::text(row.model), Cell::text(MEASURED)];
            cells.extend(row.varying.iter().map(Cell::text));
            cells.push(Cell::text(&name));
            cells.extend(row.cells.iter().map(|runs| cell(runs, &name)));
            rows.push(Row {
                facts: row.facts.clone(),
                ..Row::new(cells)
            });
        }
    }
    let mut notes = Vec::new();
    if rows.is_empty() {
        notes.push("No run has labels at positions (`--set data.dense=true`).".to_owned());
    }
    notes.push(
        "Share of labels that are right, on the test split; ± sample standard deviation over the seeds. In brackets the accuracy of always \
         answering a group's most frequent class."
            .to_owned(),
    );
    notes.extend(every_row(&pivot));
    notes.extend(origins(&pivot));
    capped(&mut notes, ended);
    Table {
        name: "dense".to_owned(),
        title: "Labels at positions, test accuracy, %".to_owned(),
        unit: "%".to_owned(),
        columns,
        rows,
        notes,
        schema: Schema {
            info: info!("labels"),
            found: &[
                "mean_percent",
                "deviation_percent",
                "seeds",
                "majority_percent",
                "status",
            ],
        },
    }
}

/// Returns the mean over the seeds of the accuracy on labels of this name, with the majority
/// accuracy.
fn cell(runs: &[&Record], name: &str) -> Cell {
    let group = |run: &Record| -> Option<(f64, Option<f64>)> {
        let dense = run.test_dense()?;
        match name {
            WHOLE => Some((run.test_accuracy()?, run.majority())),
            ALL => Some((dense.accuracy, None)),
            name => {
                let group = dense.groups.iter().find(|it| it.name == name)?;
                Some((group.accuracy, group.majority))
            }
        }
    };
    let found: Vec<(f64, Option<f64>)> = runs.iter().filter_map(|run| group(run)).collect();
    let accuracies: Vec<f64> = found.iter().map(|(accuracy, _)| 100.0 * accuracy).collect();
    let words = endings(runs, !found.is_empty());
    let Some(sample) = Sample::of(&accuracies) else {
        return match words.is_empty() {
            true => Cell::default(),
            false => Cell::with(words.join(", "), "status", status(&words)),
        };
    };
    let majority = found.first().and_then(|(_, majority)| *majority);
    let mut text = format!("{:.2}", sample.mean);
    if let Some(deviation) = sample.deviation {
        text += &format!(" ±{deviation:.2}");
    }
    if let Some(majority) = majority {
        text += &format!(" ({})", percent(majority));
    }
    if !words.is_empty() {
        text += &format!(" {}", words.join(", "));
    }
    Cell {
        text,
        fields: vec![
            ("mean", json!(sample.mean)),
            ("deviation", json!(sample.deviation)),
            ("seeds", json!(found.len())),
            ("majority", json!(majority.map(|share| 100.0 * share))),
            ("status", status(&words)),
        ],
        ..Cell::default()
    }
}
