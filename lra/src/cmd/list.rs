//! `lra list`: the registries.

use std::process::ExitCode;

use results::table::{Cell, Column, Row, Table};
use results::{Format, published};
use serde_json::{Map, Value, json};

use crate::cli::{ListArgs, Registry};
use crate::cmd;
use crate::error::{Error, Result};
use crate::names;
use crate::recipe::{RECIPES, Recipe};

/// Runs the command.
pub fn run(arguments: &ListArgs) -> Result<ExitCode> {
    if let Some(name) = &arguments.long {
        cmd::print(&documentation(arguments.what, name)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let table = match arguments.what {
        Registry::Tasks => tasks(),
        Registry::Models => models(),
        Registry::Recipes => recipes()?,
        Registry::Published => published::listing(),
    };
    if arguments.json {
        cmd::print_json(&objects(&table))?;
    } else {
        cmd::print(&Format::Text.render(&[table]))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Everything that one entry says of itself.
fn documentation(what: Registry, name: &str) -> Result<String> {
    Ok(match what {
        Registry::Models => {
            let model = names::find("model", name, models::MODELS, |model| model.name)?;
            format!(
                "{}\n\noptions: {:#}",
                model.documentation().trim(),
                (model.defaults)()
            )
        }
        Registry::Tasks => {
            let task = names::find("task", name, datasets::TASKS, |task| task.about().name)?;
            let about = task.about();
            format!(
                "{}\n{}\n{}\n\ndata options: {:#}",
                about.title,
                about.summary,
                about.paper,
                task.defaults()
            )
        }
        Registry::Recipes => names::find("recipe", name, RECIPES, |(name, _)| name)?
            .1
            .to_owned(),
        Registry::Published => {
            return Err(Error::usage("--long applies to tasks, models and recipes"));
        }
    })
}

fn tasks() -> Table {
    let rows = datasets::TASKS.iter().map(|task| {
        let about = task.about();
        let sources: Vec<String> = about.sources.iter().map(ToString::to_string).collect();
        let length = task
            .shape(&task.defaults())
            .map_or(0, |shape| shape.max_length);
        let towers = if about.towers == 2 { "2 x " } else { "" };
        Row::new(vec![
            Cell::with(about.name, "name", about.name),
            Cell::with(format!("{towers}{length}"), "max_length", length),
            Cell::with(about.classes.to_string(), "classes", about.classes),
            Cell::with(about.vocabulary.to_string(), "vocabulary", about.vocabulary),
            Cell::with(sources.join(", "), "sources", json!(sources)),
            Cell::with(about.summary, "summary", about.summary),
        ])
    });
    let columns = ["task", "length", "classes", "ids", "sources", "what"];
    listing("tasks", "Tasks", &columns, rows.collect())
}

fn models() -> Table {
    let rows = models::MODELS.iter().map(|model| {
        let masks = if model.masks_padding {
            "masked"
        } else {
            "not masked"
        };
        Row::new(vec![
            Cell::with(model.name, "name", model.name),
            Cell::with(model.year.to_string(), "year", model.year),
            Cell::with(model.time, "time", model.time),
            Cell::with(model.memory, "memory", model.memory),
            Cell::with(masks, "masks_padding", model.masks_padding),
            Cell::with(model.variants.join(", "), "variants", json!(model.variants)),
            Cell::with(
                model.paper,
                "paper",
                format!("{} (arXiv:{})", model.paper, model.arxiv),
            ),
        ])
    });
    let columns = [
        "model", "year", "time", "memory", "padding", "variants", "paper",
    ];
    listing("models", "Models", &columns, rows.collect())
}

fn recipes() -> Result<Table> {
    let mut rows = Vec::new();
    for (name, _) in RECIPES {
        let body = Recipe::load(name)?.body;
        let tasks: Vec<&str> = body.tasks.keys().map(String::as_str).collect();
        let published = if body.published { "yes" } else { "no" };
        rows.push(Row::new(vec![
            Cell::with(*name, "name", *name),
            Cell::with(published, "published", body.published),
            Cell::with(tasks.join(", "), "tasks", json!(tasks)),
            Cell::with(body.about.clone(), "about", body.about),
        ]));
    }
    let columns = ["recipe", "comparable", "tasks", "what"];
    Ok(listing("recipes", "Recipes", &columns, rows))
}

fn listing(name: &str, title: &str, columns: &[&str], rows: Vec<Row>) -> Table {
    let columns = columns.iter().enumerate();
    Table {
        name: name.to_owned(),
        title: title.to_owned(),
        unit: String::new(),
        columns: columns
            .map(|(index, name)| {
                if index == 0 {
                    Column::key(*name)
                } else {
                    Column::text(*name)
                }
            })
            .collect(),
        rows,
        notes: Vec::new(),
    }
}

/// One JSON object per row.
pub fn objects(table: &Table) -> Value {
    let row = |row: &Row| -> Map<String, Value> {
        let fields = row.cells.iter().flat_map(|cell| &cell.fields);
        fields
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect()
    };
    json!(table.rows.iter().map(row).collect::<Vec<_>>())
}
