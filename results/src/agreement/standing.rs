//! A model's place among others: its rank over all tasks with an interval, and its rank on each
//! task.

use std::collections::BTreeSet;

use super::bootstrap::interval_of;
use super::scores::{Column, Measure, Reached};
use crate::record::Record;

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
    /// Ranks `model`, with the runs `own`, among the models of `table`, on the data sets of `own`.
    ///
    /// Runs of the table by a model of the same name do not count. Returns none if no other model
    /// has a score on every data set of `own`, or `own` has no score.
    #[must_use]
    pub fn of(model: &str, own: &[&Record], table: &[&Record]) -> Option<Standing> {
        let columns: BTreeSet<Column> = own.iter().copied().map(Column::of).collect();
        let others = table
            .iter()
            .copied()
            .filter(|record| record.model.name != model && columns.contains(&Column::of(record)));
        let records: Vec<&Record> = own.iter().copied().chain(others).collect();
        let mut names: Vec<&str> = vec![model];
        for record in &records {
            if !names.contains(&record.model.name.as_str()) {
                names.push(&record.model.name);
            }
        }
        let measure = Measure::of(records.iter().copied());
        let reached = Reached::new(&records, measure, &names);
        let place = reached.models.iter().position(|name| name == model)?;
        if reached.models.len() < 2 {
            return None;
        }
        let count = reached.columns.len();
        let all: Vec<usize> = (0..count).collect();
        let rank = |columns: &[usize], seeds: Option<&[u64]>| {
            let scores = reached.scores(columns, seeds);
            1 + scores
                .iter()
                .filter(|score| **score > scores[place])
                .count()
        };
        let seeds = &reached.seeds;
        let drawn = |drawn: &[Vec<usize>]| {
            let seeds: Vec<u64> = drawn[1].iter().map(|index| seeds[*index]).collect();
            let seeds = (!seeds.is_empty()).then_some(seeds.as_slice());
            Some(rank(&drawn[0], seeds) as f64)
        };
        Some(Standing {
            measure,
            rank: rank(&all, None),
            of: reached.models.len(),
            interval: interval_of(&[count, seeds.len()], drawn),
            tasks: (0..count)
                .map(|column| TaskStanding {
                    task: reached.columns[column].task.clone(),
                    title: reached.columns[column].title.clone(),
                    rank: rank(&[column], None),
                })
                .collect(),
        })
    }
}
