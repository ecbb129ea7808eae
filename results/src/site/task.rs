//! The page of a task: its card, its floors, its locality, and the models on it.

use super::{Book, cells, evidence, floors, locality, ours::Group, prose};
use crate::page::{Link, table_section};
use crate::published::task_name;

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
    let mut tables = vec![floors::table(
        name,
        &groups,
        card.map_or(0, |card| card.classes),
    )];
    tables.extend(locality::table(book, name));
    if !shown.is_empty() {
        tables.push(cells::table(&book.names, shown));
    }
    let figures = book.evidence.iter().filter(|one| is_here(one.task));
    let mut figures = evidence::table(&book.names, figures, true);
    figures.name = "figures".to_owned();
    figures.title = "Every figure of the task".to_owned();
    tables.push(figures);
    tables.retain(|table| !table.rows.is_empty());
    for table in &tables {
        parts.push(Link::to_part(&table.name, table.title.clone()));
        main += &table_section(table);
    }
    let title = card.map_or(name, |card| &card.title);
    book.document(title, &format!("task {name}"), parts, &main)
}
