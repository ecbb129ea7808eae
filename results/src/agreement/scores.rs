//! Computation of one score per model from records.

use std::collections::{BTreeMap, BTreeSet};

use super::statistics::NormalScores;
use crate::pivot::brief;
use crate::published::task_rank;
use crate::record::{Outcome, Record};

/// Measure that ranks runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bits gained, `Scores::bits_gained`.
    Bits,
    /// Accuracy on the test split.
    Accuracy,
}

impl Measure {
    /// Returns its name in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Measure::Bits => "bits gained",
            Measure::Accuracy => "test accuracy",
        }
    }

    /// Returns the bits if every scored record has them, else the accuracy.
    pub(crate) fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Measure {
        match Measure::without_bits(records) {
            None => Measure::Bits,
            Some(_) => Measure::Accuracy,
        }
    }

    /// Returns the first run that has an accuracy and no bits.
    pub(crate) fn without_bits<'a>(
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Option<&'a Record> {
        records.into_iter().find(|record| {
            let scores = record.scores.as_ref();
            scores.is_some_and(|it| it.test_accuracy.is_some() && it.bits_gained.is_none())
        })
    }

    /// Returns remarks on how runs count: on those that diverged, and on one without bits, because
    /// of which runs are ranked by accuracy.
    pub(crate) fn remarks(self, records: &[&Record]) -> Vec<String> {
        let mut remarks = Vec::new();
        let diverged = |it: &&Record| matches!(it.outcome, Outcome::Diverged { .. });
        if records.iter().any(diverged) {
            remarks.push(format!(
                "A run that diverged counts as 0 in ranks and means of {}.",
                self.words()
            ));
        }
        let without = Measure::without_bits(records.iter().copied());
        if let (Measure::Accuracy, Some(record)) = (self, without) {
            remarks.push(format!(
                "Ranked by accuracy because not every run has bits gained ({} has none).",
                record.id
            ));
        }
        remarks
    }

    /// Returns the measure of a run, a fraction: 0 if it diverged, `None` if it did not end.
    pub(crate) fn reached(self, record: &Record) -> Option<f64> {
        if let Outcome::Diverged { .. } = record.outcome {
            return Some(0.0);
        }
        let scores = record.scores.as_ref()?;
        let value = match self {
            Measure::Bits => scores.bits_gained,
            Measure::Accuracy => scores.test_accuracy,
        };
        value.filter(|value| record.outcome == Outcome::Scored && value.is_finite())
    }
}

/// One data set that models are ranked on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column {
    rank: usize,
    /// Registry name of the task.
    pub(super) task: String,
    /// Its name in tables.
    pub(super) title: String,
    protocol: String,
    digest: String,
}

impl Column {
    /// Returns the data set of a record.
    pub(crate) fn of(record: &Record) -> Column {
        let task = &record.task;
        Column {
            rank: task_rank(&task.name),
            task: task.name.clone(),
            title: task.title(),
            protocol: task.protocol.clone(),
            digest: task.data_digest.clone(),
        }
    }

    /// Returns its name in tables among `all` columns: with the digest of the data if another has
    /// the same title.
    pub(super) fn name_among(&self, all: &[Column]) -> String {
        let same = all.iter().filter(|it| it.title == self.title).count();
        match same > 1 {
            true => format!("{} (data {})", self.title, brief(&self.digest)),
            false => self.title.clone(),
        }
    }
}

/// Values by seed.
type Seeds = BTreeMap<u64, f64>;

/// Measures of every model on every task with every seed.
pub(super) struct Reached {
    /// The tasks, in the order of the tables.
    pub(super) columns: Vec<Column>,
    /// The models with a measure on every task.
    pub(super) models: Vec<String>,
    /// The others, each with the tasks it lacks.
    pub(super) incomplete: Vec<(String, Vec<String>)>,
    /// Seeds that every model has on every task.
    pub(super) seeds: Vec<u64>,
    /// Values by task, by model, by seed.
    values: Vec<Vec<Seeds>>,
    /// The normal scores of as many ranks as there are models.
    normal: NormalScores,
}

/// Returns the records without those of a model, data set and seed that another record of the same
/// supersedes ([`Record::weight`]).
pub(crate) fn newest<'a>(records: &[&'a Record]) -> Vec<&'a Record> {
    let cell = |record: &'a Record| (record.model.name.as_str(), Column::of(record), record.seed);
    let mut newest: BTreeMap<(&str, Column, u64), &Record> = BTreeMap::new();
    for record in records {
        let known = newest.entry(cell(record)).or_insert(record);
        if known.weight() < record.weight() {
            *known = record;
        }
    }
    let counts = |record: &&'a Record| {
        let known = newest.get(&cell(record));
        known.is_some_and(|known| std::ptr::eq(*known, *record))
    };
    records.iter().copied().filter(counts).collect()
}

/// Returns the mean of some values.
fn mean<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    sum / count
}

impl Reached {
    /// Sorts the records of `models`. Of several with the same seed, the [`newest`] counts.
    pub(super) fn new(records: &[&Record], measure: Measure, models: &[&str]) -> Reached {
        let mut cells: BTreeMap<(Column, &str), Seeds> = BTreeMap::new();
        for record in newest(records) {
            let model = record.model.name.as_str();
            if let Some(value) = measure.reached(record).filter(|_| models.contains(&model)) {
                let seeds = cells.entry((Column::of(record), model)).or_default();
                seeds.insert(record.seed, value);
            }
        }
        let columns: BTreeSet<&Column> = cells.keys().map(|(column, _)| column).collect();
        let columns: Vec<Column> = columns.into_iter().cloned().collect();
        let present: BTreeSet<&str> = cells.keys().map(|(_, model)| *model).collect();
        let (mut whole, mut incomplete) = (Vec::new(), Vec::new());
        for model in models.iter().filter(|model| present.contains(**model)) {
            let lacks = columns
                .iter()
                .filter(|column| !cells.contains_key(&((*column).clone(), *model)));
            let lacks: Vec<String> = lacks.map(|column| column.title.clone()).collect();
            match lacks.is_empty() {
                true => whole.push((*model).to_owned()),
                false => incomplete.push(((*model).to_owned(), lacks)),
            }
        }
        let of = |column: &Column, model: &String| -> Seeds {
            let seeds = cells.get(&(column.clone(), model.as_str()));
            seeds.cloned().unwrap_or_default()
        };
        let values: Vec<Vec<Seeds>> = columns
            .iter()
            .map(|column| whole.iter().map(|model| of(column, model)).collect())
            .collect();
        let mut every = values.iter().flatten();
        let first: Vec<u64> = every
            .next()
            .map_or_else(Vec::new, |it| it.keys().copied().collect());
        let seeds = first.into_iter();
        let seeds = seeds.filter(|seed| values.iter().flatten().all(|it| it.contains_key(seed)));
        Reached {
            seeds: seeds.collect(),
            columns,
            normal: NormalScores::new(whole.len()),
            models: whole,
            incomplete,
            values,
        }
    }

    /// Returns the score of each model: the mean over `columns`, given by index, of the normal
    /// scores of its ranks. Models are ranked by the mean over `seeds`, or over all their seeds.
    /// Repeated columns and seeds count repeatedly.
    pub(super) fn scores(&self, columns: &[usize], seeds: Option<&[u64]>) -> Vec<f64> {
        self.scores_by(columns, &|_, _, of_seed| match seeds {
            Some(seeds) => mean(seeds.iter().filter_map(|seed| of_seed.get(seed))),
            None => mean(of_seed.values()),
        })
    }

    /// Returns the numbers of seeds of the cells, column by column, each model by model.
    pub(super) fn seeds_of_cells(&self) -> Vec<usize> {
        self.values.iter().flatten().map(BTreeMap::len).collect()
    }

    /// Returns the scores ([`Reached::scores`]) by chosen seeds of each cell: `drawn` has their
    /// places, in the order of [`Reached::seeds_of_cells`].
    pub(super) fn scores_of_draw(&self, columns: &[usize], drawn: &[Vec<usize>]) -> Vec<f64> {
        self.scores_by(columns, &|column, model, of_seed| {
            let values: Vec<&f64> = of_seed.values().collect();
            let places = &drawn[column * self.models.len() + model];
            mean(places.iter().map(|place| values[*place]))
        })
    }

    /// Returns the scores of the models, ranked on each column by a mean of the values of their
    /// seeds. It is that which `mean_of` returns for a column, a model and the values by seed.
    fn scores_by(
        &self,
        columns: &[usize],
        mean_of: &dyn Fn(usize, usize, &Seeds) -> f64,
    ) -> Vec<f64> {
        let mut scores = vec![0.0; self.models.len()];
        for column in columns {
            let cells = self.values[*column].iter().enumerate();
            let means: Vec<f64> = cells
                .map(|(model, of_seed)| mean_of(*column, model, of_seed))
                .collect();
            for (score, normal) in scores.iter_mut().zip(self.normal.of(&means)) {
                *score += normal / columns.len() as f64;
            }
        }
        // Equal scores stay equal: the rounding of their sums depends on the order of the tasks.
        scores.iter().map(|it| (it * 1e9).round() / 1e9).collect()
    }
}
