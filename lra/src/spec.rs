//! A `Spec` holds every number that a run depends on: the task's options, overlaid by a recipe, overlaid by `--set`.
//! It is frozen before anything runs, digested, and saved beside the record.

#[cfg(test)]
mod fuzz;
mod groups;
mod pretrain;
mod resolve;
mod train;

use std::fmt::Write as _;

use datasets::{Protocol, Source};
use models::options::{BlockOptions, EmbedOptions, HeadOptions};
use results::record::FORMER_SETTINGS;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use self::groups::ParameterGroup;
pub use self::pretrain::{PretrainKind, PretrainOptions};
pub use self::resolve::{Resolved, RunRequest};
pub use self::train::{Decay, Precision, Select, TrainOptions};
use crate::error::{Class, Classify, Result};

/// Everything that decides the outcome of a run, timings apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Which cell of the table this is.
    pub cell: Cell,
    /// The task's data options.
    pub data: Value,
    /// Token embedding and positions.
    pub embed: EmbedOptions,
    /// The residual blocks.
    pub block: BlockOptions,
    /// Pooling and classifier.
    pub head: HeadOptions,
    /// The mixer's own options.
    pub model: Value,
    /// What is learned before; absent where nothing is.
    #[serde(default, skip_serializing_if = "PretrainOptions::is_off")]
    pub pretrain: PretrainOptions,
    /// Optimisation and evaluation.
    pub train: TrainOptions,
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
    /// Recipe the settings started from.
    pub recipe: String,
    /// Where the data comes from.
    pub source: Source,
    /// Which split rules apply.
    pub protocol: Protocol,
    /// Seed of initialisation, batch order and every random draw of the model.
    pub seed: u64,
}

/// Settings that were added after the first release: section, key, and what they were before there was a choice, as JSON.
const ADDED: &[(&str, &str, &str)] = &[
    ("embed", "zero_is_padding", "false"),
    ("embed", "every_layer", "false"),
    ("embed", "input", "\"ids\""),
    ("embed", "mean", "0.5"),
    ("embed", "std", "0.5"),
    ("embed", "token_std", "1.0"),
    ("embed", "position_std", "0.02"),
    ("block", "norm", "\"layer\""),
    ("block", "last_norm", "true"),
    ("block", "norm_momentum", "0.1"),
    ("block", "dropout_tied", "false"),
    ("block", "ffn", "\"dense\""),
    ("block", "gate", "\"none\""),
    ("block", "experts", "4"),
    ("block", "expert_period", "2"),
    ("block", "expert_capacity", "1.25"),
    ("block", "product_keys", "32"),
    ("block", "product_top", "8"),
    ("block", "share", "false"),
    ("block", "bias", "\"none\""),
    ("block", "bias_distance", "16"),
    ("block", "rotary", "false"),
    ("block", "memory", "0"),
    ("head", "layers", "\"last\""),
    ("model", "dilated_heads", "0"),
    ("model", "span", "false"),
    ("model", "global_extra", "0"),
];

/// Moves the value at the path `from` (`section.key`) to the path `to` in the same section.
fn rename(settings: &mut Value, from: &str, to: &str) {
    if let (Some((section, from)), Some((_, to))) = (from.split_once('.'), to.split_once('.'))
        && let Some(section) = settings[section].as_object_mut()
        && let Some(value) = section.remove(from)
    {
        section.insert(to.to_owned(), value);
    }
}

impl Spec {
    /// SHA-256 over the settings, in hexadecimal. Equal digests mean runs that must agree bit for bit on one machine.
    ///
    /// So that runs and records of earlier versions are still found, a setting that was added later is left out as long as
    /// it has the value that every earlier run had, and one that was renamed stands under its first name.
    pub fn digest(&self) -> String {
        let mut settings = json!(self);
        for (section, key, earlier) in ADDED {
            if let Some(section) = settings[section].as_object_mut()
                && section.get(*key).map(Value::to_string).as_deref() == Some(*earlier)
            {
                section.remove(*key);
            }
        }
        for (former, current) in FORMER_SETTINGS {
            rename(&mut settings, current, former);
        }
        let settings = datasets::canonical_json(&settings);
        Sha256::digest(settings.as_bytes())
            .iter()
            .fold(String::new(), |mut hex, byte| {
                // Writing to a String cannot fail.
                let _ = write!(hex, "{byte:02x}");
                hex
            })
    }

    /// The settings as TOML, as saved beside the record.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string_pretty(self).during(Class::Run, "writing the settings as TOML")
    }

    /// The key of the data this spec trains on.
    pub fn data_key(&self) -> datasets::Key {
        datasets::Key {
            source: self.cell.source,
            protocol: self.cell.protocol,
            options: self.data.clone(),
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

    /// Millions of weights as their authors' code counts them.
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
            ("mega", "mega_chunk", "pathx", 0.25),
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
            let weights = resolved.blank().unwrap().1.elements() as f64 / 1e6;
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

    /// Where a model is told rows and columns of an image, its record says so.
    #[test]
    fn what_the_rules_forbid_is_known_before_the_run() {
        let resolve = |task: &str, assignments: &[&str]| {
            resolve(task, "image", assignments).map(|resolved| resolved.against_rules)
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
                .against_rules
                .is_some_and(|what| what.contains("rules forbid"))
        );
        let found = resolve("image", &[kind, "pretrain.batch=3", "train.micro_batch=4"]).unwrap();
        let options = found.spec.pretrain.training(&found.spec.train);
        assert_eq!((options.batch, options.micro_batch), (3, 3));
        assert_eq!(found.spec.pretrain.share, 0.5);
        for (setting, reason) in [
            ("pretrain.kind=next", "model.attention = causal"),
            ("pretrain.kind=both", "pretrain.kind"),
            ("pretrain.share=1.0", "less than 1"),
            ("pretrain.steps=-1", "at least 0"),
        ] {
            let error = resolve("listops", &[setting]).err().unwrap().to_string();
            let (key, _) = setting.split_once('=').unwrap();
            assert!(error.contains(key) && error.contains(reason), "{error}");
        }
    }

    /// A weight of 0 makes no head, and changes nothing.
    #[test]
    fn auxiliary_heads_are_there_where_their_weights_are() {
        let resolve = |assignments: &[&str]| resolve("toy", "linear", assignments);
        let elements = |assignments: &[&str]| {
            let resolved = resolve(assignments).unwrap();
            resolved.blank().unwrap().1.elements()
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
    fn a_renamed_setting_leaves_the_digest_as_it_was() {
        let with = |setting: &str| digest("bag", &["train.steps=1", setting]);
        let former = with("train.rate=0.5");
        assert_eq!(former, with("train.learning_rate=0.5"));
        assert!(former.starts_with("7f02c4631f58f971"));
        assert_ne!(former, with("train.learning_rate=0.25"));
    }

    #[test]
    fn settings_that_earlier_versions_saved_are_read_and_keep_their_digests() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/records");
        let loaded = results::store::load(&folder).unwrap();
        let mut renamed = 0;
        for (record, folder) in loaded.records.iter().zip(&loaded.folders) {
            let text = std::fs::read_to_string(folder.join("spec.toml")).unwrap();
            let spec: Spec = toml::from_str(&text).unwrap();
            assert_eq!(
                spec.digest(),
                record.provenance.spec_digest,
                "{}",
                record.id
            );
            let again: Spec = toml::from_str(&spec.to_toml().unwrap()).unwrap();
            assert_eq!(again, spec);
            renamed += usize::from(text.contains("\nrate = "));
        }
        assert!(renamed > 0, "none was saved before a setting was renamed");
    }

    /// Runs on file are found by it: a new setting must leave it as it is while it holds what earlier runs had.
    #[test]
    fn the_digest_of_settings_is_the_same_from_version_to_version() {
        assert!(digest("bag", &[]).starts_with("23a4608a449d368d"));
    }
}
