//! Score cards of the small protocol: the scores of a model on each task, and its rank in the
//! table.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::Format;
use crate::agreement::{Measure, Standing, changes, mixed_cells};
use crate::format::counted;
use crate::record::{Baseline, Outcome, Record, Scores};
use crate::stats::{Sample, binomial_error};
use crate::table::{Cell, Column, Row, Table};
use crate::tables::endings;
use crate::tone::Tone;
use crate::verdict::Verdict;

pub use crate::agreement::RECIPE;

/// Returns the runs of a table that the runs `own` of a model are ranked among: those by the recipe
/// with the same changes as its runs on the same data. Learning rates, and settings that affect no
/// score, are no changes. So short runs in search of a rate, runs in another block, and runs that
/// were resumed after changes are left out.
///
/// If some of these runs have the number format and the device of `own`, only they count; if none
/// has, those with the format and device of the most runs.
#[must_use]
pub fn rivals<'a>(table: &'a [Record], own: &[&Record]) -> Vec<&'a Record> {
    let is_rival = |it: &&Record| {
        let alike =
            |mine: &&Record| mine.task.title() == it.task.title() && changes(mine) == changes(it);
        it.recipe.name == RECIPE && it.changed_on_the_way().is_none() && own.iter().any(alike)
    };
    let rivals: Vec<&Record> = table.iter().filter(is_rival).collect();
    let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
    for rival in &rivals {
        *kinds.entry(arithmetic(rival)).or_default() += 1;
    }
    let mut own_kinds = own.iter().map(|it| arithmetic(it));
    let own_kind = own_kinds.find(|kind| kinds.contains_key(kind));
    let most = kinds.iter().max_by_key(|(_, count)| **count);
    let Some(kind) = own_kind.or(most.map(|(kind, _)| *kind)) else {
        return rivals;
    };
    let of_kind = rivals.iter().copied();
    of_kind.filter(|rival| arithmetic(rival) == kind).collect()
}

/// Returns the number format and the device of a run.
fn arithmetic(record: &Record) -> (&str, &str) {
    (&record.provenance.precision, &record.provenance.device)
}

/// Returns the place of a model with the runs `own` among its [`rivals`] in a table.
///
/// A model of the table whose runs on one task are not seeds of one cell is left out, with a
/// remark.
#[must_use]
pub fn standing(model: &str, own: &[&Record], table: &[Record]) -> Option<Standing> {
    let mut rivals = rivals(table, own);
    rivals.retain(|rival| rival.model.name != model);
    let mixed = mixed_cells(&rivals);
    rivals.retain(|rival| mixed.iter().all(|(model, _)| *model != rival.model.name));
    let mut standing = Standing::of(model, own, &rivals)?;
    let mixed = mixed.into_iter();
    let remarks = mixed.map(|(_, reason)| format!("Not among the ranked models: {reason}."));
    standing.remarks.extend(remarks);
    Some(standing)
}

/// Setting that gives every model the block of X-formers.
pub const SAME_BLOCK: &str = "block.family=xformer";

/// Results of one model.
pub struct Card<'a> {
    /// The model as given by the user, options included.
    pub model: String,
    /// Its runs, in the order of the tasks.
    pub own: Vec<&'a Record>,
    /// Its runs in the block of X-formers; empty if that is its own block, or if they were not
    /// requested.
    pub same_block: Vec<&'a Record>,
    /// Its rank in the table, on those data sets that the table has.
    pub standing: Option<Standing>,
    /// Tasks that were left out, each with the reason and the remedy.
    pub left_out: Vec<(String, String)>,
}

/// The runs of one task.
struct OnTask<'a> {
    title: String,
    own: Vec<&'a Record>,
    same_block: Vec<&'a Record>,
}

impl OnTask<'_> {
    /// Returns the verdict on the mean accuracy beside the majority class.
    fn verdict(&self) -> Option<Verdict> {
        let accuracy = mean(&self.own, Record::test_accuracy)?;
        Verdict::of_seeds(accuracy.mean, &self.own)
    }
}

impl Card<'_> {
    fn tasks(&self) -> Vec<OnTask<'_>> {
        let mut tasks: Vec<OnTask> = Vec::new();
        for record in &self.own {
            let title = record.task.title();
            match tasks.iter_mut().find(|task| task.title == title) {
                Some(task) => task.own.push(record),
                None => tasks.push(OnTask {
                    own: vec![record],
                    same_block: self
                        .same_block
                        .iter()
                        .copied()
                        .filter(|it| it.task.title() == title)
                        .collect(),
                    title,
                }),
            }
        }
        tasks
    }

    /// Returns the card as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let with_block = !self.same_block.is_empty();
        let mut columns = vec![
            Column::key("task"),
            Column::value("bits gained").holding(&["bits_gained"]),
            Column::value("accuracy").holding(&["accuracy", "fail", "status"]),
            Column::text("best trivial").holding(&["trivial_accuracy", "trivial"]),
            Column::value("rank").holding(&["rank"]),
        ];
        if with_block {
            columns.extend(["X-formers' block", "block adds"].map(Column::value));
        }
        columns.extend([
            Column::value("seconds").holding(&["seconds"]),
            Column::value("MiB").holding(&["mebibytes"]),
            Column::value("GFLOP a step").holding(&["gigaflop_per_step"]),
        ]);
        let rows = self
            .tasks()
            .iter()
            .map(|task| self.row(task, with_block))
            .collect();
        Table {
            name: "card".to_owned(),
            title: self.title(),
            unit: String::new(),
            columns,
            rows,
            notes: self.notes(with_block),
            ..Table::default()
        }
    }

    fn title(&self) -> String {
        match &self.standing {
            Some(it) => {
                let interval = it.interval.map_or(String::new(), |(low, high)| {
                    format!(" ({low:.0} to {high:.0} in 95 % of draws of tasks and seeds)")
                });
                format!("{}: rank {} of {}{interval}", self.model, it.rank, it.of)
            }
            None => format!("{}: no rank", self.model),
        }
    }

    fn row(&self, task: &OnTask<'_>, with_block: bool) -> Row {
        let standing = self.standing.as_ref();
        let place = standing.and_then(|it| it.tasks.iter().find(|it| it.title == task.title));
        let bits = mean(&task.own, |record| {
            Measure::Bits.reached(record).map(|it| 100.0 * it)
        });
        let accuracy = mean(&task.own, |record| {
            record.test_accuracy().map(|it| 100.0 * it)
        });
        let mut cells = vec![
            Cell::text(task.title.clone()),
            number(bits, 1, "bits_gained"),
            with_endings(judged(accuracy, task.verdict()), &task.own),
            best_trivial(&task.own),
            match (place, standing) {
                (Some(place), Some(all)) => {
                    Cell::with(format!("{} of {}", place.rank, all.of), "rank", place.rank)
                }
                _ => Cell::default(),
            },
        ];
        if with_block {
            let without = mean(&task.same_block, |record| {
                Measure::Bits.reached(record).map(|it| 100.0 * it)
            });
            let added = bits
                .zip(without)
                .map(|(own, without)| own.mean - without.mean);
            cells.push(number(without, 1, "bits_gained_in_the_block_of_xformers"));
            cells.push(added.map_or_else(Cell::default, |added| {
                Cell::with(format!("{added:+.1}"), "bits_gained_by_the_block", added)
            }));
        }
        let seconds = mean(&task.own, |record| {
            record.speed.as_ref().map(|it| it.wall_seconds)
        });
        let memory = mean(&task.own, |record| {
            record
                .memory
                .as_ref()
                .map(|it| it.peak_bytes as f64 / (1u64 << 20) as f64)
        });
        let flops = mean(&task.own, |record| {
            record
                .speed
                .as_ref()
                .map(|it| it.flops_per_step as f64 / 1e9)
        });
        cells.extend([
            number(seconds, 0, "seconds"),
            number(memory, 0, "mebibytes"),
            number(flops, 1, "gigaflop_per_step"),
        ]);
        Row::new(cells)
    }

    fn notes(&self, with_block: bool) -> Vec<String> {
        let seeds = self
            .own
            .iter()
            .map(|record| record.seed)
            .collect::<BTreeSet<_>>();
        let mut notes = vec![format!(
            "Bits gained, 0 to 100: how much lower the loss is than that of always predicting the class shares, in percent; mean over the \
             validations and the final test of {}. Accuracy: on the test split, in percent.",
            counted(seeds.len() as u64, "seed")
        )];
        notes.extend(spread(seeds.len(), &self.own));
        let verdicts: Vec<Verdict> = self.tasks().iter().filter_map(OnTask::verdict).collect();
        if verdicts.iter().any(|verdict| verdict.fail) {
            notes.push(Verdict::RULE.to_owned());
        }
        if with_block {
            notes.push(format!("X-formers' block: bits gained with --set {SAME_BLOCK}, that is, what the mixer reaches without its authors' block; block adds: what that block alone contributes."));
        }
        let of_xformers = |record: &&Record| record.model.family.as_deref() == Some("xformer");
        if !with_block && !self.own.is_empty() && self.own.iter().all(of_xformers) {
            notes.push(
                "The model's own block is that of X-formers, so there is no comparison with it."
                    .to_owned(),
            );
        }
        let untrained: Vec<String> = self
            .own
            .iter()
            .filter(|record| record.outcome != Outcome::Scored || has_not_trained(record))
            .map(|record| {
                format!(
                    "{}, seed {}: {}",
                    record.task.title(),
                    record.seed,
                    match record.outcome {
                        Outcome::Scored =>
                            "has not trained (final loss within 2 % of that of the class shares)"
                                .to_owned(),
                        ref other => other.to_string(),
                    }
                )
            })
            .collect();
        notes.extend(untrained);
        let all = self.own.iter().chain(&self.same_block);
        notes.extend(all.filter_map(|record| {
            let (task, changes) = (record.task.title(), record.changed_on_the_way()?);
            Some(format!(
                "{task}, seed {}: resumed after changes: {changes}",
                record.seed
            ))
        }));
        notes.extend(
            self.left_out
                .iter()
                .map(|(task, reason)| format!("{task} left out: {reason}")),
        );
        if let Some(standing) = &self.standing {
            let ranked = |task: &&OnTask| standing.tasks.iter().any(|it| it.title == task.title);
            let tasks = self.tasks();
            notes.extend(standing.remarks.iter().cloned());
            let others = tasks.iter().filter(|task| !ranked(task));
            notes.extend(others.map(|task| {
                format!(
                    "{} does not count in the rank: the table has no other model on this data.",
                    task.title
                )
            }));
        } else {
            let changed: BTreeSet<&str> = self.own.iter().flat_map(|it| changes(it)).collect();
            let with = match changed.is_empty() {
                true => String::new(),
                false => {
                    let changed: Vec<&str> = changed.into_iter().collect();
                    format!(" with --set {}", changed.join(" --set "))
                }
            };
            let split = self.own.iter().find_map(|it| it.recipe.split_statistics());
            let split = split.map_or(String::new(), |it| format!(" ({it})"));
            notes.push(format!(
                "No rank: the table has no other model on this data{with}{split}."
            ));
        }
        notes
    }

    /// Returns the card as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let table = Format::Json.render(&[self.table()]);
        let table: Value = serde_json::from_str(&table).unwrap_or_default();
        json!({
            "model": self.model,
            "rank": self.standing.as_ref().map(|it| it.rank),
            "of": self.standing.as_ref().map(|it| it.of),
            "interval": self.standing.as_ref().and_then(|it| it.interval),
            "card": table,
            "left_out": self.left_out.iter().map(|(task, reason)| json!({ "task": task, "reason": reason })).collect::<Vec<_>>(),
        })
    }
}

/// Returns whether a run ended within 2 % of the loss of the class shares; false for records
/// without that loss.
fn has_not_trained(record: &Record) -> bool {
    record.scores.as_ref().and_then(Scores::trained) == Some(false)
}

/// Returns the note on the uncertainty of the figures: what ± is, or, with one seed, the largest
/// standard error of an accuracy.
fn spread(seeds: usize, runs: &[&Record]) -> Option<String> {
    if seeds > 1 {
        return Some("±: sample standard deviation over the seeds.".to_owned());
    }
    let errors = runs.iter().filter_map(|run| {
        let error = binomial_error(run.test_accuracy()?, run.task.rows.test);
        (error > 0.0).then_some(error)
    });
    let largest = errors.max_by(f64::total_cmp)?;
    Some(format!(
        "One seed: the sampling of test examples alone gives accuracies a standard error of up to {:.1} points. Other seeds give \
         other scores.",
        100.0 * largest
    ))
}

/// Returns the mean over runs that have the figure.
fn mean(records: &[&Record], of: impl Fn(&Record) -> Option<f64>) -> Option<Sample> {
    let values: Vec<f64> = records.iter().filter_map(|record| of(record)).collect();
    Sample::of(&values)
}

fn number(sample: Option<Sample>, digits: usize, name: &'static str) -> Cell {
    match sample {
        Some(sample) => {
            let mut text = format!("{:.digits$}", sample.mean);
            if let (Some(deviation), true) = (sample.deviation, digits > 0) {
                text += &format!(" ±{deviation:.digits$}");
            }
            Cell::with(text, name, sample.mean)
        }
        None => Cell::default(),
    }
}

/// Returns the cell of a mean accuracy in percent, marked if it is no better than the majority
/// class.
fn judged(accuracy: Option<Sample>, verdict: Option<Verdict>) -> Cell {
    let mut cell = number(accuracy, 1, "accuracy");
    if let Some(Verdict { fail, .. }) = verdict {
        cell.fields.push(("fail", fail.into()));
        if fail {
            cell.text += " FAIL";
            cell.tone = Some(Tone::Bad);
        }
    }
    cell
}

/// Returns the cell of a mean over the scored runs, with the endings of the others.
fn with_endings(mut cell: Cell, runs: &[&Record]) -> Cell {
    let words = endings(runs, !cell.text.is_empty()).join(", ");
    if !words.is_empty() {
        cell.text = format!("{} {words}", cell.text).trim_start().to_owned();
        cell.fields.push(("status", words.into()));
        cell.tone = Some(Tone::Bad);
    }
    cell
}

/// Returns the best of a task's trivial baselines, with its accuracy in percent.
fn best_trivial(records: &[&Record]) -> Cell {
    let baselines = Baseline::of_data(records.iter().copied());
    Baseline::best(baselines).map_or_else(Cell::default, |best| Cell {
        text: format!(
            "{:.1} ({}{})",
            100.0 * best.accuracy,
            best.name,
            Baseline::which(records.iter().copied(), &best.name)
        ),
        fields: vec![
            ("trivial_accuracy", json!(100.0 * best.accuracy)),
            ("trivial", json!(best.name)),
        ],
        ..Cell::default()
    })
}
