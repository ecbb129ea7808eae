//! Recipes: named sets of settings, each saying where it comes from. Built-in ones live in `recipes/*.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use datasets::Protocol;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::digest::sha256;
use crate::error::{Class, Classify, Error, Result};
use crate::suggest;

/// The built-in recipes: name and text. The first one is the default.
pub static RECIPES: &[(&str, &str)] = &[
    ("laptop", include_str!("../recipes/laptop.toml")),
    ("smoke", include_str!("../recipes/smoke.toml")),
    (
        "nystromformer",
        include_str!("../recipes/nystromformer.toml"),
    ),
    ("s4", include_str!("../recipes/s4.toml")),
    ("s4-small", include_str!("../recipes/s4-small.toml")),
    ("liquid-s4", include_str!("../recipes/liquid-s4.toml")),
    ("s5", include_str!("../recipes/s5.toml")),
    ("lru", include_str!("../recipes/lru.toml")),
    ("mega", include_str!("../recipes/mega.toml")),
    ("chordmixer", include_str!("../recipes/chordmixer.toml")),
    ("rtf", include_str!("../recipes/rtf.toml")),
    ("sgconv", include_str!("../recipes/sgconv.toml")),
    ("long-conv", include_str!("../recipes/long-conv.toml")),
    ("tnn", include_str!("../recipes/tnn.toml")),
    ("cosformer", include_str!("../recipes/cosformer.toml")),
    ("luna", include_str!("../recipes/luna.toml")),
    ("tay2021", include_str!("../recipes/tay2021.toml")),
    (
        "tay2021-paper",
        include_str!("../recipes/tay2021-paper.toml"),
    ),
];

/// A recipe, parsed.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Its name. A file's is `file:STEM@DIGEST`, the first digits of the SHA-256 of what it holds: who edits a file has
    /// another recipe.
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
    /// Whether it trains a task as published, so that its scores may stand beside published ones. Only a built-in recipe does.
    #[serde(default)]
    pub published: bool,
    /// For a reduced recipe, the one that trains the full task.
    #[serde(default)]
    pub full: Option<String>,
    /// The models that it was made for; none are all. It trains any other too, but nobody published that.
    #[serde(default)]
    pub made_for: Vec<String>,
    /// What training takes, where it was measured.
    #[serde(default)]
    pub measured: Option<Measured>,
    /// Settings per task.
    pub tasks: BTreeMap<String, Value>,
    /// Settings per model, whatever the task; those of a task for the model go over them.
    #[serde(default)]
    pub models: BTreeMap<String, Value>,
    /// Where following the recipe is not what its source did.
    #[serde(default)]
    pub departures: Vec<Departure>,
}

/// What training by a recipe took.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The model, and the machine.
    pub on: String,
    /// Wall time of a run per task, in minutes, its data being at hand.
    pub minutes: BTreeMap<String, f64>,
}

/// A difference from a recipe's source that no setting removes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Departure {
    /// What is different, in words.
    pub what: String,
    /// The tasks that it concerns; none are all.
    #[serde(default)]
    pub tasks: Vec<String>,
    /// The models that it concerns; none are all.
    #[serde(default)]
    pub models: Vec<String>,
    /// The split rules that it concerns; none are all.
    #[serde(default)]
    pub protocol: Option<Protocol>,
}

/// Key under a task's settings that holds overlays per model.
const PER_MODEL: &str = "models";

impl Recipe {
    /// Loads a built-in recipe, or a file if `name` ends in `.toml`.
    pub fn load(name: &str) -> Result<Self> {
        if name.ends_with(".toml") {
            return Recipe::of_file(Path::new(name));
        }
        let (name, text) = suggest::find("recipe", name, RECIPES, |(name, _)| name)?;
        Recipe::parse((*name).to_owned(), text)
    }

    /// Whatever a file says of itself, nobody else knows it: its scores stand beside no published ones.
    fn of_file(path: &Path) -> Result<Self> {
        let reading = || format!("reading the recipe {}", path.display());
        let kind = std::fs::metadata(path).during(Class::Usage, reading())?;
        if !kind.is_file() {
            return Err(Error::usage(format!("{}: not a file", reading())));
        }
        let text = std::fs::read_to_string(path).during(Class::Usage, reading())?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let stem = stem.replace(|c| !plain(c), "_");
        let digest = sha256(text.as_bytes());
        let mut recipe = Recipe::parse(format!("file:{stem}@{}", &digest[..8]), &text)
            .map_err(|error| error.during(path.display()))?;
        recipe.body.published = false;
        Ok(recipe)
    }

    fn parse(name: String, text: &str) -> Result<Self> {
        let body: Body = toml::from_str(text).during(Class::Usage, format!("recipe {name}"))?;
        Ok(Recipe { name, body })
    }

    /// Whether it was made for this model.
    pub fn is_for(&self, model: &str) -> bool {
        let made_for = &self.body.made_for;
        made_for.is_empty() || made_for.iter().any(|name| name == model)
    }

    /// What departs from the recipe's source where `model` learns `task` by the split rules of `protocol`.
    pub fn departures(&self, task: &str, model: &str, protocol: Protocol) -> Vec<String> {
        let concerns = |names: &[String], name| names.is_empty() || names.iter().any(|n| n == name);
        let departures = self.body.departures.iter();
        departures
            .filter(|it| concerns(&it.tasks, task) && concerns(&it.models, model))
            .filter(|it| it.protocol.is_none_or(|rules| rules == protocol))
            .map(|it| it.what.clone())
            .collect()
    }

    /// The settings for a task, those for a model, then those for the model on this task.
    pub fn layers(&self, task: &str, model: &str) -> Result<Vec<Value>> {
        let mut common = self.settings(task)?.clone();
        let per_model = common
            .remove(PER_MODEL)
            .and_then(|models| models.get(model).cloned());
        Ok(std::iter::once(Value::Object(common))
            .chain(self.body.models.get(model).cloned())
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
    use models::options::{Activation, Pooling};

    use super::*;
    use crate::spec::{Resolved, RunRequest};

    #[test]
    fn a_file_is_known_by_what_it_holds_and_is_never_comparable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nystromformer.toml");
        let load = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Recipe::load(path.to_str().unwrap()).unwrap()
        };
        let text = "about = ''\nsource = ''\npublished = true\n[tasks.toy]\n";
        let (recipe, edited) = (
            load(text),
            load(&format!("{text}train = {{ steps = 2 }}\n")),
        );
        let digest = recipe.name.strip_prefix("file:nystromformer@").unwrap();
        assert!(digest.len() == 8 && digest.chars().all(|c| c.is_ascii_hexdigit()));
        assert_ne!(recipe.name, edited.name);
        assert_eq!(recipe.name, load(text).name);
        assert!(!recipe.body.published);
    }

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

    #[test]
    fn what_is_called_published_follows_a_published_source_and_nothing_else_does() {
        let sources = results::published::sources().iter();
        let mut following: Vec<&str> = sources.flat_map(|source| source.recipes.clone()).collect();
        let names = RECIPES.iter().map(|(name, _)| *name);
        let mut published: Vec<&str> = names
            .filter(|name| Recipe::load(name).unwrap().body.published)
            .collect();
        following.sort_unstable();
        following.dedup();
        published.sort_unstable();
        assert_eq!(following, published);
    }

    fn resolved(recipe: &str, task: &str, model: &str) -> Resolved {
        let request = RunRequest {
            task,
            model,
            recipe,
            source: None,
            protocol: Protocol::Clean,
            seed: 0,
            assignments: &[],
        };
        request.resolve().unwrap()
    }

    /// Every built-in recipe with every task that it has settings for and every model.
    fn cells() -> Vec<Resolved> {
        let mut cells = Vec::new();
        for (name, _) in RECIPES {
            for task in Recipe::load(name).unwrap().body.tasks.keys() {
                let of_task = models::registry()
                    .iter()
                    .map(|model| resolved(name, task, model.name));
                cells.extend(of_task);
            }
        }
        cells
    }

    #[test]
    fn every_recipe_builds_every_model_and_names_what_there_is() {
        assert!(cells().len() > 300);
        let model = |name: &String| models::registry().iter().any(|model| model.name == name);
        let task = |name: &String| datasets::TASKS.iter().any(|task| task.about().name == name);
        for (name, _) in RECIPES {
            let body = Recipe::load(name).unwrap().body;
            assert!(
                body.tasks.keys().all(task)
                    && body.models.keys().all(model)
                    && body.made_for.iter().all(model),
                "{name}"
            );
            assert!(
                body.published != body.departures.is_empty(),
                "{name} hides something"
            );
            for departure in body.departures {
                assert!(departure.tasks.iter().all(task), "{}", departure.what);
                assert!(departure.models.iter().all(model), "{}", departure.what);
            }
        }
    }

    #[test]
    fn tay2021_runs_what_the_code_of_2021_computed() {
        for cell in cells().iter().filter(|cell| cell.recipe.name == "tay2021") {
            let (spec, model) = (&cell.spec, cell.model);
            let [task, name] = [&spec.cell.task, &spec.cell.model].map(String::as_str);
            if model.variants.iter().any(|it| it.name == "tay2021") {
                assert_eq!(spec.model["variant"], "tay2021", "{task} {name}");
            }
            let features = (task, name) == ("listops", "performer");
            if name == "performer" {
                let kernel = if features { "favor" } else { "auto" };
                assert_eq!(spec.model["kernel"], kernel, "{task}");
                assert_eq!(
                    spec.model["features"],
                    if features { 2 } else { 0 },
                    "{task}"
                );
            }
            if name == "sinkhorn" && task != "retrieval" {
                assert_eq!(spec.head.hidden, 0, "{task}");
            }
            let pixels = ["image", "pathfinder"].contains(&task);
            if pixels && ["local", "sinkhorn", "bigbird"].contains(&name) {
                assert_eq!(spec.model["block"], 64, "{task} {name}");
            }
            if name == "sparse" {
                assert_eq!(spec.model["first"], task == "retrieval", "{task}");
            }
        }
        let image = resolved("tay2021", "image", "transformer");
        assert!(image.spec.embed.zero_is_padding && image.departures().len() == 1);
        assert!(
            !resolved("tay2021", "pathfinder", "local")
                .departures()
                .is_empty()
        );
        assert!(
            resolved("laptop", "listops", "local")
                .departures()
                .is_empty()
        );
    }

    #[test]
    fn nystromformer_has_its_authors_settings() {
        for cell in cells()
            .iter()
            .filter(|cell| cell.recipe.name == "nystromformer")
        {
            let (train, head) = (&cell.spec.train, &cell.spec.head);
            assert_eq!(train.weight_decay, 0.0);
            assert_eq!(
                [train.beta1, train.beta2, train.epsilon],
                [0.9, 0.999, 1e-6]
            );
            assert_eq!(head.pooling, Pooling::PaddedMean);
            if cell.model.name == "nystromformer" {
                let wanted = serde_json::json!({
                    "variant": "xiong2021", "landmarks": 64, "iterations": 6, "conv": 35,
                });
                assert_eq!(cell.spec.model, wanted);
            }
            // What makes a model what it is stands above a recipe.
            if cell.model.settings().unwrap()["block"]["activation"].is_null() {
                assert_eq!(cell.spec.block.activation, Activation::GeluErf);
            }
        }
    }
}
