//! Selection of the records to compare: those of one recipe with one set of changes, one protocol,
//! one precision and one device.
//!
//! A learning rate is no change: a protocol such as `mini` finds one for each model and task, so it
//! is a part of the cell.

use std::collections::{BTreeMap, BTreeSet};

use crate::pivot::{Dimension, PROTOCOL, TRAINING};
use crate::record::{Record, canonical};
use crate::{Error, Result};

/// The assignment that gives every model the block of one family.
const FAMILY: &str = "block.family";

/// The setting that belongs to a cell and changes no protocol.
const RATE: &str = "train.learning_rate";

/// The records that a user asks for.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The recipe; required if there are several.
    pub recipe: Option<String>,
    /// Changes made by the command line of the runs, each as `key=value`; learning rates among them
    /// do not count. If empty: runs without changes, or, if there are none, the one set of changes
    /// there is.
    pub set: Vec<String>,
    /// The split rules; required if the runs have several.
    pub protocol: Option<String>,
    /// The number format; required if the runs have several.
    pub precision: Option<String>,
    /// The device; required if the runs have several.
    pub device: Option<String>,
    /// True for a table that has no flags to choose by, so that errors advise another way.
    pub without_flags: bool,
}

impl Selection {
    /// Returns the requested value of a dimension.
    fn wanted(&self, dimension: &str) -> Option<&str> {
        let value = match dimension {
            "protocol" => &self.protocol,
            "precision" => &self.precision,
            "device" => &self.device,
            _ => &None,
        };
        value.as_deref()
    }

    /// Returns the advice for runs of several kinds: to choose by `flag`, if there are flags.
    fn advice(&self, flag: &str) -> String {
        match self.without_flags {
            true => "put those of one kind in a folder or a file of their own".to_owned(),
            false => format!("choose by {flag}"),
        }
    }
}

/// Selects the records to compare; probes are none.
///
/// Runs whose learning rates alone differ have the same changes. A run whose model has the family
/// that `block.family=...` asks for by itself is one with that change, too.
///
/// # Errors
/// [`Error::Selection`] if there are several recipes, sets of changes, protocols, precisions or
/// devices and none is requested, if the requested one does not exist, or if a model has runs on a
/// task with several learning rates.
pub fn select<'a>(records: &'a [Record], asked: &Selection) -> Result<Vec<&'a Record>> {
    let scored = || records.iter().filter(|it| !it.task.probe);
    let recipes: BTreeSet<&str> = scored().map(|it| it.recipe.name.as_str()).collect();
    let recipe = match &asked.recipe {
        Some(recipe) => recipes.get(recipe.as_str()).copied(),
        None if recipes.len() == 1 => recipes.first().copied(),
        None => None,
    };
    let Some(recipe) = recipe else {
        let known: Vec<&str> = recipes.into_iter().collect();
        let known = known.join(", ");
        return Err(refuse(match &asked.recipe {
            Some(recipe) => format!("no run is by the recipe {recipe}; there are runs by {known}"),
            None => format!(
                "runs by several recipes ({known}): {}",
                asked.advice("--recipe")
            ),
        }));
    };
    let of_recipe = || scored().filter(|it| it.recipe.name == recipe);
    let mut sets: BTreeSet<Vec<&str>> = of_recipe().map(changes).collect();
    let set: Vec<String> = asked.set.iter().map(|it| canonical(it)).collect();
    let mut wanted = changes_asked_for(&set, &of_recipe().collect::<Vec<_>>());
    if wanted.is_empty() && !sets.contains(&wanted) {
        let Some(only) = sets.pop_first().filter(|_| sets.is_empty()) else {
            return Err(refuse(format!(
                "the runs by {recipe} have different changes: {}",
                asked.advice("--set, as the runs were given it")
            )));
        };
        wanted = only;
    }
    let family = wanted
        .iter()
        .find_map(|it| it.strip_prefix(FAMILY)?.strip_prefix('='));
    let has_it_anyway = |record: &Record| {
        let rest = wanted.iter().copied().filter(|it| !it.starts_with(FAMILY));
        family.is_some()
            && record.model.family.as_deref() == family
            && changes(record).into_iter().eq(rest)
    };
    let chosen: Vec<&Record> = of_recipe()
        .filter(|record| changes(record) == wanted || has_it_anyway(record))
        .collect();
    if chosen.is_empty() {
        return Err(refuse(match wanted.is_empty() {
            true => format!("no run by {recipe} is without changes"),
            false => format!(
                "no run by {recipe} was given --set {}",
                wanted.join(" --set ")
            ),
        }));
    }
    let chosen =
        dimensions_apart().try_fold(chosen, |chosen, dimension| alike(chosen, dimension, asked))?;
    refuse_mixed_cells(&chosen)?;
    Ok(chosen)
}

/// Refuses runs of one model on one task that are not seeds of one cell.
fn refuse_mixed_cells(records: &[&Record]) -> Result<()> {
    match mixed_cells(records).into_iter().next() {
        None => Ok(()),
        Some((_, reason)) => Err(refuse(format!(
            "{reason}: keep those of one kind in a folder or file of their own"
        ))),
    }
}

/// Returns the models with runs on one task that are not seeds of one cell, each with the reason:
/// they have different learning rates (that of the recipe is one), variants, or sources of a model
/// of your own.
pub(crate) fn mixed_cells<'a>(records: &[&'a Record]) -> Vec<(&'a str, String)> {
    let mut cells: BTreeMap<(&str, String), BTreeSet<String>> = BTreeMap::new();
    for record in records {
        let rates: Vec<&str> = record
            .recipe
            .overrides
            .iter()
            .map(String::as_str)
            .filter(|it| is_rate(it))
            .collect();
        let rate = match rates.is_empty() {
            true => "the recipe's learning rate".to_owned(),
            false => rates.join(" "),
        };
        let variant = format!("variant {}", record.model.variant);
        let source = record.model.own.as_ref();
        let source = source.map(|own| format!("source {}", own.source));
        let words: Vec<String> = [rate, variant].into_iter().chain(source).collect();
        let cell = (record.model.name.as_str(), record.task.title());
        cells.entry(cell).or_default().insert(words.join(", "));
    }
    let mixed = cells.into_iter().filter(|(_, kinds)| kinds.len() > 1);
    let reason = |((model, task), kinds): ((&'a str, String), BTreeSet<String>)| {
        let kinds = kinds.into_iter().collect::<Vec<_>>().join(" and with ");
        (model, format!("{model} on {task} has runs with {kinds}"))
    };
    mixed.map(reason).collect()
}

/// Returns the records with the most frequent value of every dimension that tables keep apart.
pub(crate) fn most_frequent_kind(records: &[Record]) -> Vec<Record> {
    let all: Vec<&Record> = records.iter().collect();
    let kept = dimensions_apart().fold(all, |records, dimension| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for record in &records {
            *counts.entry((dimension.of)(record)).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let most = most.map(|(value, _)| value);
        let is_it = |record: &&Record| most == Some((dimension.of)(record));
        records.into_iter().filter(is_it).collect()
    });
    kept.into_iter().cloned().collect()
}

/// Returns the dimensions, other than the recipe, that tables keep apart.
fn dimensions_apart() -> impl Iterator<Item = &'static Dimension> {
    let all = PROTOCOL.iter().chain(TRAINING);
    all.filter(|dimension| dimension.apart && dimension.name != "recipe")
}

/// Returns the records with the value of a dimension that is asked for, or all if they have the
/// same value.
fn alike<'a>(
    records: Vec<&'a Record>,
    dimension: &Dimension,
    asked: &Selection,
) -> Result<Vec<&'a Record>> {
    let value = |record: &&Record| (dimension.of)(record);
    let values: BTreeSet<String> = records.iter().map(value).collect();
    let known = values.iter().cloned().collect::<Vec<_>>().join(", ");
    let name = dimension.name;
    match asked.wanted(name) {
        Some(wanted) if values.contains(wanted) => {
            let is_wanted = |record: &&Record| value(record) == wanted;
            Ok(records.into_iter().filter(is_wanted).collect())
        }
        Some(wanted) => Err(refuse(format!(
            "no run has the {name} {wanted}; there are runs with {known}"
        ))),
        None if values.len() > 1 => Err(refuse(format!(
            "runs that differ in {name} ({known}): {}",
            asked.advice(&format!("--{name}"))
        ))),
        None => Ok(records),
    }
}

/// Returns the changes made by a run's command line that can affect a score, in alphabetical order.
pub(crate) fn changes(record: &Record) -> Vec<&str> {
    let mut changes = record.recipe.decisive_overrides();
    changes.retain(|it| !is_rate(it));
    changes.sort_unstable();
    changes
}

/// Returns the assignments of `set` that change the protocol of the records, in alphabetical order:
/// those that affect a score of some record, or that no record has.
fn changes_asked_for<'a>(set: &'a [String], records: &[&Record]) -> Vec<&'a str> {
    let affects = |it: &&str| {
        let mut having = records
            .iter()
            .filter(|record| record.recipe.overrides.iter().any(|one| one == it))
            .peekable();
        having.peek().is_none() || having.any(|record| changes(record).contains(it))
    };
    let set = set.iter().map(String::as_str);
    let mut changes: Vec<&str> = set.filter(|it| !is_rate(it)).filter(affects).collect();
    changes.sort_unstable();
    changes
}

/// Returns whether an assignment gives a learning rate, which every model has of its own.
pub(crate) fn is_rate(assignment: &str) -> bool {
    let key = assignment.split_once('=').map(|(key, _)| key.trim());
    key == Some(RATE)
}

fn refuse(reason: String) -> Error {
    Error::Selection { reason }
}
