//! Recipes: named sets of settings, each with its source. Built-in ones live in `recipes/*.toml`.

mod of_spec;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use datasets::{Protocol, Source};
use models::{Family, Model};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::digest::sha256;
use crate::error::{Class, Classify, Error, Result};
use crate::suggest;

/// Recipe of runs, sweeps and listings that name none.
pub const DEFAULT: &str = results::card::RECIPE;

/// Built-in recipes: name and text.
pub static RECIPES: &[(&str, &str)] = &[
    (DEFAULT, include_str!("../recipes/mini.toml")),
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
    ("hgrn2", include_str!("../recipes/hgrn2.toml")),
    ("cosformer", include_str!("../recipes/cosformer.toml")),
    ("luna", include_str!("../recipes/luna.toml")),
    ("tay2021", include_str!("../recipes/tay2021.toml")),
    (
        "tay2021-paper",
        include_str!("../recipes/tay2021-paper.toml"),
    ),
];

/// A parsed recipe.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Name. For a file it is `file:STEM@DIGEST`, with the first digits of the SHA-256 of its
    /// contents: an edited file is another recipe.
    pub name: String,
    /// Contents.
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
    /// True if it trains a task as published, so that its scores may be compared with published
    /// ones. Only for built-in recipes.
    #[serde(default)]
    pub published: bool,
    /// For a reduced recipe, the one that trains the full task.
    #[serde(default)]
    pub full: Option<String>,
    /// Models that it was made for; empty for all. It also trains other models, but such results do
    /// not count as published.
    #[serde(default)]
    pub made_for: Vec<String>,
    /// Number of trained parameters for which every model's width is solved; if absent, tasks set
    /// the width.
    #[serde(default)]
    pub parameters: Option<usize>,
    /// Settings per task.
    pub tasks: BTreeMap<String, Value>,
    /// Tasks that count in the score of `lra mini`.
    #[serde(default)]
    pub counted: Vec<String>,
    /// Settings for tasks of your own that `tasks` has none for: folders, and those of a program.
    #[serde(default)]
    pub own: Option<Value>,
    /// Settings per family of blocks, regardless of the task; those of a task for the family
    /// override them.
    #[serde(default)]
    pub families: BTreeMap<String, Value>,
    /// Settings per model, regardless of the task; those of a task for the model override them.
    #[serde(default)]
    pub models: BTreeMap<String, Value>,
    /// Search for learning rates by `lra sweep --probe`.
    #[serde(default)]
    pub probe: Option<Probe>,
    /// Learning rates found by that search, which replace those of the settings.
    #[serde(default)]
    pub rates: Vec<Rate>,
    /// Differences between runs of the recipe and those of its source.
    #[serde(default)]
    pub departures: Vec<Departure>,
}

/// A search for the learning rate of a model on a task.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Learning rates to try.
    pub learning_rates: Vec<f64>,
    /// Fraction of the steps, and of the warm-up, for which each rate is tried.
    pub share: f64,
}

/// A learning rate that a search found.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Task of the search.
    pub task: String,
    /// Model of the search.
    pub model: String,
    /// Family of the block in the search.
    pub family: String,
    /// The learning rate.
    pub learning_rate: f64,
}

/// A difference from a recipe's source that no setting removes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Departure {
    /// Description of the difference.
    pub what: String,
    /// Tasks that it concerns; empty for all.
    #[serde(default)]
    pub tasks: Vec<String>,
    /// Models that it concerns; empty for all.
    #[serde(default)]
    pub models: Vec<String>,
    /// Split rules that it concerns; `None` for all.
    #[serde(default)]
    pub protocol: Option<Protocol>,
}

/// Beginning of the names of recipes that were read from files.
const FILE: &str = "file:";
/// Key under a task's settings that holds overlays per model.
const PER_MODEL: &str = "models";
/// Key under a task's settings that holds overlays per family of blocks.
const PER_FAMILY: &str = "families";
/// Key under a task's settings that names the one source that they are for.
const SOURCE: &str = "source";

/// Settings of a recipe for a task and a model; later layers override earlier ones.
pub struct Layers {
    /// Settings for all models.
    pub common: Value,
    /// Settings for a family of blocks: first those for every task, then those for this one.
    pub family: Vec<Value>,
    /// Settings for the model: first those for every task, then those for this one.
    pub model: Vec<Value>,
}

impl Layers {
    /// Returns whether any of them has a value for `key` of a section.
    pub fn set(&self, section: &str, key: &str) -> bool {
        let all = self.family.iter().chain(&self.model).chain([&self.common]);
        all.into_iter().any(|layer| !layer[section][key].is_null())
    }
}

impl Body {
    /// Returns the settings for a task; `None` if there are none.
    pub fn of_task(&self, task: &str) -> Option<&Value> {
        let is_own = || datasets::TASKS.iter().all(|it| it.info().name != task);
        let named = self.tasks.get(task);
        named.or_else(|| self.own.as_ref().filter(|_| is_own()))
    }
}

impl Recipe {
    /// Loads a built-in recipe, or a file if `name` ends in `.toml`.
    pub fn load(name: &str) -> Result<Self> {
        if name.ends_with(".toml") {
            return Recipe::of_file(Path::new(name));
        }
        let (name, text) = suggest::find("recipe", name, RECIPES, |(name, _)| name)?;
        Recipe::parse((*name).to_owned(), text)
    }

    /// Loads a recipe from a file, which may be the settings of a run. A recipe file never counts as
    /// published, so its scores are not compared with published ones.
    fn of_file(path: &Path) -> Result<Self> {
        let reading = || format!("reading the recipe {}", path.display());
        let text = disk::read_to_string(path).during(Class::Usage, reading())?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let stem = stem.replace(|c| !plain(c), "_");
        let digest = sha256(text.as_bytes());
        let mut recipe = Recipe::parse(format!("{FILE}{stem}@{}", &digest[..8]), &text)
            .map_err(|error| error.during(path.display()))?;
        recipe.body.published = false;
        Ok(recipe)
    }

    fn parse(name: String, text: &str) -> Result<Self> {
        let table = toml::from_str::<toml::Table>(text).unwrap_or_default();
        for (key, value) in &table {
            no_setting(key, value).map_or(Ok(()), |what| {
                Err(Error::usage(format!("recipe {name}: {what}")))
            })?;
        }
        let is_spec = table.contains_key(of_spec::MARK);
        let body = match is_spec {
            true => toml::from_str(text).map(of_spec::Settings::into_body),
            false => toml::from_str(text),
        };
        let body: Body = body.map_err(|error| {
            let line = error.span().map(|span| {
                let before = text.get(..span.start).unwrap_or(text);
                format!(", line {}", before.matches('\n').count() + 1)
            });
            let line = line.unwrap_or_default();
            let words = datasets::of_deserializer(error.message(), "a table");
            Error::usage(format!("recipe {name}{line}: {words}"))
        })?;
        let recipe = Recipe { name, body };
        let of_tasks = recipe.body.tasks.values();
        let of_tasks = of_tasks.filter_map(|settings| settings[PER_FAMILY].as_object());
        let families = recipe.body.families.keys();
        for family in families.chain(of_tasks.flat_map(Map::keys)) {
            recipe.known_family(family)?;
        }
        recipe.check_names()?;
        for task in recipe.body.tasks.keys() {
            recipe.source(task)?;
        }
        if let Some(probe) = &recipe.body.probe {
            let rates = probe.learning_rates.iter();
            if !rates.clone().all(|rate| rate.is_finite() && *rate >= 0.0)
                || rates.len() == 0
                || !(probe.share > 0.0 && probe.share <= 1.0)
            {
                return Err(Error::usage(format!(
                    "recipe {}: probe wants at least one of learning_rates, finite and at least 0, and a share above 0 and up to 1",
                    recipe.name
                )));
            }
        }
        Ok(recipe)
    }

    /// Checks that every task and model that the recipe names exists and is spelt as in the registry:
    /// settings for another name would never apply.
    fn check_names(&self) -> Result<()> {
        let body = &self.body;
        let tasks = body.tasks.keys();
        let tasks = tasks.chain(body.departures.iter().flat_map(|it| &it.tasks));
        let tasks = tasks.chain(body.rates.iter().map(|it| &it.task));
        let tasks = tasks.chain(&body.counted);
        for task in tasks {
            let found = suggest::task(task);
            self.check_name("task", task, found.map(|found| found.info().name))?;
        }
        let of_tasks = body.tasks.values();
        let of_tasks = of_tasks.filter_map(|settings| settings[PER_MODEL].as_object());
        let models = body.models.keys().chain(of_tasks.flat_map(Map::keys));
        let models = models.chain(&body.made_for);
        let models = models.chain(body.departures.iter().flat_map(|it| &it.models));
        let models = models.chain(body.rates.iter().map(|it| &it.model));
        for model in models {
            let found = suggest::find("model", model, models::registry(), |model| model.name);
            self.check_name("model", model, found.map(|found| found.name))?;
        }
        for rate in &body.rates {
            self.known_family(&rate.family)?;
        }
        match &body.full {
            None => {}
            Some(file) if file.ends_with(".toml") && Path::new(file).is_file() => {}
            Some(file) if file.ends_with(".toml") => {
                let name = &self.name;
                return Err(Error::usage(format!(
                    "recipe {name}: full = \"{file}\": there is no such file"
                )));
            }
            Some(full) => {
                let found = suggest::find("recipe", full, RECIPES, |(name, _)| name);
                self.check_name("full recipe", full, found.map(|(name, _)| *name))?;
            }
        }
        Ok(())
    }

    fn check_name(&self, kind: &str, name: &str, found: Result<&str>) -> Result<()> {
        let origin = format!("recipe {}", self.name);
        match found.map_err(|error| error.during(&origin))? {
            found if found == name => Ok(()),
            found => Err(Error::usage(format!(
                "{origin}: {kind} '{name}' is spelt '{found}'"
            ))),
        }
    }

    /// Returns whether the recipe was made for this model.
    pub fn is_for(&self, model: &str) -> bool {
        let made_for = &self.body.made_for;
        made_for.is_empty() || made_for.iter().any(|name| name == model)
    }

    /// Returns the differences from the recipe's source when `model` learns `task` by the split
    /// rules of `protocol`.
    pub fn departures(&self, task: &str, model: &str, protocol: Protocol) -> Vec<String> {
        let concerns = |names: &[String], name| names.is_empty() || names.iter().any(|n| n == name);
        let departures = self.body.departures.iter();
        departures
            .filter(|it| concerns(&it.tasks, task) && concerns(&it.models, model))
            .filter(|it| it.protocol.is_none_or(|rules| rules == protocol))
            .map(|it| it.what.clone())
            .collect()
    }

    /// Returns the family whose block the model gets: the one `asked` for, else its own; `None` if
    /// the recipe has no families.
    ///
    /// # Errors
    /// There is no such family, or the recipe has none.
    pub fn family(&self, model: &Model, asked: Option<&str>) -> Result<Option<Family>> {
        match asked {
            Some(asked) if self.body.families.is_empty() => Err(Error::usage(format!(
                "block.family = {asked}: recipe {} gives all models the same block; one with families is mini",
                self.name
            ))),
            Some(asked) => self.known_family(asked).map(Some),
            None if self.body.families.is_empty() => Ok(None),
            None => Ok(Some(model.family)),
        }
    }

    fn known_family(&self, name: &str) -> Result<Family> {
        Family::find(name).ok_or_else(|| {
            Error::usage(format!(
                "recipe {}: there is no family of blocks called '{name}'; there are {}",
                self.name,
                Family::ALL.map(Family::name).join(", ")
            ))
        })
    }

    /// Returns the settings for a task, a model and a family of blocks.
    pub fn layers(&self, task: &str, model: &str, family: Option<Family>) -> Result<Layers> {
        let mut common = self.settings(task)?.clone();
        let mut own = |key: &str, name: &str| {
            let overlays = common.remove(key);
            overlays.and_then(|overlays| overlays.get(name).cloned())
        };
        own(SOURCE, "");
        let per_model = own(PER_MODEL, model);
        let name = family.map_or("", Family::name);
        let per_family = own(PER_FAMILY, name);
        let both = |everywhere: Option<&Value>, here: Option<Value>| -> Vec<Value> {
            everywhere.cloned().into_iter().chain(here).collect()
        };
        let mut of_model = both(self.body.models.get(model), per_model);
        let found = |it: &&Rate| {
            (it.task.as_str(), it.model.as_str(), it.family.as_str()) == (task, model, name)
        };
        let found = self.body.rates.iter().find(found);
        of_model.extend(found.map(|it| json!({ "train": { "learning_rate": it.learning_rate } })));
        Ok(Layers {
            common: Value::Object(common),
            family: both(self.body.families.get(name), per_family),
            model: of_model,
        })
    }

    /// Returns the data settings for a task, under their section's name.
    pub fn data(&self, task: &str) -> Result<Value> {
        let data = self.settings(task)?.get("data").cloned();
        Ok(data.map_or_else(|| json!({}), |data| json!({ "data": data })))
    }

    /// Returns the one source that the settings for a task are for; `None` if they are for any.
    ///
    /// # Errors
    /// The recipe has no settings for the task, or names a source that does not exist.
    pub fn source(&self, task: &str) -> Result<Option<Source>> {
        let Some(named) = self.settings(task)?.get(SOURCE) else {
            return Ok(None);
        };
        let source = named.as_str().map(str::parse::<Source>);
        match source {
            Some(Ok(source)) => Ok(Some(source)),
            _ => Err(Error::usage(format!(
                "recipe {}: tasks.{task}.source = {named} is not a source of data",
                self.name
            ))),
        }
    }

    /// Checks that the settings for a task are for data from `source`.
    ///
    /// # Errors
    /// They are for another source; the message names it, and the recipes for this one.
    pub fn check_source(&self, task: &str, source: Source) -> Result<()> {
        match self.source(task)? {
            Some(only) if only != source => Err(Error::usage(format!(
                "recipe {} has settings for {task} from the source {only} alone: --task {task}:{only}{}",
                self.name,
                elsewhere(task, source)
            ))),
            _ => Ok(()),
        }
    }

    fn settings(&self, task: &str) -> Result<&Map<String, Value>> {
        self.body
            .of_task(task)
            .and_then(Value::as_object)
            .ok_or_else(|| {
                let known: Vec<&str> = self.body.tasks.keys().map(String::as_str).collect();
                let found = datasets::tasks::find(task);
                let others = found.map(|found| elsewhere(task, found.info().sources[0]));
                Error::usage(format!(
                    "recipe {} has no settings for task {task} (it has: {}){}",
                    self.name,
                    known.join(", "),
                    others.unwrap_or_default()
                ))
            })
    }
}

/// Returns the end of a message that names the built-in recipes with settings for data of a task
/// from `source`; empty if there is none.
fn elsewhere(task: &str, source: Source) -> String {
    let has = |name: &&str| {
        let recipe = Recipe::load(name).ok();
        let settings = recipe.and_then(|recipe| recipe.body.of_task(task).cloned());
        settings.is_some_and(|settings| {
            let only = &settings[SOURCE];
            only.is_null() || *only == json!(source)
        })
    };
    let names = RECIPES.iter().map(|(name, _)| *name);
    let names: Vec<&str> = names.filter(has).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(
            "; recipes with settings for it (--recipe): {}",
            names.join(", ")
        ),
    }
}

/// Returns the lines that tell of recipes among `names`, those of records, which this program does
/// not have. Recipes that were read from files are no part of it and are left out.
pub fn absent<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let known = |name: &str| RECIPES.iter().any(|(known, _)| *known == name);
    let absent: BTreeSet<&str> = names
        .filter(|name| !known(name) && !name.starts_with(FILE))
        .collect();
    let line = |name: &str| {
        let remark = suggest::remark("recipe", name);
        let remark = remark.map_or(String::new(), |remark| format!(": {remark}"));
        let name = disk::escape(name);
        format!("note: runs by recipe {name}, which this program does not have{remark}")
    };
    absent.into_iter().map(line).collect()
}

/// Returns the first value in a recipe that no setting can have, in words. Settings are kept as
/// JSON, which has no dates and no infinite numbers.
fn no_setting(key: &str, value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::Datetime(date) => Some(format!("{key} = {date}: a date is no setting")),
        toml::Value::Float(number) if !number.is_finite() => {
            Some(format!("{key} = {number} is not a finite number"))
        }
        toml::Value::Array(items) => items.iter().find_map(|item| no_setting(key, item)),
        toml::Value::Table(table) => table
            .iter()
            .find_map(|(inner, value)| no_setting(&format!("{key}.{inner}"), value)),
        _ => None,
    }
}
