//! The page of a task: its card, its floors, its locality, and the models on it.

use super::{Book, cells, evidence, locality, ours::Group, prose};
use crate::format::percent;
use crate::page::{Link, table_section};
use crate::published::task_name;
use crate::table::{Cell, Column, Row, Table};

/// Name of the part with the scores that need no model.
const FLOORS: &str = "floors";

/// Returns the page.
pub(super) fn page(book: &Book, name: &str) -> String {
    let card = book.site.task(name);
    let mut parts = Vec::new();
    let mut main = String::new();
    if let Some(card) = card {
        let kind = match card.probe {
            true => "a probe: it tests one ability, and counts in no score over tasks",
            false => "",
        };
        let facts = [
            ("introduced in", card.paper.clone()),
            ("kind", kind.to_owned()),
        ];
        let own = card
            .facts
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()));
        let text = prose::html(&card.summary) + &prose::facts(facts.into_iter().chain(own));
        parts.push(Link::to_part("card", "What it tells"));
        main += &prose::section("card", "What it tells", &text);
    }
    let is_here = |task: &str| task_name(task) == task_name(name);
    let groups: Vec<&Group> = book
        .groups
        .iter()
        .filter(|group| is_here(group.task))
        .collect();
    let shown: Vec<_> = book
        .cells
        .iter()
        .filter(|cell| is_here(cell.task))
        .collect();
    let mut tables = vec![floors(&groups, card.map_or(0, |card| card.classes))];
    tables.extend(locality::table(book, name));
    if !shown.is_empty() {
        tables.push(cells::table(&book.names, shown));
    }
    let figures = book.evidence.iter().filter(|one| is_here(one.task));
    let mut figures = evidence::table(&book.names, figures, true);
    figures.name = "figures".to_owned();
    figures.title = "Every figure on it".to_owned();
    tables.push(figures);
    tables.retain(|table| !table.rows.is_empty() || table.name == FLOORS);
    for table in &tables {
        parts.push(Link::to_part(&table.name, table.title.clone()));
        main += &table_section(table);
    }
    let title = card.map_or(name, |card| &card.title);
    book.document(title, &format!("task {name}"), parts, &main)
}

/// Returns the scores that need no model: those of trivial predictors that runs recorded, and
/// chance.
fn floors(groups: &[&Group], classes: usize) -> Table {
    let mut rows: Vec<[String; 3]> = Vec::new();
    if classes > 0 {
        let chance = percent(1.0 / classes as f64);
        rows.push([
            "any".to_owned(),
            format!("one of {classes} classes at random"),
            chance,
        ]);
    }
    for group in groups {
        for run in &group.runs {
            for floor in &run.baselines {
                let row = [
                    group.data.clone(),
                    floor.name.clone(),
                    percent(floor.accuracy),
                ];
                if !rows.contains(&row) {
                    rows.push(row);
                }
            }
        }
    }
    let mut notes = vec![
        "Test accuracy in percent. A score near these, on the same data, shows no learning, whatever the model. \
         Other lengths and sizes of a task have other floors: those of published data are in the records of runs on them."
            .to_owned(),
    ];
    if groups
        .iter()
        .all(|group| group.runs.iter().all(|run| run.baselines.is_empty()))
    {
        notes.push("No run here recorded trivial predictors on this task.".to_owned());
    }
    let rows = rows.into_iter().map(|[data, name, accuracy]| {
        let value = accuracy.parse::<f64>().ok();
        Row::new(vec![
            Cell::text(data),
            Cell::text(name),
            Cell::with(accuracy, "value", serde_json::json!(value)),
        ])
    });
    Table {
        name: FLOORS.to_owned(),
        title: "Floors: what needs no model".to_owned(),
        columns: vec![
            Column::text("data"),
            Column::text("predictor"),
            Column::value("accuracy"),
        ],
        rows: rows.collect(),
        notes,
        ..Table::default()
    }
}
