//! Computation of one score per model from records.

use std::collections::{BTreeMap, BTreeSet};

use super::statistics::NormalScores;
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
        let mut scored = records.into_iter().filter_map(|it| it.scores.as_ref());
        match scored.all(|scores| scores.test_accuracy.is_none() || scores.bits_gained.is_some()) {
            true => Measure::Bits,
            false => Measure::Accuracy,
        }
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
pub(super) struct Column {
    rank: usize,
    /// Registry name of the task.
    pub(super) task: String,
    /// Its name in tables.
    pub(super) title: String,
    protocol: String,
    digest: String,
}

impl Column {
    pub(super) fn of(record: &Record) -> Column {
        let task = &record.task;
        Column {
            rank: task_rank(&task.name),
            task: task.name.clone(),
            title: task.title(),
            protocol: task.protocol.clone(),
            digest: task.data_digest.clone(),
        }
    }
}

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
    values: Vec<Vec<BTreeMap<u64, f64>>>,
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

impl Reached {
    /// Sorts the records of `models`. Of several with the same seed, the [`newest`] counts.
    pub(super) fn new(records: &[&Record], measure: Measure, models: &[&str]) -> Reached {
        let mut cells: BTreeMap<(Column, &str), BTreeMap<u64, f64>> = BTreeMap::new();
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
        let of = |column: &Column, model: &String| -> BTreeMap<u64, f64> {
            let seeds = cells.get(&(column.clone(), model.as_str()));
            seeds.cloned().unwrap_or_default()
        };
        let values: Vec<Vec<BTreeMap<u64, f64>>> = columns
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
        let mut scores = vec![0.0; self.models.len()];
        for column in columns {
            let means: Vec<f64> = self.values[*column]
                .iter()
                .map(|of_seed| {
                    let values: Vec<f64> = match seeds {
                        Some(seeds) => seeds
                            .iter()
                            .filter_map(|seed| of_seed.get(seed))
                            .copied()
                            .collect(),
                        None => of_seed.values().copied().collect(),
                    };
                    values.iter().sum::<f64>() / values.len() as f64
                })
                .collect();
            for (score, normal) in scores.iter_mut().zip(self.normal.of(&means)) {
                *score += normal / columns.len() as f64;
            }
        }
        scores
    }
}
