//! Pretraining at equal cost: a pretrained model beside one that was trained alone on as many
//! examples.

use super::ours::Group;
use crate::Record;

/// Fraction by which two numbers of examples may differ and still count as equal.
const EQUAL: f64 = 0.05;

/// The score of a pretrained model, and the score without pretraining at equal cost. Of several
/// settings, those with the highest validation accuracy count.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pretrained {
    /// Mean accuracy in percent over the seeds.
    pub(super) mean: f64,
    /// Examples seen in pretraining and training together.
    pub(super) examples: u64,
    /// Mean accuracy in percent of runs without pretraining that saw as many examples, which differ
    /// in settings alone.
    pub(super) alone: Option<f64>,
}

impl Pretrained {
    /// Returns the pretrained runs among groups of one model and task. Pairs with an equal come
    /// first, then the highest validation accuracy: a choice by test scores would flatter them.
    pub(super) fn among<'a>(groups: impl Iterator<Item = &'a Group<'a>>) -> Option<Pretrained> {
        let groups: Vec<&Group> = groups.collect();
        let scored = |is_pretrained: bool| {
            let of_kind = groups.iter().filter(move |group| {
                group
                    .runs
                    .iter()
                    .all(|run| run.pretraining.is_some() == is_pretrained)
            });
            of_kind.filter_map(|group| Some((*group, group.score()?.mean, examples(group)?)))
        };
        let validated = |group: &Group| group.validation().unwrap_or(f64::NEG_INFINITY);
        let found = scored(true).map(|(group, mean, examples)| {
            let equal = |other: u64| other.abs_diff(examples) as f64 <= EQUAL * examples as f64;
            let alone = scored(false)
                .filter(|(other, _, seen)| equal(*seen) && group.is_tuned_with(other))
                .max_by(|(a, ..), (b, ..)| validated(a).total_cmp(&validated(b)));
            let pretrained = Pretrained {
                mean,
                examples,
                alone: alone.map(|(_, mean, _)| mean),
            };
            (validated(group), pretrained)
        });
        let chosen = found.max_by(|(validated, a), (other, b)| {
            let with_equal = a.alone.is_some().cmp(&b.alone.is_some());
            with_equal.then(validated.total_cmp(other))
        });
        chosen.map(|(_, pretrained)| pretrained)
    }

    /// Returns both in words.
    pub(super) fn words(&self) -> String {
        match self.alone {
            Some(alone) => format!("{:.2}, alone {alone:.2}", self.mean),
            None => format!("{:.2}", self.mean),
        }
    }
}

/// Returns the examples that a seed saw, pretraining included; `None` if the seeds differ.
fn examples(group: &Group) -> Option<u64> {
    let seen = |run: &Record| {
        let before = run.pretraining.as_ref().map_or(0, |it| it.examples_seen);
        Some(before + run.scores.as_ref()?.examples_seen)
    };
    let mut all = group.runs.iter().filter_map(|run| seen(run));
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::super::ours::testing::{group, run};
    use super::*;
    use crate::record::Pretraining;

    /// Returns a run that saw so many examples, before training and in it.
    fn seen(accuracy: f64, before: Option<u64>, examples: u64) -> [Record; 1] {
        [run(1, accuracy, |it| {
            it.pretraining = before.map(|examples_seen| Pretraining {
                examples_seen,
                ..Pretraining::default()
            });
            it.scores.as_mut().unwrap().examples_seen = examples;
        })]
    }

    #[test]
    fn a_pretrained_model_stands_beside_the_best_of_equal_cost() {
        let with = seen(0.5, Some(1_000), 500);
        let [best, worse] = [seen(0.45, None, 1_500), seen(0.4, None, 1_575)];
        let [short, long] = [seen(0.9, None, 1_420), seen(0.8, None, 1_580)];
        // A high test score does not choose a setting.
        let mut lucky = seen(0.49, None, 1_500);
        lucky[0].scores.as_mut().unwrap().val_accuracy = Some(0.3);
        let mut other_recipe = seen(0.7, None, 1_500);
        other_recipe[0].recipe.name = "tay2021".to_owned();
        let dearer = seen(0.6, Some(9_000), 500);
        let all = [
            group(&with, "pretrain.kind=masked"),
            group(&best, "train.steps=3"),
            group(&worse, "train.steps=4"),
            group(&short, "train.steps=2"),
            group(&long, "train.steps=5"),
            group(&other_recipe, ""),
            group(&dearer, "pretrain.kind=next"),
            group(&lucky, "train.steps=6"),
        ];
        // Pairs with an equal come first, then the highest validation accuracy.
        let found = Pretrained::among(all.iter()).unwrap();
        assert_eq!((found.mean, found.examples), (50.0, 1_500));
        assert_eq!(found.alone, Some(45.0));
        assert_eq!(found.words(), "50.00, alone 45.00");
        let alone = Pretrained::among([&all[0], &all[6]].into_iter()).unwrap();
        assert_eq!((alone.mean, alone.alone), (60.0, None));
        assert_eq!(Pretrained::among(all[1..6].iter()), None);
    }
}
