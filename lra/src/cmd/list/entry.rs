//! One entry of a registry for machines: its full documentation in named values.

use std::path::Path;

use models::{Model, Variant};
use results::table::or_null;
use serde_json::{Value, json};

use crate::cli::Registry;
use crate::error::{Class, Classify, Error, Result};
use crate::recipe::{RECIPES, Recipe};
use crate::suggest;

/// Returns the entry as a JSON object; for a published source, a list of its figures.
pub(super) fn json(what: Registry, name: &str) -> Result<Value> {
    Ok(match what {
        Registry::Models => model(suggest::find("model", name, models::registry(), |model| {
            model.name
        })?)?,
        Registry::Tasks => {
            let task = suggest::task(name)?;
            let info = task.info();
            let sources: Vec<String> = info.sources.iter().map(ToString::to_string).collect();
            json!({
                "name": info.name,
                "title": info.title,
                "summary": info.summary,
                "paper": or_null(info.paper),
                "towers": info.towers,
                "classes": info.classes,
                "vocabulary": info.vocabulary,
                "sources": sources,
                "options": task.defaults(),
            })
        }
        Registry::Recipes if name.ends_with(".toml") => {
            Recipe::load(name)?;
            let read = disk::read_to_string(Path::new(name));
            let text = read.during(Class::Usage, format!("reading {name}"))?;
            let settings: Value =
                toml::from_str(&text).during(Class::Usage, format!("the recipe {name}"))?;
            json!({ "name": name, "notes": notes(&text), "settings": settings })
        }
        Registry::Recipes => {
            let (name, text) = suggest::find("recipe", name, RECIPES, |(name, _)| name)?;
            let settings: Value =
                toml::from_str(text).during(Class::Run, format!("the recipe {name}"))?;
            json!({ "name": name, "notes": notes(text), "settings": settings })
        }
        Registry::Published => {
            let source = suggest::source(name)?;
            let figures = source.figures.iter();
            figures.map(|figure| figure.json(source)).collect()
        }
        Registry::Devices | Registry::Components | Registry::Settings | Registry::Schemas => {
            return Err(none_of(what));
        }
    })
}

/// Returns the comments of a recipe's file, a line each: where its figures were read, for one.
fn notes(recipe: &str) -> Vec<&str> {
    let lines = recipe.lines().filter_map(|line| line.strip_prefix('#'));
    lines.map(str::trim).collect()
}

/// Returns the error for a registry whose entries are one line each.
pub(super) fn none_of(what: Registry) -> Error {
    let what = match what {
        Registry::Devices => "devices",
        _ => "components",
    };
    Error::usage(format!(
        "`lra list {what}` takes no name: it shows all {what} at once. Tasks, models, recipes and published sources can be shown one by one"
    ))
}

fn model(model: &Model) -> Result<Value> {
    let defaults = model.defaults();
    let options = defaults.as_object().into_iter().flatten();
    let options: Vec<Value> = options
        .map(|(key, value)| {
            let range = model.ranges.iter().find(|range| range.key == key);
            json!({
                "key": format!("model.{key}"),
                "default": value,
                "range": range.map(ToString::to_string),
            })
        })
        .collect();
    let variants = model.variants.iter();
    let variants: Vec<Value> = variants.map(|it| variant(model, it)).collect();
    Ok(json!({
        "name": model.name,
        "title": model.title,
        "paper": or_null(model.paper),
        "arxiv": or_null(model.arxiv),
        "year": model.year,
        "time": model.time.to_string(),
        "memory": model.memory.to_string(),
        "reference": model.reference.name(),
        "norm": super::norm(model).into_iter().collect::<serde_json::Map<String, Value>>(),
        "variants": variants,
        "options": options,
        "probes": probes(model.name)?,
    }))
}

/// Returns the scores of a model on the probes in the table of this program.
fn probes(model: &str) -> Result<Value> {
    let probed = super::profile(model)?.into_iter();
    let probed = probed.map(|it| {
        let groups = it.groups.iter();
        let groups = groups.map(|(name, accuracy)| json!({"name": name, "percent": accuracy}));
        json!({
            "probe": it.probe,
            "set": or_null(&it.set),
            "seeds": it.seeds,
            "percent": it.accuracy,
            "difference_percent": it.difference,
            "groups": groups.collect::<Value>(),
        })
    });
    Ok(probed.collect())
}

fn variant(model: &Model, variant: &Variant) -> Value {
    let losses = super::losses(model, variant).into_iter();
    let losses: Vec<Value> = losses
        .map(|(loss, by_default)| {
            json!({
                "key": format!("train.aux.{}", loss.name),
                "weight": loss.weight,
                "by_default": by_default,
            })
        })
        .collect();
    json!({
        "name": variant.name,
        "masks_padding": variant.masks_padding,
        "documentation": or_null(variant.documentation().trim()),
        "losses": losses,
    })
}
