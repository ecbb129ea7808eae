//! The page to open first, and the page with every figure.

use serde_json::json;

use super::evidence::{self, Tier};
use super::{Book, cells, prose};
use crate::page::{Link, table_section};
use crate::published::{self, TASKS, model_rank, task_name};
use crate::record::Record;
use crate::table::{Cell, Column, Row, Table};
use crate::{agreement::most_frequent_kind, card, format::counted, tables};

/// The heading of the page with every figure.
const EVERY_FIGURE: &str = "All figures";

/// Returns the page to open first.
pub(super) fn page(book: &Book) -> String {
    let mut tables = vec![
        probes(book),
        models(book),
        tasks(book),
        cells::table(&book.names, &book.cells),
        sources(book),
    ];
    tables.retain(|table| !table.rows.is_empty());
    let tables: Vec<Table> = ranks(book).into_iter().chain(tables).collect();
    let mut parts = vec![Link::to_part("about", "About")];
    let mut main = prose::section(
        "about",
        "About",
        &format!("<div class=\"prose\">\n{}</div>\n", about()),
    );
    for table in &tables {
        parts.push(Link::to_part(&table.name, table.title.clone()));
        main += &table_section(table);
    }
    book.document(super::TITLE, &book.made(), parts, &main)
}

/// Returns the page with every figure.
pub(super) fn evidence(book: &Book) -> String {
    let mut table = evidence::table(&book.names, book.evidence, true);
    table.name = "evidence".to_owned();
    table.title = EVERY_FIGURE.to_owned();
    table.notes = vec![
        "model: the name of the model in this program, empty if it has none. figure: accuracies in percent; other quantities in the \
         unit that their name says."
            .to_owned(),
    ];
    let parts = vec![Link::to_part(&table.name, EVERY_FIGURE)];
    book.document(EVERY_FIGURE, &book.made(), parts, &table_section(&table))
}

/// Returns the explanation of tiers, search and feeds as HTML.
fn about() -> String {
    let feeds = ["cells.csv", "cells.json", "evidence.csv", "evidence.json"].map(|file| {
        let link = Link {
            to: file.to_owned(),
            words: file.to_owned(),
        };
        link.html()
    });
    let tiers = "\
Every figure here has a source, a date and a tier of evidence, and its known defects stand beside it. Tiers are never mixed:
- `printed`: in a paper or a repository. The trust says where it was read.
- `re-run by others`: by people other than the model's authors, if the source itself says so.
- `imported`: as a file reports it. It may be a claim of the model's authors, a copy or a re-run, so it confirms nothing.
- `re-run here`: by a run whose record is here, with its seed, settings, program and machine. A run has its command, and a verdict beside \
each source whose recipe it follows.

The box above filters the rows of all tables of a page: type words such as `performer text`. Click a header to sort.";
    let feeds = format!("<p>For programs: {}.</p>\n", feeds.join(", "));
    prose::html(tiers) + &feeds
}

/// Returns the table of the small protocol: the ranks of the models that were run by it, or the
/// reason why they have none. Returns `None` if no model was.
fn ranks(book: &Book) -> Option<Table> {
    let by_it = book.site.runs.records.iter();
    let by_it = by_it.filter(|it| it.recipe.name == card::RECIPE && !it.task.probe);
    let records: Vec<Record> = by_it.cloned().collect();
    if records.is_empty() {
        return None;
    }
    // A run on another device or in another number format does not empty the table.
    let kept = most_frequent_kind(&records);
    let mut table = tables::ranks(&kept);
    table.title = format!("Small protocol. {}", table.title);
    if kept.len() < records.len() {
        table.notes.push(format!(
            "{} left out of another protocol, device or number format.",
            counted((records.len() - kept.len()) as u64, "run")
        ));
    }
    link_models(book, &mut table, 1);
    Some(table)
}

/// Returns the table of probes, by models. It has no rows if no run was scored on a probe.
fn probes(book: &Book) -> Table {
    let mut table = tables::probes(&book.site.runs.records);
    link_models(book, &mut table, 0);
    // Settings come last: a telephone shows two or three columns.
    let keys = table.columns.iter().filter(|column| column.key).count();
    if keys > 1 {
        table.columns[1..].rotate_left(keys - 1);
        for row in &mut table.rows {
            row.cells[1..].rotate_left(keys - 1);
        }
    }
    table
}

/// Links the names of models in a column to their pages. The row of trivial predictors, which is
/// below a rule, names none.
fn link_models(book: &Book, table: &mut Table, column: usize) {
    for row in table.rows.iter_mut().filter(|row| !row.rule) {
        let name = row.cells[column].text.clone();
        row.cells[column] = book.names.to_model(Cell::text(name.clone()), &name);
    }
}

/// Returns the table of models: printed accuracies, and what was run here.
fn models(book: &Book) -> Table {
    let mut names: Vec<&str> = book.names.models().map(|(name, _)| name).collect();
    // Sorting is stable: models without a printed figure stay in the order of the registry.
    names.sort_by_key(|name| model_rank(name));
    // The names come last: a telephone shows two or three columns.
    let mut columns = vec![Column::text("model")];
    let tasks = &TASKS[..6];
    columns.extend(tasks.iter().copied().map(Column::value));
    columns.extend(["re-run by others", "re-run here"].map(Column::value));
    columns.extend([Column::text("name"), Column::value("year")]);
    let rows = names.iter().map(|name| {
        let card = book.site.model(name);
        let own = || book.cells.iter().filter(|cell| cell.model == *name);
        let year = card.map(|card| card.year).filter(|year| *year > 0);
        let mut cells = vec![book.names.to_model(Cell::text(*name), name)];
        cells.extend(tasks.iter().map(|task| {
            let found = own().find(|cell| task_name(cell.task) == *task);
            found.map_or_else(Cell::default, |found| {
                let highest = found.highest(Tier::Printed);
                let cell = Cell::with(found.printed_words(), "value", json!(highest));
                match cell.text.is_empty() {
                    true => cell,
                    false => book.names.to_cell(cell, name, task),
                }
            })
        }));
        cells.extend([Tier::ByOthers, Tier::Here].map(|tier| {
            let all = book.evidence.iter();
            let count = all
                .filter(|one| one.model == *name && one.tier() == tier)
                .count();
            match count {
                0 => Cell::default(),
                count => Cell::with(count.to_string(), "value", count),
            }
        }));
        cells.extend([
            Cell::text(card.map_or("", |card| &card.title)),
            year.map_or_else(Cell::default, |year| {
                Cell::with(year.to_string(), "value", year)
            }),
        ]);
        Row::new(cells)
    });
    Table {
        name: "models".to_owned(),
        title: "Models".to_owned(),
        columns,
        rows: rows.collect(),
        notes: vec![
            "Tasks: printed test accuracies in percent, from the lowest source to the highest; * one has a known defect. re-run by \
             others, re-run here: number of cells and settings."
                .to_owned(),
        ],
        ..Table::default()
    }
}

fn tasks(book: &Book) -> Table {
    let rows = book.names.tasks().map(|(name, _)| {
        let card = book.site.task(name);
        let cells = book
            .cells
            .iter()
            .filter(|cell| task_name(cell.task) == task_name(name))
            .count();
        Row::new(vec![
            book.names.to_task(Cell::text(name), name),
            Cell::text(card.map_or("", |card| &card.title)),
            Cell::with(cells.to_string(), "value", cells),
            Cell::text(card.map_or("", |card| &card.summary)),
        ])
    });
    Table {
        name: "tasks".to_owned(),
        title: "Tasks".to_owned(),
        columns: vec![
            Column::text("task"),
            Column::text("name"),
            Column::value("models with a figure"),
            Column::text("what it asks"),
        ],
        rows: rows.collect(),
        ..Table::default()
    }
}

fn sources(book: &Book) -> Table {
    let rows = published::sources().iter().map(|source| {
        let figures = source.figures.len();
        Row::new(vec![
            book.names.to_source(Cell::text(source.alias), source.alias),
            Cell::with(source.year.to_string(), "value", source.year),
            Cell::with(figures.to_string(), "value", figures),
            Cell::text(source.key),
            Cell::text(source.recipes.join(", ")),
        ])
    });
    Table {
        name: "sources".to_owned(),
        title: "Published sources".to_owned(),
        columns: vec![
            Column::text("source"),
            Column::value("year"),
            Column::value("figures"),
            Column::text("citation key"),
            Column::text("recipes that follow it"),
        ],
        rows: rows.collect(),
        notes: vec![
            "The page of a source has all its figures, and the commands that reproduce them."
                .to_owned(),
        ],
        ..Table::default()
    }
}
