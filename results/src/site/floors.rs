//! Floors: the scores of trivial predictors, which need no model.
//!
//! `floors.csv` has those measured by this program on the tasks as published. The others are in the
//! records of runs.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::json;

use super::ours::Group;
use crate::format::percent;
use crate::published::{rows, task_name};
use crate::record::Baseline;
use crate::table::{Cell, Column, Row, Table};

/// The accuracy of a trivial predictor on a task as published.
#[derive(Debug, Deserialize)]
pub struct Floor {
    /// The task.
    task: String,
    /// The data that it was measured on.
    pub data: String,
    /// Name of the predictor.
    pub predictor: String,
    /// Test accuracy in percent.
    pub accuracy: f64,
}

fn measured() -> &'static [Floor] {
    static FLOORS: LazyLock<Vec<Floor>> = LazyLock::new(|| rows(include_str!("../../floors.csv")));
    &FLOORS
}

/// Returns the best trivial predictor on a task as published, whose sequences have at most `length`
/// tokens. If no form of the data with this length was measured, the form with the lowest accuracy
/// counts.
#[must_use]
pub fn best_at(task: &str, length: usize) -> Option<&'static Floor> {
    let bytes = format!("first {length} bytes");
    best_of_forms(task, &|data| data == bytes).or_else(|| best(task))
}

/// Returns the best trivial predictor on a task as published. If several forms of the data were
/// measured, the form with the lowest accuracy counts, since a source may have used any of them.
pub(super) fn best(task: &str) -> Option<&'static Floor> {
    best_of_forms(task, &|_| true)
}

/// Returns the best trivial predictor on the form of a task's data on which the best has the lowest
/// accuracy, among the forms that `chosen` takes.
fn best_of_forms(task: &str, chosen: &dyn Fn(&str) -> bool) -> Option<&'static Floor> {
    let name = task_name(task);
    let of_task = || {
        let of_task = measured().iter().filter(|floor| floor.task == name);
        of_task.filter(|floor| chosen(&floor.data))
    };
    let best_of = |data: &str| {
        let same = of_task().filter(|floor| floor.data == data);
        same.max_by(|a, b| a.accuracy.total_cmp(&b.accuracy))
    };
    let each = of_task().filter_map(|floor| best_of(&floor.data));
    each.min_by(|a, b| a.accuracy.total_cmp(&b.accuracy))
}

/// Returns a remark on a printed accuracy that is at most that of a trivial predictor.
pub(super) fn remark(task: &str, accuracy: f64) -> Option<String> {
    let floor = best(task).filter(|floor| accuracy <= floor.accuracy)?;
    Some(format!(
        "no better than a trivial predictor: {} reaches {:.2}",
        floor.predictor, floor.accuracy
    ))
}

/// Returns the table of a task with so many classes: chance, the floors of the task as published,
/// and those that runs recorded.
pub(super) fn table(task: &str, groups: &[&Group], classes: usize) -> Table {
    let mut rows: Vec<[String; 3]> = Vec::new();
    if classes > 0 {
        let chance = percent(1.0 / classes as f64);
        rows.push([
            "any".to_owned(),
            format!("one of {classes} classes at random"),
            chance,
        ]);
    }
    let name = task_name(task);
    let published = measured().iter().filter(|floor| floor.task == name);
    rows.extend(published.map(|floor| {
        let data = format!("as published: {}", floor.data);
        [
            data,
            floor.predictor.clone(),
            format!("{:.2}", floor.accuracy),
        ]
    }));
    let data: BTreeSet<&str> = groups.iter().map(|group| group.data.as_str()).collect();
    for data in data {
        let runs = || {
            let here = groups.iter().filter(|group| group.data == data);
            here.flat_map(|group| group.runs.iter().copied())
        };
        rows.extend(Baseline::of_data(runs()).iter().map(|floor| {
            let name = floor.name.clone() + &Baseline::which(runs(), &floor.name);
            [data.to_owned(), name, percent(floor.accuracy)]
        }));
    }
    let rows = rows.into_iter().map(|[data, name, accuracy]| {
        let value = accuracy.parse::<f64>().ok();
        Row::new(vec![
            Cell::text(data),
            Cell::text(name),
            Cell::with(accuracy, "value", json!(value)),
        ])
    });
    Table {
        name: "floors".to_owned(),
        title: "Floors: scores of trivial predictors".to_owned(),
        columns: vec![
            Column::text("data"),
            Column::text("predictor"),
            Column::value("accuracy"),
        ],
        rows: rows.collect(),
        notes: vec![
            "Test accuracy in percent, measured by this program. A score near these, on the same data, shows that nothing \
             was learned. Other lengths and sizes of a task have other floors."
                .to_owned(),
        ],
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_at_the_floor_is_marked_and_one_above_is_not() {
        let text = remark("listops", 18.01).unwrap();
        assert_eq!(
            text,
            "no better than a trivial predictor: first token only reaches 34.60"
        );
        assert_eq!(remark("listops", 38.02), None);
        // Of two lengths of the texts, the one with the lower floor.
        assert!(remark("text", 64.27).is_none() && remark("text", 64.2).is_some());
        assert_eq!(remark("retrieval", 1.0), None);
        let at = |length| best_at("text", length).map(|floor| floor.data.as_str());
        assert_eq!(at(4000), Some("first 4000 bytes"));
        assert_eq!(at(1000), Some("first 1000 bytes"));
        assert_eq!(at(2048), Some("first 1000 bytes"));
    }
}
