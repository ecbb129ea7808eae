//! Results as one HTML file that opens offline: tables that sort, charts, and where every number comes from.
//!
//! Style and script are written into the page; it asks nothing of a network.

mod provenance;

use crate::Result;
use crate::chart::Chart;
use crate::markup::escaped;
use crate::record::Record;
use crate::table::{Align, Cell, Table};

/// What a page shows, from the top.
#[derive(Debug, Default)]
pub struct Page<'a> {
    /// The line at its head.
    pub title: String,
    /// When and from what it was made.
    pub made: String,
    /// The tables.
    pub tables: Vec<Table>,
    /// The charts.
    pub charts: Vec<Chart>,
    /// The runs behind them.
    pub records: &'a [Record],
}

/// Runs whose provenance is written out; a page with more is too large to open.
const MOST_RUNS: usize = 2_000;

impl Page<'_> {
    /// The page as text.
    ///
    /// # Errors
    /// A chart cannot be drawn.
    pub fn render(&self) -> Result<String> {
        let mut body = format!("<h1>{}</h1>\n", escaped(&self.title));
        if !self.made.is_empty() {
            body += &format!("<p class=\"made\">{}</p>\n", escaped(&self.made));
        }
        for table in &self.tables {
            body += &html(table);
        }
        for chart in &self.charts {
            body += &format!("<figure id=\"{}\">\n{}", escaped(&chart.name), chart.svg()?);
            for note in &chart.notes {
                body += &format!("<figcaption>{}</figcaption>\n", escaped(note));
            }
            body += "</figure>\n";
        }
        if !self.records.is_empty() {
            body += "<h2>Runs</h2>\n";
            let shown = self.records.iter().take(MOST_RUNS);
            body.extend(shown.map(provenance::html));
            let left = self.records.len().saturating_sub(MOST_RUNS);
            if left > 0 {
                body += &format!("<p>{left} more runs are not written out here.</p>\n");
            }
        }
        Ok(format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n\
             <style>\n{}</style>\n</head>\n<body>\n{body}<script>\n{}</script>\n</body>\n</html>\n",
            escaped(&self.title),
            include_str!("page.css"),
            include_str!("page.js"),
        ))
    }
}

/// A table. Every cell carries the value that its column is sorted by.
fn html(table: &Table) -> String {
    let mut text = format!(
        "<section>\n<h2>{}</h2>\n<div class=\"scroll\"><table id=\"{}\">\n<thead><tr>",
        escaped(&table.title),
        escaped(&table.name)
    );
    for column in &table.columns {
        text += &format!(
            "<th{} aria-sort=\"none\"><button type=\"button\">{}</button></th>",
            class(column.align),
            escaped(&column.name)
        );
    }
    text += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        text += if row.rule {
            "<tr class=\"rule\">"
        } else {
            "<tr>"
        };
        for (cell, column) in row.cells.iter().zip(&table.columns) {
            text += &format!(
                "<td{}{}>{}</td>",
                class(column.align),
                value(cell),
                escaped(cell.shown())
            );
        }
        text += "</tr>\n";
    }
    text += "</tbody>\n</table></div>\n";
    for note in &table.notes {
        text += &format!("<p class=\"note\">{}</p>\n", escaped(note));
    }
    text + "</section>\n"
}

fn class(align: Align) -> &'static str {
    match align {
        Align::Left => "",
        Align::Right => " class=\"number\"",
    }
}

/// The number behind a cell, if there is one: its first that is not null.
fn value(cell: &Cell) -> String {
    let number = cell.fields.iter().find_map(|(_, value)| value.as_f64());
    number.map_or_else(String::new, |number| format!(" data-value=\"{number}\""))
}
