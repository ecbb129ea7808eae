//! A sortable table.

use super::badge;
use crate::markup::escaped;
use crate::table::{Align, Cell, Column, PAGE, Table};

/// Returns a section with the table.
pub(crate) fn html(table: &Table) -> String {
    format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n{}</section>\n",
        escaped(&table.name),
        escaped(&table.title),
        body(table)
    )
}

/// Returns a table with its notes, without a heading. Every cell includes its sort key. A column
/// with the same value in every row becomes a note. A table without rows has only its notes.
pub(crate) fn body(table: &Table) -> String {
    if table.rows.is_empty() {
        return table.notes.iter().map(|one| note(one)).collect();
    }
    let same: Vec<Option<&str>> = (0..table.columns.len())
        .map(|column| said_by_all(table, column))
        .collect();
    let rooms: Vec<Room> = (0..table.columns.len())
        .map(|column| room(table, column))
        .collect();
    let keys: Vec<Option<&str>> = (0..table.columns.len())
        .map(|column| sort_key(table, column))
        .collect();
    let mut text =
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"sorts\">\n<thead><tr>".to_owned();
    let shown = || (0..table.columns.len()).filter(|column| same[*column].is_none());
    for column in shown() {
        let Column { name, align, .. } = &table.columns[column];
        text += &format!(
            "<th{} aria-sort=\"none\"><button type=\"button\">{}</button></th>",
            class(*align, false, Room::Words),
            escaped(name)
        );
    }
    text += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        text += match row.rule {
            true => "<tr class=\"rule\">",
            false => "<tr>",
        };
        for column in shown() {
            if let Some(cell) = row.cells.get(column) {
                text += &self::cell(
                    cell,
                    table.columns[column].align,
                    keys[column],
                    rooms[column],
                );
            }
        }
        text += "</tr>\n";
    }
    text += "</tbody>\n</table></div>\n";
    let same = table.columns.iter().zip(&same);
    let same: Vec<String> = same
        .filter_map(|(column, word)| word.map(|word| format!("{} {word}", column.name)))
        .collect();
    if !same.is_empty() {
        text += &note(&format!("The same in every row: {}.", same.join(", ")));
    }
    text.extend(table.notes.iter().map(|one| note(one)));
    text
}

/// Returns the value of a key column, if it is the same for all rows. The first column, which names
/// the rows, is excluded.
fn said_by_all(table: &Table, column: usize) -> Option<&str> {
    let tells_apart = column > 0 && table.columns[column].key && table.rows.len() > 1;
    let mut words = table.rows.iter().map(|row| {
        let cell = row.cells.get(column);
        cell.map_or("", |cell| cell.text.as_str())
    });
    let first = words
        .next()
        .filter(|word| tells_apart && !word.is_empty())?;
    words.all(|word| word == first).then_some(first)
}

/// Room that a column needs.
#[derive(Clone, Copy)]
enum Room {
    /// For a word or two, in one line.
    Words,
    /// For a line or two.
    Lines,
    /// For sentences.
    Sentences,
    /// For text whose line ends and blanks draw something.
    Drawn,
}

/// Returns the room that a column needs. The first column, which names the rows, has one line.
fn room(table: &Table, column: usize) -> Room {
    let cells = || table.rows.iter().filter_map(|row| row.cells.get(column));
    if cells().any(|cell| cell.text.trim_end().contains('\n')) {
        return Room::Drawn;
    }
    let longest = cells().map(|cell| cell.shown().chars().count()).max();
    match longest {
        Some(19..=60) if column > 0 => Room::Lines,
        Some(61..) if column > 0 => Room::Sentences,
        _ => Room::Words,
    }
}

/// Returns the field by which a column is sorted: the first of those declared that is a number in
/// some cell. A cell without it comes last, such as one of failed runs, unless it has an order.
fn sort_key(table: &Table, column: usize) -> Option<&'static str> {
    let is_number = |name: &&&'static str| {
        let mut cells = table.rows.iter().filter_map(|row| row.cells.get(column));
        cells.any(|cell| cell.field(name).is_some_and(|value| value.is_number()))
    };
    table.columns[column].fields.iter().find(is_number).copied()
}

/// Returns a cell. A failure is a badge before the number, so that numbers stay aligned.
fn cell(cell: &Cell, align: Align, key: Option<&str>, room: Room) -> String {
    let number = match key {
        Some(key) => cell.field(key).and_then(|value| value.as_f64()),
        None => cell.fields.iter().find_map(|(_, value)| value.as_f64()),
    };
    let number = cell.order.or(number);
    let value = number.map_or_else(String::new, |number| format!(" data-value=\"{number}\""));
    let shown = cell.shown();
    let status = cell.field("status").and_then(|status| status.as_str());
    let words = match status.and_then(|status| Some((status, shown.strip_suffix(status)?))) {
        Some((status, rest)) => format!(
            "{} {}",
            badge(status),
            escaped(rest.trim_end_matches([' ', ';']))
        ),
        None => escaped(shown),
    };
    let words = words.trim_end();
    let words = match cell.field(PAGE).and_then(|page| page.as_str()) {
        Some(page) => format!("<a href=\"{}\">{words}</a>", escaped(page)),
        None => words.to_owned(),
    };
    format!("<td{}{value}>{words}</td>", class(align, cell.best, room))
}

fn class(align: Align, best: bool, room: Room) -> &'static str {
    match (align, best, room) {
        (Align::Right, false, _) => " class=\"number\"",
        (Align::Right, true, _) => " class=\"number best\"",
        (Align::Left, true, _) => " class=\"best\"",
        (Align::Left, false, Room::Words) => "",
        (Align::Left, false, Room::Lines) => " class=\"lines\"",
        (Align::Left, false, Room::Sentences) => " class=\"sentences\"",
        (Align::Left, false, Room::Drawn) => " class=\"sentences drawn\"",
    }
}

fn note(words: &str) -> String {
    format!("<p class=\"note\">{}</p>\n", escaped(words))
}
