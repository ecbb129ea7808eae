//! A `Spec` holds every number that a run depends on: the task's options, overlaid by a recipe,
//! overlaid by `--set`. It is frozen before anything runs, digested, and saved with the record.

mod data;
#[cfg(test)]
mod fuzz;
mod groups;
mod pretrain;
mod resolve;
mod train;
mod width;

use std::fmt;

use datasets::tasks::mine;
use datasets::{Protocol, Source};
use models::options::{BlockOptions, EmbedOptions, HeadOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::groups::ParameterGroup;
pub use self::pretrain::{PretrainKind, PretrainOptions};
pub use self::resolve::{Resolved, RunRequest, general_defaults};
pub use self::train::{Decay, OptimizerKind, Precision, Select, TrainOptions};
use crate::digest::sha256;
use crate::error::{Class, Classify, Result};

/// Everything that determines the outcome of a run, except for timings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The cell of the table.
    pub cell: Cell,
    /// The task's data options, and the seed of a permutation (`permute`) if there is one.
    pub data: Value,
    /// Token embedding and positions.
    pub embed: EmbedOptions,
    /// The residual blocks.
    pub block: BlockOptions,
    /// Pooling and classifier.
    pub head: HeadOptions,
    /// The mixer's own options.
    pub model: Value,
    /// The weights that training starts from; absent if they are random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Start>,
    /// Pretraining; absent if there is none.
    #[serde(default, skip_serializing_if = "PretrainOptions::is_off")]
    pub pretrain: PretrainOptions,
    /// Optimisation and evaluation.
    pub train: TrainOptions,
}

/// Weights of another run that training starts from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// SHA-256 over the weights (see [`crate::initial::Weights::digest`]).
    pub weights: String,
}

/// The names that make up a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Name in the task registry.
    pub task: String,
    /// Version of the task's data rules.
    pub task_version: u32,
    /// Name in the model registry.
    pub model: String,
    /// Recipe that the settings started from.
    pub recipe: String,
    /// Source of the data.
    pub source: Source,
    /// Split rules.
    pub protocol: Protocol,
    /// Seed of initialisation, batch order and every random draw of the model.
    pub seed: u64,
}

impl Cell {
    /// Returns the name of the task in digests and records: that of a folder is without its path.
    pub fn task_name(&self) -> String {
        match mine::is_folder(&self.task) {
            true => mine::short_name(&self.task),
            false => self.task.clone(),
        }
    }
}

/// Version of the specification, a part of every digest. It is raised when a default changes or a
/// setting changes its meaning, so that no later run takes the name of an earlier one. A new
/// setting leaves it as it is.
const VERSION: u32 = 1;

/// Removes from `settings` each value that `defaults` holds at the same place, and the sections
/// that are left empty.
fn remove_defaults(settings: &mut Value, defaults: &Value) {
    let (Some(settings), Some(defaults)) = (settings.as_object_mut(), defaults.as_object()) else {
        return;
    };
    settings.retain(|key, value| {
        let Some(default) = defaults.get(key) else {
            return true;
        };
        remove_defaults(value, default);
        value != default && value.as_object().is_none_or(|inner| !inner.is_empty())
    });
}

/// A setting in which two specs differ.
pub struct Difference {
    /// Its path, such as `train.steps`.
    pub setting: String,
    /// Its value in the first; null if it is unset.
    pub first: Value,
    /// Its value in the second; null if it is unset.
    pub second: Value,
}

/// Sections of the settings that decide what weights compute.
const OF_THE_MODEL: [&str; 4] = ["embed.", "block.", "head.", "model."];

impl Difference {
    /// Returns differences in one line.
    pub fn list(differences: &[Difference]) -> String {
        let words: Vec<String> = differences.iter().map(Difference::to_string).collect();
        words.join(", ")
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = [&self.first, &self.second].map(in_words);
        write!(f, "{} = {second}, not {first}", self.setting)
    }
}

/// Returns the value of a setting in words.
pub fn in_words(value: &Value) -> String {
    match value {
        Value::Null => "unset".to_owned(),
        value => value.to_string(),
    }
}

/// Adds to `found` the leaves in which two documents differ, with their paths.
fn collect_differences(path: &str, first: &Value, second: &Value, found: &mut Vec<Difference>) {
    let (Some(firsts), Some(seconds)) = (first.as_object(), second.as_object()) else {
        if first != second {
            found.push(Difference {
                setting: path.to_owned(),
                first: first.clone(),
                second: second.clone(),
            });
        }
        return;
    };
    let added = seconds.keys().filter(|key| !firsts.contains_key(*key));
    for key in firsts.keys().chain(added) {
        let path = match path {
            "" => key.clone(),
            path => format!("{path}.{key}"),
        };
        let value = |values: &Map<String, Value>| values.get(key).cloned().unwrap_or_default();
        collect_differences(&path, &value(firsts), &value(seconds), found);
    }
}

/// Adds to `found` the values of a document that are no objects, with their paths.
fn collect_leaves(path: &str, document: &Value, found: &mut Vec<(String, Value)>) {
    let Some(values) = document.as_object() else {
        found.push((path.to_owned(), document.clone()));
        return;
    };
    for (key, value) in values {
        let path = match path {
            "" => key.clone(),
            path => format!("{path}.{key}"),
        };
        collect_leaves(&path, value, found);
    }
}

impl Spec {
    /// Returns the SHA-256, in hexadecimal, over [`VERSION`], the cell and the settings that differ
    /// from their defaults. Equal digests mean runs that agree bit for bit on one machine with one
    /// program and the same data.
    pub fn digest(&self) -> String {
        let mut settings = self.document();
        remove_defaults(&mut settings, &resolve::defaults_of(self));
        settings["version"] = json!(VERSION);
        let settings = datasets::canonical_json(&settings);
        sha256(settings.as_bytes())
    }

    /// Returns the settings in which `other` differs from this spec, the first of the two.
    pub fn differences(&self, other: &Spec) -> Vec<Difference> {
        let mut found = Vec::new();
        collect_differences("", &self.document(), &other.document(), &mut found);
        found
    }

    /// Returns, in words, the settings of `there` with which the same weights compute something
    /// else.
    pub fn differences_of_models(&self, there: &Value) -> Vec<String> {
        let mut found = Vec::new();
        collect_differences("", &self.document(), there, &mut found);
        let of_model = found.iter().filter(|it| {
            let mut parts = OF_THE_MODEL.iter();
            parts.any(|part| it.setting.starts_with(part))
        });
        let words = of_model.map(|it| {
            let [here, there] = [&it.first, &it.second].map(in_words);
            format!("{} is {here} here and {there} there", it.setting)
        });
        words.collect()
    }

    /// Returns the settings as a document. A folder that is a task is there without its path.
    pub fn document(&self) -> Value {
        let mut document = json!(self);
        document["cell"]["task"] = json!(self.cell.task_name());
        document
    }

    /// Returns every setting with its path, such as `train.steps`, and its value.
    pub fn leaves(&self) -> Vec<(String, Value)> {
        let mut leaves = Vec::new();
        collect_leaves("", &json!(self), &mut leaves);
        leaves
    }

    /// Returns the settings as TOML, as saved with the record.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string_pretty(self).during(Class::Run, "writing the settings as TOML")
    }

    /// Returns the key of the data that this spec trains on, which is stored as it is before any
    /// permutation.
    pub fn data_key(&self) -> datasets::Key {
        datasets::Key {
            source: self.cell.source,
            protocol: self.cell.protocol,
            options: crate::permute::without(&self.data).0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_group_that_is_no_ones_is_refused() {
        let group = |name: &str, rate: &str| {
            let group =
                format!("train.groups=[{{ parameters = \"{name}\", learning_rate = {rate} }}]");
            resolve("toy", "s4d", &[&group])
        };
        let plain = resolve("toy", "s4d", &[]).unwrap().spec;
        let grouped = group("*.log_dt", "0.001").unwrap().spec;
        assert_eq!(grouped.train.groups[0].learning_rate, Some(1e-3));
        assert_ne!(grouped.digest(), plain.digest());
        assert!(
            !json!(plain)["train"]
                .as_object()
                .unwrap()
                .contains_key("groups")
        );
        let error = group("*.log_step", "0.001").err().unwrap().to_string();
        assert!(
            error.contains("*.log_step") && error.contains("*.log_dt"),
            "{error}"
        );
        let error = group("*.log_dt", "-1.0").err().unwrap().to_string();
        assert!(error.contains("out of range"), "{error}");
    }

    #[test]
    fn settings_that_do_not_apply_to_the_source_leave_no_mark_in_the_label() {
        let label = |source, assignments: &[&str]| {
            let resolved = resolve("listops", "linear", assignments).unwrap();
            let mut spec = resolved.spec;
            spec.cell.source = source;
            spec.data_shape(resolved.task).unwrap().label
        };
        let [drawn, files] = [Source::Generated, Source::Official];
        let fewer = ["data.train=50", "data.max_depth=5"];
        assert_eq!(label(files, &fewer), label(files, &[]));
        assert_ne!(
            label(drawn, &fewer),
            label(drawn, &["data.max_length=2000"])
        );
    }

    #[test]
    fn settings_of_the_model_are_those_that_weights_depend_on() {
        let spec = |assignments: &[&str]| resolve("toy", "linear", assignments).unwrap().spec;
        let there = spec(&[]).document();
        let here = spec(&["block.activation=relu", "train.steps=7"]);
        let was = json!(spec(&[]).block.activation);
        assert_eq!(
            here.differences_of_models(&there),
            [format!("block.activation is \"relu\" here and {was} there")]
        );
    }

    /// Checks the sizes in millions of weights, as the authors' code counts them.
    #[test]
    fn recipes_of_state_spaces_have_the_published_sizes() {
        for (recipe, model, task, millions) in [
            ("s4", "s4d", "listops", 0.82),
            ("s4", "s4d", "text", 0.82),
            ("s5", "s5", "listops", 0.19),
            ("s5", "s5", "text", 1.3),
            ("s5", "s5", "retrieval", 0.75),
            ("s5", "s5", "image", 5.1),
            ("s5", "s5", "pathfinder", 1.1),
            ("mega", "mega", "listops", 0.58),
            ("mega", "mega", "text", 0.93),
            ("mega", "mega", "retrieval", 1.4),
            ("mega", "mega", "image", 2.8),
            ("mega", "mega", "pathfinder", 1.4),
            // 0.25 without the relative positions in chunks of 4,096.
            ("mega", "mega_chunk", "pathx", 0.284),
            ("chordmixer", "chordmixer", "listops", 0.19),
            ("chordmixer", "chordmixer", "image", 2.6),
            ("chordmixer", "chordmixer", "pathfinder", 1.7),
            ("chordmixer", "chordmixer", "pathx", 0.54),
        ] {
            let request = RunRequest {
                task,
                model,
                recipe,
                source: None,
                protocol: Protocol::Clean,
                seed: 0,
                assignments: &[],
            };
            let resolved = request.resolve().unwrap();
            let weights = resolved.meta().unwrap().1.elements() as f64 / 1e6;
            let apart = (weights / millions - 1.0).abs();
            assert!(
                apart < 0.1,
                "{recipe} {task}: {weights} M, {millions} M published"
            );
        }
    }

    fn resolve(task: &str, model: &str, assignments: &[&str]) -> Result<Resolved> {
        let assignments: Vec<String> = assignments.iter().map(|&text| text.to_owned()).collect();
        let request = RunRequest {
            task,
            model,
            recipe: "smoke",
            source: None,
            protocol: Protocol::Clean,
            seed: 0,
            assignments: &assignments,
        };
        request.resolve()
    }

    fn digest(model: &str, assignments: &[&str]) -> String {
        resolve("toy", model, assignments).unwrap().spec.digest()
    }

    /// A run keeps the recipe's planned length of the schedule as long as it keeps its number of
    /// updates.
    #[test]
    fn a_run_of_another_length_has_a_schedule_of_its_own() {
        let resolve = |recipe: &str, assignments: &[&str]| {
            let assignments: Vec<String> = assignments.iter().map(|&it| it.to_owned()).collect();
            let request = RunRequest {
                task: "text",
                model: "s4d",
                recipe,
                source: None,
                protocol: Protocol::Clean,
                seed: 0,
                assignments: &assignments,
            };
            request.resolve()
        };
        let planned = |assignments: &[&str]| {
            let train = resolve("liquid-s4", assignments).unwrap().spec.train;
            (train.steps, train.schedule_steps)
        };
        assert_eq!(planned(&[]), (156_250, 50_000));
        assert_eq!(planned(&["train.batch=16"]), (156_250, 50_000));
        assert_eq!(planned(&["train.steps=2000"]), (2000, 0));
        assert_eq!(planned(&["train.steps=156250"]), (156_250, 0));
        let both = ["train.steps=2000", "train.schedule_steps=1500"];
        assert_eq!(planned(&both), (2000, 1500));
        // As many updates as in the recipe by another schedule are no repetition of it.
        let repeated = |assignments: &[&str]| {
            let resolved = resolve("liquid-s4", assignments).unwrap();
            resolved.repeated
        };
        assert!(repeated(&["train.steps=156250"]).is_empty());
        let whole = ["train.steps=156250", "train.schedule_steps=50000"];
        assert_eq!(repeated(&whole), whole);
        let short = resolve("liquid-s4", &["train.steps=2000"]).unwrap();
        assert!(short.spec.train.rate(2000) < 1e-12);
        let error = resolve("liquid-s4", &["train.schedule=rsqrt"]);
        let error = error.err().unwrap().to_string();
        assert!(error.contains("train.schedule_steps = 50000"), "{error}");
    }

    #[test]
    fn a_planned_length_of_zero_is_that_of_earlier_runs() {
        let [none, some] = ["train.schedule_steps=0", "train.schedule_steps=7"];
        assert_eq!(digest("bag", &[none]), digest("bag", &[]));
        assert_ne!(digest("bag", &[some]), digest("bag", &[]));
        let pretrained = resolve("listops", "transformer", &[some, "pretrain.kind=masked"]);
        let spec = pretrained.unwrap().spec;
        assert_eq!(spec.pretrain.training(&spec.train).schedule_steps, 0);
    }

    /// If a model uses the rows and columns of an image, its record says so.
    #[test]
    fn what_the_rules_forbid_is_known_before_the_run() {
        let resolve = |task: &str, assignments: &[&str]| {
            resolve(task, "image", assignments).map(|resolved| resolved.rule_violation)
        };
        assert_eq!(resolve("image", &[]).unwrap(), None);
        let forbidden = resolve("image", &["model.shape=2d"]).unwrap();
        assert!(forbidden.is_some_and(|what| what.contains("rules forbid")));
        let error = resolve("text", &["model.shape=2d"]).err().unwrap();
        assert!(error.to_string().contains("model.shape = 2d"), "{error}");
    }

    #[test]
    fn weights_of_losses_that_a_model_does_not_have_are_refused() {
        let resolve = |model, assignments: &[&str]| {
            resolve("toy", model, assignments).map(|resolved| resolved.spec.train.aux)
        };
        let weights = |pairs: &[(&str, f64)]| {
            let pairs = pairs
                .iter()
                .map(|(name, weight)| ((*name).to_owned(), *weight));
            pairs.collect::<BTreeMap<String, f64>>()
        };
        let halting = "model.halting=act";
        assert_eq!(resolve("universal", &[]).unwrap(), weights(&[]));
        let usual = resolve("universal", &[halting]).unwrap();
        assert_eq!(usual, weights(&[("ponder", 0.01)]));
        let set = "train.aux.ponder=0.5";
        let found = resolve("universal", &[halting, set]).unwrap();
        assert_eq!(found, weights(&[("ponder", 0.5)]));
        let error = resolve("universal", &[set]).unwrap_err().to_string();
        assert!(error.contains("train.aux.ponder"), "{error}");
    }

    #[test]
    fn a_pretraining_takes_what_it_is_not_told_from_the_training_and_the_task() {
        let resolve = |task: &str, assignments: &[&str]| resolve(task, "performer", assignments);
        let kind = "pretrain.kind=masked";
        assert_eq!(
            digest("performer", &["pretrain.steps=7", "pretrain.kind=none"]),
            digest("performer", &[]),
            "where there is none, its settings are nothing"
        );
        assert_ne!(digest("performer", &[kind]), digest("performer", &[]));
        let found = resolve("listops", &[kind, "train.steps=9"]).unwrap();
        let (pretrain, train) = (&found.spec.pretrain, &found.spec.train);
        assert_eq!((pretrain.share, pretrain.steps), (0.1, 9));
        assert_eq!(pretrain.batch, train.batch);
        assert_eq!(pretrain.learning_rate, train.learning_rate);
        assert!(
            found
                .rule_violation
                .is_some_and(|what| what.contains("rules forbid"))
        );
        let found = resolve("image", &[kind, "pretrain.batch=3", "train.micro_batch=4"]).unwrap();
        let options = found.spec.pretrain.training(&found.spec.train);
        assert_eq!((options.batch, options.micro_batch), (3, 3));
        assert_eq!(found.spec.pretrain.share, 0.5);
        for (setting, reason) in [
            ("pretrain.kind=next", "no option that makes it causal"),
            ("pretrain.steps=7", "pretrain.kind=masked"),
            ("pretrain.kind=both", "pretrain.kind"),
            ("pretrain.share=1.0", "less than 1"),
            ("pretrain.steps=-1", "at least 0"),
        ] {
            let error = resolve("listops", &[setting]).err().unwrap().to_string();
            let (key, _) = setting.split_once('=').unwrap();
            assert!(error.contains(key) && error.contains(reason), "{error}");
        }
    }

    /// A weight of 0 creates no head and changes nothing.
    #[test]
    fn auxiliary_heads_are_there_where_their_weights_are() {
        let resolve = |assignments: &[&str]| resolve("toy", "linear", assignments);
        let elements = |assignments: &[&str]| {
            let resolved = resolve(assignments).unwrap();
            resolved.meta().unwrap().1.elements()
        };
        let [none, some] = ["train.aux.positions=0.0", "train.aux.positions=0.5"];
        assert_eq!(digest("linear", &[none]), digest("linear", &[]));
        assert_ne!(digest("linear", &[some]), digest("linear", &[]));
        assert_eq!(elements(&[none]), elements(&[]));
        assert!(elements(&[some]) > elements(&[]));
        let found = resolve(&[some]).unwrap().spec.train.aux;
        assert_eq!(found, BTreeMap::from([("positions".to_owned(), 0.5)]));
        for (setting, reason) in [
            ("train.aux.next=1", "train.aux.masked"),
            ("train.aux.layers=1", "block.layers = 1"),
            ("train.aux.layers=-1", "at least 0"),
        ] {
            let error = resolve(&[setting]).err().unwrap().to_string();
            let (key, _) = setting.split_once('=').unwrap();
            assert!(error.contains(key) && error.contains(reason), "{error}");
        }
    }

    /// Micro-batches under BatchNorm are judged by those of the recipe, in pretraining too.
    #[test]
    fn splits_of_batches_are_judged_by_those_of_the_recipe() {
        let decisive = |request: RunRequest<'_>| {
            let recipe = request.resolve().unwrap().recipe_of_record();
            let overrides = recipe.decisive_overrides().into_iter();
            let told = recipe.split_statistics();
            (overrides.map(str::to_owned).collect::<Vec<_>>(), told)
        };
        let request = |recipe, task, model| RunRequest {
            task,
            model,
            recipe,
            source: None,
            protocol: Protocol::Clean,
            seed: 0,
            assignments: &[],
        };
        // Batches of 64 in passes of 32.
        let own = request("long-conv", "retrieval", "long_conv");
        assert_eq!(decisive(own.clone()), (vec![], None));
        let whole = ["train.micro_batch=64".to_owned()];
        let (overrides, told) = decisive(RunRequest {
            assignments: &whole,
            ..own.clone()
        });
        assert_eq!(overrides, whole);
        assert!(told.unwrap().contains("over 64 examples instead of 32"));
        let same = ["train.micro_batch=32".to_owned()];
        assert_eq!(
            decisive(RunRequest {
                assignments: &same,
                ..own
            }),
            (vec![], None)
        );

        let set = [
            "pretrain.kind=masked",
            "pretrain.batch=16",
            "block.norm=batch",
            "train.batch=4",
            "train.micro_batch=4",
        ]
        .map(str::to_owned);
        let (overrides, told) = decisive(RunRequest {
            assignments: &set,
            ..request("smoke", "toy", "linear")
        });
        assert!(overrides.contains(&set[4]), "{overrides:?}");
        assert!(
            told.unwrap()
                .contains("over 4 examples instead of 16 in pretraining")
        );
    }

    /// A change of any of these digests renames all runs on file: see [`VERSION`].
    #[test]
    fn digests_stay_what_they_are() {
        let settings = ["train.steps=7", "block.layers=3", "data.train=64"];
        for (model, settings, digest) in [
            (
                "bag",
                &settings[..0],
                "cbbdefbecb19a6b0e0f8f48b62734ed4cc7c2f485b2ef1f6d2110c0e42a5555c",
            ),
            (
                "bag",
                &settings[..],
                "d8b31e76d87890cbaa55f2b3dfc5c95d157eb62abf7948a331b9b48d18d139e7",
            ),
            (
                "performer",
                &settings[..],
                "d3f766b94d1fa008076355bd29847105c237e10117f954dbf95872fbbaf529e8",
            ),
        ] {
            assert_eq!(
                self::digest(model, settings),
                digest,
                "{model} {settings:?}"
            );
        }
    }

    #[test]
    fn one_setting_has_one_digest_however_it_is_spelt() {
        for [one, other] in [
            ["model.epsilon=0", "model.epsilon=0.0"],
            ["train.clip=2", "train.clip=2.0"],
        ] {
            assert_eq!(digest("performer", &[one]), digest("performer", &[other]));
        }
        assert_ne!(
            digest("performer", &["model.epsilon=0"]),
            digest("performer", &[])
        );
    }

    #[test]
    fn saved_settings_that_name_a_setting_as_earlier_versions_did_are_read() {
        let spec = resolve("toy", "bag", &["train.learning_rate=0.5"]).unwrap();
        let text = spec.spec.to_toml().unwrap();
        let earlier = text.replace("learning_rate = 0.5", "rate = 0.5");
        assert_ne!(earlier, text);
        let read: Spec = toml::from_str(&earlier).unwrap();
        assert_eq!(read, spec.spec);
    }

    #[test]
    fn settings_beside_the_records_of_earlier_versions_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/records");
        let loaded = results::store::load(&folder).unwrap();
        assert!(loaded.skipped.is_empty(), "{:?}", loaded.skipped);
        assert!(!loaded.records.is_empty());
        for (record, folder) in loaded.records.iter().zip(&loaded.folders) {
            let text = std::fs::read_to_string(folder.join("spec.toml")).unwrap();
            let spec: Spec = toml::from_str(&text).unwrap();
            assert_eq!(spec.cell.model, record.model.name, "{}", record.id);
            assert_eq!(spec.cell.seed, record.seed, "{}", record.id);
            let again: Spec = toml::from_str(&spec.to_toml().unwrap()).unwrap();
            assert_eq!(again, spec);
        }
    }

    /// A new key takes its default in every earlier run, and must not change the names of these.
    #[test]
    fn a_setting_at_its_default_is_no_part_of_the_digest() {
        for (model, default, other) in [
            ("performer", "train.steps=1000", "train.steps=1001"),
            ("performer", "train.bucket=0", "train.bucket=1"),
            ("performer", "pretrain.kind=none", "pretrain.kind=masked"),
            (
                "performer",
                "embed.every_layer=false",
                "embed.every_layer=true",
            ),
            ("universal", "train.aux.ponder=0.01", "train.aux.ponder=0.5"),
        ] {
            let mut fixed = vec!["model.halting=act"];
            fixed.retain(|_| model == "universal");
            let spec = |setting: &str| {
                let assignments: Vec<&str> = fixed.iter().copied().chain([setting]).collect();
                resolve("toy", model, &assignments).unwrap().spec
            };
            let (at_default, changed) = (spec(default), spec(other));
            assert_ne!(at_default.digest(), changed.digest(), "{other}");
            let left = |spec: &Spec| {
                let mut settings = json!(spec);
                remove_defaults(&mut settings, &resolve::defaults_of(spec));
                settings
            };
            let (section, key) = default.split_once('=').unwrap().0.split_once('.').unwrap();
            let (section, key) = (format!("/{section}"), key.replace('.', "/"));
            let pointer = format!("{section}/{key}");
            assert_eq!(left(&at_default).pointer(&pointer), None, "{default}");
            assert!(left(&changed).pointer(&pointer).is_some(), "{other}");
        }
    }

    #[test]
    fn sizes_and_options_of_the_model_at_their_defaults_are_no_part_of_the_digest() {
        for model in models::registry() {
            let Ok(resolved) = resolve("toy", model.name, &[]) else {
                continue;
            };
            let mut spec = resolved.spec;
            spec.model = resolve::defaults_of(&spec)["model"].clone();
            let named = spec.digest();
            spec.model = json!({});
            assert_eq!(spec.digest(), named, "{}", model.name);
        }
    }
}
