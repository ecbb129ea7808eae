//! LaTeX with the packages `adjustbox` and `booktabs`: a float with caption, tabular and notes. The
//! tabular is centred, and made smaller if it is wider than the text; the best of each column is
//! bold.

use crate::markup::visible;
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
        "\\begin{{table}}\n\\centering\n\\caption{{{}}}\n\\begin{{adjustbox}}{{max width=\\linewidth}}\n\
         \\begin{{tabular}}{{{align}}}\n\\toprule\n",
        escape(&table.title)
    );
    text += &line(table.columns.iter().map(|column| escape(&column.name)));
    text += "\\midrule\n";
    for row in &table.rows {
        if row.rule {
            text += "\\midrule\n";
        }
        text += &line(row.cells.iter().map(|cell| match cell.best {
            true => format!("\\textbf{{{}}}", escape(cell.shown())),
            false => escape(cell.shown()),
        }));
    }
    text += "\\bottomrule\n\\end{tabular}\n\\end{adjustbox}\n";
    if !table.notes.is_empty() {
        // A separate box, since notes are sentences and are not centred.
        text += "\\par\\smallskip\n\\parbox{\\linewidth}{\\footnotesize\\raggedright\n";
        for note in &table.notes {
            text += &format!("{}\\par\n", escape(note));
        }
        text += "}\n";
    }
    text += "\\end{table}\n";
    text
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.collect();
    let row = cells.join(" & ");
    // Behind the `\\` of the row before, these two would be read as its argument.
    let guard = match row.trim_start().starts_with(['[', '*']) {
        true => "{}",
        false => "",
    };
    format!("{guard}{row} \\\\\n")
}

/// Makes every character literal.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in visible(text).chars() {
        match character {
            '\\' => escaped += "\\textbackslash{}",
            '~' => escaped += "\\textasciitilde{}",
            '^' => escaped += "\\textasciicircum{}",
            '±' => escaped += "$\\pm$",
            '<' => escaped += "$<$",
            '>' => escaped += "$>$",
            '×' => escaped += "$\\times$",
            '\n' | '\t' => escaped.push(' '),
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                escaped.push('\\');
                escaped.push(character);
            }
            _ => escaped.push(character),
        }
    }
    escaped
}
