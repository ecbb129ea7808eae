//! Grouping of runs into charts: runs that compete in one column of the tables share a chart, with
//! a series per cell.

use std::collections::BTreeMap;

use super::Baseline;
use super::names::{Names, Ranks};
use crate::format::counted;
use crate::pivot::{CORES, Dimension, JOBS, Pivot, PivotRow, THREADS, mixture};
use crate::record::{self, Record};

/// The runs of one chart.
pub(super) struct Group<'a> {
    /// The data set, under the header that tables give it.
    task: String,
    /// The recipe.
    recipe: String,
    /// Further settings that distinguish these runs from those of other charts.
    differing: Vec<String>,
    /// The settings on which all charts agree, in names and values.
    pub(super) agreed: Vec<(&'static str, String)>,
    /// The series, in the order of the tables.
    pub(super) cells: Vec<ChartCell<'a>>,
    /// The settings that all series share.
    shared: Vec<String>,
}

/// The runs of one series, one per seed.
pub(super) struct ChartCell<'a> {
    /// Its name.
    pub(super) name: String,
    /// The runs, in the order of their seeds.
    pub(super) runs: Vec<&'a Record>,
}

/// Returns sentences on what the seeds of series do not share although a score may depend on it,
/// such as `linear, bag: seeds of 2 instruction sets.`
pub(super) fn mixtures(cells: &[&ChartCell]) -> Vec<String> {
    let mut names: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for cell in cells {
        if let Some(mixture) = mixture(&cell.runs) {
            names.entry(mixture).or_default().push(&cell.name);
        }
    }
    let names = names.iter();
    names
        .map(|(mixture, names)| format!("{}: seeds of {mixture}.", names.join(", ")))
        .collect()
}

impl<'a> Group<'a> {
    /// Sorts records into charts, by the dimensions that the tables sort them by.
    pub(super) fn all(
        records: impl IntoIterator<Item = &'a Record>,
        dimensions: &[&'static [Dimension]],
    ) -> (Vec<Group<'a>>, Ranks) {
        let pivot = Pivot::new(records, dimensions);
        let mut groups = Vec::new();
        for (column, task) in pivot.columns.iter().enumerate() {
            let mut contests: Vec<&[(&str, String)]> = Vec::new();
            let filled = || {
                pivot
                    .rows
                    .iter()
                    .filter(|row| !row.cells[column].is_empty())
            };
            for row in filled() {
                if !contests.contains(&row.apart.as_slice()) {
                    contests.push(&row.apart);
                }
            }
            contests.sort_unstable();
            for contest in contests {
                let rows: Vec<&PivotRow> = filled().filter(|row| row.apart == *contest).collect();
                groups.push(Group::of(&pivot, column, task, &rows));
            }
        }
        let names = groups.iter().flat_map(|group: &Group| &group.cells);
        let ranks = Ranks::new(names.map(|cell| cell.name.clone()));
        (groups, ranks)
    }

    fn of(pivot: &Pivot<'a>, column: usize, task: &str, rows: &[&PivotRow<'a>]) -> Group<'a> {
        let names = Names::new(rows.iter().map(|row| words(row)));
        let apart: Vec<(&'static str, String)> = rows
            .first()
            .map_or_else(Vec::new, |row| row.apart.clone())
            .into_iter()
            .filter(|(name, value)| *name != RECIPE && !value.is_empty())
            .collect();
        let (differing, agreed): (Vec<_>, Vec<_>) = apart
            .into_iter()
            .partition(|(name, _)| pivot.varying.contains(name));
        let recipe = rows.first().and_then(|row| {
            let mut setting = row.setting.iter();
            setting.find(|(name, _)| *name == RECIPE)
        });
        Group {
            task: task.to_owned(),
            recipe: recipe.map_or_else(String::new, |(_, recipe)| recipe.clone()),
            differing: differing
                .into_iter()
                .map(|(name, value)| match (name, value.parse()) {
                    (THREADS, Ok(threads)) => counted(threads, "thread"),
                    (JOBS, Ok(jobs)) => counted(jobs, "job"),
                    (CORES, Ok(cores)) => counted(cores, "core"),
                    _ => value,
                })
                .collect(),
            agreed,
            cells: rows
                .iter()
                .map(|row| ChartCell {
                    name: names.of(&words(row)),
                    runs: row.cells[column].clone(),
                })
                .collect(),
            shared: names.shared,
        }
    }

    /// Returns the title, which is unique among charts of the same kind.
    pub(super) fn title(&self) -> String {
        let mut parts = vec![self.task.clone(), format!("recipe {}", self.recipe)];
        parts.extend(self.differing.iter().cloned());
        parts.join(", ")
    }

    /// Returns the scores of the trivial predictors, as the newest run measured them.
    pub(super) fn baselines(&self) -> Vec<Baseline> {
        let runs = self.cells.iter().flat_map(|cell| &cell.runs);
        record::Baseline::of_data(runs.copied())
            .iter()
            .map(|baseline| Baseline {
                name: baseline.name.clone(),
                y: 100.0 * baseline.accuracy,
            })
            .collect()
    }

    /// Returns the settings that all series share, which are stated once.
    pub(super) fn sharing(&self) -> Option<String> {
        (!self.shared.is_empty()).then(|| format!("Every run: {}.", self.shared.join(" ")))
    }
}

/// The dimension that every title has.
const RECIPE: &str = "recipe";

/// Returns the model of a row with the settings that distinguish it from its default and from its
/// rivals.
fn words(row: &PivotRow) -> Vec<String> {
    let mut words = vec![row.model.to_owned()];
    let rival = row.setting.iter().filter(|one| !row.apart.contains(one));
    let values = rival.flat_map(|(_, value)| value.split(' '));
    words.extend(values.filter(|word| !word.is_empty()).map(str::to_owned));
    words
}
