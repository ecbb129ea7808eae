//! A model's place among others: its rank over all tasks with an interval, and its rank on each
//! task.

use std::collections::BTreeSet;

use super::bootstrap::{draws, middle};
use super::scores::{Column, Measure, Reached};
use crate::record::Record;
use crate::table::distinct;

/// The place of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Remarks on how runs count, and on what the rank leaves out.
    pub remarks: Vec<String>,
    /// The rank over all tasks, 1 the best.
    pub rank: usize,
    /// The number of ranked models, this one included.
    pub of: usize,
    /// The lowest and the highest of the middle 95 % of its ranks in draws of the tasks, and of the
    /// seeds of each cell, with replacement; none of a single task with a single seed.
    pub interval: Option<(f64, f64)>,
    /// Each task.
    pub tasks: Vec<TaskStanding>,
}

/// The place of one model on one task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskStanding {
    /// The task's registry name.
    pub task: String,
    /// Its name in tables.
    pub title: String,
    /// The rank, 1 the best.
    pub rank: usize,
}

impl Standing {
    /// Ranks `model`, with the runs `own`, among the models of `table`, on the data sets that both
    /// have.
    ///
    /// Runs of the table by a model of the same name do not count. Returns none if no other model
    /// has a score on each of these data sets, or `own` has no score.
    #[must_use]
    pub fn of(model: &str, own: &[&Record], table: &[&Record]) -> Option<Standing> {
        let columns = |records: &[&Record]| -> BTreeSet<Column> {
            let ended = |it: &&&Record| Measure::Accuracy.reached(it).is_some();
            let scored = records.iter().filter(ended);
            scored.copied().map(Column::of).collect()
        };
        let others: Vec<&Record> = table
            .iter()
            .copied()
            .filter(|record| record.model.name != model)
            .collect();
        let (mine, theirs) = (columns(own), columns(&others));
        let records: Vec<&Record> = own
            .iter()
            .copied()
            .chain(others)
            .filter(|record| {
                let column = Column::of(record);
                mine.contains(&column) && theirs.contains(&column)
            })
            .collect();
        let names = distinct(std::iter::once(model).chain(names_of(&records)));
        let measure = Measure::of(records.iter().copied());
        let reached = Reached::new(&records, measure, &names);
        let place = reached.models.iter().position(|name| name == model)?;
        if reached.models.len() < 2 {
            return None;
        }
        let places = Places::of(&reached);
        let columns = reached.columns.iter().enumerate();
        let tasks = columns.map(|(index, column)| TaskStanding {
            task: column.task.clone(),
            title: column.title.clone(),
            rank: ranks(&reached.scores(&[index], None))[place],
        });
        Some(Standing {
            remarks: measure.remarks(&records),
            rank: places.ranks[place],
            of: reached.models.len(),
            interval: places.intervals[place],
            tasks: tasks.collect(),
        })
    }
}

/// All models of a set of runs, the best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The measure that runs are ranked by.
    pub measure: Measure,
    /// The data sets, in the order of tables.
    pub data: Vec<RankedData>,
    /// The models with a score on every task, in the order of their ranks.
    pub models: Vec<Ranked>,
    /// The other models, each with the tasks it lacks.
    pub incomplete: Vec<(String, Vec<String>)>,
}

/// A data set in a [`Ranking`].
#[derive(Clone, Debug, PartialEq)]
pub struct RankedData {
    /// Its name in tables.
    pub name: String,
    column: Column,
}

impl RankedData {
    /// Returns the runs on it.
    pub fn runs<'a>(&'a self, runs: &'a [&'a Record]) -> impl Iterator<Item = &'a Record> {
        let here = runs.iter().copied();
        here.filter(|it| Column::of(it) == self.column)
    }
}

/// A model in a [`Ranking`].
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Its name.
    pub model: String,
    /// Its rank over all tasks, 1 the best.
    pub rank: usize,
    /// The lowest and the highest of the middle 95 % of its ranks in draws of the tasks, and of the
    /// seeds of each cell, with replacement; none of a single task with a single seed.
    pub interval: Option<(f64, f64)>,
}

impl Ranking {
    /// Ranks the models of `records`, which are runs of one protocol (see [`select`]).
    ///
    /// [`select`]: super::select
    #[must_use]
    pub fn of(records: &[&Record]) -> Ranking {
        let names = distinct(names_of(records));
        let measure = Measure::of(records.iter().copied());
        let reached = Reached::new(records, measure, &names);
        let places = Places::of(&reached);
        let ranked = |(place, model): (usize, &String)| Ranked {
            model: model.clone(),
            rank: places.ranks[place],
            interval: places.intervals[place],
        };
        let mut models: Vec<Ranked> = reached.models.iter().enumerate().map(ranked).collect();
        let data = |column: &Column| RankedData {
            name: column.name_among(&reached.columns),
            column: column.clone(),
        };
        models.sort_by(|a, b| (a.rank, &a.model).cmp(&(b.rank, &b.model)));
        Ranking {
            measure,
            data: reached.columns.iter().map(data).collect(),
            models,
            incomplete: reached.incomplete,
        }
    }
}

/// Returns the name of the model of each record.
fn names_of<'a>(records: &'a [&'a Record]) -> impl Iterator<Item = &'a str> {
    records.iter().map(|record| record.model.name.as_str())
}

/// The ranks over all columns of every model of `reached`.
struct Places {
    ranks: Vec<usize>,
    intervals: Vec<Option<(f64, f64)>>,
}

impl Places {
    fn of(reached: &Reached) -> Places {
        let count = reached.columns.len();
        let all: Vec<usize> = (0..count).collect();
        let mut populations = vec![count];
        populations.extend(reached.seeds_of_cells());
        let drawn = draws(&populations, |drawn| {
            ranks(&reached.scores_of_draw(&drawn[0], &drawn[1..]))
        });
        let interval = |place: usize| {
            let of_model: Vec<f64> = drawn.iter().map(|ranks| ranks[place] as f64).collect();
            middle(&of_model)
        };
        Places {
            ranks: ranks(&reached.scores(&all, None)),
            intervals: (0..reached.models.len()).map(interval).collect(),
        }
    }
}

/// Returns the rank of each score, 1 the highest. Equal scores have the same rank.
fn ranks(scores: &[f64]) -> Vec<usize> {
    let better = |own: &f64| scores.iter().filter(|score| *score > own).count();
    scores.iter().map(|own| 1 + better(own)).collect()
}
