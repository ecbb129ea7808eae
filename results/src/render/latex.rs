//! LaTeX with the package `booktabs`: a float with caption, tabular and notes.

use crate::table::{Align, Table};

pub(super) fn render(table: &Table) -> String {
    let align: String = table
        .columns
        .iter()
        .map(|column| match column.align {
            Align::Left => 'l',
            Align::Right => 'r',
        })
        .collect();
    let mut text = format!(
        "\\begin{{table}}\n\\caption{{{}}}\n\\begin{{tabular}}{{{align}}}\n\\toprule\n",
        escape(&table.title)
    );
    text += &line(table.columns.iter().map(|column| column.name.as_str()));
    text += "\\midrule\n";
    for row in &table.rows {
        if row.rule {
            text += "\\midrule\n";
        }
        text += &line(row.cells.iter().map(|cell| cell.shown()));
    }
    text += "\\bottomrule\n\\end{tabular}\n";
    for note in &table.notes {
        text += &format!("\\par{{\\footnotesize {}}}\n", escape(note));
    }
    text += "\\end{table}\n";
    text
}

fn line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<String> = cells.map(escape).collect();
    format!("{} \\\\\n", cells.join(" & "))
}

/// Makes every character literal.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped += "\\textbackslash{}",
            '~' => escaped += "\\textasciitilde{}",
            '^' => escaped += "\\textasciicircum{}",
            '±' => escaped += "$\\pm$",
            '<' => escaped += "$<$",
            '>' => escaped += "$>$",
            '×' => escaped += "$\\times$",
            '\n' | '\r' => escaped.push(' '),
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                escaped.push('\\');
                escaped.push(character);
            }
            _ => escaped.push(character),
        }
    }
    escaped
}
