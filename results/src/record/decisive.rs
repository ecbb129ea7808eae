//! Classification of settings changed by a command line: those that can affect a score, and the
//! others.

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Batching {
    /// Examples per update.
    pub batch: u64,
    /// Examples per forward pass; the gradients of a batch are accumulated.
    pub forward: u64,
    /// True if the model has BatchNorm, whose training statistics are those of one forward pass.
    pub batch_norm: bool,
}

impl Batching {
    /// Returns the note that BatchNorm sees only a part of the batch; `None` if results are those
    /// of the whole batch.
    pub fn split_statistics(&self) -> Option<String> {
        let Batching { batch, forward, .. } = self;
        (self.batch_norm && forward < batch).then(|| {
            let forward = counted(*forward, "example");
            format!("BatchNorm's statistics are over {forward} instead of {batch}")
        })
    }
}

impl Recipe {
    /// Returns the overrides that can affect a score. Left out are those that repeat the recipe,
    /// and those that change only the times of writing or the split of a computation. Micro-batches
    /// count with BatchNorm, and in older records, which do not state whether the model has it.
    pub fn decisive_overrides(&self) -> Vec<&str> {
        let own = self.overrides.iter().map(String::as_str);
        own.filter(|assignment| self.decides(assignment)).collect()
    }

    /// Returns the other overrides; speed and memory may depend on them.
    pub fn indifferent_overrides(&self) -> Vec<&str> {
        let own = self.overrides.iter().map(String::as_str);
        let own = own.filter(|assignment| !self.decides(assignment));
        own.filter(|assignment| !self.repeats(assignment)).collect()
    }

    /// Returns whether an assignment repeats a value of the recipe.
    fn repeats(&self, assignment: &str) -> bool {
        self.repeated.iter().any(|one| one == assignment)
    }

    fn decides(&self, assignment: &str) -> bool {
        let (key, value) = assignment.split_once('=').unwrap_or((assignment, ""));
        let (key, value) = (key.trim(), value.trim().trim_matches(['"', '\'']));
        let computing =
            |(known, values): &(&str, &[&str])| *known == key && values.contains(&value);
        let whole = |batching: &Batching| batching.split_statistics().is_none();
        !(self.repeats(assignment)
            || WRITING.contains(&key)
            || MARKED_ELSEWHERE.contains(&key)
            || COMPUTING.iter().any(computing)
            || key == MICRO_BATCH && self.batching.as_ref().is_some_and(whole))
    }
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
    fn statistics_over_a_part_of_the_batch_are_told() {
        let of = |forward, batch_norm| Batching {
            batch: 8,
            forward,
            batch_norm,
        };
        let told = of(2, true).split_statistics();
        assert!(told.is_some_and(|told| told.contains("over 2 examples instead of 8")));
        assert_eq!(of(8, true).split_statistics(), None);
        assert_eq!(of(2, false).split_statistics(), None);
    }
}
