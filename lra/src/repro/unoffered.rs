//! Published accuracies of registered models that no recipe reproduces, with the reasons.

use std::collections::BTreeMap;
use std::fmt;

use datasets::TASKS;
use results::published::{self, ACCURACY, Figure, Source};

use crate::error::{Error, Result};
use crate::recipe::{RECIPES, Recipe};
use crate::repro::cell::{self, PublishedCell, Selection};

/// A published accuracy that no recipe reproduces.
pub struct Unoffered {
    /// Source that printed it.
    pub source: &'static Source,
    /// The published figure; its entry is a model of this program.
    pub figure: &'static Figure,
    /// Reason why it is not offered.
    pub reason: Reason,
    /// Short names of the sources whose figure for the same model on the same task is offered.
    pub elsewhere: Vec<&'static str>,
}

/// Reason why a figure is not offered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No recipe follows the source.
    NoRecipe,
    /// The recipe that is named after the source has settings that the source does not print.
    Unpublished(&'static str),
    /// The source's recipes are made for other models: the figure is a reprint, or belongs to a
    /// variant.
    OtherModels(Vec<&'static str>),
    /// The source's recipes have no settings for the task.
    NoSettings(Vec<&'static str>),
    /// The data is not a task of this program.
    OtherData(&'static str),
    /// The source prints the number twice, and the other version counts.
    OtherVersion,
}

impl Reason {
    /// Returns the reason without names, by which cells are counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Reason::NoRecipe => "no recipe follows their source",
            Reason::Unpublished(_) => "their source leaves out settings of the recipe",
            Reason::OtherModels(_) => "their source's recipe is made for other models",
            Reason::NoSettings(_) => "their source's recipe has no settings for the task",
            Reason::OtherData(_) => "their data is not a task of this program",
            Reason::OtherVersion => "their source has another figure that counts",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoRecipe => f.write_str("no recipe follows this source"),
            Reason::Unpublished(recipe) => write!(
                f,
                "recipe {recipe} has settings that this source does not print, so its scores are compared with none"
            ),
            Reason::OtherModels(recipes) => {
                write!(f, "recipe {} is made for other models", recipes.join(", "))
            }
            Reason::NoSettings(recipes) => {
                write!(
                    f,
                    "recipe {} has no settings for the task",
                    recipes.join(", ")
                )
            }
            Reason::OtherData(task) => write!(f, "{task} is not a task of this program"),
            Reason::OtherVersion => f.write_str("another figure of this source counts"),
        }
    }
}

/// Returns the unoffered figures of sources, in the order of the published figures.
pub fn of(sources: &[&'static Source]) -> Result<Vec<Unoffered>> {
    let offered = cell::all()?;
    let mut all = Vec::new();
    for source in sources {
        all.extend(among(source, &offered)?);
    }
    Ok(all)
}

/// Returns the reasons why figures are not offered, each with the number of its figures, the most
/// frequent first, such as `no recipe follows their source (3)`.
pub fn reasons(left: &[Unoffered]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for it in left {
        *counts.entry(it.reason.kind()).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let counts = counts.iter();
    counts
        .map(|(kind, count)| format!("{kind} ({count})"))
        .collect()
}

/// Returns the error of a selection without any cell, with the reason.
pub fn nothing(selection: &Selection) -> Result<Error> {
    let (name, sources) = (selection.name(), selection.sources());
    let left = of(&sources)?;
    let by_any = Selection {
        recipe: None,
        ..*selection
    };
    let reason = match (selection.source, selection.recipe) {
        (None, Some(recipe)) if sources.is_empty() => {
            format!("recipe {recipe} follows no published source")
        }
        (Some(_), Some(recipe)) if !by_any.cells()?.is_empty() => {
            format!("recipe {recipe} trains none of the cells of {name}; leave out --recipe")
        }
        _ if left.is_empty() => {
            let sources: Vec<&str> = sources.iter().map(|source| source.alias).collect();
            format!(
                "{} prints no accuracy of one task here by a model here (its rows for averages, other data and other forms of models: `lra list published {0}`)",
                sources.join(", ")
            )
        }
        _ => format!(
            "of the printed accuracies of {name}, those of models that are here are not offered: {}; \
             `lra repro --unoffered {name}` gives the reason for each",
            reasons(&left).join(", ")
        ),
    };
    Ok(Error::usage(format!("no cell to train: {reason}")))
}

/// Returns the reason why the figure that a source prints for a model on a task is not offered;
/// `None` if it prints none, or if it is offered.
pub fn reason_of(source: &str, task: &str, model: &str) -> Option<Reason> {
    let source = published::source(source).ok()?;
    let mut left = of(&[source]).ok()?.into_iter();
    left.find(|it| it.figure.task == task && it.figure.entry == model)
        .map(|it| it.reason)
}

/// Returns the accuracies of a source that are not `offered`. Averages over tasks are not cells.
fn among(source: &'static Source, offered: &[PublishedCell]) -> Result<Vec<Unoffered>> {
    let mut found = Vec::new();
    let figures = source.figures.iter().copied();
    for figure in figures.filter(|figure| figure.metric == ACCURACY) {
        let here = models::registry().iter().any(|it| it.name == figure.entry);
        let average = figure.task.starts_with("avg");
        let known = offered.iter().any(|cell| std::ptr::eq(cell.figure, figure));
        if here && !average && !known {
            let same = |cell: &&PublishedCell| {
                (&cell.figure.task, &cell.figure.entry) == (&figure.task, &figure.entry)
            };
            let mut elsewhere: Vec<&str> = offered
                .iter()
                .filter(same)
                .map(|cell| cell.source.alias)
                .collect();
            elsewhere.dedup();
            found.push(Unoffered {
                source,
                figure,
                reason: reason(source, figure)?,
                elsewhere,
            });
        }
    }
    Ok(found)
}

fn reason(source: &'static Source, figure: &'static Figure) -> Result<Reason> {
    if TASKS.iter().all(|task| task.info().name != figure.task) {
        return Ok(Reason::OtherData(&figure.task));
    }
    if source.recipes.is_empty() {
        let named = RECIPES.iter().any(|(name, _)| *name == source.alias);
        let recipe = named.then(|| Recipe::load(source.alias)).transpose()?;
        let trains = |recipe: &Recipe| {
            recipe.is_for(&figure.entry) && recipe.body.tasks.contains_key(&figure.task)
        };
        return Ok(match recipe.is_some_and(|recipe| trains(&recipe)) {
            true => Reason::Unpublished(source.alias),
            false => Reason::NoRecipe,
        });
    }
    let mut trained = false;
    for recipe in &source.recipes {
        let recipe = Recipe::load(recipe)?;
        let has_task = recipe.body.tasks.contains_key(&figure.task);
        if has_task && recipe.is_for(&figure.entry) {
            return Ok(Reason::OtherVersion);
        }
        trained |= has_task;
    }
    let recipes = source.recipes.clone();
    Ok(match trained {
        true => Reason::OtherModels(recipes),
        false => Reason::NoSettings(recipes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_printed_accuracy_of_a_model_here_is_offered_or_has_a_reason() {
        let sources: Vec<&Source> = published::sources().iter().collect();
        let (offered, left) = (cell::all().unwrap(), of(&sources).unwrap());
        let here = |figure: &&Figure| {
            let model = models::registry().iter().any(|it| it.name == figure.entry);
            model && figure.metric == ACCURACY && !figure.task.starts_with("avg")
        };
        let sources = published::sources().iter();
        let figures = sources.flat_map(|source| source.figures.iter().copied());
        assert_eq!(figures.filter(here).count(), offered.len() + left.len());
        let reason = |source: &str, task: &str, model: &str| {
            let mut left = left.iter().filter(|it| it.source.alias == source);
            let found = left.find(|it| it.figure.task == task && it.figure.entry == model);
            found.map(|it| it.reason.clone())
        };
        assert_eq!(reason("lru", "text", "s4d"), Some(Reason::NoRecipe));
        assert_eq!(
            reason("lru", "text", "lru"),
            Some(Reason::Unpublished("lru"))
        );
        assert_eq!(
            reason("mega", "text", "transformer"),
            Some(Reason::OtherModels(vec!["mega"]))
        );
        assert_eq!(
            reason("lru", "scifar_rgb", "lru"),
            Some(Reason::OtherData("scifar_rgb"))
        );
        assert_eq!(reason("s5", "text", "s5"), None, "it is offered");
        for it in &left {
            assert!(!it.elsewhere.contains(&it.source.alias) || it.reason == Reason::OtherVersion);
        }
    }

    /// A source or a recipe with nothing to train says why.
    #[test]
    fn nothing_to_train_has_a_reason() {
        let told = |name: &str| {
            let selection = Selection::of(Some(name), None).unwrap();
            assert!(selection.cells().unwrap().is_empty(), "{name}");
            nothing(&selection).unwrap().to_string()
        };
        for name in [
            "external",
            "megalodon",
            "httyh",
            "ccnn",
            "liquid-s4",
            "fractal",
            "pretraining",
            "locality",
            "mega-ablation",
            "cab",
        ] {
            let told = told(name);
            assert!(
                told.contains("no cell to train") && told.contains(name),
                "{told}"
            );
        }
        assert!(told("mini").contains("recipe mini follows no published source"));
        for source in published::sources() {
            let selection = Selection::of(Some(source.alias), None).unwrap();
            let advice = format!("`lra repro --list {}`", source.alias);
            let notes = published::figures_of(source).notes;
            let advised = notes.iter().any(|note| note.contains(&advice));
            if selection.cells().unwrap().is_empty() {
                told(source.alias);
                assert!(!advised, "{notes:?}");
            }
        }
    }
}
