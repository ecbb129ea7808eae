//! Locality of a task, the part of it that needs no more than neighbours: the score of a
//! convolution of a few taps, and scores with all positions permuted. Only what was measured or
//! printed is shown.

use serde_json::json;

use super::Book;
use super::evidence::Origin;
use super::ours::Group;
use crate::published::{ACCURACY, task_name};
use crate::stats::Sample;
use crate::table::{Cell, Column, Row, Table};
use crate::tables::{before_permutation, is_order_of};

/// Our model that sees a few neighbours only.
const BOUNDED: &str = "conv";
/// The word by which sources name such a network.
const BOUNDED_THERE: &str = "bounded conv";
/// Metric of accuracies as a share of Mega's.
const OF_MEGA: &str = "percent_of_mega";

/// Returns the table of a task; `None` if nothing is known.
pub(super) fn table(book: &Book, task: &str) -> Option<Table> {
    let mut rows = Vec::new();
    for one in book.evidence {
        let bounded = one.named().contains(BOUNDED_THERE)
            || one.model == BOUNDED && !is_permuted(book, &one.origin);
        if task_name(one.task) == task_name(task) && bounded {
            rows.push(row(
                one.named(),
                "bounded convolution",
                &match one.metric {
                    ACCURACY => one.text.clone(),
                    OF_MEGA => format!("{} % of Mega's", one.text),
                    metric => format!("{} ({metric})", one.text),
                },
                one.value.filter(|_| one.metric == ACCURACY),
                &match one.metric {
                    ACCURACY => one.remarks.join("; "),
                    metric => format!("{metric}, {}: {}", one.source(), one.trust()),
                },
            ));
        }
    }
    let groups = book
        .groups
        .iter()
        .filter(|group| task_name(group.task) == task_name(task));
    for group in groups.clone().filter(|group| before(group).is_some()) {
        let ordered = groups.clone().find(|other| is_ordered_of(other, group));
        let score = group.score();
        let remark = match ordered.and_then(|ordered| in_order(ordered, group)) {
            Some((before, lost)) => format!(
                "{}; in order {before:.2}: {lost:.2} points came from the order of positions",
                group.setting_words(),
            ),
            None => format!("{}; not measured in order", group.setting_words()),
        };
        let value = score.map(|score| score.mean);
        rows.push(row(
            group.model,
            "permuted positions",
            &group.score_words(),
            value,
            &remark,
        ));
    }
    let columns = vec![
        Column::key("model"),
        Column::text("condition"),
        Column::value("score"),
        Column::text("remarks"),
    ];
    (!rows.is_empty()).then(|| Table {
        name: "locality".to_owned(),
        title: "Locality: how far neighbours alone get".to_owned(),
        columns,
        rows,
        notes: vec![
            "A convolution of a few taps sees neighbours only: a model that scores no higher has shown nothing about long ranges. With \
             all positions in one fixed random order, neighbours are lost."
                .to_owned(),
        ],
        ..Table::default()
    })
}

fn row(model: &str, condition: &str, text: &str, value: Option<f64>, remark: &str) -> Row {
    Row::new(vec![
        Cell::text(model),
        Cell::text(condition),
        Cell::with(text, "value", json!(value)),
        Cell::text(remark),
    ])
}

fn is_permuted(book: &Book, origin: &Origin) -> bool {
    match origin {
        Origin::Runs(index) => {
            let group = book.groups.get(*index);
            group.and_then(before).is_some()
        }
        _ => false,
    }
}

/// Returns the mean accuracy of the ordered runs in percent and what the permuted ones lost, over
/// the seeds that were scored on both.
fn in_order(ordered: &Group, permuted: &Group) -> Option<(f64, f64)> {
    let pairs = permuted.runs.iter().filter_map(|run| {
        let same = ordered.runs.iter().find(|other| other.seed == run.seed)?;
        let before = 100.0 * same.test_accuracy()?;
        Some((before, before - 100.0 * run.test_accuracy()?))
    });
    let (before, lost): (Vec<f64>, Vec<f64>) = pairs.unzip();
    Some((Sample::of(&before)?.mean, Sample::of(&lost)?.mean))
}

/// Returns the label of the data of a group before its positions were permuted; `None` if they were
/// not.
fn before<'a>(group: &Group<'a>) -> Option<&'a str> {
    before_permutation(&group.runs.first()?.task.label)
}

/// Returns whether the runs of `ordered` differ from those of `permuted` in the order of positions
/// alone.
fn is_ordered_of(ordered: &Group, permuted: &Group) -> bool {
    let Some((run, other)) = permuted.runs.first().zip(ordered.runs.first()) else {
        return false;
    };
    let settings = |group: &Group| {
        let all = group.setting.iter().map(|(name, value)| {
            let words = value
                .split(' ')
                .filter(|word| *name != "set" || !word.starts_with("data.permute="));
            (name.to_string(), words.collect::<Vec<_>>().join(" "))
        });
        all.filter(|(_, words)| !words.is_empty())
            .collect::<Vec<_>>()
    };
    is_order_of(&other.task, &run.task)
        && permuted.model == ordered.model
        && settings(permuted) == settings(ordered)
}
