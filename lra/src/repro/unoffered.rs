//! Published accuracies of registered models that no recipe reproduces, with the reasons.

use std::fmt;

use datasets::TASKS;
use results::published::{self, ACCURACY, Figure, Source};

use crate::error::Result;
use crate::recipe::Recipe;
use crate::repro::cell::{self, PublishedCell};

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
            Reason::OtherModels(_) => "their source's recipe is made for other models",
            Reason::NoSettings(_) => "their source's recipe has no settings for the task",
            Reason::OtherData(_) => "their data is no task here",
            Reason::OtherVersion => "their source has another figure that counts",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoRecipe => f.write_str("no recipe follows this source"),
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
            Reason::OtherData(task) => write!(f, "{task} is no task here"),
            Reason::OtherVersion => f.write_str("another figure of this source counts"),
        }
    }
}

/// Returns the unoffered figures of all sources, in the order of the published figures.
pub fn all() -> Result<Vec<Unoffered>> {
    let offered = cell::all()?;
    let mut all = Vec::new();
    for source in published::sources() {
        all.extend(among(source, &offered)?);
    }
    Ok(all)
}

/// Returns the unoffered figures of a source.
pub fn of(source: &'static Source) -> Result<Vec<Unoffered>> {
    among(source, &cell::all()?)
}

/// Returns the reason why the figure that a source prints for a model on a task is not offered;
/// `None` if it prints none, or if it is offered.
pub fn reason_of(source: &str, task: &str, model: &str) -> Option<Reason> {
    let source = published::source(source).ok()?;
    let mut left = of(source).ok()?.into_iter();
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
        return Ok(Reason::NoRecipe);
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
        let (offered, left) = (cell::all().unwrap(), all().unwrap());
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
}
