//! Accuracies that others measured: read from their files, kept in one CSV file, and shown beside
//! runs. They are never taken for measurements.

mod lines;

use std::path::Path;

use serde_json::json;

use self::lines::{Line, lines, melt};
use crate::format::counted;
use crate::markup::guarded;
use crate::stats::{Sample, largest_deviation};
use crate::table::{Cell, Column, Foreign, Row, Table, or_null};
use crate::tables::{EVERY_ROW, ONE_SEED};
use crate::{Error, Result, atomic};

/// Name of the file in a folder of runs.
pub const FILE: &str = "imported.csv";

/// Note on imported accuracies.
pub(crate) const UNCHECKED: &str =
    "imported: measured by others; nothing about their data or settings was checked.";

/// Points by which a deviation may exceed the largest possible one, since papers round means.
const ROUNDING: f64 = 0.1;

/// Header of that file.
const HEADER: [&str; 7] = [
    "source",
    "task",
    "model",
    "accuracy_percent",
    "deviation_percent",
    "seeds",
    "settings",
];

/// The mean accuracy of a cell that others measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Name of the source.
    pub source: String,
    /// Label of the task, such as `listops` or `text@512`.
    pub task: String,
    /// Name of the model.
    pub model: String,
    /// Mean over the seeds, in percent.
    pub percent: f64,
    /// Sample standard deviation over the seeds, in points; none if it is unknown.
    pub deviation: Option<f64>,
    /// Number of seeds, at least 1.
    pub seeds: u64,
    /// Settings in the words of the source; may be empty.
    pub settings: String,
}

impl Imported {
    /// Returns its figures in words.
    fn figures(&self) -> String {
        let seeds = counted(self.seeds, "seed");
        match self.deviation {
            Some(deviation) => format!("{} ±{deviation} % over {seeds}", self.percent),
            None => format!("{} % over {seeds}", self.percent),
        }
    }

    /// Returns whether another row is of the same cell.
    #[must_use]
    pub fn is_of_the_cell_of(&self, other: &Imported) -> bool {
        let cell =
            |it: &Imported| [&it.source, &it.task, &it.model, &it.settings].map(Clone::clone);
        cell(self) == cell(other)
    }
}

/// A value that a line of a file may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Name of the source.
    Source,
    /// Name of the task.
    Task,
    /// Name of the model.
    Model,
    /// Accuracy as a fraction, 0 to 1; with a percent sign, in percent.
    Accuracy,
    /// Accuracy in percent.
    AccuracyPercent,
    /// Deviation over the seeds, in points.
    DeviationPercent,
    /// Seed of a single run; lines that differ in nothing else are averaged.
    Seed,
    /// Number of seeds that the line averages.
    Seeds,
    /// Settings of the run.
    Settings,
}

impl Field {
    /// Returns the field that says the same in another way.
    fn twin(self) -> Option<Field> {
        match self {
            Field::Accuracy => Some(Field::AccuracyPercent),
            Field::AccuracyPercent => Some(Field::Accuracy),
            Field::Seed => Some(Field::Seeds),
            Field::Seeds => Some(Field::Seed),
            _ => None,
        }
    }

    /// Returns the field called `name`, such as `accuracy_percent`.
    #[must_use]
    pub fn called(name: &str) -> Option<Field> {
        let of = |(field, names): &(Field, &[&str])| (names[0] == name).then_some(*field);
        NAMES.iter().find_map(of)
    }

    /// Returns the names of all fields.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        NAMES.iter().map(|(_, names)| names[0]).collect()
    }
}

/// The fields, each with its own name and the names of its column in files of others: those of
/// Weights & Biases, state-spaces/s4 and google-research/long-range-arena.
const NAMES: [(Field, &[&str]); 9] = [
    (Field::Source, &["source", "paper"]),
    (
        Field::Task,
        &["task", "dataset", "task_name", "dataset._name_"],
    ),
    (
        Field::Model,
        &["model", "method", "model_type", "model.layer._name_"],
    ),
    (
        Field::Accuracy,
        &[
            "accuracy",
            "test_accuracy",
            "test_acc",
            "test/accuracy",
            "final/test/accuracy",
        ],
    ),
    (
        Field::AccuracyPercent,
        &["accuracy_percent", "mean_percent"],
    ),
    (Field::DeviationPercent, &["deviation_percent"]),
    (Field::Seed, &["seed", "train.seed", "random_seed"]),
    (Field::Seeds, &["seeds"]),
    (Field::Settings, &["settings", "set"]),
];

/// Values and columns that a user gives for a file.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// Values that hold for all lines.
    pub values: Vec<(Field, String)>,
    /// Columns of fields.
    pub columns: Vec<(Field, String)>,
    /// Tells the header of a column that holds the accuracies on a task. Asked if there is no task.
    pub is_task: Option<fn(&str) -> bool>,
    /// True if such columns hold fractions, false if they hold percent.
    pub fractions: bool,
    /// Replaces the names of a cell by those in use here. Lines whose names become equal are of
    /// one cell.
    pub rename: Option<fn(Imported) -> Imported>,
}

impl Given {
    /// Turns a table with a column for each task into lines with one task each.
    fn melt(&self, lines: Vec<Line>) -> Vec<Line> {
        let Some(is_task) = self.of_tasks(&lines) else {
            return lines;
        };
        let accuracy = match self.fractions {
            true => Field::Accuracy,
            false => Field::AccuracyPercent,
        };
        let [task, accuracy] = [Field::Task, accuracy].map(|field| names_of(field)[0]);
        melt(lines, is_task, task, accuracy)
    }

    /// Returns what tells the columns of tasks, if lines have such columns in place of a task and
    /// an accuracy each.
    fn of_tasks(&self, lines: &[Line]) -> Option<fn(&str) -> bool> {
        let has = |field| lines.iter().any(|line| self.value(line, field).is_some());
        let there = [Field::Task, Field::Accuracy, Field::AccuracyPercent].map(has);
        self.is_task.filter(|_| there == [false; 3])
    }

    /// Returns the value of a field in a line.
    fn value<'a>(&'a self, line: &'a Line, field: Field) -> Option<&'a str> {
        let given = self.values.iter().find(|(it, _)| *it == field);
        match given {
            Some((_, value)) => Some(value),
            None => self
                .columns_of(field)
                .into_iter()
                .find_map(|name| line.value(name)),
        }
    }

    /// Returns the columns that a field may be read from, by name. Those that were not named do not
    /// count if the user says the same by [another field](Field::twin).
    fn columns_of(&self, field: Field) -> Vec<&str> {
        let column = self.columns.iter().find(|(it, _)| *it == field);
        if let Some((_, column)) = column {
            return vec![column.as_str()];
        }
        let mut chosen = self.values.iter().chain(&self.columns);
        match chosen.any(|(it, _)| field == *it || field.twin() == Some(*it)) {
            true => Vec::new(),
            false => names_of(field).to_vec(),
        }
    }

    /// Refuses two columns of one name where it is read: only one of them would be.
    fn refuse_twins(&self, path: &Path, lines: &[Line]) -> Result<()> {
        let is_task = self.of_tasks(lines);
        let is_read = |name: &str| {
            let mut fields = NAMES.iter().map(|(field, _)| self.columns_of(*field));
            fields.any(|names| names.iter().any(|it| it.eq_ignore_ascii_case(name)))
                || is_task.is_some_and(|is_task| is_task(name))
        };
        let names = lines.first().map_or_else(Vec::new, Line::names);
        let mut twins = names.iter().enumerate().filter(|(at, name)| {
            let mut before = names[..*at].iter();
            before.any(|other| other.eq_ignore_ascii_case(name)) && is_read(name)
        });
        match twins.next() {
            None => Ok(()),
            Some((_, name)) => Err(fault(
                path,
                1,
                format!("two columns have the header {name}: rename one of them, or remove it"),
            )),
        }
    }

    /// Refuses a line with several figures for one value.
    fn refuse_contradictions(&self, path: &Path, line: &Line) -> Result<()> {
        let accuracies = [Field::Accuracy, Field::AccuracyPercent]
            .map(names_of)
            .concat();
        let groups = [
            accuracies,
            [Field::Seed, Field::Seeds].map(names_of).concat(),
            names_of(Field::Task).to_vec(),
            names_of(Field::Model).to_vec(),
        ];
        let is_chosen = |group: &[&str]| {
            let mut fields = self.values.iter().chain(&self.columns);
            fields.any(|(field, _)| group.contains(&names_of(*field)[0]))
        };
        for group in groups.iter().filter(|group| !is_chosen(group)) {
            let there = line.names().into_iter();
            let there = there.filter(|name| line.value(name).is_some());
            let named = |name: &&str| group.iter().any(|it| it.eq_ignore_ascii_case(name));
            let there: Vec<&str> = there.filter(named).collect();
            if there.len() > 1 {
                let reason = format!(
                    "the columns {} say the same in two ways: choose one by --column {}=HEADER",
                    there.join(" and "),
                    group[0]
                );
                return Err(fault(path, line.number, reason));
            }
        }
        Ok(())
    }
}

/// Returns the names of a field: its own, and those of its column in files of others.
fn names_of(field: Field) -> &'static [&'static str] {
    let mut fields = NAMES.iter();
    fields
        .find(|(it, _)| *it == field)
        .map_or(&[], |(_, names)| *names)
}

/// Accuracies read from a file.
#[derive(Debug, Default)]
pub struct Contents {
    /// The cells, in the order of the file.
    pub cells: Vec<Imported>,
    /// Number of lines without an accuracy, such as those of runs that did not end.
    pub without_accuracy: usize,
}

/// Reads accuracies from a file: CSV with a header (tabs in `.tsv`), a JSON object or an array of
/// them, or JSON lines. Keys of nested objects are joined by dots. Without a source, the name of
/// the file is the source. Without a task and an accuracy, columns named after tasks are read
/// ([`Given::is_task`]).
///
/// # Errors
/// The file cannot be read, or a line of it has no task, no model, or an accuracy that cannot be;
/// [`Error::NotImportable`] names the line and the remedy.
pub fn read(path: &Path, given: &Given) -> Result<Contents> {
    let lines = lines(path)?;
    given.refuse_twins(path, &lines)?;
    let lines = given.melt(lines);
    let mut contents = Contents::default();
    let mut runs: Vec<(Imported, Vec<Run>)> = Vec::new();
    for line in &lines {
        let Some(one) = cell(path, line, given)? else {
            contents.without_accuracy += 1;
            continue;
        };
        let one = match given.rename {
            Some(rename) => rename(one),
            None => one,
        };
        let run = Run {
            line: line.number,
            seed: given.value(line, Field::Seed).map(str::to_owned),
            percent: one.percent,
        };
        match runs.iter_mut().find(|(it, _)| it.is_of_the_cell_of(&one)) {
            Some((_, others)) => {
                run.joins(path, others)?;
                others.push(run);
            }
            None => runs.push((one, vec![run])),
        }
    }
    if lines.is_empty() {
        return Err(fault(
            path,
            1,
            "it holds no line of results: add some".to_owned(),
        ));
    }
    if let (true, Some(first)) = (runs.is_empty(), lines.first()) {
        return Err(fault(
            path,
            first.number,
            format!(
                "no line has an accuracy: name its column by --column accuracy=HEADER, or accuracy_percent=HEADER, or name columns after tasks; there are {}",
                first.names().join(", ")
            ),
        ));
    }
    contents.cells = runs
        .into_iter()
        .map(|(one, runs)| mean(one, &runs))
        .collect();
    Ok(contents)
}

/// One line of a cell.
struct Run {
    line: u64,
    seed: Option<String>,
    percent: f64,
}

impl Run {
    /// Refuses a further line of a cell unless both are runs of different seeds.
    fn joins(&self, path: &Path, others: &[Run]) -> Result<()> {
        for other in others {
            let reason = match (&self.seed, &other.seed) {
                (Some(own), Some(there)) if own != there => continue,
                (Some(seed), Some(_)) => {
                    format!(
                        "seed {seed} of this cell is in line {} too: remove one of them, or name what differs by a column `settings`",
                        other.line
                    )
                }
                _ => format!(
                    "the same cell as line {}: name what differs by a column `seed` or `settings`",
                    other.line
                ),
            };
            return Err(fault(path, self.line, reason));
        }
        Ok(())
    }
}

/// Averages the lines of a cell; a single line stays as it is.
fn mean(one: Imported, runs: &[Run]) -> Imported {
    let values: Vec<f64> = runs.iter().map(|run| run.percent).collect();
    match Sample::of(&values) {
        Some(sample) if sample.count > 1 => Imported {
            percent: sample.mean,
            deviation: sample.deviation,
            seeds: sample.count as u64,
            ..one
        },
        _ => one,
    }
}

/// Reads one line; none if it has no accuracy.
fn cell(path: &Path, line: &Line, given: &Given) -> Result<Option<Imported>> {
    given.refuse_contradictions(path, line)?;
    let fault = |reason: String| fault(path, line.number, reason);
    let number = |field: Field, name: &str, most: f64, remedy: &str| {
        let Some(text) = given.value(line, field) else {
            return Ok(None);
        };
        let value: Option<f64> = text.trim().trim_end_matches('%').trim().parse().ok();
        match value.filter(|value| (0.0..=most).contains(value)) {
            Some(value) => Ok(Some(value)),
            None => Err(fault(format!(
                "{name} is {text}, not a number from 0 to {most}: {remedy}"
            ))),
        }
    };
    let correct = "correct it, or leave it empty where there is none";
    let in_percent = |field| number(field, "the accuracy in percent", 100.0, correct);
    let percent = match in_percent(Field::AccuracyPercent)? {
        Some(percent) => Some(percent),
        None => {
            let remedy = "if it is in percent, name its column by --column accuracy_percent=HEADER";
            // Without the last digits, which the product does not have: 0.8734 is 87.34 %.
            let of_share = |share: f64| (100.0 * share * 1e9).round() / 1e9;
            let text = given.value(line, Field::Accuracy).unwrap_or_default();
            match text.trim_end().ends_with('%') {
                true => in_percent(Field::Accuracy)?,
                false => number(Field::Accuracy, "the accuracy", 1.0, remedy)?.map(of_share),
            }
        }
    };
    let Some(percent) = percent else {
        return Ok(None);
    };
    let word = |field: Field, flag: &str| {
        given.value(line, field).map(disk::escape).ok_or_else(|| {
            fault(format!(
                "no {flag}: name it by --{flag}, or its column by --column {flag}=HEADER; there are {}",
                line.names().join(", ")
            ))
        })
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let source = disk::escape(given.value(line, Field::Source).unwrap_or(&stem));
    let seeds = match given.value(line, Field::Seeds) {
        None => 1,
        Some(text) => match text.parse() {
            Ok(seeds) if seeds > 0 => seeds,
            _ => {
                return Err(fault(format!(
                    "seeds is {text}, not a whole number from 1: correct it, or leave it empty for one seed"
                )));
            }
        },
    };
    let deviation = number(Field::DeviationPercent, "the deviation", 100.0, correct)?;
    if deviation.is_some() && seeds == 1 {
        return Err(fault(
            "a deviation of a single seed: add a column `seeds` with the number of seeds, or name it by --column seeds=HEADER".to_owned(),
        ));
    }
    if let Some(deviation) = deviation {
        let most = 100.0 * largest_deviation(seeds as usize, percent / 100.0);
        if deviation > most + ROUNDING {
            return Err(fault(format!(
                "the deviation is {deviation}, more than {most:.2}, the most that {seeds} seeds with a mean of {percent} have: correct one of them"
            )));
        }
    }
    Ok(Some(Imported {
        source,
        task: word(Field::Task, "task")?,
        model: word(Field::Model, "model")?,
        percent,
        deviation,
        seeds,
        settings: disk::escape(given.value(line, Field::Settings).unwrap_or_default()),
    }))
}

/// Name of the column of settings.
const SETTINGS: &str = "set";

fn fault(path: &Path, line: u64, reason: String) -> Error {
    Error::NotImportable {
        path: path.to_owned(),
        line,
        reason,
    }
}

/// Adds cells to those on file.
///
/// # Errors
/// [`Error::Selection`] if a cell is there with another accuracy.
pub fn merge(mut cells: Vec<Imported>, more: Vec<Imported>) -> Result<Vec<Imported>> {
    for one in more {
        match cells.iter().find(|it| it.is_of_the_cell_of(&one)) {
            Some(known) if *known == one => {}
            Some(known) => {
                return Err(Error::Selection {
                    reason: format!(
                        "{} on {} by {} was imported before with {}, now with {}: remove its line from the file of imported accuracies, or name another --source",
                        one.model,
                        one.task,
                        one.source,
                        known.figures(),
                        one.figures()
                    ),
                });
            }
            None => cells.push(one),
        }
    }
    Ok(cells)
}

/// Returns whether these are the columns that [`write`] writes.
pub(crate) fn has_columns(columns: &csv::StringRecord) -> bool {
    columns.iter().eq(HEADER)
}

/// Writes cells as a file that [`read`] reads.
///
/// # Errors
/// The folder is missing, read-only or full.
pub fn write(path: &Path, cells: &[Imported]) -> Result<()> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut text = || -> csv::Result<()> {
        writer.write_record(HEADER)?;
        for one in cells {
            let deviation = one.deviation.map_or(String::new(), |it| it.to_string());
            writer.write_record([
                guarded(&one.source),
                guarded(&one.task),
                guarded(&one.model),
                one.percent.to_string(),
                deviation,
                one.seeds.to_string(),
                guarded(&one.settings),
            ])?;
        }
        Ok(())
    };
    let written = text().map_err(std::io::Error::from);
    let bytes = written.and_then(|()| writer.into_inner().map_err(|error| error.into_error()));
    atomic::write(path, &bytes.map_err(Error::io("write", path))?)
}

/// Adds imported accuracies to a table of accuracies: a row for each source, model and settings
/// below the rows of runs, and a column for each task that no run is on.
pub fn add_to(table: &mut Table, cells: &[Imported]) {
    if cells.is_empty() {
        return;
    }
    if cells.iter().any(|one| !one.settings.is_empty()) {
        show_settings(table);
    }
    for note in &mut table.notes {
        if let Some(settings) = note.strip_prefix(EVERY_ROW) {
            *note = format!("Every measured row{settings}");
        } else if note == ONE_SEED {
            "One seed per measured cell.".clone_into(note);
        }
    }
    let columns: Vec<usize> = cells
        .iter()
        .map(|one| column_of(table, &one.task))
        .collect();
    let mut rows: Vec<(&Imported, Row)> = Vec::new();
    for (one, column) in cells.iter().zip(columns) {
        let same = |it: &Imported| {
            (&it.source, &it.model, &it.settings) == (&one.source, &one.model, &one.settings)
        };
        let place = rows.iter().position(|(it, _)| same(it)).unwrap_or_else(|| {
            rows.push((one, empty_row(table, one)));
            rows.len() - 1
        });
        rows[place].1.cells[column] = accuracy(one);
    }
    let trivial = table.rows.iter().position(|row| row.rule);
    let place = trivial.unwrap_or(table.rows.len());
    table
        .rows
        .splice(place..place, rows.into_iter().map(|(_, row)| row));
    table.notes.push(UNCHECKED.to_owned());
}

/// Adds a column of settings behind the other keys, if there is none.
fn show_settings(table: &mut Table) {
    let keys = || table.columns.iter().filter(|column| column.key);
    if keys().any(|column| column.name == SETTINGS) {
        return;
    }
    let place = keys().count();
    table.columns.insert(place, Column::key(SETTINGS));
    for row in &mut table.rows {
        row.cells.insert(place, Cell::default());
    }
}

/// Returns the index of the column of a task. It is that of the only data set which is the task
/// itself: no stand-in, no part, unaltered. If there is none or several, a column is added.
fn column_of(table: &mut Table, task: &str) -> usize {
    let label = |column: &Column| {
        let fact = column.facts.iter().find(|(name, _)| *name == "task");
        fact.and_then(|(_, value)| value.as_str())
            .map(str::to_owned)
    };
    let labels: Vec<Option<String>> = table.columns.iter().map(label).collect();
    let labelled = |source: &str| {
        let sought = Some(format!("{task} ({source})"));
        let found = labels.iter().enumerate();
        let found = found.filter(move |(_, label)| **label == sought);
        found.map(|(index, _)| index).collect::<Vec<usize>>()
    };
    // `folder` is the source of tasks of your own, `mine:NAME`.
    let own = ["official", "generated", "folder"].map(labelled).concat();
    let known = match own.as_slice() {
        [only] => Some(*only),
        _ => labelled("imported").first().copied(),
    };
    known.unwrap_or_else(|| {
        let name = format!("{task} (imported)");
        let facts = vec![("task", json!(name))];
        let fields = &["mean", "deviation", "seeds", "low", "high", "status"];
        let is_other = labels
            .iter()
            .flatten()
            .any(|label| label.split(" (").next() == Some(task));
        let header = if is_other { &name } else { task };
        table
            .columns
            .push(Column::value(header).info(facts).holding(fields));
        for row in &mut table.rows {
            row.cells.push(Cell::default());
        }
        table.columns.len() - 1
    })
}

/// Returns the row of a source, model and settings, without accuracies.
fn empty_row(table: &Table, one: &Imported) -> Row {
    let cells = table
        .columns
        .iter()
        .map(|column| match (column.key, column.name.as_str()) {
            (true, "model") => Cell::text(&one.model),
            (true, "from") => Cell::text(format!("imported ({})", one.source)),
            (true, SETTINGS) => Cell::text(&one.settings),
            _ => Cell::default(),
        });
    Row {
        facts: vec![(SETTINGS, or_null(&one.settings))],
        foreign: Some(Foreign::Imported),
        ..Row::new(cells.collect())
    }
}

/// Returns the cell of an accuracy.
fn accuracy(one: &Imported) -> Cell {
    let mut text = format!("{:.2}", one.percent);
    if let Some(deviation) = one.deviation {
        text += &format!(" ±{deviation:.2}");
    }
    if one.seeds > 1 {
        text += &format!(" ({})", one.seeds);
    }
    Cell {
        text,
        fields: vec![
            ("mean", json!(one.percent)),
            ("deviation", json!(one.deviation)),
            ("seeds", json!(one.seeds)),
        ],
        ..Cell::default()
    }
}
