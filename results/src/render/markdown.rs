//! Markdown: a bold title, a table with aligned source, the notes as a list; and the escaping of
//! any string.

use tabled::grid::util::string::get_text_width;

use crate::markup::visible;
use crate::table::{Align, Table};

pub(super) fn render(table: &Table) -> String {
    let mut lines: Vec<Vec<String>> = vec![
        table
            .columns
            .iter()
            .map(|column| literal(&column.name))
            .collect(),
    ];
    for row in &table.rows {
        lines.push(row.cells.iter().map(|cell| literal(cell.shown())).collect());
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

    let mut text = format!("**{}**\n\n", literal(&table.title));
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
        text += &format!("- {}\n", item(note));
    }
    text
}

/// Returns text for an item of a list: literal, and no heading, list or block of code of its own.
fn item(text: &str) -> String {
    let mut text = literal(text.trim_start());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let starts_block = match text[digits..].chars().next() {
        Some('#' | '+' | '-' | '=') => digits == 0,
        Some('.' | ')') => digits > 0,
        _ => false,
    };
    if starts_block {
        text.insert(digits, '\\');
    }
    text
}

/// Returns text that stays on its line and in its cell, with every character literal. Markdown
/// passes HTML through, and some renderers do not accept a backslash before a bracket. So brackets,
/// and characters that could start an entity, are written as entities. GitHub makes links of
/// addresses, mathematics of dollars and struck-out text of tildes, so these are escaped too.
#[must_use]
pub fn literal(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let text = visible(text);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\n' | '\t' => escaped.push(' '),
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' if characters
                .peek()
                .is_some_and(|next| *next == '#' || next.is_ascii_alphanumeric()) =>
            {
                escaped += "&amp;";
            }
            '|' | '*' | '_' | '`' | '[' | '\\' | '~' | '$' => {
                escaped.push('\\');
                escaped.push(character);
            }
            _ => escaped.push(character),
        }
    }
    escaped.replace("://", ":\\//").replace("www.", "www\\.")
}

/// Returns text as a span of code on one line: nothing within it is markup, and no backtick ends it
/// early.
#[must_use]
pub fn code(text: &str) -> String {
    let text = visible(text).replace(['\n', '\t'], " ");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    match text.starts_with('`') || text.ends_with('`') {
        true => format!("{fence} {text} {fence}"),
        false => format!("{fence}{text}{fence}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_string_becomes_markup() {
        let odd = "<img src=x onerror=alert(1)> &lt; *b* | [a](b) `c`\r\u{1b}[2J";
        let text = literal(odd);
        assert!(!text.contains(['<', '>', '\u{1b}', '\r']), "{text}");
        assert!(text.contains("&amp;lt;") && text.contains("\\|"), "{text}");
        assert_eq!(literal("a & b, 5 % of #1"), "a & b, 5 % of #1");
        assert_eq!(
            literal("~~a~~ $x$ http://a.b www.c"),
            r"\~\~a\~\~ \$x\$ http:\//a.b www\.c"
        );
        for (text, escaped) in [
            ("# Heading", r"\# Heading"),
            ("1. one", r"1\. one"),
            ("12) one", r"12\) one"),
            ("---", r"\---"),
            ("    code", "code"),
            ("3 seeds.", "3 seeds."),
            ("One seed.", "One seed."),
        ] {
            assert_eq!(item(text), escaped);
        }
        assert_eq!(code("lra run"), "`lra run`");
        assert_eq!(code("a ``b`"), "``` a ``b` ```");
    }
}
