//! Results as one HTML file that opens offline: sortable tables, charts, and the provenance of
//! every number.
//!
//! The page includes its style and script and needs no network. It shows everything without the
//! script, which sorts, filters, and hides series of charts.

mod figure;
mod provenance;
mod table;

use crate::chart::{Chart, style};
use crate::format::counted;
use crate::markup::escaped;
use crate::record::Record;
use crate::table::Table;

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
    /// The runs they are made from.
    pub records: &'a [Record],
}

/// Largest number of runs whose provenance is included; a page with more is too large to open.
const MOST_RUNS: usize = 2_000;

impl Page<'_> {
    /// Returns the page as text.
    pub fn render(&self) -> String {
        let mut main = String::new();
        main.extend(self.tables.iter().map(table::html));
        main.extend(self.charts.iter().map(figure::html));
        main += &self.runs();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
             <style>\n{colours}{style}</style>\n</head>\n<body>\n\
             <header>\n<h1>{title}</h1>\n<p class=\"note\">{made}</p>\n</header>\n{contents}\
             <main>\n{main}</main>\n<script>\n{script}</script>\n</body>\n</html>\n",
            title = escaped(&self.title),
            made = escaped(&self.made),
            contents = self.contents(),
            colours = style::css(),
            style = include_str!("page.css"),
            script = include_str!("page.js"),
        )
    }

    /// Returns links to all parts, and the box that filters them.
    fn contents(&self) -> String {
        let tables = self.tables.iter().map(|table| (&table.name, &table.title));
        let charts = self.charts.iter().map(|chart| (&chart.name, &chart.title));
        let mut links: Vec<String> = tables
            .chain(charts)
            .map(|(id, title)| link(id, title))
            .collect();
        if !self.records.is_empty() {
            links.push(link("runs", "Runs"));
        }
        format!(
            "<nav aria-label=\"Contents\">\n\
             <label class=\"scripted\">Filter rows <input type=\"search\" id=\"filter\" placeholder=\"such as performer\"></label>\n\
             <p class=\"note\" id=\"found\" aria-live=\"polite\"></p>\n<ul>\n{}</ul>\n</nav>\n",
            links.concat()
        )
    }

    /// Returns the runs, each collapsed to one line.
    fn runs(&self) -> String {
        if self.records.is_empty() {
            return String::new();
        }
        let shown = self.records.iter().take(MOST_RUNS);
        let mut text = "<section id=\"runs\">\n<h2>Runs</h2>\n".to_owned();
        text.extend(shown.map(provenance::html));
        let left = self.records.len().saturating_sub(MOST_RUNS);
        if left > 0 {
            let left = counted(left as u64, "more run");
            text += &format!("<p>Not written out here: {left}.</p>\n");
        }
        text + "</section>\n"
    }
}

fn link(id: &str, title: &str) -> String {
    format!(
        "<li><a href=\"#{}\">{}</a></li>\n",
        escaped(id),
        escaped(title)
    )
}

/// Returns the word for a failure as a badge.
fn badge(word: &str) -> String {
    format!("<span class=\"badge\">{}</span>", escaped(word))
}
