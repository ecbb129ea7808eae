//! Tables of the published figures that are known.

use serde_json::{Value, json};

use super::{Figure, Source, TASKS, Trust, sources};
use crate::table::{Cell, Column, Row, Table, distinct, or_null};

/// Returns the sources as a table: key, short name, year, number of figures, tasks.
pub fn listing() -> Table {
    let columns = vec![
        Column::key("name"),
        Column::key("key"),
        Column::value("year"),
        Column::value("figures"),
        Column::value("models"),
        Column::text("tasks"),
    ];
    let rows = sources()
        .iter()
        .map(|source| {
            let count = |name, count: usize| Cell::with(count.to_string(), name, count);
            Row::new(vec![
                Cell::with(source.alias, "name", source.alias),
                Cell::with(source.key, "key", source.key),
                Cell::with(source.year.to_string(), "year", source.year),
                count("figures", source.figures.len()),
                count("models", source.models().len()),
                Cell {
                    text: coverage(&source.tasks()),
                    fields: vec![
                        ("tasks", json!(source.tasks())),
                        ("recipes", json!(source.recipes)),
                        ("title", json!(source.title)),
                        ("author", or_null(source.author)),
                        ("url", json!(source.url)),
                    ],
                    ..Cell::default()
                },
            ])
        })
        .collect();
    Table {
        name: "published".to_owned(),
        title: "Published sources".to_owned(),
        unit: String::new(),
        columns,
        rows,
        notes: vec!["Name or key can be given to --against.".to_owned()],
        ..Table::default()
    }
}

/// Returns the tasks in few words: the benchmark's six first.
fn coverage(tasks: &[&str]) -> String {
    let six = &TASKS[..6];
    let (known, others): (Vec<&str>, Vec<&str>) = tasks.iter().partition(|task| six.contains(task));
    let lacking: Vec<&str> = six
        .iter()
        .copied()
        .filter(|task| !known.contains(task))
        .collect();
    let mut words = match lacking.as_slice() {
        [] => vec!["all six".to_owned()],
        [one] => vec![format!("all but {one}")],
        _ => known.iter().map(|task| (*task).to_owned()).collect(),
    };
    words.extend(others.iter().map(|task| (*task).to_owned()));
    words.join(", ")
}

/// Returns the figures of one source: a row for each of its models and each metric, a column for
/// each task.
pub fn figures_of(source: &Source) -> Table {
    let mut columns = vec![Column::key("model"), Column::key("ours")];
    let metrics = distinct(source.figures.iter().map(|figure| figure.metric.as_str()));
    if metrics.len() > 1 {
        columns.push(Column::key("metric"));
    }
    let tasks = source.tasks();
    columns.extend(tasks.iter().copied().map(Column::value));
    let mut rows = Vec::new();
    for metric in &metrics {
        for model in source.models() {
            let is_here = |figure: &&&Figure| figure.model == model && figure.metric == *metric;
            let here: Vec<_> = source.figures.iter().filter(is_here).collect();
            let Some(first) = here.first() else {
                continue;
            };
            let mut cells = vec![
                Cell::with(model, "model", model),
                Cell::with(first.entry.clone(), "entry", first.entry.clone()),
            ];
            if metrics.len() > 1 {
                cells.push(Cell::with(*metric, "metric", *metric));
            }
            cells.extend(tasks.iter().map(|task| {
                let figure = here.iter().find(|figure| figure.task == *task);
                figure.map_or_else(Cell::default, |figure| cell(figure))
            }));
            rows.push(Row::new(cells));
        }
    }
    let documents = distinct(source.figures.iter().map(|figure| figure.source.as_str()));
    let mut notes = vec![format!("{}.", source.citation())];
    notes.extend(documents.iter().flat_map(|it| origins(source, it)));
    let defects = source.figures.iter().filter(|it| !it.defect.is_empty());
    let defects = defects.map(|it| format!("* {} on {}: {}.", it.model, it.task, it.defect));
    for defect in defects {
        if !notes.contains(&defect) {
            notes.push(defect);
        }
    }
    if !source.recipes.is_empty() {
        let recipes = source.recipes.join(", ");
        let offered = source.figures.iter().any(|it| !it.entry.is_empty());
        let more = match offered {
            true => format!(
                "; `lra repro --list {}` shows what they train",
                source.alias
            ),
            false => String::new(),
        };
        notes.push(format!("Recipes that follow it: {recipes}{more}."));
    }
    Table {
        name: "figures".to_owned(),
        title: format!("{} ({}, {})", source.alias, source.key, source.year),
        unit: String::new(),
        columns,
        rows,
        notes,
        ..Table::default()
    }
}

/// Returns sentences that say where the figures of a document come from: one for all, or one for
/// each origin, with its models.
fn origins(source: &Source, document: &str) -> Vec<String> {
    let here = || source.figures.iter().filter(|it| it.source == document);
    let origins = distinct(here().map(|figure| figure.trust.words()));
    match origins.as_slice() {
        [one] => vec![format!("Read in {document}: {one}.")],
        several => {
            let of = |words: &&str| {
                let figures = here().filter(|figure| figure.trust.words() == *words);
                let models = distinct(figures.map(|figure| figure.model.as_str()));
                format!("Read in {document}: {words}, of {}.", models.join(", "))
            };
            several.iter().map(of).collect()
        }
    }
}

impl Figure {
    /// Returns all facts about the figure, for machines; `source` is the source that prints it.
    pub fn json(&self, source: &Source) -> Value {
        json!({
            "name": source.alias,
            "key": self.key,
            "year": self.year,
            "model": self.model,
            "entry": or_null(&self.entry),
            "task": self.task,
            "metric": self.metric,
            "value": self.value,
            "missing": self.missing_word(),
            "trust": self.trust.words(),
            "defect": or_null(&self.defect),
            "read_in": or_null(&self.source),
            "notes": or_null(&self.notes),
        })
    }
}

fn cell(figure: &Figure) -> Cell {
    let star = if figure.defect.is_empty() { "" } else { " *" };
    let mut cell = Cell::with(
        format!("{}{star}", figure.text()),
        "value",
        json!(figure.value),
    );
    if figure.trust != Trust::Primary {
        cell.fields.push(("trust", json!(figure.trust.words())));
    }
    cell.toned(figure.tone())
}
