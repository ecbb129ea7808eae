//! The pages of predictions: how a run did by property and by class, and its worst examples.

use super::Book;
use super::names::Names;
use crate::page::{Link, Picture, picture_section, table_section};
use crate::table::Table;

/// The predictions of a run's weights.
#[derive(Clone, Debug, Default)]
pub struct Predictions {
    /// The run's name, as its record has it.
    pub run: String,
    /// The examples in words: `2,000 examples of listops@64, test`.
    pub examples: String,
    /// The tables.
    pub tables: Vec<Table>,
    /// Examples that are drawn.
    pub pictures: Vec<Picture>,
}

/// Returns the page.
pub(super) fn page(book: &Book, it: &Predictions) -> String {
    let tables = it.tables.iter().map(|table| (&table.name, &table.title));
    let pictures = it.pictures.iter().map(|one| (&one.name, &one.title));
    let mut parts = Vec::new();
    let record = book
        .site
        .runs
        .records
        .iter()
        .find(|record| record.id == it.run);
    let model = record.and_then(|record| book.names.model(&record.model.name));
    parts.extend(model.map(|to| Link {
        to,
        words: "The model".to_owned(),
    }));
    parts.extend(
        tables
            .chain(pictures)
            .map(|(id, title)| Link::to_part(id, title)),
    );
    let mut main = String::new();
    main.extend(it.tables.iter().map(table_section));
    main.extend(it.pictures.iter().map(picture_section));
    let made = format!("{}, {}", it.run, it.examples);
    book.document("Predictions of a run", &made, parts, &main)
}

/// Returns links to the pages of some runs as HTML; nothing if there are none.
pub(super) fn links<'a>(names: &Names, runs: impl Iterator<Item = &'a str>) -> String {
    let links = runs.filter_map(|run| {
        let link = Link {
            to: names.predictions(run)?,
            words: run.to_owned(),
        };
        Some(format!("<li>{}</li>\n", link.html()))
    });
    let links: String = links.collect();
    match links.is_empty() {
        true => links,
        false => format!("<ul>\n{links}</ul>\n"),
    }
}
