//! Results as one HTML file that opens offline: sortable tables, charts, and the provenance of
//! every number.
//!
//! The page includes its style and script and needs no network. It shows everything without the
//! script, which sorts, filters, and hides series of charts.

mod document;
mod figure;
mod picture;
mod provenance;
mod table;

use crate::chart::Chart;
use crate::markup::escaped;
use crate::record::Record;
use crate::table::Table;

pub(crate) use self::document::{Document, Link};
pub(crate) use self::figure::html as chart_section;
pub use self::picture::Picture;
pub(crate) use self::picture::html as picture_section;
pub(crate) use self::table::{body as table_body, html as table_section};

/// Contents of a page, from the top.
#[derive(Debug, Default)]
pub struct Page<'a> {
    /// The title line.
    pub title: String,
    /// The time the page was made, and its data.
    pub made: String,
    /// The tables.
    pub tables: Vec<Table>,
    /// The charts.
    pub charts: Vec<Chart>,
    /// The pictures.
    pub pictures: Vec<Picture>,
    /// The runs they are made from.
    pub records: &'a [Record],
}

impl Page<'_> {
    /// Returns the page as text.
    pub fn render(&self) -> String {
        let mut main = String::new();
        main.extend(self.tables.iter().map(table::html));
        main.extend(self.charts.iter().map(figure::html));
        main.extend(self.pictures.iter().map(picture::html));
        main += &runs(self.records);
        let document = Document {
            title: &self.title,
            made: &self.made,
            links: &[self.parts()],
            style: "",
            main: &main,
        };
        document.render()
    }

    /// Returns links to all parts.
    fn parts(&self) -> Vec<Link> {
        let tables = self.tables.iter().map(|table| (&table.name, &table.title));
        let charts = self.charts.iter().map(|chart| (&chart.name, &chart.title));
        let pictures = self.pictures.iter();
        let pictures = pictures.map(|picture| (&picture.name, &picture.title));
        let mut links: Vec<Link> = tables
            .chain(charts)
            .chain(pictures)
            .map(|(id, title)| Link::to_part(id, title))
            .collect();
        if !self.records.is_empty() {
            links.push(Link::to_part(RUNS, "Runs"));
        }
        links
    }
}

/// Name of the part with the runs.
pub(crate) const RUNS: &str = "runs";

/// Returns a section with the runs, each collapsed to one line; nothing if there are none.
pub(crate) fn runs<'a>(records: impl IntoIterator<Item = &'a Record>) -> String {
    let records: Vec<&Record> = records.into_iter().collect();
    if records.is_empty() {
        return String::new();
    }
    format!(
        "<section id=\"{RUNS}\">\n<h2>Runs</h2>\n{}</section>\n",
        provenance::html(&records)
    )
}

/// Returns the word for a failure as a badge.
fn badge(word: &str) -> String {
    format!("<span class=\"badge\">{}</span>", escaped(word))
}
