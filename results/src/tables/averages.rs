//! Averages over tasks, one column per convention.

use serde_json::Value;

use super::{capped, endings, status, told};
use crate::average::{CONVENTIONS, Score};
use crate::format;
use crate::pivot::{Pivot, TRAINING};
use crate::published::{ACCURACY, Source};
use crate::record::{Outcome, Record};
use crate::stats::Sample;
use crate::table::{Best, Cell, Column, MEASURED, Row, Schema, Table};
use crate::verdict::Verdict;

/// Returns one row per model and setting that has any average, with the published row recomputed
/// below it.
pub(super) fn table(records: &[Record], against: Option<&Source>) -> Table {
    let pivot = Pivot::new(records, &[TRAINING]);
    let mut columns = vec![Column::key("model"), Column::key("from")];
    columns.extend(pivot.varying.iter().copied().map(Column::key));
    columns.extend(CONVENTIONS.iter().map(|convention| {
        Column::value(convention.name)
            .info(vec![("average", convention.name.into())])
            .holding(&["mean", "status"])
    }));
    let mut rows = Vec::new();
    let mut reduced = false;
    let mut ended = Vec::new();
    for row in &pivot.rows {
        let ours = |task: &str| {
            let mut places = (0..pivot.tasks.len()).filter(|column| pivot.tasks[*column] == task);
            match (places.next(), places.next()) {
                (Some(column), None) => score(&row.cells[column]),
                // If a task has two data sets, neither counts as the task.
                _ => Score::Absent,
            }
        };
        // A mean over the seeds that were left says so.
        let mut words = Vec::new();
        let mut sentences = Vec::new();
        let on_tasks = row.cells.iter().zip(&pivot.columns).zip(&pivot.tasks);
        for ((runs, column), _) in on_tasks.filter(|(_, task)| !task.is_empty()) {
            let has_score = runs.iter().any(|run| run.outcome == Outcome::Scored);
            let endings = endings(runs, has_score).into_iter();
            words.extend(endings.map(|ending| format!("{column}: {ending}")));
            sentences.extend(told(row.model, column, runs));
        }
        let Some(cells) = averages(ours, status(&words)) else {
            continue;
        };
        ended.extend(sentences);
        reduced |= row
            .cells
            .iter()
            .flatten()
            .any(|run| run.task.label != run.task.name);
        let mut keys = vec![Cell::text(row.model), Cell::text(MEASURED)];
        keys.extend(row.varying.iter().map(Cell::text));
        rows.push(Row {
            facts: row.facts.clone(),
            contest: Some(row.contest()),
            ..Row::new(keys.into_iter().chain(cells).collect())
        });

        let Some(source) = against else { continue };
        let theirs = |task: &str| match source.cell(row.model, task, ACCURACY) {
            None => Score::Absent,
            Some(figure) => figure.value.map_or(Score::Failed, Score::Value),
        };
        if let Some(cells) = averages(theirs, Value::Null) {
            let mut keys = vec![Cell::text(row.model), Cell::text(source.alias)];
            keys.extend(row.varying.iter().map(|_| Cell::default()));
            rows.push(Row::new(keys.into_iter().chain(cells).collect()));
        }
    }
    let mut notes: Vec<String> = CONVENTIONS
        .iter()
        .map(|convention| format!("{}: {}.", convention.name, convention.meaning))
        .collect();
    if rows.is_empty() {
        notes.insert(0, "No model has been scored on all of the first five tasks from one data set each; stand-ins and altered data do not count.".to_owned());
    }
    if reduced {
        notes.push("Tasks were made smaller: these averages stand beside each other, not beside published ones.".to_owned());
    }
    if against.is_some() {
        notes.push("Published rows are recomputed from the printed cells.".to_owned());
    }
    capped(&mut notes, ended);
    let table = Table {
        name: "averages".to_owned(),
        title: "Average accuracy over the tasks, %".to_owned(),
        unit: "%".to_owned(),
        columns,
        rows,
        notes,
        schema: Schema {
            info: &[
                "model",
                "from",
                "variant",
                "recipe",
                "set",
                "precision",
                "device",
                "average",
            ],
            found: &["mean_percent", "status"],
        },
    };
    table.with_best("mean", Best::Highest)
}

/// Returns the cells of a row, unless all are empty; each has the endings of the row's runs.
fn averages(score: impl Fn(&str) -> Score, status: Value) -> Option<Vec<Cell>> {
    let averages = CONVENTIONS
        .each_ref()
        .map(|convention| convention.of(&score));
    averages.iter().any(Option::is_some).then(|| {
        let cells = averages.into_iter().map(|average| {
            average.map_or_else(Cell::default, |value| Cell {
                text: format::percent(value / 100.0),
                fields: vec![("mean", value.into()), ("status", status.clone())],
                ..Cell::default()
            })
        });
        cells.collect()
    })
}

/// Returns the mean over the seeds in percent; a failure if all seeds failed, or learned no more
/// than the majority class.
fn score(runs: &[&Record]) -> Score {
    let scored = runs.iter().filter(|run| run.outcome == Outcome::Scored);
    let values = scored.filter_map(|run| run.test_accuracy());
    let values: Vec<f64> = values.map(|accuracy| 100.0 * accuracy).collect();
    let ended = |run: &&&Record| {
        !matches!(
            run.outcome,
            Outcome::Scored | Outcome::Interrupted { .. } | Outcome::Unknown
        )
    };
    match Sample::of(&values) {
        Some(sample) => {
            let verdict = Verdict::of_seeds(sample.mean / 100.0, runs);
            match verdict.is_some_and(|verdict| verdict.fail) && is_path_x(runs) {
                true => Score::Failed,
                false => Score::Value(sample.mean),
            }
        }
        None if runs.iter().any(|run| ended(&run)) => Score::Failed,
        None => Score::Absent,
    }
}

/// Returns whether a score at chance is printed as a failure instead of a number, which is done
/// only for Path-X.
fn is_path_x(runs: &[&Record]) -> bool {
    runs.iter()
        .any(|run| crate::published::is_path_x(&run.task.name))
}
