//! Recipes: named sets of settings, each saying where it comes from. Built-in ones live in `recipes/*.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::{Class, Classify, Error, Result};
use crate::names;

/// The built-in recipes: name and text. The first one is the default.
pub static RECIPES: &[(&str, &str)] = &[
    ("laptop", include_str!("../recipes/laptop.toml")),
    ("smoke", include_str!("../recipes/smoke.toml")),
    (
        "nystromformer",
        include_str!("../recipes/nystromformer.toml"),
    ),
    ("tay2021", include_str!("../recipes/tay2021.toml")),
    (
        "tay2021-paper",
        include_str!("../recipes/tay2021-paper.toml"),
    ),
];

/// A recipe, parsed.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Its name; for a file, the file's stem.
    pub name: String,
    /// What it says of itself.
    pub body: Body,
}

/// The contents of a recipe file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    /// One line for `lra list recipes`.
    pub about: String,
    /// The paper, configuration or measurement that the numbers follow.
    pub source: String,
    /// Whether it trains a task as published, so that its scores may stand beside published ones.
    pub published: bool,
    /// For a reduced recipe, the one that trains the full task.
    #[serde(default)]
    pub full: Option<String>,
    /// Settings per task.
    pub tasks: BTreeMap<String, Value>,
}

/// Key under a task's settings that holds overlays per model.
const PER_MODEL: &str = "models";

impl Recipe {
    /// Loads a built-in recipe, or a file if `name` ends in `.toml`.
    pub fn load(name: &str) -> Result<Self> {
        if name.ends_with(".toml") {
            let text = std::fs::read_to_string(name)
                .during(Class::Usage, format!("reading the recipe {name}"))?;
            let stem = Path::new(name)
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            return Recipe::parse(stem, &text);
        }
        let (name, text) = names::find("recipe", name, RECIPES, |(name, _)| name)?;
        Recipe::parse((*name).to_owned(), text)
    }

    fn parse(name: String, text: &str) -> Result<Self> {
        let body: Body = toml::from_str(text).during(Class::Usage, format!("recipe {name}"))?;
        Ok(Recipe { name, body })
    }

    /// The settings for a task, then those for one of its models.
    pub fn layers(&self, task: &str, model: &str) -> Result<Vec<Value>> {
        let mut common = self.settings(task)?.clone();
        let per_model = common
            .remove(PER_MODEL)
            .and_then(|models| models.get(model).cloned());
        Ok(std::iter::once(Value::Object(common))
            .chain(per_model)
            .collect())
    }

    /// The data settings for a task, under their section's name.
    pub fn data(&self, task: &str) -> Result<Value> {
        let data = self.settings(task)?.get("data").cloned();
        Ok(data.map_or_else(|| json!({}), |data| json!({ "data": data })))
    }

    fn settings(&self, task: &str) -> Result<&Map<String, Value>> {
        self.body
            .tasks
            .get(task)
            .and_then(Value::as_object)
            .ok_or_else(|| {
                let known: Vec<&str> = self.body.tasks.keys().map(String::as_str).collect();
                Error::usage(format!(
                    "recipe {} has no settings for task {task} (it has: {})",
                    self.name,
                    known.join(", ")
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_recipe_parses_and_names_its_full_one() {
        for (name, _) in RECIPES {
            let recipe = Recipe::load(name).unwrap();
            assert!(!recipe.body.tasks.is_empty());
            if let Some(full) = &recipe.body.full {
                assert!(Recipe::load(full).unwrap().body.published);
            }
        }
    }
}
