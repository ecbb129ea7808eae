//! A model's place among others: its rank over all tasks with an interval, and its rank on each
//! task.

use std::collections::BTreeSet;

use super::bootstrap::interval_of;
use super::scores::{Column, Measure, Reached};
use crate::record::Record;
use crate::table::distinct;

/// The place of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The measure that runs are ranked by.
    pub measure: Measure,
    /// The rank over all tasks, 1 the best.
    pub rank: usize,
    /// The number of ranked models, this one included.
    pub of: usize,
    /// The 95 % interval of the rank, by bootstrap over the tasks and the seeds; none of a single
    /// task with a single seed.
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
        let (over_all, interval) = place_of(&reached, place);
        Some(Standing {
            measure,
            rank: over_all,
            of: reached.models.len(),
            interval,
            tasks: (0..reached.columns.len())
                .map(|column| TaskStanding {
                    task: reached.columns[column].task.clone(),
                    title: reached.columns[column].title.clone(),
                    rank: rank(&reached, place, &[column], None),
                })
                .collect(),
        })
    }
}

/// All models of a set of runs, the best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// The measure that runs are ranked by.
    pub measure: Measure,
    /// Names of the tasks in tables, in their order.
    pub tasks: Vec<String>,
    /// The models with a score on every task, in the order of their ranks.
    pub models: Vec<Ranked>,
    /// The other models, each with the tasks it lacks.
    pub incomplete: Vec<(String, Vec<String>)>,
}

/// A model in a [`Ranking`].
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Its name.
    pub model: String,
    /// Its rank over all tasks, 1 the best.
    pub rank: usize,
    /// The 95 % interval of the rank, by bootstrap over the tasks and the seeds; none of a single
    /// task with a single seed.
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
        let ranked = |(place, model): (usize, &String)| {
            let (rank, interval) = place_of(&reached, place);
            Ranked {
                model: model.clone(),
                rank,
                interval,
            }
        };
        let mut models: Vec<Ranked> = reached.models.iter().enumerate().map(ranked).collect();
        models.sort_by(|a, b| (a.rank, &a.model).cmp(&(b.rank, &b.model)));
        Ranking {
            measure,
            tasks: reached.columns.iter().map(|it| it.title.clone()).collect(),
            models,
            incomplete: reached.incomplete,
        }
    }
}

/// Returns the name of the model of each record.
fn names_of<'a>(records: &'a [&'a Record]) -> impl Iterator<Item = &'a str> {
    records.iter().map(|record| record.model.name.as_str())
}

/// Returns the rank over all columns of the model at `place`, and its interval.
fn place_of(reached: &Reached, place: usize) -> (usize, Option<(f64, f64)>) {
    let count = reached.columns.len();
    let all: Vec<usize> = (0..count).collect();
    let seeds = &reached.seeds;
    let drawn = |drawn: &[Vec<usize>]| {
        let seeds: Vec<u64> = drawn[1].iter().map(|index| seeds[*index]).collect();
        let seeds = (!seeds.is_empty()).then_some(seeds.as_slice());
        Some(rank(reached, place, &drawn[0], seeds) as f64)
    };
    let interval = interval_of(&[count, seeds.len()], drawn);
    (rank(reached, place, &all, None), interval)
}

/// Returns the rank over `columns`, given by index, of the model at `place`.
fn rank(reached: &Reached, place: usize, columns: &[usize], seeds: Option<&[u64]>) -> usize {
    let scores = reached.scores(columns, seeds);
    let better = scores.iter().filter(|score| **score > scores[place]);
    1 + better.count()
}
