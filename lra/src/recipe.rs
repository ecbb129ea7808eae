//! Recipes: named sets of settings, each with its source. Built-in ones live in `recipes/*.toml`.

#[cfg(test)]
mod sources;

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
    /// Measured duration of training, if it was measured.
    #[serde(default)]
    pub measured: Option<Measured>,
    /// Number of trained parameters for which every model's width is solved; if absent, tasks set
    /// the width.
    #[serde(default)]
    pub parameters: Option<usize>,
    /// Settings per task.
    pub tasks: BTreeMap<String, Value>,
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

/// Measured duration of training by a recipe.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Model and machine of the measurement.
    pub on: String,
    /// Wall time of a run per task, in minutes, without preparing the data.
    pub minutes: BTreeMap<String, f64>,
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

impl Recipe {
    /// Loads a built-in recipe, or a file if `name` ends in `.toml`.
    pub fn load(name: &str) -> Result<Self> {
        if name.ends_with(".toml") {
            return Recipe::of_file(Path::new(name));
        }
        let (name, text) = suggest::find("recipe", name, RECIPES, |(name, _)| name)?;
        Recipe::parse((*name).to_owned(), text)
    }

    /// Loads a recipe from a file. A recipe file never counts as published, so its scores are not
    /// compared with published ones.
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
        let body: Body = toml::from_str(text).map_err(|error| {
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
                "recipe {}: tasks.{task}.source = {named} is no source of data",
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
            .tasks
            .get(task)
            .and_then(Value::as_object)
            .ok_or_else(|| {
                let known: Vec<&str> = self.body.tasks.keys().map(String::as_str).collect();
                let tasks = datasets::TASKS.iter().map(|it| it.info());
                let info = tasks.into_iter().find(|info| info.name == task);
                let others = info.map(|info| elsewhere(task, info.sources[0]));
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
        let settings = recipe.and_then(|recipe| recipe.body.tasks.get(task).cloned());
        settings.is_some_and(|settings| {
            let only = &settings[SOURCE];
            only.is_null() || *only == json!(source)
        })
    };
    let names = RECIPES.iter().map(|(name, _)| *name);
    let names: Vec<&str> = names.filter(has).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; recipes that have (--recipe): {}", names.join(", ")),
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
        let name = datasets::plain(name);
        format!("note: runs by recipe {name}, which this program does not have{remark}")
    };
    absent.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use models::options::{Activation, ChannelKind, NormKind, NormPlace, Pooling, Positions};

    use super::*;
    use crate::schedule::Schedule;
    use crate::spec::{Resolved, RunRequest, Spec};

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
            source: Recipe::load(recipe).unwrap().source(task).unwrap(),
            protocol: Protocol::Clean,
            seed: 0,
            assignments: &[],
        };
        request.resolve().unwrap()
    }

    #[test]
    fn a_task_or_a_source_without_settings_is_told_the_recipes_that_have_it() {
        let refused = |task: &str, source| {
            let request = RunRequest {
                task,
                model: "bag",
                recipe: DEFAULT,
                source,
                protocol: Protocol::Clean,
                seed: 0,
                assignments: &[],
            };
            request.resolve().err().unwrap().to_string()
        };
        let told = refused("pathx", None);
        for name in ["listops", "--recipe", "smoke", "s4", "tay2021"] {
            assert!(told.contains(name), "{told}");
        }
        assert!(!told.contains("nystromformer"), "{told}");
        let told = refused("toy", None);
        assert!(told.ends_with("(--recipe): smoke"), "{told}");
        let told = refused("retrieval", None);
        assert!(told.contains("--task retrieval:synthetic"), "{told}");
        assert!(told.contains("s4") && !told.contains("mini,"), "{told}");
    }

    #[test]
    fn records_tell_which_recipes_are_no_longer_here() {
        let told = absent(["laptop", "mini", "file:own@1a2b3c4d", "laptop", "else"].into_iter());
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("recipe else"), "{told:?}");
        assert!(
            told[1].contains("laptop") && told[1].contains("mini"),
            "{told:?}"
        );
    }

    /// Returns every built-in recipe with every task that it has settings for and every model.
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
        let task = |name: &String| datasets::TASKS.iter().any(|task| task.info().name == name);
        for (name, _) in RECIPES {
            let body = Recipe::load(name).unwrap().body;
            assert!(
                body.tasks.keys().all(task)
                    && body
                        .rates
                        .iter()
                        .all(|it| task(&it.task) && model(&it.model))
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
    fn mini_gives_every_model_the_same_size_and_the_same_training() {
        for task in Recipe::load("mini").unwrap().body.tasks.keys() {
            for model in models::registry() {
                let cell = resolved("mini", task, model.name);
                let (train, name) = (&cell.spec.train, model.name);
                let (_, parameters) = cell.meta().unwrap();
                let count = parameters.elements();
                let by_position = ["synthesizer", "mlp_mixer", "gmlp", "long_conv"];
                assert!(
                    (80_000..=120_000).contains(&count)
                        || by_position.contains(&name) && !cell.departures().is_empty(),
                    "{name} on {task}: {count}"
                );
                assert_eq!(cell.family, Some(model.family), "{name}");
                let shared = (train.weight_decay, train.clip, train.schedule);
                assert_eq!(shared, (0.01, 1.0, Schedule::Cosine), "{name}");
                let (tenth, dropout) = (train.steps / 10, cell.spec.block.dropout);
                assert_eq!((train.warmup, train.eval_every), (tenth, tenth), "{name}");
                assert_eq!((dropout, cell.spec.embed.dropout), (0.0, 0.0), "{name}");
                for group in &train.groups {
                    assert_eq!(group.weight_decay, Some(0.0), "{name}");
                }
            }
        }
    }

    #[test]
    fn families_give_models_their_block_and_can_be_chosen() {
        let request = |recipe, model, assignments: &[&str]| {
            let assignments: Vec<String> = assignments.iter().map(|&it| it.to_owned()).collect();
            let request = RunRequest {
                task: "listops",
                model,
                recipe,
                source: None,
                protocol: Protocol::Clean,
                seed: 0,
                assignments: &assignments,
            };
            request.resolve()
        };
        let own = request("mini", "s4d", &[]).unwrap();
        let block = |cell: &Resolved| (cell.spec.block.norm, cell.spec.block.ffn);
        assert_eq!(block(&own), (NormKind::BatchMasked, ChannelKind::None));
        assert_eq!(own.spec.embed.positions, Positions::None);
        let other = request("mini", "s4d", &["block.family=xformer"]).unwrap();
        assert_eq!(block(&other), (NormKind::Layer, ChannelKind::Dense));
        assert_eq!(other.spec.embed.positions, Positions::Learned);
        assert_eq!(other.family, Some(Family::Xformer));
        assert_eq!(other.overrides, ["block.family=xformer"]);
        // A model's defining settings override the block of its own family, and an explicit width
        // overrides the solved one.
        let luna = request("mini", "luna", &["block.dim=48"]).unwrap();
        assert_eq!(luna.spec.block.norm_place, NormPlace::Post);
        assert_eq!(luna.spec.block.dim, 48);
        for (recipe, setting, words) in [
            ("mini", "block.family=filters", "xformer, filter"),
            ("smoke", "block.family=filter", "mini"),
        ] {
            let error = request(recipe, "s4d", &[setting]).err().unwrap();
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn a_recipe_of_ones_own_may_have_families_sizes_and_rates() {
        let folder = tempfile::tempdir().unwrap();
        let load = |text: &str| {
            let path = folder.path().join("own.toml");
            std::fs::write(&path, format!("about = ''\nsource = ''\n{text}")).unwrap();
            let path = path.to_str().unwrap().to_owned();
            Recipe::load(&path).map(|_| path)
        };
        let path = load(
            "parameters = 9000\nrates = [{ task = 'toy', model = 'linear', family = 'xformer', learning_rate = 0.25 }]\n\
             [families.xformer]\nblock = { layers = 1 }\n[tasks.toy.families.filter]\nblock = { layers = 3 }\n",
        );
        let path = path.unwrap();
        let [linear, s4d] = ["linear", "s4d"].map(|model| resolved(&path, "toy", model).spec);
        assert_eq!((linear.block.layers, s4d.block.layers), (1, 3));
        assert_eq!(linear.train.learning_rate, 0.25);
        assert_ne!(s4d.train.learning_rate, 0.25);
        for (text, words) in [
            ("[families.filters]\n[tasks.toy]\n", "filters"),
            (
                "probe = 3\n[tasks.toy]\n",
                ", line 3: integer `3` instead of a table",
            ),
            (
                "[tasks.toy]\n[[departures]]\nwhat = ''\nprotocol = 'dirty'\n",
                ", line 6: `dirty` is none of `clean` and `tay2021`",
            ),
            (
                "[tasks.toy]\n[prob]\nx = 1\n",
                "`prob` is unknown here; known are `about`",
            ),
            ("[tasks.toy.families.gates]\n", "gates"),
            ("[tasks.toy]\nsource = 'nowhere'\n", "nowhere"),
            (
                "[probe]\nlearning_rates = []\nshare = 0.5\n[tasks.toy]\n",
                "probe",
            ),
            (
                "[probe]\nlearning_rates = [0.1]\nshare = 0.0\n[tasks.toy]\n",
                "probe",
            ),
        ] {
            let error = load(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        // No width gives a model so few parameters.
        let path = load("parameters = 3\n[tasks.toy]\n").unwrap();
        let cell = resolved(&path, "toy", "linear");
        assert_eq!(cell.spec.block.dim, 64);
        assert!(cell.departures()[0].contains("at no width"));
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
        assert!(image.spec.embed.zero_is_padding && image.departures().len() == 3);
        assert!(
            !resolved("tay2021", "pathfinder", "local")
                .departures()
                .is_empty()
        );
        assert!(resolved("mini", "listops", "local").departures().is_empty());
    }

    /// The loaders of these sources descend from S4's: `]` is a token, parentheses are not, and an
    /// end of sequence follows.
    #[test]
    fn departures_are_those_of_the_loaders() {
        let departures = |recipe: &str, task: &str, protocol| {
            let recipe = Recipe::load(recipe).unwrap();
            let model = recipe.body.made_for[0].clone();
            recipe.departures(task, &model, protocol)
        };
        for recipe in [
            "s4",
            "s5",
            "rtf",
            "sgconv",
            "tnn",
            "cosformer",
            "chordmixer",
        ] {
            let says = |task: &str, words: &str| {
                let mut of_task = departures(recipe, task, Protocol::Clean).into_iter();
                of_task.any(|what| what.contains(words))
            };
            assert!(says("listops", "an end of sequence follows"), "{recipe}");
            let least = if recipe == "chordmixer" { "10" } else { "15" };
            let rare = format!("characters that occur at least {least} times, at most 4,095");
            assert!(says("text", &rare) && says("text", "22,498"), "{recipe}");
            assert!(
                says("retrieval", "there characters, at most 3,999"),
                "{recipe}"
            );
            assert!(!says("retrieval", "occur at least"), "{recipe}");
            assert!(says("retrieval", "for two sequences"), "{recipe}");
            assert!(says("image", "26 % of random colours"), "{recipe}");
            assert!(says("pathfinder", "drawn with seed 42"), "{recipe}");
            let published = departures(recipe, "text", Protocol::Tay2021);
            assert!(
                !published.iter().any(|what| what.contains("22,498")),
                "{recipe}"
            );
        }
        for (name, _) in RECIPES {
            for departure in Recipe::load(name).unwrap().body.departures {
                let what = departure.what;
                assert!(!what.contains("parenthes"), "{name}: {what}");
            }
        }
    }

    #[test]
    fn liquid_s4_has_its_authors_settings() {
        let text = resolved("liquid-s4", "text", "s4d");
        let Spec {
            block,
            model,
            train,
            ..
        } = &text.spec;
        assert!(block.dropout_tied && block.norm == NormKind::Batch);
        assert_eq!(model["n_ssm"], 0);
        assert_eq!(
            [train.steps, train.schedule_steps, train.warmup],
            [156_250, 50_000, 1000]
        );
        let mut groups = train.groups.iter();
        let dt = groups
            .find(|group| group.has("encoder.0.mixer.log_dt"))
            .unwrap();
        assert_eq!(
            (dt.learning_rate, dt.weight_decay),
            (Some(0.003), Some(0.0))
        );
        for (done, rate) in [
            (500, 0.0015),
            (1000, 0.003),
            (50_000, 0.0),
            (99_000, 0.003),
            (148_000, 0.0),
        ] {
            assert!(
                (train.rate(done) - rate).abs() < 1e-12,
                "{done}: {}",
                train.rate(done)
            );
        }
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
            // A model's defining settings override a recipe.
            if cell.model.settings().unwrap()["block"]["activation"].is_null() {
                assert_eq!(cell.spec.block.activation, Activation::GeluErf);
            }
        }
    }
}
