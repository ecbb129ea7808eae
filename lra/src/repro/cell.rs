//! A published cell that can be trained here: the published figure, with the task, the model and
//! the recipe to compare with it.

use std::path::Path;

use datasets::{Protocol, TASKS};
use results::published::{self, ACCURACY, Figure, Source};

use crate::error::{Error, Result};
use crate::estimate::{Workload, planned_rows};
use crate::recipe::{RECIPES, Recipe};
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
    /// Finds the cell for a model on a task among the selected cells, by the first recipe that has
    /// the task. If the source prints no such figure, another source that shares a recipe with it
    /// may.
    pub fn find(selection: &Selection, task: &str, model: &str) -> Result<Self> {
        let wanted = |cell: &PublishedCell| cell.figure.task == task && cell.figure.entry == model;
        let found = selection.related()?.into_iter().filter(wanted);
        let own = |cell: &PublishedCell| {
            let own = selection.source;
            own.is_some_and(|source| std::ptr::eq(source, cell.source))
        };
        // Those of the source itself come first.
        if let Some(cell) = found.min_by_key(|cell| !own(cell)) {
            return Ok(cell);
        }
        let elsewhere = all()?.into_iter().filter(wanted);
        let mut names: Vec<&str> = elsewhere.map(|cell| cell.source.alias).collect();
        names.dedup();
        let name = selection.name();
        let printed = |source: &&Source| {
            let mut figures = source.figures.iter();
            figures.any(|it| it.metric == ACCURACY && it.task == task && it.entry == model)
        };
        let reason = match selection.sources().iter().any(printed) {
            true => format!("no recipe here trains {model} on {task} as {name} did"),
            false => format!("{name} prints no accuracy of {model} on {task}"),
        };
        let cells = match selection.cells()?.is_empty() {
            true => format!("`lra repro --unoffered {name}` says why {name} has no cell"),
            false => format!("`lra repro {name}` shows the cells of {name}"),
        };
        Err(Error::usage(format!(
            "{reason} (sources with such a cell: {}); {cells}",
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
    pub fn flops(&self, protocol: Protocol, data: &Path) -> Result<(f64, bool)> {
        flops(&self.resolve(protocol, &[])?, data)
    }
}

/// Returns the floating point operations of a run with these settings, as
/// [`PublishedCell::flops`] does.
pub fn flops(resolved: &Resolved, data: &Path) -> Result<(f64, bool)> {
    let (rows, complete) = planned_rows(resolved, data);
    let length = resolved.data_shape()?.max_length;
    let per_example = resolved.meta()?.0.flops(1, length) as f64;
    let passes = Workload::of_run(&resolved.spec, rows).passes();
    Ok((passes * per_example, complete))
}

/// Restriction of the published cells to a source, a recipe, or both.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection {
    /// The source.
    pub source: Option<&'static Source>,
    /// The recipe.
    pub recipe: Option<&'static str>,
}

impl Selection {
    /// Reads a selection: `source` is the name of a source, or of a recipe, which stands for all
    /// sources that it follows.
    ///
    /// # Errors
    /// A name is unknown, or the recipe does not follow the source.
    pub fn of(source: Option<&str>, recipe: Option<&str>) -> Result<Selection> {
        let recipe_of = |name: &str| {
            let found = suggest::find("recipe", name, RECIPES, |(name, _)| name);
            found.map(|(name, _)| *name)
        };
        let recipe = recipe.map(recipe_of).transpose()?;
        let Some(name) = source else {
            return Ok(Selection {
                source: None,
                recipe,
            });
        };
        let named = match published::source(name) {
            Ok(source) => source,
            Err(_) => match (recipe_of(name), recipe) {
                (Ok(own), None) => {
                    return Ok(Selection {
                        source: None,
                        recipe: Some(own),
                    });
                }
                (Ok(own), Some(other)) => {
                    return Err(Error::usage(format!(
                        "{own} is a recipe itself; leave out --recipe {other}, or name a source (see `lra list published`)"
                    )));
                }
                (Err(_), _) => suggest::source(name)?,
            },
        };
        if let Some(wrong) = recipe.filter(|name| !named.recipes.contains(name)) {
            return Err(Error::usage(format!(
                "recipe {wrong} does not follow {} (those that do: {})",
                named.alias,
                or_none(&named.recipes)
            )));
        }
        Ok(Selection {
            source: Some(named),
            recipe,
        })
    }

    /// Returns the name under which the command line has it: that of the source, else of the
    /// recipe.
    pub fn name(&self) -> &'static str {
        let source = self.source.map(|source| source.alias);
        source.or(self.recipe).unwrap_or("all sources")
    }

    /// Returns the selected sources: without a source, all that the recipe follows.
    pub fn sources(&self) -> Vec<&'static Source> {
        let all = published::sources().iter();
        match self.source {
            Some(source) => vec![source],
            None => all
                .filter(|source| {
                    self.recipe
                        .is_none_or(|name| source.recipes.contains(&name))
                })
                .collect(),
        }
    }

    /// Returns the selected cells, each figure by the first selected recipe that has it.
    pub fn cells(&self) -> Result<Vec<PublishedCell>> {
        self.filtered(|source, cell| std::ptr::eq(source, cell.source))
    }

    /// Returns the selected cells, and those of sources that share a recipe with the selected one.
    fn related(&self) -> Result<Vec<PublishedCell>> {
        self.filtered(|source, cell| {
            std::ptr::eq(source, cell.source) || source.recipes.contains(&cell.recipe)
        })
    }

    /// Returns the cells of the selected recipe that belong to the selected source.
    fn filtered(&self, belongs: fn(&Source, &PublishedCell) -> bool) -> Result<Vec<PublishedCell>> {
        let selected = |cell: &PublishedCell| {
            self.source.is_none_or(|source| belongs(source, cell))
                && self.recipe.is_none_or(|name| name == cell.recipe)
        };
        let mut cells: Vec<PublishedCell> = Vec::new();
        for source in published::sources() {
            for cell in cells_of(source)?.into_iter().filter(selected) {
                let same = |other: &PublishedCell| std::ptr::eq(other.figure, cell.figure);
                if !cells.iter().any(same) {
                    cells.push(cell);
                }
            }
        }
        Ok(cells)
    }
}

/// Returns all cells of all sources, each by the first recipe that has it.
pub fn all() -> Result<Vec<PublishedCell>> {
    Selection::default().cells()
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

    fn find(source: &str, task: &str, model: &str, recipe: Option<&str>) -> Result<PublishedCell> {
        PublishedCell::find(&Selection::of(Some(source), recipe)?, task, model)
    }

    #[test]
    fn sources_that_share_a_recipe_answer_for_each_other() {
        let cell = find("s4", "text", "s4d", None).unwrap();
        assert_eq!((cell.source.alias, cell.recipe), ("s4d", "s4"));
        assert!(!published::milestones(cell.recipe, "text").is_empty());
        for source in ["s4", "s4d"] {
            let cells = Selection::of(Some(source), None).unwrap().cells().unwrap();
            assert!(!cells.is_empty());
            assert!(cells.iter().all(|cell| cell.source.alias == source));
        }
        let paper = Some("tay2021-paper");
        let cell = find("tay2021", "listops", "performer", paper).unwrap();
        assert_eq!(cell.recipe, "tay2021-paper");
    }

    /// The first recipe of a source does not hide the cells of another.
    #[test]
    fn every_recipe_of_a_source_has_cells() {
        for source in published::sources() {
            for recipe in &source.recipes {
                let selection = Selection::of(Some(source.alias), Some(recipe)).unwrap();
                let cells = selection.cells().unwrap();
                assert!(cells.iter().all(|cell| cell.recipe == *recipe));
                let any = cells_of(source).unwrap();
                let any = any.iter().any(|cell| cell.recipe == *recipe);
                assert_eq!(any, !cells.is_empty(), "{} by {recipe}", source.alias);
            }
        }
        let paper = Selection::of(Some("tay2021"), Some("tay2021-paper")).unwrap();
        assert!(!paper.cells().unwrap().is_empty());
    }

    #[test]
    fn a_recipe_stands_for_the_sources_that_it_follows() {
        let selection = Selection::of(Some("Tay2021-Paper"), None).unwrap();
        assert!(selection.source.is_none());
        let cell = PublishedCell::find(&selection, "listops", "performer").unwrap();
        assert_eq!(
            (cell.source.alias, cell.recipe),
            ("tay2021", "tay2021-paper")
        );
        let both = Selection::of(Some("tay2021-paper"), Some("s5")).unwrap_err();
        assert!(both.to_string().contains("leave out --recipe s5"), "{both}");
        assert!(
            Selection::of(Some("mini"), None)
                .unwrap()
                .sources()
                .is_empty()
        );
    }

    #[test]
    fn what_nobody_printed_is_an_error_that_says_who_printed_the_like() {
        let refused = |source, task, model, recipe| {
            let error = find(source, task, model, recipe).unwrap_err();
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
