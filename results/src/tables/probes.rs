//! The table of probes: models by probes, with the share of right answers for each group of
//! lengths, and by permuted tasks, with the loss from the order in which they are stored.

use serde_json::{Value, json};

use super::{capped, endings, every_row, info, status, told};
use crate::pivot::{Pivot, PivotRow, TRAINING};
use crate::published::Source;
use crate::record::{DenseGroup, Record, Task};
use crate::stats::Sample;
use crate::table::{Best, Cell, Column, MEASURED, Row, Schema, Table};

/// Model of the row with the share of the most frequent answer.
const FLOOR: &str = "(most frequent answer)";

/// Makes the table of all runs on probes, the model with the best mean over the probes first.
pub(super) fn table(records: &[Record], _against: Option<&Source>) -> Table {
    let runs = chosen(records, |_| true);
    let pivot = Pivot::new(&runs, &[TRAINING]);
    let shown = shown(&pivot);
    let mut columns = vec![Column::key("model")];
    columns.extend(pivot.varying.iter().copied().map(Column::key));
    columns.extend(shown.iter().map(|it| {
        let fields = &["mean", "deviation", "seeds", "difference", "status"];
        let facts = pivot.facts[it.column].clone();
        Column::value(&pivot.columns[it.column])
            .info(facts)
            .holding(fields)
    }));
    let mut ended = Vec::new();
    let mut rows = Vec::new();
    for row in &pivot.rows {
        if shown.iter().all(|it| row.cells[it.column].is_empty()) {
            continue;
        }
        for it in &shown {
            let column = &pivot.columns[it.column];
            ended.extend(told(row.model, column, &row.cells[it.column]));
        }
        let mut cells = vec![Cell::text(row.model)];
        cells.extend(row.varying.iter().map(Cell::text));
        cells.extend(shown.iter().map(|it| cell(it, row)));
        let probes = shown.iter().filter(|it| !it.permuted);
        let reached = probes.map(|it| Some(accuracy(&row.cells[it.column])?.mean));
        let reached: Option<Vec<f64>> = reached.collect();
        let row_made = Row {
            facts: [vec![("from", MEASURED.into())], row.facts.clone()].concat(),
            contest: Some(row.contest()),
            ..Row::new(cells)
        };
        rows.push((reached.map_or(-1.0, |all| all.iter().sum()), row_made));
    }
    // Models that lack a probe come last, in the order of the others.
    rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    if !rows.is_empty() {
        rows.push(floor(&pivot, &shown));
    }
    let mut notes = Vec::new();
    if rows.is_empty() {
        notes.push("No run is of a probe, or of a task with permuted positions.".to_owned());
    }
    notes.push(
        "Share of labelled positions that are right, on the test split, one number for each group of lengths; ± sample standard deviation \
         over the seeds."
            .to_owned(),
    );
    notes.extend(shown.iter().filter_map(|it| it.note(&pivot)));
    notes.extend(every_row(&pivot));
    capped(&mut notes, ended);
    let table = Table {
        name: "probes".to_owned(),
        title: "Probes, test accuracy on labelled positions, %".to_owned(),
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
                "difference_percent",
                "status",
            ],
        },
    };
    table.with_best("mean", Best::Highest)
}

/// A column that is shown.
struct Shown {
    /// Its index among those of the pivot.
    column: usize,
    /// True if it is a task with permuted positions, not a probe.
    permuted: bool,
    /// Index of the same task in the order in which it is stored.
    stored: Option<usize>,
}

impl Shown {
    /// Returns the accuracies of a model over the seeds, in percent: of a probe on all labelled
    /// positions, of a permuted task on whole sequences.
    fn accuracies(&self, row: &PivotRow) -> Option<Sample> {
        let runs = &row.cells[self.column];
        match self.permuted {
            true => whole(runs),
            false => accuracy(runs),
        }
    }

    /// Returns the accuracy of the permuted task less that in the order in which it is stored, in
    /// points, over the seeds that were scored on both.
    fn difference(&self, row: &PivotRow) -> Option<f64> {
        let (permuted, stored) = (&row.cells[self.column], &row.cells[self.stored?]);
        let pairs = permuted.iter().filter_map(|run| {
            let same = stored.iter().find(|other| other.seed == run.seed)?;
            Some(100.0 * (run.test_accuracy()? - same.test_accuracy()?))
        });
        Sample::of(&pairs.collect::<Vec<f64>>()).map(|sample| sample.mean)
    }

    /// Returns a sentence on the contents of the column.
    fn note(&self, pivot: &Pivot) -> Option<String> {
        let name = &pivot.columns[self.column];
        if self.permuted {
            return Some(format!(
                "{name}: test accuracy with the positions permuted, and the difference from the order in which they are stored, over the seeds of both."
            ));
        }
        let names = names(pivot.rows.iter().flat_map(|row| &row.cells[self.column]));
        (!names.is_empty()).then(|| format!("{name}: {}.", names.join(" / ")))
    }
}

/// Returns the label of a task before its positions were permuted; `None` if they were not.
pub(crate) fn before_permutation(label: &str) -> Option<&str> {
    let (before, seed) = label.rsplit_once("permute")?;
    let is_seed = !seed.is_empty() && seed.bytes().all(|byte| byte.is_ascii_digit());
    let before = before.strip_suffix(['-', '@'])?;
    is_seed.then_some(before)
}

/// Returns whether `stored` is the data of `permuted` in the order in which it is stored.
pub(crate) fn is_order_of(stored: &Task, permuted: &Task) -> bool {
    let data = |it: &Task| (it.source.clone(), it.protocol.clone(), it.partial);
    before_permutation(&permuted.label) == Some(stored.label.as_str())
        && data(stored) == data(permuted)
}

/// Returns the runs of the table among those that are `wanted`: on probes, on tasks with permuted
/// positions, and on the same tasks without. Settings of the data are none of the runs' own here,
/// because the label of the task has them.
fn chosen(records: &[Record], wanted: impl Fn(&Record) -> bool) -> Vec<Record> {
    let labels = records.iter().map(|run| run.task.label.as_str());
    let permuted: Vec<&str> = labels.filter_map(before_permutation).collect();
    let is_shown = |run: &&Record| {
        let label = run.task.label.as_str();
        let is_task = before_permutation(label).is_some() || permuted.contains(&label);
        wanted(run) && (run.task.probe || is_task)
    };
    let mut runs: Vec<Record> = records.iter().filter(is_shown).cloned().collect();
    for run in &mut runs {
        let overrides = &mut run.recipe.overrides;
        overrides.retain(|it| !it.starts_with("data."));
    }
    runs
}

/// Returns the columns of probes, and after them those of permuted tasks.
fn shown(pivot: &Pivot) -> Vec<Shown> {
    let task = |column: usize| {
        let mut runs = pivot.rows.iter().flat_map(|row| &row.cells[column]);
        runs.next().map(|run| &run.task)
    };
    let columns = 0..pivot.columns.len();
    let shown = columns.clone().filter_map(|column| {
        let own = task(column)?;
        let before = before_permutation(&own.label);
        let stored = columns
            .clone()
            .find(|other| task(*other).is_some_and(|other| is_order_of(other, own)));
        (own.probe || before.is_some()).then_some(Shown {
            column,
            permuted: before.is_some(),
            stored,
        })
    });
    let mut shown: Vec<Shown> = shown.collect();
    shown.sort_by_key(|it| it.permuted);
    shown
}

/// Accuracies of a model on one probe or permuted task, in percent, as means over the seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Probed {
    /// Label of the probe, as in `mqar`.
    pub probe: String,
    /// Settings of the runs that differ from the recipe; empty if there are none.
    pub set: String,
    /// Number of seeds.
    pub seeds: usize,
    /// Accuracy on all labelled positions; of a permuted task, on whole sequences.
    pub accuracy: f64,
    /// Accuracy on a permuted task less that in the order in which it is stored, over the seeds of
    /// both.
    pub difference: Option<f64>,
    /// Names of the groups of lengths, with the accuracy on each.
    pub groups: Vec<(String, f64)>,
}

/// Returns the scores of `model` on all probes and permuted tasks that one of its runs was scored
/// on.
pub fn profile(records: &[Record], model: &str) -> Vec<Probed> {
    let runs = chosen(records, |run| run.model.name == model);
    let pivot = Pivot::new(&runs, &[TRAINING]);
    let shown = shown(&pivot);
    let probed = pivot.rows.iter().flat_map(|row| {
        let set = row.setting.iter().find(|(name, _)| *name == "set");
        let set = set.map_or("", |(_, words)| words);
        let (shown, columns) = (&shown, &pivot.columns);
        shown.iter().filter_map(move |it| {
            let runs = &row.cells[it.column];
            let all = it.accuracies(row)?;
            let groups = by_group(runs).into_iter();
            Some(Probed {
                probe: columns[it.column].clone(),
                set: set.to_owned(),
                seeds: all.count,
                accuracy: all.mean,
                difference: it.difference(row),
                groups: groups
                    .map(|(name, sample)| (name.to_owned(), sample.mean))
                    .collect(),
            })
        })
    });
    probed.collect()
}

/// Returns the accuracies on all labelled positions, in percent, over the seeds.
fn accuracy(runs: &[&Record]) -> Option<Sample> {
    let scored = runs.iter().filter_map(|run| run.test_dense());
    let found: Vec<f64> = scored.map(|it| 100.0 * it.accuracy).collect();
    Sample::of(&found)
}

/// Returns the accuracies on whole sequences, in percent, over the seeds.
fn whole(runs: &[&Record]) -> Option<Sample> {
    let found = runs.iter().filter_map(|run| run.test_accuracy());
    let found: Vec<f64> = found.map(|accuracy| 100.0 * accuracy).collect();
    Sample::of(&found)
}

/// Returns the groups of the first run that has some.
fn groups<'a: 'b, 'b>(runs: impl IntoIterator<Item = &'b &'a Record>) -> &'a [DenseGroup] {
    let mut all = runs.into_iter().filter_map(|run| run.test_dense());
    all.find(|it| !it.groups.is_empty())
        .map_or(&[], |it| &it.groups)
}

/// Returns the names of these groups.
fn names<'a: 'b, 'b>(runs: impl IntoIterator<Item = &'b &'a Record>) -> Vec<&'a str> {
    groups(runs).iter().map(|it| it.name.as_str()).collect()
}

/// Returns the accuracies on each group, in percent, over the seeds.
fn by_group<'a>(runs: &[&'a Record]) -> Vec<(&'a str, Sample)> {
    let of_group = |name: &'a str| {
        let found = runs.iter().filter_map(|run| run.test_dense());
        let found = found.flat_map(|it| &it.groups);
        let found = found.filter(|group| group.name == name);
        let found: Vec<f64> = found.map(|group| 100.0 * group.accuracy).collect();
        Some((name, Sample::of(&found)?))
    };
    names(runs).into_iter().filter_map(of_group).collect()
}

/// Returns the accuracy on each group of a probe, or on a permuted task, as means over the seeds.
fn cell(it: &Shown, row: &PivotRow) -> Cell {
    let runs = &row.cells[it.column];
    let (all, difference) = (it.accuracies(row), it.difference(row));
    let words = endings(runs, all.is_some());
    let Some(all) = all else {
        return match words.is_empty() {
            true => Cell::default(),
            false => Cell::with(words.join(", "), "status", status(&words)),
        };
    };
    let groups = by_group(runs);
    let mut text = match groups.is_empty() || it.permuted {
        true => share(&all),
        false => {
            let shares = groups.iter().map(|(_, it)| share(it));
            shares.collect::<Vec<_>>().join(" / ")
        }
    };
    if let Some(difference) = difference {
        text += &format!(" ({difference:+.1})");
    }
    if !words.is_empty() {
        text += &format!(" {}", words.join(", "));
    }
    Cell {
        text,
        fields: vec![
            ("mean", json!(all.mean)),
            ("deviation", json!(all.deviation)),
            ("seeds", json!(all.count)),
            ("difference", json!(difference)),
            ("status", status(&words)),
        ],
        ..Cell::default()
    }
}

fn share(sample: &Sample) -> String {
    match sample.deviation {
        Some(deviation) => format!("{:.1} ±{deviation:.1}", sample.mean),
        None => format!("{:.1}", sample.mean),
    }
}

/// Returns the row with the share of the most frequent answer of each group.
fn floor(pivot: &Pivot, shown: &[Shown]) -> Row {
    let mut cells = vec![Cell::text(FLOOR)];
    cells.extend(pivot.varying.iter().map(|_| Cell::default()));
    cells.extend(shown.iter().map(|it| {
        let runs = || pivot.rows.iter().flat_map(|row| &row.cells[it.column]);
        let of_group = |group: &DenseGroup| Some(format!("{:.1}", 100.0 * group.majority?));
        let shares: Vec<String> = match it.permuted {
            true => runs()
                .find_map(|run| run.majority())
                .map(|share| format!("{:.1}", 100.0 * share))
                .into_iter()
                .collect(),
            false => groups(runs()).iter().filter_map(of_group).collect(),
        };
        Cell::text(shares.join(" / "))
    }));
    Row {
        rule: true,
        facts: vec![("model", FLOOR.into()), ("from", Value::Null)],
        ..Row::new(cells)
    }
}

#[cfg(test)]
mod tests {
    use super::before_permutation;

    #[test]
    fn labels_say_whether_positions_were_permuted() {
        let of = |label| before_permutation(label);
        assert_eq!(of("listops@64-permute1"), Some("listops@64"));
        assert_eq!(of("text@permute12"), Some("text"));
        for label in [
            "listops@64",
            "permute",
            "mine:permuted",
            "a-permute",
            "permute1",
        ] {
            assert_eq!(of(label), None, "{label}");
        }
    }
}
