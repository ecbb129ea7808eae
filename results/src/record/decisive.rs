//! Classification of settings changed by a command line: those that can affect a score, and the
//! others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Recipe;
use crate::format::counted;

/// Settings of the times of writing and timing. They change no weight.
const WRITING: &[&str] = &[
    "train.checkpoint_every",
    "train.log_every",
    "train.speed_warmup",
];
/// Settings that select another computation of the same function, with sums in another order, and
/// all such values.
const COMPUTING: &[(&str, &[&str])] = &[
    ("model.attention", &["fused", "materialised"]),
    ("model.compute", &["auto", "scan", "fft"]),
];
/// Setting to accept incomplete files; if it makes a difference, the record is marked as partial.
const MARKED_ELSEWHERE: &[&str] = &["data.allow_partial"];
/// Setting of the number of examples per forward pass.
const MICRO_BATCH: &str = "train.micro_batch";

/// Split of the batches into forward passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Batching {
    /// Examples per update.
    pub batch: u64,
    /// Examples per forward pass; the gradients of a batch are accumulated.
    pub forward: u64,
    /// True if the model has BatchNorm, whose training statistics are those of one forward pass.
    pub batch_norm: bool,
    /// The same numbers of a pretraining; absent without one, and in older records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretraining: Option<Split>,
}

/// Split of a batch into forward passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Split {
    /// Examples per update.
    pub batch: u64,
    /// Examples per forward pass.
    pub forward: u64,
}

impl Recipe {
    /// Returns the note that BatchNorm sees another part of the batch than by the recipe; `None` if
    /// results are those of the recipe's own split.
    pub fn split_statistics(&self) -> Option<String> {
        let batching = self.batching.filter(|it| it.batch_norm)?;
        let training = Split {
            batch: batching.batch,
            forward: batching.forward,
        };
        let other = |split: &Split| self.own_forward(split) != split.forward;
        let words = |split: Split| {
            let forward = counted(split.forward, "example");
            format!("over {forward} instead of {}", self.own_forward(&split))
        };
        let training = Some(training).filter(other).map(words);
        let pretraining = batching.pretraining.filter(other).map(words);
        let words = match (training, pretraining) {
            (None, None) => return None,
            (Some(training), None) => training,
            (None, Some(before)) => format!("{before} in pretraining"),
            (Some(training), Some(before)) => format!("{training}, and {before} in pretraining"),
        };
        Some(format!("BatchNorm's statistics are {words}"))
    }

    /// Returns the number of examples per forward pass by the recipe itself, which is the whole
    /// batch in older records.
    fn own_forward(&self, split: &Split) -> u64 {
        let is_set = |assignment: &String| key_of(assignment) == MICRO_BATCH;
        if !self.overrides.iter().any(is_set) {
            return split.forward;
        }
        let own = self.own(MICRO_BATCH);
        match own.and_then(|own| own.parse().ok()) {
            None | Some(0) => split.batch,
            Some(own) => split.batch.min(own),
        }
    }

    /// Returns the recipe's own value of a setting that is changed, if the record has it.
    fn own(&self, key: &str) -> Option<&str> {
        let replaced = self.replaced.iter().filter_map(|it| it.split_once('='));
        let mut own = replaced.filter(|(known, _)| *known == key);
        own.next().map(|(_, value)| value)
    }

    /// Returns whether a change of this setting is judged by the recipe's own value, which
    /// `replaced` then has.
    pub fn is_judged_by_its_own(key: &str) -> bool {
        key == MICRO_BATCH || COMPUTING.iter().any(|(known, _)| *known == key)
    }

    /// Returns the overrides that can affect a score. Left out are those that repeat the recipe,
    /// and those that change only the times of writing or the split of a computation. Micro-batches
    /// count where they split BatchNorm's statistics otherwise than the recipe does, and in older
    /// records, which do not state whether the model has it.
    pub fn decisive_overrides(&self) -> Vec<&str> {
        let own = self.overrides.iter().map(String::as_str);
        own.filter(|assignment| self.decides(assignment)).collect()
    }

    /// Returns the overrides that change a value of the recipe, in alphabetical order.
    pub fn changing_overrides(&self) -> Vec<&str> {
        let own = self.overrides.iter().map(String::as_str);
        let mut own: Vec<&str> = own.filter(|assignment| !self.repeats(assignment)).collect();
        own.sort_unstable();
        own
    }

    /// Returns the other overrides; speed and memory may depend on them. Left out is what the
    /// record says elsewhere.
    pub fn indifferent_overrides(&self) -> Vec<&str> {
        let own = self.overrides.iter().map(String::as_str);
        let own = own.filter(|assignment| !self.decides(assignment));
        let own = own.filter(|assignment| !MARKED_ELSEWHERE.contains(&key_of(assignment)));
        own.filter(|assignment| !self.repeats(assignment)).collect()
    }

    /// Returns whether an assignment repeats a value of the recipe.
    fn repeats(&self, assignment: &str) -> bool {
        self.repeated.iter().any(|one| one == assignment)
    }

    fn decides(&self, assignment: &str) -> bool {
        let (_, value) = assignment.split_once('=').unwrap_or((assignment, ""));
        let (key, value) = (key_of(assignment), value.trim().trim_matches(['"', '\'']));
        // Unless the recipe's own value is of another function.
        let computing = |(known, values): &(&str, &[&str])| {
            let own = self.own(known);
            *known == key && values.contains(&value) && own.is_none_or(|own| values.contains(&own))
        };
        let whole = || self.batching.is_some() && self.split_statistics().is_none();
        !(self.repeats(assignment)
            || WRITING.contains(&key)
            || MARKED_ELSEWHERE.contains(&key)
            || COMPUTING.iter().any(computing)
            || key == MICRO_BATCH && whole())
    }
}

/// Returns the key of an assignment.
fn key_of(assignment: &str) -> &str {
    let key = assignment
        .split_once('=')
        .map_or(assignment, |(key, _)| key);
    key.trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decisive(overrides: &[&str], batching: Option<Batching>) -> Vec<String> {
        let overrides: Vec<String> = overrides.iter().map(|it| (*it).to_owned()).collect();
        let recipe = Recipe {
            repeated: vec!["train.batch=32".to_owned()],
            overrides,
            batching,
            ..Recipe::default()
        };
        let decisive = recipe.decisive_overrides().into_iter();
        decisive.map(str::to_owned).collect()
    }

    #[test]
    fn what_changes_no_score_is_not_decisive() {
        let set = [
            "train.log_every=2",
            "train.checkpoint_every=7",
            "train.speed_warmup=1",
            "data.allow_partial=true",
            "model.attention=\"materialised\"",
            "model.compute=fft",
            "train.batch=32",
            "train.micro_batch=2",
            "train.batch=16",
            "model.attention=causal",
            "train.eval_every=5",
        ];
        let with = |batch_norm| Batching {
            batch: 8,
            forward: 2,
            batch_norm,
            pretraining: None,
        };
        let changes = [
            "train.batch=16",
            "model.attention=causal",
            "train.eval_every=5",
        ];
        assert_eq!(decisive(&set, Some(with(false))), changes);
        let split = decisive(&set, Some(with(true)));
        assert_eq!((split.len(), split[0].as_str()), (4, "train.micro_batch=2"));
        assert_eq!(decisive(&set, None), split, "an older record does not say");
    }

    #[test]
    fn only_what_changes_the_recipe_is_a_change() {
        let recipe = Recipe {
            overrides: [
                "train.steps=9",
                "train.batch=32",
                "train.log_every=2",
                "data.allow_partial=true",
            ]
            .map(str::to_owned)
            .to_vec(),
            repeated: vec!["train.batch=32".to_owned()],
            ..Recipe::default()
        };
        assert_eq!(
            recipe.changing_overrides(),
            [
                "data.allow_partial=true",
                "train.log_every=2",
                "train.steps=9"
            ]
        );
        assert_eq!(recipe.indifferent_overrides(), ["train.log_every=2"]);
    }

    #[test]
    fn statistics_over_a_part_of_the_batch_are_told() {
        let of = |forward, batch_norm| {
            let recipe = Recipe {
                overrides: vec!["train.micro_batch=2".to_owned()],
                batching: Some(Batching {
                    batch: 8,
                    forward,
                    batch_norm,
                    pretraining: None,
                }),
                ..Recipe::default()
            };
            recipe.split_statistics()
        };
        let told = of(2, true);
        assert!(told.is_some_and(|told| told.contains("over 2 examples instead of 8")));
        assert_eq!(of(8, true), None);
        assert_eq!(of(2, false), None);
    }

    #[test]
    fn statistics_are_compared_with_those_of_the_recipe_itself() {
        // A recipe with batches of 64 in passes of 32.
        let of = |set: &str, forward| Recipe {
            overrides: vec![set.to_owned()],
            replaced: vec!["train.micro_batch=32".to_owned()],
            batching: Some(Batching {
                batch: 64,
                forward,
                batch_norm: true,
                pretraining: None,
            }),
            ..Recipe::default()
        };
        for forward in [16, 64] {
            let recipe = of("train.micro_batch=1", forward);
            assert_eq!(recipe.decisive_overrides(), ["train.micro_batch=1"]);
            let told = recipe.split_statistics().unwrap();
            assert!(
                told.contains(&format!("over {forward} examples instead of 32")),
                "{told}"
            );
        }
        // A recipe with passes of more examples than a batch has, or of 0, takes whole batches.
        for own_passes in ["128", "0"] {
            let mut whole = of("train.micro_batch=16", 16);
            whole.replaced = vec![format!("train.micro_batch={own_passes}")];
            let told = whole.split_statistics().unwrap();
            assert!(told.contains("over 16 examples instead of 64"), "{told}");
        }
        let own = of("train.micro_batch=32", 32);
        assert!(own.decisive_overrides().is_empty() && own.split_statistics().is_none());
        let plain = Recipe {
            replaced: vec![],
            ..of("train.log_every=1", 32)
        };
        assert_eq!(plain.split_statistics(), None, "the recipe itself");
        // In pretraining alone.
        let mut before = of("train.micro_batch=4", 4);
        before.replaced.clear();
        before.batching = Some(Batching {
            batch: 4,
            forward: 4,
            batch_norm: true,
            pretraining: Some(Split {
                batch: 16,
                forward: 4,
            }),
        });
        assert_eq!(before.decisive_overrides(), ["train.micro_batch=4"]);
        let told = before.split_statistics().unwrap();
        assert!(
            told.ends_with("over 4 examples instead of 16 in pretraining"),
            "{told}"
        );
    }

    #[test]
    fn another_computation_of_another_function_is_decisive() {
        let of = |own: Option<&str>| {
            let recipe = Recipe {
                overrides: vec!["model.attention=fused".to_owned()],
                replaced: own
                    .map(|own| format!("model.attention={own}"))
                    .into_iter()
                    .collect(),
                ..Recipe::default()
            };
            recipe.decisive_overrides().len()
        };
        assert_eq!(
            [of(None), of(Some("materialised")), of(Some("causal"))],
            [0, 0, 1]
        );
    }
}
