//! Averages over tasks, one column per convention.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{capped, endings, every_row, left_unsaid, origins, status, told};
use crate::average::{CONVENTIONS, Score};
use crate::format;
use crate::pivot::{PROTOCOL, Pivot, PivotRow, TRAINING, mixture};
use crate::published::{ACCURACY, Comparison, Source, compare_seeds, is_published_label};
use crate::record::{Outcome, Record};
use crate::stats::Sample;
use crate::table::{Best, Cell, Column, MEASURED, Row, Schema, Table};
use crate::verdict::Verdict;

/// Returns one row per model and setting that has any average, with the published row recomputed
/// below it where every score may be compared with its published figure.
pub(super) fn table(records: &[Record], against: Option<&Source>) -> Table {
    let pivot = Pivot::new(records, &[TRAINING, PROTOCOL]);
    let mut columns = vec![Column::key("model"), Column::key("from")];
    columns.extend(pivot.varying.iter().copied().map(Column::key));
    columns.extend(CONVENTIONS.iter().map(|convention| {
        Column::value(convention.name)
            .info(vec![("average", convention.name.into())])
            .holding(&["mean", "status"])
    }));
    let mut rows = Vec::new();
    let mut facts = Facts::default();
    for row in &pivot.rows {
        let on_tasks = on_tasks(&pivot, row);
        let ours = |task: &str| {
            let mut places = on_tasks.iter().filter(|it| pivot.tasks[**it] == task);
            match (places.next(), places.next()) {
                (Some(column), None) => score(&row.cells[*column]),
                // If a task has two data sets, neither counts as the task.
                _ => Score::Absent,
            }
        };
        // A mean over the seeds that were left says so.
        let mut words = Vec::new();
        for column in &on_tasks {
            let (runs, column) = (&row.cells[*column], &pivot.columns[*column]);
            let has_score = runs.iter().any(|run| run.outcome == Outcome::Scored);
            let endings = endings(runs, has_score).into_iter();
            words.extend(endings.map(|ending| format!("{column}: {ending}")));
        }
        let Some(cells) = averages(ours, status(&words)) else {
            continue;
        };
        let mut keys = vec![Cell::text(row.model), Cell::text(MEASURED)];
        keys.extend(row.varying.iter().map(Cell::text));
        rows.push(Row {
            facts: row.facts.clone(),
            contest: Some(row.contest()),
            ..Row::new(keys.into_iter().chain(cells).collect())
        });
        let comparable = facts.add(&pivot, row, &on_tasks, against);

        let Some(source) = against.filter(|_| comparable) else {
            continue;
        };
        let theirs = |task: &str| match source.cell(row.model, task, ACCURACY) {
            None => Score::Absent,
            Some(figure) => figure.value.map_or(Score::Failed, Score::Value),
        };
        if let Some(cells) = averages(theirs, Value::Null) {
            let mut keys = vec![Cell::text(row.model), Cell::text(source.alias)];
            keys.extend(row.varying.iter().map(|_| Cell::default()));
            rows.push(Row::new(keys.into_iter().chain(cells).collect()));
            facts.published = true;
        }
    }
    let table = Table {
        name: "averages".to_owned(),
        title: "Average accuracy over the tasks, %".to_owned(),
        unit: "%".to_owned(),
        columns,
        notes: match rows.is_empty() {
            true => Facts::default().notes(&pivot),
            false => facts.notes(&pivot),
        },
        rows,
        schema: Schema {
            info: &[
                "model",
                "from",
                "variant",
                "recipe",
                "set",
                "precision",
                "device",
                "protocol",
                "average",
            ],
            found: &["mean_percent", "status"],
        },
    };
    table.with_best("mean", Best::Highest)
}

/// Returns the columns in which a row has runs on a task.
fn on_tasks(pivot: &Pivot, row: &PivotRow) -> Vec<usize> {
    let columns = 0..pivot.columns.len();
    columns
        .filter(|column| !pivot.tasks[*column].is_empty() && !row.cells[*column].is_empty())
        .collect()
}

/// Facts on the rows for the notes.
#[derive(Default)]
struct Facts {
    /// The columns that any row has runs in.
    used: BTreeSet<usize>,
    /// A task is smaller than the published one.
    reduced: bool,
    /// A published row is shown.
    published: bool,
    /// Cells whose seeds do not share what a score may depend on.
    mixtures: Vec<String>,
    /// Reasons why published rows are not shown.
    withheld: Vec<String>,
    /// Notes on the published rows that are shown.
    caveats: Vec<String>,
    /// Reasons why runs ended early.
    ended: Vec<String>,
}

impl Facts {
    /// Adds the facts of a row. Returns whether each of its scores may be compared with the
    /// published one.
    fn add(
        &mut self,
        pivot: &Pivot,
        row: &PivotRow,
        on_tasks: &[usize],
        against: Option<&Source>,
    ) -> bool {
        let (mut withheld, mut caveats) = (Vec::new(), Vec::new());
        for column in on_tasks {
            let (runs, name) = (&row.cells[*column], &pivot.columns[*column]);
            self.used.insert(*column);
            self.ended.extend(told(row.model, name, runs));
            let place = format!("{} on {name}", row.model);
            if let Some(mixture) = mixture(runs) {
                self.mixtures.push(format!("{place}: seeds of {mixture}."));
            }
            let Some(run) = runs.first() else { continue };
            self.reduced |= !is_published_label(&run.task.label, &run.task.name);
            let Some(source) = against else { continue };
            let alias = source.alias;
            match compare_seeds(runs, source) {
                Comparison::Apart { reasons, .. } => withheld.push(format!(
                    "{place}: not comparable with {alias}: {}.",
                    reasons.join(", ")
                )),
                Comparison::Beside { caveats: more, .. } => {
                    let more = more.into_iter();
                    caveats.extend(more.map(|it| format!("{place} beside {alias}: {it}.")));
                }
                Comparison::Absent => {}
            }
        }
        let comparable = withheld.is_empty();
        self.withheld.extend(withheld);
        if comparable {
            self.caveats.extend(caveats);
        }
        comparable
    }

    /// Returns the sentences below the table.
    fn notes(self, pivot: &Pivot) -> Vec<String> {
        let mut notes: Vec<String> = CONVENTIONS
            .iter()
            .map(|convention| format!("{}: {}.", convention.name, convention.meaning))
            .collect();
        if self.used.is_empty() {
            notes.insert(
                0,
                "No model has scores on all of the first five tasks in one setting and by one protocol, each from one data set; stand-ins, \
                 parts of the data and altered data do not count."
                    .to_owned(),
            );
            return notes;
        }
        notes.extend(every_row(pivot));
        let origins = origins(pivot).enumerate();
        notes.extend(
            origins.filter_map(|(column, origin)| self.used.contains(&column).then_some(origin)),
        );
        notes.extend(left_unsaid(pivot));
        if self.reduced {
            notes.push("Tasks were made smaller: compare these averages with each other, not with published ones.".to_owned());
        }
        if self.published {
            notes.push("Published rows are recomputed from the printed cells.".to_owned());
        }
        capped(&mut notes, self.mixtures);
        capped(&mut notes, self.ended);
        capped(&mut notes, self.withheld);
        capped(&mut notes, self.caveats);
        notes
    }
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
