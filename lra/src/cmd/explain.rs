//! `lra explain`: scores of a run by properties of the examples and by class.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use datasets::Picture;
use results::Format;
use results::page::{Page, Picture as PagePicture};
use results::table::{Cell, Column, Row, Table};

use super::score::{Scored, Scoring};
use crate::cli::score::ExplainArgs;
use crate::cmd::{self, Kind};
use crate::error::{Class, Classify, Error, Result};
use crate::trained::{Prediction, TrainedRun};

/// Runs the command.
pub fn run(arguments: &ExplainArgs) -> Result<ExitCode> {
    let scoring = Scoring::new(&arguments.computing, &arguments.place, arguments.quiet)?;
    if let Some(file) = &arguments.output {
        cmd::check_file("--output", file, &[Kind::of(arguments.format)])?;
    }
    if let Some(file) = &arguments.png {
        cmd::check_file("--png", file, &[Kind::PNG])?;
    }
    let run = TrainedRun::open(&arguments.run, &arguments.on.assignments)?;
    if arguments.png.is_some() && run.task.info().first_id != 0 {
        return Err(Error::usage(format!(
            "--png: the examples of {} are not pictures",
            run.task.info().name
        )));
    }
    let scored = scoring.score_opened(&arguments.run, run, &arguments.on)?;
    let worst = worst(&scored.predictions);
    let is_page = arguments.format == Format::Html;
    let count = match arguments.show {
        0 if is_page => SHOWN_ON_A_PAGE,
        count => count,
    };
    let shown = &worst[..worst.len().min(count)];
    let tables = || {
        let mut tables = vec![by_trait(&scored), by_class(&scored)];
        if arguments.format != Format::Text {
            tables.push(by_example(&scored, shown));
        }
        tables.retain(|table| !table.rows.is_empty());
        if let Some(first) = tables.first_mut() {
            let run = &scored.run.record.id;
            first
                .notes
                .insert(0, format!("{run}: {}.", scored.accuracy()));
        }
        tables
    };
    let examples = || match arguments.format {
        Format::Text => shown.iter().map(|it| example(&scored, it)).collect(),
        _ => Vec::new(),
    };
    match &arguments.output {
        Some(file) => {
            let text = match is_page {
                true => page(&scored, count)?.render(),
                false => arguments.format.render(&tables()),
            };
            let examples: String = examples().iter().map(|it| format!("{it}\n")).collect();
            cmd::write_file(file, (text + &examples).as_bytes())?;
        }
        None if is_page => cmd::print(page(&scored, count)?.render())?,
        None => {
            cmd::print_tables(arguments.format, &tables())?;
            for it in examples() {
                cmd::print(it)?;
            }
        }
    }
    if let Some(file) = &arguments.png {
        draw(&scored, &worst, file)?;
        if arguments.format == Format::Text {
            cmd::print(format!("{}\n", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Number of wrong predictions on a page if no other is asked for.
pub const SHOWN_ON_A_PAGE: usize = 20;

/// Returns the page of a run, with so many wrong predictions.
fn page(scored: &Scored, count: usize) -> Result<Page<'static>> {
    let (tables, pictures) = parts_of_a_page(scored, count)?;
    Ok(Page {
        title: "Predictions of a run".to_owned(),
        made: format!("{}, {}", scored.run.record.id, scored.accuracy()),
        tables,
        pictures,
        ..Page::default()
    })
}

/// Returns the tables of a page with so many wrong predictions, and what it draws of them.
pub fn parts_of_a_page(scored: &Scored, count: usize) -> Result<(Vec<Table>, Vec<PagePicture>)> {
    let worst = worst(&scored.predictions);
    let shown = &worst[..worst.len().min(count)];
    let mut examples = by_example(scored, shown);
    let mut pictures = Vec::new();
    if scored.run.task.info().first_id == 0 {
        // Pictures are drawn below the tables.
        examples.columns.pop();
        for row in &mut examples.rows {
            row.cells.pop();
        }
        if !worst.is_empty() {
            pictures.push(PagePicture {
                name: "pictures".to_owned(),
                title: "Wrong predictions with the largest loss, drawn".to_owned(),
                png: sheet(scored, &worst)?,
            });
        }
    }
    let mut tables = vec![by_trait(scored), by_class(scored), examples];
    tables.retain(|table| !table.rows.is_empty());
    Ok((tables, pictures))
}

/// Number of different values of a property up to which each has a row of its own.
const MOST_VALUES: usize = 12;

/// Number of rows for a property with more values.
const PARTS: usize = 4;

/// Returns the accuracy by the properties that the task measures. A property that all examples share
/// has no rows.
fn by_trait(scored: &Scored) -> Table {
    let split = scored.splits.get(scored.split);
    let towers = scored.run.task.info().towers;
    let mut values: BTreeMap<&str, Vec<(u64, &Prediction)>> = BTreeMap::new();
    for it in &scored.predictions {
        let tokens: Vec<&[u8]> = (0..towers)
            .map(|tower| split.tokens(tower, it.row))
            .collect();
        for (name, value) in scored.run.task.traits(&tokens) {
            values.entry(name).or_default().push((value, it));
        }
    }
    let mut table = Table {
        name: "properties".to_owned(),
        title: format!("Accuracy by property: {}", scored.examples()),
        columns: vec![
            Column::key("property"),
            Column::key("values").holding(&["least", "most"]),
            Column::value("examples").in_unit("examples"),
            Column::value("accuracy").in_unit("%"),
            Column::value("loss").in_unit("nats"),
        ],
        ..Table::default()
    };
    for (name, mut of_examples) in values {
        of_examples.sort_by_key(|(value, it)| (*value, it.row));
        let parts = parts(&of_examples);
        if parts.len() < 2 {
            continue;
        }
        for part in parts {
            let (least, most) = (part[0].0, part[part.len() - 1].0);
            let range = match least == most {
                true => least.to_string(),
                false => format!("{least} to {most}"),
            };
            let count = part.len() as f64;
            let right = part.iter().filter(|(_, it)| it.is_right()).count() as f64;
            let loss = part.iter().map(|(_, it)| it.loss()).sum::<f64>() / count;
            table.rows.push(Row::new(vec![
                Cell::with(name, "property", name),
                Cell {
                    text: range,
                    fields: vec![("least", least.into()), ("most", most.into())],
                    ..Cell::default()
                },
                Cell::with(part.len().to_string(), "examples", part.len()),
                Cell::with(
                    format!("{:.2} %", 100.0 * right / count),
                    "accuracy_percent",
                    100.0 * right / count,
                ),
                Cell::with(format!("{loss:.4}"), "loss_nats", loss),
            ]));
        }
    }
    table
}

/// Returns stretches of sorted values: one for each value if there are few, else parts of about
/// equal size between which no value is divided.
fn parts<T>(sorted: &[(u64, T)]) -> Vec<&[(u64, T)]> {
    let each: Vec<_> = sorted.chunk_by(|one, other| one.0 == other.0).collect();
    if each.len() <= MOST_VALUES {
        return each;
    }
    let (mut parts, mut first, mut end) = (Vec::new(), 0, 0);
    for value in each {
        end += value.len();
        // The rest is divided evenly, because a frequent value may take more than its share.
        let left = PARTS.saturating_sub(parts.len()).max(1);
        if end >= first + (sorted.len() - first) / left {
            parts.push(&sorted[first..end]);
            first = end;
        }
    }
    parts
}

/// Number of classes up to which every class has a column of its own.
const MOST_COLUMNS: usize = 20;

/// Returns how often the examples of each class are predicted as each class; with many classes, the
/// class that each is most often taken for instead.
fn by_class(scored: &Scored) -> Table {
    let classes = scored.predictions.first().map_or(0, |it| it.logits.len());
    let mut counts = vec![vec![0u64; classes]; classes];
    for it in &scored.predictions {
        counts[it.label][it.class()] += 1;
    }
    let each = classes <= MOST_COLUMNS;
    let predicted: Vec<Column> = match each {
        true => (0..classes)
            .map(|class| {
                let column = Column::value(format!("as {class}")).in_unit("examples");
                column.info(vec![("predicted", class.into())])
            })
            .collect(),
        false => vec![Column::value("most often wrong as").holding(&["wrong_as", "wrong"])],
    };
    let columns = [
        Column::key("class"),
        Column::value("examples").in_unit("examples"),
        Column::value("right").in_unit("%"),
    ];
    let rows = counts.iter().enumerate().map(|(class, counts)| {
        let total: u64 = counts.iter().sum();
        let right = 100.0 * counts[class] as f64 / total.max(1) as f64;
        let right = match total {
            0 => Cell::text("-"),
            _ => Cell::with(format!("{right:.2} %"), "recall_percent", right),
        };
        let mut cells = vec![
            Cell::with(class.to_string(), "class", class),
            Cell::with(total.to_string(), "examples", total),
            right,
        ];
        match each {
            true => cells.extend(counts.iter().map(|count| match count {
                0 => Cell::with(".", "count", 0),
                count => Cell::with(count.to_string(), "count", *count),
            })),
            false => cells.push(most_often_wrong(class, counts)),
        }
        Row::new(cells)
    });
    Table {
        name: "confusion".to_owned(),
        title: format!("Predictions by class: {}", scored.examples()),
        columns: columns.into_iter().chain(predicted).collect(),
        rows: rows.collect(),
        ..Table::default()
    }
}

/// Returns the class that examples of `class` are most often taken for, the first of several.
fn most_often_wrong(class: usize, counts: &[u64]) -> Cell {
    let wrong = counts
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != class);
    let most = wrong.max_by_key(|(other, count)| (**count, std::cmp::Reverse(*other)));
    match most {
        Some((other, count)) if *count > 0 => Cell {
            text: format!("{other} ({count})"),
            fields: vec![("wrong_as", other.into()), ("wrong", (*count).into())],
            ..Cell::default()
        },
        _ => Cell::text("."),
    }
}

/// Returns the wrong predictions, those with the largest loss first.
fn worst(predictions: &[Prediction]) -> Vec<&Prediction> {
    let mut wrong: Vec<_> = predictions.iter().filter(|it| !it.is_right()).collect();
    wrong.sort_by(|one, other| {
        other
            .loss()
            .total_cmp(&one.loss())
            .then(one.row.cmp(&other.row))
    });
    wrong
}

/// Returns the shown predictions, an example per row.
fn by_example(scored: &Scored, shown: &[&Prediction]) -> Table {
    let row = |it: &&Prediction| {
        let probability = 100.0 * (-it.loss()).exp();
        Row::new(vec![
            Cell::with(it.row.to_string(), "row", it.row),
            Cell::with(it.label.to_string(), "class", it.label),
            Cell::with(it.class().to_string(), "predicted", it.class()),
            Cell::with(
                format!("{probability:.2} %"),
                "probability_percent",
                probability,
            ),
            Cell::text(drawn(scored, it)),
        ])
    };
    Table {
        name: "examples".to_owned(),
        title: "Wrong predictions with the largest loss".to_owned(),
        columns: vec![
            Column::key("row"),
            Column::value("class"),
            Column::value("predicted"),
            Column::value("probability of the class").in_unit("%"),
            Column::text("example"),
        ],
        rows: shown.iter().map(row).collect(),
        ..Table::default()
    }
}

fn drawn(scored: &Scored, it: &Prediction) -> String {
    let split = scored.splits.get(scored.split);
    let towers = 0..scored.run.task.info().towers;
    let towers: Vec<&[u8]> = towers.map(|tower| split.tokens(tower, it.row)).collect();
    let label = u8::try_from(it.label).unwrap_or(u8::MAX);
    scored.run.task.to_text(&towers, label)
}

fn example(scored: &Scored, it: &Prediction) -> String {
    format!(
        "\n{} row {}: class {}, predicted {}; the class had a probability of {:.2} %\n{}",
        scored.split.name(),
        it.row,
        it.label,
        it.class(),
        100.0 * (-it.loss()).exp(),
        drawn(scored, it)
    )
}

/// Number of pictures on a sheet, and number in a row.
const SHEET: (usize, usize) = (40, 8);

/// Draws the examples of the worst predictions into a file.
fn draw(scored: &Scored, worst: &[&Prediction], file: &Path) -> Result<()> {
    cmd::write_file(file, &sheet(scored, worst)?)
}

/// Draws the examples of the worst predictions, as PNG.
fn sheet(scored: &Scored, worst: &[&Prediction]) -> Result<Vec<u8>> {
    let split = scored.splits.get(scored.split);
    let shown = &worst[..worst.len().min(SHEET.0)];
    let caption = |it: &&Prediction| format!("#{} = {} not {}", it.row, it.label, it.class());
    let captions: Vec<String> = shown.iter().map(caption).collect();
    let pictures = shown.iter().zip(&captions).map(|(it, caption)| {
        let pixels = split.tokens(0, it.row);
        Picture {
            pixels,
            width: scored.run.width(pixels.len()),
            caption,
            label: split.label(it.row),
        }
    });
    let pictures: Vec<Picture<'_>> = pictures.collect();
    let sheet = datasets::contact_sheet(&pictures, SHEET.1);
    sheet.during(Class::Data, "drawing the contact sheet")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_values_become_four_parts_and_none_is_divided() {
        let predictions: Vec<Prediction> = (0..100)
            .map(|row| Prediction {
                row,
                label: 0,
                logits: vec![0.0, 1.0],
            })
            .collect();
        let values: Vec<(u64, &Prediction)> = predictions
            .iter()
            .map(|it| ((it.row / 3) as u64, it))
            .collect();
        let parts = parts(&values);
        assert_eq!(parts.len(), 4);
        assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), 100);
        for pair in parts.windows(2) {
            assert!(pair[0][pair[0].len() - 1].0 < pair[1][0].0);
        }
        let few = &values[..12];
        assert_eq!(super::parts(few).len(), 4);
    }

    #[test]
    fn the_most_frequent_mistake_is_not_the_class_itself() {
        let text = |counts: &[u64]| most_often_wrong(1, counts).text;
        assert_eq!(text(&[2, 9, 5, 5]), "2 (5)");
        assert_eq!(text(&[0, 9, 0, 0]), ".");
    }

    /// A value that half of the examples have is a part alone, and the others are divided as evenly
    /// as before.
    #[test]
    fn a_frequent_value_takes_no_part_from_the_others() {
        let often = std::iter::repeat_n(0, 500);
        let sorted: Vec<(u64, ())> = often.chain(1..=500).map(|value| (value, ())).collect();
        let sizes: Vec<usize> = parts(&sorted).iter().map(|part| part.len()).collect();
        assert_eq!(sizes.len(), PARTS, "{sizes:?}");
        assert_eq!(sizes[0], 500, "{sizes:?}");
        let (least, most) = (500 / PARTS, 500 / (PARTS - 1) + 1);
        assert!(
            sizes[1..].iter().all(|size| (least..=most).contains(size)),
            "{sizes:?}"
        );
        assert_eq!(sizes.iter().sum::<usize>(), sorted.len());
        // Few values have a part each.
        let few: Vec<(u64, ())> = [3, 3, 5].map(|value| (value, ())).into();
        assert_eq!(parts(&few).len(), 2);
    }
}
