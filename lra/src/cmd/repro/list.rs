//! Lists of published cells: those that can be reproduced, with their plans, and those that cannot,
//! with the reasons.

use results::Format;
use results::published::Figure;
use results::table::{Cell, Column, MISSING, Row, Table};
use serde_json::json;

use super::{assignments, cheapest_first, selection};
use crate::cli::repro::ReproArgs;
use crate::error::Result;
use crate::repro::cell::PublishedCell;
use crate::repro::plan::Plan;
use crate::repro::unoffered::{self, Unoffered};
use crate::signals::Stop;
use crate::{cmd, load};

/// Prints the plan of every cell, cheapest first, and the reasons why the others are not offered.
pub(super) fn cells(arguments: &ReproArgs, stop: &Stop) -> Result<()> {
    let (cells, failure) = cheapest_first(arguments, stop)?;
    let mut rows = Vec::new();
    for (cell, time) in &cells {
        let plan = Plan {
            resolved: cell.resolve(arguments.protocol, &assignments(arguments))?,
            estimate: Err("not measured".to_owned()),
            seeds: arguments.seeds(),
            data: arguments.place.path(),
            memory: None,
            cell: cell.clone(),
        };
        let PublishedCell {
            source,
            figure,
            recipe,
        } = cell;
        let differences = plan.differences().len();
        let hours = time.seconds.map(|seconds| seconds / 3600.0);
        rows.push(Row::new(vec![
            Cell::with(source.alias, "source", source.alias),
            Cell::with(figure.task.clone(), "task", figure.task.clone()),
            Cell::with(figure.entry.clone(), "model", figure.entry.clone()),
            printed(figure),
            Cell::with(*recipe, "recipe", *recipe),
            Cell::with(differences.to_string(), "differences", differences),
            Cell {
                text: hours.map_or_else(|| "-".to_owned(), in_hours),
                fields: vec![
                    ("seconds_per_seed", json!(time.seconds)),
                    ("flops", json!(time.flops)),
                ],
                ..Cell::default()
            },
        ]));
    }
    let mut table = Table {
        name: "cells".to_owned(),
        title: "Published cells that can be trained here".to_owned(),
        unit: String::new(),
        columns: vec![
            Column::key("source"),
            Column::key("task"),
            Column::key("model"),
            Column::value("published"),
            Column::text("recipe"),
            Column::value("differs in"),
            Column::value("about hours"),
        ],
        rows,
        notes: vec![
            "differs in: known differences between what is printed and what is run here.".to_owned(),
            match &failure {
                Some(reason) => format!("about hours: not known, because no small step could be measured: {reason}."),
                None => format!(
                    "about hours: a rough estimate for one seed on this machine, to order the list: operations with every sequence at its \
                     full length, divided by the speed of a small step of the model, measured just now{}. The real time may be \
                     several times as long or as short.",
                    load::remark()
                ),
            },
            "lra repro SOURCE TASK MODEL --dry-run: the printed figure, every difference, the time estimated from steps of the \
             cell, which --budget uses."
                .to_owned(),
        ],
        ..Table::default()
    };
    if cells.iter().any(|(_, time)| !time.complete) {
        table.notes.push(
            "If the data is not there, the operations of evaluations are left out.".to_owned(),
        );
    }
    let mut others: Vec<&str> = cells
        .iter()
        .filter(|(_, time)| !time.own && time.seconds.is_some())
        .map(|(cell, _)| cell.figure.entry.as_str())
        .collect();
    others.sort_unstable();
    others.dedup();
    if !others.is_empty() {
        table.notes.push(format!(
            "Not measured in time, and assumed to be as fast as the Transformer: {}.",
            others.join(", ")
        ));
    }
    table.notes.extend(counted(arguments)?);
    show(arguments, table)
}

/// Returns a sentence with the number of cells that are not offered, by reason; `None` if there are
/// none.
fn counted(arguments: &ReproArgs) -> Result<Option<String>> {
    let left = left_out(arguments)?;
    let reasons = unoffered::reasons(&left);
    let only = arguments.source.as_deref();
    let only = only.map_or(String::new(), |source| format!(" {source}"));
    Ok((!left.is_empty()).then(|| {
        format!(
            "Of the published figures of models that this program has, {} not offered: {}. `lra repro --unoffered{only}` gives the reason for each.",
            match left.len() {
                1 => "another one is".to_owned(),
                count => format!("{count} others are"),
            },
            reasons.join(", ")
        )
    }))
}

/// Returns the published accuracies of the selected sources that are not offered.
fn left_out(arguments: &ReproArgs) -> Result<Vec<Unoffered>> {
    unoffered::of(&selection(arguments)?.sources())
}

/// Prints every published accuracy that is not offered, with the reason.
pub(super) fn unoffered(arguments: &ReproArgs) -> Result<()> {
    let selection = selection(arguments)?;
    let left = left_out(arguments)?;
    let mut notes = vec![
        "offered of: sources whose figure of the same model on the same task is offered."
            .to_owned(),
    ];
    if left.is_empty() {
        let name = selection.name();
        notes = match selection.cells()?.is_empty() {
            true => vec![format!("{}.", unoffered::nothing(&selection)?)],
            false => {
                let sources = selection.sources();
                let sources = sources
                    .iter()
                    .map(|it| format!("`lra list published {}`", it.alias));
                let sources = Vec::from_iter(sources).join(", ");
                vec![format!(
                    "Every accuracy by {name} in a row that stands for a model here is offered: `lra repro {name}`. Rows of copies and \
                     of other forms of a model stand for none: {sources}."
                )]
            }
        };
    }
    let rows = left.iter().map(|it| {
        let (source, figure) = (it.source.alias, it.figure);
        let reason = it.reason.to_string();
        let elsewhere = it.elsewhere.join(", ");
        Row::new(vec![
            Cell::with(source, "source", source),
            Cell::with(figure.task.clone(), "task", figure.task.clone()),
            Cell::with(figure.entry.clone(), "model", figure.entry.clone()),
            printed(figure),
            Cell::with(reason.clone(), "reason", reason),
            Cell::with(elsewhere, "offered_of", json!(it.elsewhere)),
        ])
    });
    let table = Table {
        name: "unoffered".to_owned(),
        title: "Published figures of models that are here, without a way to reproduce them"
            .to_owned(),
        unit: String::new(),
        columns: vec![
            Column::key("source"),
            Column::key("task"),
            Column::key("model"),
            Column::value("published"),
            Column::text("why not"),
            Column::text("offered of"),
        ],
        rows: rows.collect(),
        notes,
        ..Table::default()
    };
    show(arguments, table)
}

/// Returns the cell of a published figure, or of the word that is printed instead.
fn printed(figure: &Figure) -> Cell {
    Cell {
        text: figure.text(),
        fields: vec![
            ("published", json!(figure.value)),
            (MISSING, json!(figure.missing_word())),
        ],
        tone: figure.tone(),
        ..Cell::default()
    }
}

fn show(arguments: &ReproArgs, table: Table) -> Result<()> {
    match arguments.json {
        true => cmd::print_json(&cmd::list::objects(&table)),
        false => cmd::print_tables(Format::Text, &[table]),
    }
}

/// Formats hours with at least two digits.
fn in_hours(hours: f64) -> String {
    match hours {
        hours if hours < 0.1 => format!("{hours:.2}"),
        hours if hours < 10.0 => format!("{hours:.1}"),
        hours => format!("{hours:.0}"),
    }
}
