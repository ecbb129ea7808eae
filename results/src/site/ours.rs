//! Groups of runs that differ only in the seed, with verdicts, marks and costs.

use std::collections::BTreeSet;

use super::day;
use crate::Record;
use crate::equivalence::{Equivalence, Score, margin};
use crate::pivot::{Pivot, TRAINING};
use crate::published::{self, Comparison, Source, compare_seeds, is_published_label};
use crate::record::{Outcome, Scores};
use crate::stats::Sample;
use crate::tables::endings;
use crate::verdict::Verdict;

/// The dimension in which the runs of a search differ.
const SET: &str = "set";

/// Runs of one model on one data set, one per seed.
pub(super) struct Group<'a> {
    /// The model.
    pub(super) model: &'a str,
    /// Name of the task in the records.
    pub(super) task: &'a str,
    /// The data set, with its marks.
    pub(super) data: String,
    /// Everything else that its scores depend on, by name; defaults are left out.
    pub(super) setting: Vec<(&'static str, String)>,
    /// The runs.
    pub(super) runs: Vec<&'a Record>,
}

/// Returns the groups of some records, in the order of the tables.
pub(super) fn groups(records: &[Record]) -> Vec<Group<'_>> {
    let pivot = Pivot::new(records, &[TRAINING]);
    let mut groups = Vec::new();
    for row in &pivot.rows {
        for (runs, data) in row.cells.iter().zip(&pivot.columns) {
            let Some(first) = runs.first() else {
                continue;
            };
            let setting = row.setting.iter().filter(|(_, value)| !value.is_empty());
            groups.push(Group {
                model: row.model,
                task: &first.task.name,
                data: data.clone(),
                setting: setting.cloned().collect(),
                runs: runs.clone(),
            });
        }
    }
    groups
}

impl<'a> Group<'a> {
    /// Returns the run that stands for all.
    fn first(&self) -> Option<&'a Record> {
        self.runs.first().copied()
    }

    /// Returns the setting in words.
    pub(super) fn setting_words(&self) -> String {
        let words = self.setting.iter();
        let words: Vec<String> = words
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        words.join(", ")
    }

    /// Returns the mean over the scored seeds: the accuracy, on a probe that on labelled positions.
    pub(super) fn score(&self) -> Option<Score> {
        match self.is_of_a_probe() {
            true => Score::of_labels(&self.runs),
            false => Score::of(&self.runs),
        }
    }

    fn is_of_a_probe(&self) -> bool {
        self.first().is_some_and(|run| run.task.probe)
    }

    /// Returns the mean over the scored seeds of the validation accuracy by which weights were
    /// chosen, in percent.
    pub(super) fn validation(&self) -> Option<f64> {
        self.mean(|run| {
            let scored = run.outcome == Outcome::Scored;
            let scores = run.scores.as_ref().filter(|_| scored)?;
            Some(100.0 * scores.deciding_accuracy()?)
        })
    }

    /// Returns the number of seeds behind the score.
    pub(super) fn seeds(&self) -> usize {
        self.score().map_or(0, |score| score.seeds)
    }

    /// Returns the endings of the seeds that were not scored, in words; empty if all were.
    pub(super) fn endings(&self) -> String {
        endings(&self.runs, true).join(", ")
    }

    /// Returns the accuracy in words, with the endings of other seeds.
    pub(super) fn score_words(&self) -> String {
        let score = self.score();
        let mut words: Vec<String> = score
            .iter()
            .map(|score| match score.deviation {
                Some(deviation) => format!("{:.2} ±{deviation:.2}", score.mean),
                None => format!("{:.2}", score.mean),
            })
            .collect();
        words.extend(endings(&self.runs, score.is_some()));
        words.join(", ")
    }

    /// Returns how many scored seeds ended well below the loss of the class shares, and of how many
    /// that is known.
    pub(super) fn trained(&self) -> (usize, usize) {
        let scored = self
            .runs
            .iter()
            .filter(|run| run.outcome == Outcome::Scored);
        let scores = scored.filter_map(|run| run.scores.as_ref());
        let trained: Vec<bool> = scores.filter_map(Scores::trained).collect();
        let count = trained.iter().filter(|trained| **trained).count();
        (count, trained.len())
    }

    /// Returns [`Group::trained`] in words; empty if nothing is known.
    pub(super) fn trained_words(&self) -> String {
        match self.trained() {
            (_, 0) => String::new(),
            (count, of) => format!("{count} of {of}"),
        }
    }

    /// Returns the hours of a run from its start to its record, as a mean over the seeds.
    pub(super) fn hours(&self) -> Option<f64> {
        self.mean(|run| Some(run.speed.as_ref()?.wall_seconds / 3600.0))
    }

    /// Returns the floating point operations of the training steps in units of 10¹⁵, as a mean over
    /// the seeds.
    pub(super) fn petaflop(&self) -> Option<f64> {
        self.mean(|run| {
            let steps = run.scores.as_ref()?.steps as f64;
            Some(run.speed.as_ref()?.flops_per_step as f64 * steps / 1e15)
        })
    }

    fn mean(&self, of: impl Fn(&Record) -> Option<f64>) -> Option<f64> {
        let values = self.runs.iter().filter_map(|run| of(run));
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        Sample::of(&values).map(|sample| sample.mean)
    }

    /// Returns the day of the latest run.
    pub(super) fn day(&self) -> &'a str {
        let days = self.runs.iter().map(|run| day(run));
        days.max().unwrap_or_default()
    }

    /// Returns the command of the first run.
    pub(super) fn command(&self) -> &'a str {
        self.first().map_or("", |run| &run.provenance.command)
    }

    /// Returns whether its scores are scores on the task as published.
    pub(super) fn is_of_the_task(&self) -> bool {
        let Some(run) = self.first() else {
            return false;
        };
        let task = published::task_name(&run.task.name);
        let is_whole = run.task.genuine() && !run.task.partial;
        is_whole && run.changed_on_the_way().is_none() && is_published_label(&run.task.label, &task)
    }

    /// Returns whether some source that its recipe follows can be compared with it.
    pub(super) fn is_comparable(&self) -> bool {
        let is_beside = |source: &Source| {
            let compared = compare_seeds(&self.runs, source);
            matches!(compared, Comparison::Beside { .. })
        };
        self.followed().any(is_beside)
    }

    /// Returns the sources that its recipe follows.
    fn followed(&self) -> impl Iterator<Item = &'static Source> {
        let recipe = self.first().map_or("", |run| run.recipe.name.as_str());
        let sources = published::sources().iter();
        sources.filter(move |source| source.recipes.contains(&recipe))
    }

    /// Returns whether the runs of both differ in nothing but `--set`.
    pub(super) fn is_tuned_with(&self, other: &Group) -> bool {
        let rest = |group: &Group| {
            let rest = group.setting.iter().filter(|(name, _)| *name != SET);
            rest.cloned().collect::<Vec<_>>()
        };
        (self.model, &self.data) == (other.model, &other.data) && rest(self) == rest(other)
    }

    /// Returns the comparison with every source that the recipe follows and that prints a figure,
    /// as the source's short name and the verdict in words.
    pub(super) fn verdicts(&self) -> Vec<(&'static str, String)> {
        let verdict = |source: &'static Source| match compare_seeds(&self.runs, source) {
            Comparison::Absent => None,
            Comparison::Apart { reasons, .. } => {
                let reasons = reasons.join(", ");
                Some((source.alias, format!("not comparable ({reasons})")))
            }
            Comparison::Beside { figure, .. } => {
                let words = match (self.score(), figure.value) {
                    (Some(ours), Some(theirs)) => {
                        let found = Equivalence::of(&ours, theirs, margin(source, figure));
                        format!("{} ({:+.2})", found.words(), ours.mean - theirs)
                    }
                    (None, _) => "no score of ours".to_owned(),
                    (_, None) => "no number published".to_owned(),
                };
                Some((source.alias, words))
            }
        };
        self.followed().filter_map(verdict).collect()
    }

    /// Returns what a reader must know of the runs: breaches of rules, departures, changes on the
    /// way, altered data.
    pub(super) fn marks(&self) -> Vec<String> {
        let mut marks = BTreeSet::new();
        for run in &self.runs {
            marks.extend(run.model.rule_violation.clone());
            marks.extend(
                run.task
                    .altered
                    .iter()
                    .map(|it| format!("altered data: {it}")),
            );
            let changes = run.changed_on_the_way();
            marks.extend(changes.map(|it| format!("resumed after changes: {it}")));
            let departures = run.recipe.departures.iter();
            let day = day(run);
            marks.extend(departures.map(|it| format!("departs (as of {day}): {it}")));
        }
        if self.is_of_a_probe() {
            marks.insert("share of labelled positions, not of whole sequences".to_owned());
        }
        let fails = self
            .score()
            .filter(|_| !self.is_of_a_probe())
            .and_then(|score| Verdict::of_seeds(score.mean / 100.0, &self.runs));
        if fails.is_some_and(|verdict| verdict.fail) {
            marks.insert("FAIL: no better than the majority class".to_owned());
        }
        marks.into_iter().collect()
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Returns a run with this accuracy, altered.
    pub(crate) fn run(seed: u64, accuracy: f64, alter: impl FnOnce(&mut Record)) -> Record {
        let text = format!(
            r#"{{
                "schema": 1, "id": "run-{seed}", "outcome": {{ "status": "scored" }}, "seed": {seed},
                "task": {{ "name": "listops", "label": "listops", "source": "generated" }},
                "model": {{ "name": "linear" }}, "recipe": {{ "name": "s4", "published": true }},
                "scores": {{
                    "test_accuracy": {accuracy}, "val_accuracy": {accuracy}, "steps": 1000, "examples_seen": 500
                }},
                "speed": {{ "wall_seconds": 7200.0, "flops_per_step": 3000000000000 }},
                "created": "2026-11-2{seed}T10:00:00Z"
            }}"#
        );
        let mut record: Record = serde_json::from_str(&text).unwrap();
        alter(&mut record);
        record
    }

    /// Returns the group of some runs with a change of the command line; empty for none.
    pub(crate) fn group<'a>(runs: &'a [Record], set: &str) -> Group<'a> {
        let set = (!set.is_empty()).then(|| (SET, set.to_owned()));
        Group {
            model: &runs[0].model.name,
            task: &runs[0].task.name,
            data: runs[0].task.title(),
            setting: [("recipe", runs[0].recipe.name.clone())]
                .into_iter()
                .chain(set)
                .collect(),
            runs: runs.iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{group, run};
    use super::*;

    #[test]
    fn costs_are_means_over_seeds_in_their_units() {
        let runs = [
            run(1, 0.4, |_| ()),
            run(3, 0.5, |it| {
                it.speed.as_mut().unwrap().wall_seconds = 3600.0
            }),
            run(2, 0.6, |it| it.speed = None),
        ];
        let group = group(&runs, "");
        assert_eq!(group.hours(), Some(1.5));
        assert_eq!(group.petaflop(), Some(3.0));
        assert_eq!(group.day(), "2026-11-23");
        assert!((group.score().unwrap().mean - 50.0).abs() < 1e-9);
        assert!((group.validation().unwrap() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn only_scored_seeds_have_trained() {
        let with = |seed: u64, loss: f64, outcome: Outcome| {
            run(seed, 0.5, |it| {
                it.outcome = outcome;
                let scores = it.scores.as_mut().unwrap();
                (scores.prior_loss, scores.test_loss) = (Some(2.0), Some(loss));
            })
        };
        let runs = [
            with(1, 1.0, Outcome::Scored),
            with(2, 1.99, Outcome::Scored),
            with(3, 1.0, Outcome::Interrupted { step: 3 }),
            run(4, 0.5, |_| ()),
        ];
        assert_eq!(group(&runs, "").trained(), (1, 2));
        assert_eq!(group(&runs, "").trained_words(), "1 of 2");
        assert_eq!(group(&runs[3..], "").trained_words(), "");
    }

    #[test]
    fn only_whole_and_unchanged_data_are_the_task() {
        let of = |alter: fn(&mut Record)| group(&[run(1, 0.5, alter)], "").is_of_the_task();
        assert!(of(|_| ()));
        for alter in [
            |it: &mut Record| it.task.partial = true,
            |it: &mut Record| it.task.source = "synthetic".to_owned(),
            |it: &mut Record| it.task.altered = vec!["a row is another".to_owned()],
            |it: &mut Record| it.task.label = "listops@64".to_owned(),
            |it: &mut Record| it.provenance.accepted_changes = vec!["other data".to_owned()],
        ] {
            assert!(!of(alter));
        }
    }

    #[test]
    fn a_probe_fails_no_majority() {
        let marks = |probe: bool| {
            let runs = [run(1, 0.1, |it| {
                it.task.probe = probe;
                it.task.classes = 2;
                let dense = serde_json::from_str(r#"{ "accuracy": 0.3 }"#);
                it.scores.as_mut().unwrap().test_dense = Some(dense.unwrap());
            })];
            let group = group(&runs, "");
            (group.marks().join("; "), group.score().unwrap().mean)
        };
        let fail = "FAIL: no better than the majority class".to_owned();
        assert_eq!(marks(false), (fail, 10.0));
        let labels = "share of labelled positions, not of whole sequences".to_owned();
        assert_eq!(marks(true), (labels, 30.0));
    }
}
