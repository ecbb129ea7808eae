//! The tables for programs, and the file that marks a folder as a site.

use serde_json::{Map, Value, json};

use super::{Book, File, MARKER, Site};
use crate::render::{csv, document};

/// Version of the feeds, which grows when the meaning of a field changes.
const SCHEMA: u32 = 2;

/// A row: names and values, the same names in every row.
type Facts = Vec<(&'static str, Value)>;

/// Returns the feeds: cells and evidence, each as CSV and as JSON.
pub(super) fn files(book: &Book) -> Vec<File> {
    let cells = book.cells.iter().map(|cell| cell.facts(&book.names));
    let evidence = book.evidence.iter().map(|one| one.facts(book.groups));
    let mut files = Vec::new();
    for (name, rows) in [
        ("cells", cells.collect()),
        ("evidence", evidence.collect::<Vec<_>>()),
    ] {
        files.push(File {
            name: format!("{name}.csv"),
            text: as_csv(&rows),
        });
        files.push(File {
            name: format!("{name}.json"),
            text: as_json(book.site, name, &rows),
        });
    }
    files
}

fn as_csv(rows: &[Facts]) -> String {
    let header = rows.first().into_iter().flatten();
    let header: Vec<&str> = header.map(|(name, _)| *name).collect();
    let rows = rows.iter();
    let rows = rows.map(|row| row.iter().map(|(_, value)| value.clone()).collect());
    csv::lines(&header, rows)
}

fn as_json(site: &Site, name: &str, rows: &[Facts]) -> String {
    let rows = rows.iter().map(|row| {
        let pairs = row.iter();
        let pairs = pairs.map(|(name, value)| ((*name).to_owned(), value.clone()));
        Value::Object(pairs.collect::<Map<_, _>>())
    });
    let mut whole = head(site);
    whole.insert(name.to_owned(), rows.collect());
    text(&whole.into())
}

/// Returns the file that marks a folder as a site, and names all other files of it.
pub(super) fn marker(site: &Site, files: &[File]) -> File {
    let mut whole = head(site);
    let names = files.iter().map(|file| file.name.as_str());
    whole.insert("files".to_owned(), names.collect());
    File {
        name: MARKER.to_owned(),
        text: text(&whole.into()),
    }
}

/// Returns the facts about a site as a whole.
fn head(site: &Site) -> Map<String, Value> {
    let facts = json!({
        "schema": SCHEMA,
        "made_by": site.made_by,
        "latest_run": crate::table::or_null(site.latest()),
    });
    match facts {
        Value::Object(facts) => facts,
        _ => Map::new(),
    }
}

fn text(value: &Value) -> String {
    document(value).unwrap_or_default() + "\n"
}
