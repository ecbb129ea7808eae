//! A published cell that can be trained here: the published figure, with the task, the model and
//! the recipe to compare with it.

use datasets::{Protocol, TASKS};
use results::published::{self, ACCURACY, Figure, Source};

use crate::error::{Error, Result};
use crate::estimate::{Workload, planned_rows};
use crate::recipe::Recipe;
use crate::spec::{Resolved, RunRequest};
use crate::suggest;

/// A published accuracy, and our recipe that follows its source.
#[derive(Clone, Debug)]
pub struct PublishedCell {
    /// Source that printed it.
    pub source: &'static Source,
    /// The published figure; its task and its entry have the names of this program.
    pub figure: &'static Figure,
    /// The recipe.
    pub recipe: &'static str,
}

impl PublishedCell {
    /// Finds the cell of a source for a model on a task, by `recipe` or by the first recipe of the
    /// source that has the task. If the source prints no such figure, another source that shares a
    /// recipe with it may.
    pub fn find(source: &str, task: &str, model: &str, recipe: Option<&str>) -> Result<Self> {
        let named = suggest::source(source)?;
        if let Some(wrong) = recipe.filter(|name| !named.recipes.contains(name)) {
            return Err(Error::usage(format!(
                "recipe {wrong} does not follow {} (those that do: {})",
                named.alias,
                or_none(&named.recipes)
            )));
        }
        let shares = |other: &&&'static Source| {
            let mut recipes = other.recipes.iter();
            recipes.any(|recipe| named.recipes.contains(recipe))
        };
        let others: Vec<_> = published::sources().iter().collect();
        let candidates = std::iter::once(&named).chain(others.iter().filter(shares));
        for source in candidates {
            let cells = cells_of(source)?;
            let mut wanted = cells
                .iter()
                .filter(|cell| cell.figure.task == task && cell.figure.entry == model);
            if let Some(cell) = wanted.find(|cell| recipe.is_none_or(|name| name == cell.recipe)) {
                return Ok(cell.clone());
            }
        }
        let elsewhere = all()?.into_iter();
        let elsewhere = elsewhere.filter(|it| it.figure.task == task && it.figure.entry == model);
        let mut names: Vec<&str> = elsewhere.map(|cell| cell.source.alias).collect();
        names.dedup();
        Err(Error::usage(format!(
            "no recipe here trains {model} on {task} as {source} did (sources with such a cell: {}); \
             `lra repro {source}` shows the cells of {source}",
            or_none(&names)
        )))
    }

    /// Returns the name of the cell in messages.
    pub fn title(&self) -> String {
        let (task, model) = (&self.figure.task, &self.figure.entry);
        format!("{} {task} {model}", self.source.alias)
    }

    /// Returns the request for its first seed.
    pub fn request<'a>(&'a self, protocol: Protocol, assignments: &'a [String]) -> RunRequest<'a> {
        RunRequest {
            task: &self.figure.task,
            model: &self.figure.entry,
            recipe: self.recipe,
            source: None,
            protocol,
            seed: 0,
            assignments,
        }
    }

    /// Returns the settings of a run, with `assignments` over those of the recipe.
    pub fn resolve(&self, protocol: Protocol, assignments: &[String]) -> Result<Resolved> {
        self.request(protocol, assignments).resolve()
    }

    /// Returns the floating point operations of a run with all sequences as long as the task
    /// allows, and whether the sizes of the splits were known; if not, evaluation is left out.
    pub fn flops(&self, protocol: Protocol, data: &std::path::Path) -> Result<(f64, bool)> {
        let resolved = self.resolve(protocol, &[])?;
        let (rows, complete) = planned_rows(&resolved, data);
        let length = resolved.task.shape(&resolved.spec.data)?.max_length;
        let per_example = resolved.meta()?.0.flops(1, length) as f64;
        let passes = Workload::of_run(&resolved.spec, rows).passes();
        Ok((passes * per_example, complete))
    }
}

/// Returns all cells of all sources, each by the first recipe that has it.
pub fn all() -> Result<Vec<PublishedCell>> {
    let mut cells: Vec<PublishedCell> = Vec::new();
    for source in published::sources() {
        for cell in cells_of(source)? {
            let same = |other: &PublishedCell| std::ptr::eq(other.figure, cell.figure);
            if !cells.iter().any(same) {
                cells.push(cell);
            }
        }
    }
    Ok(cells)
}

/// Returns the cells of a source, by each recipe in turn.
fn cells_of(source: &'static Source) -> Result<Vec<PublishedCell>> {
    let mut cells = Vec::new();
    for recipe in &source.recipes {
        let settings = Recipe::load(recipe)?;
        for figure in &source.figures {
            let ours = models::registry().iter().any(|it| it.name == figure.entry);
            let task = TASKS.iter().any(|task| task.info().name == figure.task);
            let trained = settings.body.tasks.contains_key(&figure.task);
            // If a source prints two versions of a number, the first counts.
            let first = source.cell(&figure.entry, &figure.task, ACCURACY);
            let first = first.is_some_and(|first| std::ptr::eq(first, *figure));
            if first && ours && task && trained && settings.is_for(&figure.entry) {
                cells.push(PublishedCell {
                    source,
                    figure,
                    recipe,
                });
            }
        }
    }
    Ok(cells)
}

fn or_none(names: &[&str]) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_share_a_recipe_answer_for_each_other() {
        let cell = PublishedCell::find("s4", "text", "s4d", None).unwrap();
        assert_eq!((cell.source.alias, cell.recipe), ("s4d", "s4"));
        assert!(!published::milestones(cell.recipe, "text").is_empty());
        let paper = Some("tay2021-paper");
        let cell = PublishedCell::find("tay2021", "listops", "performer", paper).unwrap();
        assert_eq!(cell.recipe, "tay2021-paper");
    }

    #[test]
    fn what_nobody_printed_is_an_error_that_says_who_printed_the_like() {
        let refused = |source, task, model, recipe| {
            let error = PublishedCell::find(source, task, model, recipe).unwrap_err();
            error.to_string()
        };
        let message = refused("s5", "text", "performer", None);
        assert!(
            message.contains("tay2021") && message.contains("lra repro s5"),
            "{message}"
        );
        let message = refused("s5", "text", "s5", Some("mega"));
        assert!(message.contains("those that do: s5"), "{message}");
    }

    #[test]
    fn every_cell_resolves() {
        let cells = all().unwrap();
        assert!(cells.len() > 100);
        for cell in cells {
            cell.resolve(Protocol::Tay2021, &[]).unwrap();
        }
    }
}
