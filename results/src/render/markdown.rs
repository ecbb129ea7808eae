//! Markdown: a bold title, a table with aligned source, the notes as a list.

use tabled::grid::util::string::get_text_width;

use crate::table::{Align, Table};

pub(super) fn render(table: &Table) -> String {
    let mut lines: Vec<Vec<String>> = vec![
        table
            .columns
            .iter()
            .map(|column| escape(&column.name))
            .collect(),
    ];
    for row in &table.rows {
        lines.push(row.cells.iter().map(|cell| escape(cell.shown())).collect());
    }
    let widths: Vec<usize> = (0..table.columns.len())
        .map(|column| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells
                .map(|cell| get_text_width(cell))
                .max()
                .unwrap_or(0)
                .max(3)
        })
        .collect();

    let mut text = format!("**{}**\n\n", escape(&table.title));
    for (index, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(&widths).zip(&table.columns);
        let cells: Vec<String> = cells
            .map(|((cell, width), column)| {
                let blank = " ".repeat(width - get_text_width(cell));
                match column.align {
                    Align::Left => format!("{cell}{blank}"),
                    Align::Right => format!("{blank}{cell}"),
                }
            })
            .collect();
        text += &format!("| {} |\n", cells.join(" | "));
        if index == 0 {
            let rules =
                widths
                    .iter()
                    .zip(&table.columns)
                    .map(|(width, column)| match column.align {
                        Align::Left => "-".repeat(width + 2),
                        Align::Right => format!("{}:", "-".repeat(width + 1)),
                    });
            text += &format!("|{}|\n", rules.collect::<Vec<_>>().join("|"));
        }
    }
    if !table.notes.is_empty() {
        text.push('\n');
    }
    for note in &table.notes {
        text += &format!("- {}\n", escape(note));
    }
    text
}

/// Keeps cells on their line and in their column, and their characters literal.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\r' => escaped.push(' '),
            '|' | '*' | '_' | '`' | '<' | '[' | '\\' => {
                escaped.push('\\');
                escaped.push(character);
            }
            _ => escaped.push(character),
        }
    }
    escaped
}
