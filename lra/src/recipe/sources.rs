//! Comparison of the recipes of published sources with the figures of the public files they follow.

use std::collections::{BTreeMap, BTreeSet};

use datasets::Protocol;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{RECIPES, Recipe};
use crate::spec::RunRequest;

/// A figure of a public file: a line of `tests/recipe_sources.csv`.
#[derive(Debug, Deserialize)]
struct Figure {
    recipe: String,
    /// A task, or `*` for all of the recipe.
    task: String,
    /// Models, separated by spaces; empty for those that the recipe was made for.
    model: String,
    /// The setting's section and name; `train.groups/PARAMETERS/KEY` for one of a group of
    /// parameters.
    setting: String,
    figure: String,
    /// `OWNER/REPOSITORY@COMMIT:PATH`.
    source: String,
    /// Place in the file, and derivation of the figure from it.
    #[serde(rename = "where")]
    place: String,
}

fn figures() -> Vec<Figure> {
    let table = include_str!("../../tests/recipe_sources.csv");
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    reader.deserialize().map(Result::unwrap).collect()
}

impl Figure {
    fn tasks(&self, recipe: &Recipe) -> Vec<String> {
        match self.task.as_str() {
            "*" => recipe.body.tasks.keys().cloned().collect(),
            task => vec![task.to_owned()],
        }
    }

    fn models(&self, recipe: &Recipe) -> Vec<String> {
        match self.model.as_str() {
            "" => recipe.body.made_for.clone(),
            models => models.split(' ').map(str::to_owned).collect(),
        }
    }
}

/// Returns the settings of a cell as JSON.
fn settings(recipe: &str, task: &str, model: &str) -> Value {
    let request = RunRequest {
        task,
        model,
        recipe,
        source: None,
        protocol: Protocol::Clean,
        seed: 0,
        assignments: &[],
    };
    json!(request.resolve().unwrap().spec)
}

/// Returns the value of `setting` in a run by these settings.
fn found(settings: &Value, setting: &str) -> Value {
    if let Some(group) = setting.strip_prefix("train.groups/") {
        let (parameters, key) = group.rsplit_once('/').unwrap();
        let mut groups = settings["train"]["groups"].as_array().into_iter().flatten();
        let group = groups.find(|group| group["parameters"] == *parameters);
        return group.map_or(Value::Null, |group| group[key].clone());
    }
    let (section, key) = setting.split_once('.').unwrap();
    let value = &settings[section][key];
    match (setting, value.as_u64().unwrap_or(0)) {
        ("train.schedule_steps", 0) => settings["train"]["steps"].clone(),
        _ => value.clone(),
    }
}

fn agrees(found: &Value, figure: &str) -> bool {
    match (found.as_f64(), figure.parse::<f64>()) {
        (Some(found), Ok(figure)) => (found - figure).abs() <= 1e-9 * figure.abs(),
        (None, _) => {
            let text = found.as_str().map(str::to_owned);
            text.unwrap_or_else(|| found.to_string()) == figure
        }
        (Some(_), Err(_)) => false,
    }
}

#[test]
fn recipes_have_the_figures_of_the_public_files() {
    let mut cells = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for figure in figures() {
        let (repository, path) = figure.source.split_once(':').unwrap();
        assert!(repository.contains('@') && !path.is_empty(), "{figure:?}");
        assert!(!figure.place.is_empty(), "{figure:?}");
        let recipe = Recipe::load(&figure.recipe).unwrap();
        for task in figure.tasks(&recipe) {
            for model in figure.models(&recipe) {
                let cell = (figure.recipe.clone(), task.clone(), model.clone());
                let settings = cells
                    .entry(cell)
                    .or_insert_with(|| settings(&figure.recipe, &task, &model));
                let found = found(settings, &figure.setting);
                checked += 1;
                if !agrees(&found, &figure.figure) {
                    wrong.push(format!("{task} {model}: {found} here, {figure:?}"));
                }
            }
        }
    }
    assert!(checked > 2000, "{checked} figures");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Settings that control how this program computes and monitors a run, or that the models of a
/// recipe do not read: no source publishes a figure for them.
const WITHOUT_FIGURE: &[&str] = &[
    "block.attention_dropout",
    "block.heads",
    "block.mlp_dim",
    "block.norm_epsilon",
    "block.qkv_dim",
    "data.max_length",
    "embed.dropout",
    "head.hidden",
    "train.bucket",
    "train.checkpoint_every",
    "train.eval_every",
    "train.micro_batch",
];

/// Returns the settings in a layer of a recipe, named as in the table.
fn named(layer: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (section, keys) in layer.as_object().into_iter().flatten() {
        for (key, value) in keys.as_object().into_iter().flatten() {
            if key != "groups" {
                names.insert(format!("{section}.{key}"));
                continue;
            }
            for group in value.as_array().into_iter().flatten() {
                let parameters = group["parameters"].as_str().unwrap();
                let keys = group.as_object().unwrap().keys();
                names.extend(
                    keys.filter(|key| *key != "parameters")
                        .map(|key| format!("train.groups/{parameters}/{key}")),
                );
            }
        }
    }
    names
}

#[test]
fn every_setting_of_a_published_recipe_has_its_source() {
    let mut known = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for figure in figures() {
        let recipe = Recipe::load(&figure.recipe).unwrap();
        for model in figure.models(&recipe) {
            for task in figure.tasks(&recipe) {
                let cell = (figure.recipe.clone(), task, model.clone());
                known.insert((cell.clone(), figure.setting.clone()));
                if figure.task != "*" {
                    cells.insert(cell);
                }
            }
        }
    }
    let published = RECIPES.iter().map(|(name, _)| Recipe::load(name).unwrap());
    // The paper's appendix is not a public file.
    for recipe in published.filter(|it| it.body.published && it.name != "tay2021-paper") {
        for task in recipe.body.tasks.keys() {
            let mut of_task = cells
                .iter()
                .filter(|(name, of, _)| (name, of) == (&recipe.name, task));
            assert!(of_task.next().is_some(), "{} {task}", recipe.name);
        }
    }
    let mut without = BTreeSet::new();
    for cell in cells {
        let (name, task, model) = &cell;
        let layers = Recipe::load(name).unwrap().layers(task, model, None);
        let layers = layers.unwrap();
        let of_cell = std::iter::once(&layers.common).chain(&layers.model);
        for setting in of_cell.flat_map(named) {
            let exempt = WITHOUT_FIGURE.contains(&setting.as_str());
            if !exempt && !known.contains(&(cell.clone(), setting.clone())) {
                without.insert(format!("{name} {task} {model} {setting}"));
            }
        }
    }
    let without: Vec<String> = without.into_iter().collect();
    assert!(without.is_empty(), "{}", without.join("\n"));
}
