//! Text for terminals. A table that is too wide is broken into several, each with the key columns.

use tabled::builder::Builder;
use tabled::grid::util::string::get_text_width;
use tabled::settings::object::Columns;
use tabled::settings::style::HorizontalLine;
use tabled::settings::{Alignment, Color, Padding, Style, Theme};

use super::width;
use crate::format::wrap;
use crate::table::{Align, Row, Table};
use crate::tone::Tone;

/// Largest width of key columns; longer entries are broken, unless they are to stay whole.
const KEYS: usize = 26;
/// Largest width of other columns of words.
const WORDS: usize = 36;
/// Spaces between columns.
const GAP: usize = 2;

pub(super) fn render(table: &Table) -> String {
    draw(table, &title(table), false)
}

/// Renders tables for a terminal that shows colours: cells in the colours of their meanings, and
/// titles in that of `verdict`. Characters that a terminal obeys are escaped.
pub fn on_terminal(tables: &[Table], verdict: Option<Tone>) -> String {
    let parts = tables.iter().map(|table| {
        let title = disk::printable(&title(table));
        let title = verdict.map_or_else(|| title.clone(), |tone| tone.paint(&title));
        draw(table, &title, true)
    });
    parts.collect::<Vec<_>>().join("\n")
}

fn title(table: &Table) -> String {
    wrap(&table.title, width(), 0, 0)
}

/// Draws a table below its title.
fn draw(table: &Table, title: &str, colours: bool) -> String {
    let mut text = format!("{title}\n\n");
    let blocks = blocks(table);
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        text += &grid(table, block, blocks.len() > 1, colours);
    }
    if !table.notes.is_empty() {
        text.push('\n');
    }
    for note in &table.notes {
        text += &format!("  {}\n", wrap(&disk::printable(note), width(), 2, 4));
    }
    text
}

/// Returns a cell as it is printed in its column.
fn cell(table: &Table, column: usize, text: &str) -> String {
    let column = &table.columns[column];
    let widest = match (column.key, column.align) {
        _ if column.whole => usize::MAX,
        (true, _) => KEYS,
        (false, Align::Left) => WORDS,
        (false, Align::Right) => width() / 2,
    };
    wrap(&disk::printable(text), widest, 0, 0)
}

fn column_width(table: &Table, column: usize) -> usize {
    let cells = table.rows.iter().filter_map(|row| row.cells.get(column));
    let texts = cells.map(|cell| cell.shown());
    let texts = texts.chain([table.columns[column].name.as_str()]);
    let widths = texts.map(|text| get_text_width(&cell(table, column, text)));
    GAP + widths.max().unwrap_or(0)
}

/// Returns the columns of each block: all keys, and as many others as fit, at least one.
fn blocks(table: &Table) -> Vec<Vec<usize>> {
    let columns = 0..table.columns.len();
    let (keys, values): (Vec<usize>, Vec<usize>) = columns.partition(|i| table.columns[*i].key);
    let room = width().saturating_sub(keys.iter().map(|i| column_width(table, *i)).sum());
    let mut blocks = vec![keys.clone()];
    let mut used = 0;
    for value in values {
        let wide = column_width(table, value);
        if used > 0 && used + wide > room + GAP {
            blocks.push(keys.clone());
            used = 0;
        }
        used += wide;
        if let Some(block) = blocks.last_mut() {
            block.push(value);
        }
    }
    blocks
}

/// Draws some columns. In a part of a broken table, empty rows are left out.
fn grid(table: &Table, columns: &[usize], part: bool, colours: bool) -> String {
    let filled = |row: &&Row| {
        let mut values = columns.iter().filter(|i| !table.columns[**i].key);
        values.any(|i| row.cells.get(*i).is_some_and(|cell| !cell.text.is_empty()))
    };
    let rows = table.rows.iter().filter(|row| !part || filled(row));
    let rows: Vec<&Row> = rows.collect();
    let mut builder = Builder::default();
    let header = columns
        .iter()
        .map(|i| cell(table, *i, &table.columns[*i].name));
    builder.push_record(header);
    for row in &rows {
        let texts = columns.iter().map(|i| {
            let text = row.cells.get(*i).map_or("-", |cell| cell.shown());
            cell(table, *i, text)
        });
        builder.push_record(texts);
    }

    let mut theme = Theme::from_style(Style::empty());
    let line = HorizontalLine::new('-').intersection('-');
    theme.insert_horizontal_line(1, line);
    for (index, _) in rows.iter().enumerate().filter(|(_, row)| row.rule) {
        theme.insert_horizontal_line(index + 1, line);
    }
    let mut grid = builder.build();
    grid.with(theme).with(Padding::new(0, GAP, 0, 0));
    grid.modify(Columns::last(), Padding::zero());
    for (place, column) in columns.iter().enumerate() {
        let side = match table.columns[*column].align {
            Align::Left => Alignment::left(),
            Align::Right => Alignment::right(),
        };
        grid.modify(Columns::one(place), side);
    }
    if colours {
        for (index, row) in rows.iter().enumerate() {
            for (place, column) in columns.iter().enumerate() {
                if let Some(tone) = row.cells.get(*column).and_then(|cell| cell.tone) {
                    grid.modify((index + 1, place), colour(tone));
                }
            }
        }
    }
    let drawn = grid.to_string();
    drawn
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

fn colour(tone: Tone) -> Color {
    let style = tone.style();
    Color::new(format!("{style}"), format!("{style:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Cell, Column};

    fn table() -> Table {
        let rows = [
            ("FAILED", None),
            ("linear", Some(Tone::Bad)),
            ("\u{1b}[5m", Some(Tone::Good)),
        ];
        let rows = rows
            .map(|(name, tone)| Row::new(vec![Cell::text(name), Cell::text("1.00").toned(tone)]));
        Table {
            title: "Check: FAILED".to_owned(),
            columns: vec![Column::key("model"), Column::value("accuracy")],
            rows: rows.into(),
            ..Table::default()
        }
    }

    #[test]
    fn entries_of_a_whole_column_are_not_broken() {
        let name = "grad/param/encoder.0.mixer_norm.scale";
        let shown = |column: Column| {
            let table = Table {
                columns: vec![column, Column::value("max abs")],
                rows: vec![Row::new(vec![Cell::text(name), Cell::text("0.5")])],
                ..Table::default()
            };
            render(&table)
        };
        assert!(shown(Column::key("tensor").unbroken()).contains(&format!("\n{name}      0.5\n")));
        assert!(!shown(Column::key("tensor")).contains(name));
    }

    /// A model that is named like a verdict has no colour, and codes of others are escaped.
    #[test]
    fn cells_have_the_colours_of_their_meanings() {
        let shown = on_terminal(&[table()], Some(Tone::Bad));
        let codes = ["\u{1b}[1m\u{1b}[31m", "\u{1b}[1m\u{1b}[32m", "\u{1b}[0m"];
        let title = format!("{}Check: FAILED{}\n", codes[0], codes[2]);
        assert!(shown.starts_with(&title), "{shown:?}");
        assert!(shown.contains("\nFAILED "), "{shown:?}");
        assert!(
            shown.contains(&format!("{}1.00{}", codes[0], codes[2])),
            "{shown:?}"
        );
        assert!(
            shown.contains(&format!("{}1.00{}", codes[1], codes[2])),
            "{shown:?}"
        );
        let mut plain = shown;
        for code in codes {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, render(&table()), "colours take no room");
        assert!(!plain.contains('\u{1b}'), "{plain:?}");
    }
}
