//! `lra list`: the registries.

mod entry;
mod schemas;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use datasets::Protocol;
use models::loss::Loss;
use models::{Model, Options, Variant};

use results::committed::PROBES;
use results::table::{Align, Cell, Column, Row, Table};
use results::tables::{self, Probed};
use results::{Format, fold, published, width, wrap};
use serde_json::{Value, json};

use crate::cli::{ListArgs, Registry};
use crate::cmd::agree::drop_rates_of_the_recipe;
use crate::error::{Class, Classify, Error, Result};
use crate::recipe::{DEFAULT, RECIPES, Recipe};
use crate::spec::RunRequest;
use crate::task_choice::TaskChoice;
use crate::{cmd, device, runtime, suggest};

/// Runs the command.
pub fn run(arguments: &ListArgs) -> Result<ExitCode> {
    if matches!(arguments.what, Registry::Models | Registry::Components) {
        runtime::set_up(None)?;
    }
    let name = arguments.name.as_ref().or(arguments.long.as_ref());
    let sizes = (arguments.recipe.as_deref(), arguments.task.as_deref());
    if (arguments.what != Registry::Models || name.is_some()) && sizes != (None, None) {
        return Err(Error::usage(
            "--recipe and --task apply to the list of all models alone: `lra list models`",
        ));
    }
    if let Some(name) = name {
        match (arguments.what, arguments.json) {
            (Registry::Settings, as_json) => settings::show(name, as_json)?,
            (Registry::Schemas, _) => cmd::print_json(&schemas::find(name)?)?,
            (_, true) => cmd::print_json(&entry::json(arguments.what, name)?)?,
            (Registry::Published, false) => {
                let source = suggest::source(name)?;
                return show(&published::figures_of(source), false);
            }
            (_, false) => cmd::print(&documentation(arguments.what, name)?)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let table = match arguments.what {
        Registry::Tasks => tasks(),
        Registry::Models => models(sizes.0.unwrap_or(DEFAULT), sizes.1.unwrap_or("listops"))?,
        Registry::Recipes => recipes()?,
        Registry::Published => published::listing(),
        Registry::Devices => devices(),
        Registry::Components => components()?,
        Registry::Schemas => {
            let columns = ["schema", "describes"];
            listing("schemas", "JSON schemas", &columns, schemas::rows())
        }
        Registry::Settings => {
            settings::show("", arguments.json)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    show(&table, arguments.json)
}

fn show(table: &Table, as_json: bool) -> Result<ExitCode> {
    match as_json {
        true => cmd::print_json(&objects(table))?,
        false => cmd::print_tables(Format::Text, std::slice::from_ref(table))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the full documentation of one entry.
fn documentation(what: Registry, name: &str) -> Result<String> {
    Ok(match what {
        Registry::Models => {
            let model = suggest::find("model", name, models::registry(), |model| model.name)?;
            let variants = variants(model).into_iter();
            let text =
                |(names, text): (String, String)| format!("variant {names}\n{}\n\n", folded(&text));
            variants.map(text).collect::<String>() + &settings_of(model) + &probes(model.name)?
        }
        Registry::Tasks => {
            let task = suggest::task(name)?;
            let info = task.info();
            format!(
                "{}\n{}\n{}\n\ndata options: {:#}",
                info.title,
                info.summary,
                info.paper,
                task.defaults()
            )
        }
        Registry::Recipes if name.ends_with(".toml") => {
            Recipe::load(name)?;
            let read = disk::read_to_string(Path::new(name));
            read.during(Class::Usage, format!("reading {name}"))?
        }
        Registry::Recipes => suggest::find("recipe", name, RECIPES, |(name, _)| name)?
            .1
            .to_owned(),
        Registry::Published
        | Registry::Devices
        | Registry::Components
        | Registry::Settings
        | Registry::Schemas => {
            return Err(entry::none_of(what));
        }
    })
}

/// Returns the scores of a model on the probes in the table of this program.
fn profile(model: &str) -> Result<Vec<Probed>> {
    let mut records = PROBES.records().class(Class::Run)?;
    drop_rates_of_the_recipe(&mut records);
    Ok(tables::profile(&records, model))
}

/// Returns these scores in lines; empty if there are none.
fn probes(model: &str) -> Result<String> {
    let probed = profile(model)?;
    if probed.is_empty() {
        return Ok(String::new());
    }
    let lines = probed.iter().map(|it| {
        let set = if it.set.is_empty() { "" } else { ", " };
        let groups = it.groups.iter();
        let groups: Vec<String> = groups
            .map(|(name, accuracy)| format!("{name} {accuracy:.1}"))
            .collect();
        let beside = match it.difference {
            Some(difference) => format!(" ({difference:+.1} by the permutation)"),
            None if groups.is_empty() => String::new(),
            None => format!(" ({})", groups.join(", ")),
        };
        format!(
            "\n  {}{set}{}: {:.1}{beside}",
            it.probe, it.set, it.accuracy
        )
    });
    let text = format!(
        "\nProbes, recipe mini, test accuracy in percent ({}, docs/probes.md):{}",
        PROBES.path,
        lines.collect::<String>()
    );
    Ok(fold(&text, width()))
}

/// Returns the norm that a model's blocks have by default, with its ε: settings and values.
fn norm(model: &Model) -> Vec<(String, Value)> {
    let block = Options::of(model).block;
    let mut keys = vec!["norm", "norm_place", "norm_epsilon"];
    if block.norm == models::options::NormKind::Scale {
        keys.push("scale_norm");
    }
    let block = json!(block);
    let setting = |key: &str| (format!("block.{key}"), block[key].clone());
    keys.into_iter().map(setting).collect()
}

/// Returns the origin of a model's block, and its [`norm`], in lines.
fn norm_lines(model: &Model) -> String {
    let lines = norm(model).into_iter();
    let lines: String = lines
        .map(|(key, value)| format!("\n  {key} = {value}"))
        .collect();
    format!(
        "Block: set by the recipe; recipe mini uses that of family {}.\n\
         Authors often use another (place of norms, norm after the embedding,\n\
         activation); `lra run --dry-run` shows the block of a run.\n\
         Norm, unless the recipe sets another:{lines}",
        model.family.name()
    )
}

/// Returns the options of a model with defaults and ranges, its norm and its losses, in lines.
pub(super) fn settings_of(model: &Model) -> String {
    let defaults = model.defaults();
    let options = defaults.as_object().into_iter().flatten();
    let options: String = options
        .map(|(key, value)| {
            let range = model.ranges.iter().find(|range| range.key == key);
            let range = range.map_or(String::new(), |range| format!("  ({range})"));
            format!("\n  model.{key} = {value}{range}")
        })
        .collect();
    let options = match options.is_empty() {
        true => "No options of its own.".to_owned(),
        false => format!("Options (--set), with their defaults:{options}"),
    };
    format!("{options}\n{}{}", norm_lines(model), losses_text(model))
}

/// Returns the descriptions of the variants of a model, each below the names of its variants with a
/// note on the masking of padding. Identical descriptions appear once.
pub(super) fn variants(model: &Model) -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> = Vec::new();
    for variant in model.variants {
        let masked = if variant.masks_padding { "" } else { "not " };
        let name = format!("{} (padding {masked}masked)", variant.name);
        let text = variant.documentation().trim().to_owned();
        match texts.iter_mut().find(|(_, known)| *known == text) {
            Some((names, _)) => *names += &format!(", {name}"),
            None => texts.push((name, text)),
        }
    }
    texts
}

/// Returns the auxiliary losses of a variant of a model, and whether its default settings have
/// each. The others need other settings.
fn losses(model: &Model, variant: &Variant) -> Vec<(Loss, bool)> {
    let mut options = Options::of(model);
    options.model["variant"] = variant.name.into();
    let by_default = model.losses_with(&options).unwrap_or_default();
    let declared = variant.losses.iter().filter(|it| !by_default.contains(it));
    let others: Vec<(Loss, bool)> = declared.map(|loss| (*loss, false)).collect();
    let by_default = by_default.into_iter().map(|loss| (loss, true));
    by_default.chain(others).collect()
}

/// Returns the auxiliary losses of a model, by the settings of their weights; empty if there are
/// none.
fn losses_text(model: &Model) -> String {
    let of_variants = model.variants.iter();
    let of_variants = of_variants.flat_map(|variant| losses(model, variant));
    let lines: BTreeSet<String> = of_variants
        .map(|(loss, by_default)| {
            let condition = if by_default {
                ""
            } else {
                " (with other settings than the default ones)"
            };
            format!("\n  train.aux.{} = {}{condition}", loss.name, loss.weight)
        })
        .collect();
    match lines.is_empty() {
        true => String::new(),
        false => format!(
            "\nLosses beside the cross-entropy, with their usual weights:{}",
            Vec::from_iter(lines).concat()
        ),
    }
}

fn devices() -> Table {
    let (found, why_not) = device::list();
    let rows = found.into_iter().map(|found| {
        let gib = found.memory_bytes as f64 / (1u64 << 30) as f64;
        Row::new(vec![
            Cell::with(found.name.clone(), "name", found.name),
            Cell::with(format!("{gib:.1} GiB"), "memory_bytes", found.memory_bytes),
            Cell::with(found.driver.clone(), "driver", found.driver),
            Cell::with(found.title.clone(), "title", found.title),
        ])
    });
    let columns = ["device", "memory", "driver", "what"];
    let mut table = listing("devices", "Devices", &columns, rows.collect());
    table
        .notes
        .extend(why_not.map(|why| format!("No GPU: {why}.")));
    table
}

/// Folds `text` into lines that fit a terminal. A sentence or an item that continues in the next
/// line is joined; indented text stays indented.
fn folded(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        // A heading: it stands between empty lines.
        let line = line.strip_prefix("# ").unwrap_or(line);
        let prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        match lines.last_mut() {
            Some(last) if prose(last) && prose(line) && !last.ends_with(['.', ':']) => {
                *last += " ";
                *last += line;
            }
            Some(last) if last.starts_with("- ") && line.starts_with("  ") => {
                *last += " ";
                *last += line.trim_start();
            }
            _ => lines.push(line.to_owned()),
        }
    }
    let fold = |line: &String| {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        if line.chars().count() <= width() {
            return line.clone();
        }
        let hang = if words.starts_with("- ") { 2 } else { 0 };
        let words = wrap(words, width(), indent, indent + hang);
        format!("{}{words}", &line[..indent])
    };
    lines.iter().map(fold).collect::<Vec<_>>().join("\n")
}

fn tasks() -> Table {
    let rows = datasets::tasks::registry().iter().map(|task| {
        let info = task.info();
        let sources: Vec<String> = info.sources.iter().map(ToString::to_string).collect();
        let length = task
            .shape(&task.defaults())
            .map_or(0, |shape| shape.max_length);
        let towers = if info.towers == 2 { "2 x " } else { "" };
        Row::new(vec![
            Cell::with(info.name, "name", info.name),
            Cell {
                text: format!("{towers}{length}"),
                fields: vec![
                    ("towers", info.towers.into()),
                    ("max_length", length.into()),
                ],
                ..Cell::default()
            },
            Cell::with(info.classes.to_string(), "classes", info.classes),
            Cell::with(info.vocabulary.to_string(), "vocabulary", info.vocabulary),
            Cell::with(sources.join(", "), "sources", json!(sources)),
            Cell::with(info.summary, "summary", info.summary),
        ])
    });
    let columns = ["task", "length", "classes", "ids", "sources", "what"];
    let mut table = listing("tasks", "Tasks", &columns, rows.collect());
    let own = "mine:FOLDER is a task, too: a folder of your own with train, val and test as .jsonl or .parquet (docs/own-task.md).";
    table.notes.push(own.to_owned());
    table
}

/// Returns one line per model, with its size under a recipe. `task` may name a source.
fn models(recipe: &str, task: &str) -> Result<Table> {
    let TaskChoice { name, source } = task.parse().map_err(Error::usage)?;
    let mut rows = Vec::new();
    let mut label = String::new();
    for model in models::registry() {
        let resolved = RunRequest {
            task: &name,
            model: model.name,
            recipe,
            source,
            protocol: Protocol::default(),
            seed: 0,
            assignments: &[],
        }
        .resolve()?;
        label = resolved.data_shape()?.label;
        let parameters = resolved.meta()?.1.elements();
        let masks = resolved.variant.masks_padding;
        let masked = if masks { "yes" } else { "no" };
        // Variants beside that of the recipe. A star marks those that do not mask.
        let used = resolved.variant.name;
        let other = model.variants.iter().filter(|it| it.name != used);
        let other: Vec<String> = other
            .map(|it| format!("{}{}", it.name, if it.masks_padding { "" } else { "*" }))
            .collect();
        let variants = model.variants.iter();
        let variants: Vec<Value> = variants
            .map(|it| json!({"name": it.name, "masks_padding": it.masks_padding}))
            .collect();
        let mut arxiv = Cell::with(model.arxiv, "arxiv", model.arxiv);
        arxiv.fields.push(("paper", model.paper.into()));
        let mut name = Cell::with(model.name, "name", model.name);
        name.fields.extend([
            ("reference", model.reference.name().into()),
            ("family", model.family.name().into()),
        ]);
        rows.push(Row::new(vec![
            name,
            Cell::with(model.year.to_string(), "year", model.year),
            arxiv,
            Cell::with(model.time.to_string(), "time", model.time.to_string()),
            Cell::with(model.memory.to_string(), "memory", model.memory.to_string()),
            Cell::with(masked, "masks_padding", masks),
            Cell::with(other.join(", "), "variants", json!(variants)),
            Cell::with(parameters.to_string(), "parameters", parameters),
        ]));
    }
    let columns = [
        "model", "year", "arXiv", "time", "memory", "masked", "variant", "weights",
    ];
    let mut table = listing("models", "Models", &columns, rows);
    table.columns[7].align = Align::Right;
    table.notes = vec![
        format!("weights: parameters at recipe {recipe} on {label} (--recipe, --task)."),
        "masked: whether padding has no effect on the result.".to_owned(),
        "variant: other values of model.variant (--set), * with padding not masked; tay2021: as in the 2021 code."
            .to_owned(),
        "lra list models --long NAME: the paper, the equation, the symbols, the options."
            .to_owned(),
    ];
    Ok(table)
}

/// Returns one line per value of a component, with the models that it does not combine with.
fn components() -> Result<Table> {
    let mut rows = Vec::new();
    let mut reasons = BTreeMap::new();
    for component in models::COMPONENTS {
        for choice in component.values {
            let mut without = Vec::new();
            for model in models::registry() {
                if let Err(error) = component.try_around(model, choice) {
                    without.push(model.name);
                    reasons.insert(
                        format!("{}={}", component.key, choice.value),
                        error.to_string(),
                    );
                }
            }
            let wants = choice.wants.iter();
            let wants: Vec<String> = wants.map(|(key, value)| format!("{key}={value}")).collect();
            rows.push(Row::new(vec![
                Cell::with(component.key, "component", component.key),
                Cell::with(choice.value, "value", choice.value),
                Cell::with(choice.summary, "summary", choice.summary),
                Cell::with(wants.join(" "), "wants", json!(wants)),
                Cell::with(without.join(", "), "without", json!(without)),
            ]));
        }
    }
    let columns = ["component", "value", "what", "with", "not around"];
    let mut table = listing("components", "Components", &columns, rows);
    // A table that is too wide repeats its key columns: a value says little without its component.
    table.columns[1] = Column::key("value");
    table.notes = vec![
        "Choose a value with --set, such as --set block.norm=rms. The first value of a component is the default.".to_owned(),
        "with: settings that the value requires. not around: models that cannot take it.".to_owned(),
    ];
    let told = reasons.into_iter();
    table
        .notes
        .extend(told.map(|(setting, reason)| format!("{setting}: {reason}.")));
    Ok(table)
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
        ..Table::default()
    }
}

/// Returns one JSON object per row.
pub fn objects(table: &Table) -> Value {
    json!(table.objects())
}
