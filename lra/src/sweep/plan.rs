//! The cells of a sweep: tasks by models by recipes by seeds, each with its frozen settings.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use datasets::{Protocol, Source};
use results::{Outcome, Record};

use crate::cell;
use crate::error::{Error, Result};
use crate::model_choice::ModelChoice;
use crate::spec::{Resolved, RunRequest};
use crate::task_choice::TaskChoice;

/// The product of tasks, models, recipes and seeds that the command line names.
pub struct Matrix {
    /// Tasks, each with a source or its default one.
    pub tasks: Vec<TaskChoice>,
    /// Models.
    pub models: Vec<ModelChoice>,
    /// Recipes.
    pub recipes: Vec<String>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Split rules.
    pub protocol: Protocol,
    /// Assignments to settings, for every cell.
    pub assignments: Vec<String>,
}

/// One of `n` parts of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the shard, from 1.
    pub index: usize,
    /// Number of shards.
    pub count: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("'{text}' is not a shard such as 1/4 (the first of four)");
        let (index, count) = text.split_once('/').ok_or_else(expected)?;
        let shard = Shard {
            index: index.parse().map_err(|_| expected())?,
            count: count.parse().map_err(|_| expected())?,
        };
        if (1..=shard.count).contains(&shard.index) {
            Ok(shard)
        } else {
            Err(expected())
        }
    }
}

/// One cell of a sweep.
pub struct Cell {
    /// Its settings, frozen.
    pub resolved: Resolved,
    /// The model with its options.
    pub model: ModelChoice,
    /// Value of `--recipe`: the name of a recipe, or the path of a file.
    pub recipe: String,
    /// The task's label.
    pub label: String,
    /// Id of the run, and the name of its folder.
    pub id: String,
    /// Digest of the settings.
    pub digest: String,
}

impl Cell {
    /// Returns the name of the cell in tables: `listops@256 performer, seed 2`.
    pub fn title(&self) -> String {
        let cell = &self.resolved.spec.cell;
        format!("{} {}, seed {}", self.column(), self.model, cell.seed)
    }

    /// Returns task and source, for the head of a column.
    pub fn column(&self) -> String {
        match self.resolved.spec.cell.source {
            Source::Synthetic => format!("{}:synthetic", self.label),
            _ => self.label.clone(),
        }
    }
}

impl Matrix {
    /// Returns every cell once: recipes over tasks over models over seeds.
    pub fn cells(&self) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        let mut known = HashSet::new();
        for recipe in &self.recipes {
            for task in &self.tasks {
                for model in &self.models {
                    for &seed in &self.seeds {
                        let cell = self.cell(recipe, task, model, seed)?;
                        if known.insert(cell.digest.clone()) {
                            cells.push(cell);
                        }
                    }
                }
            }
        }
        Ok(cells)
    }

    fn cell(
        &self,
        recipe: &str,
        task: &TaskChoice,
        model: &ModelChoice,
        seed: u64,
    ) -> Result<Cell> {
        let mut assignments = self.assignments.clone();
        assignments.extend(model.assignments());
        let request = RunRequest {
            task: &task.name,
            model: model.model,
            recipe,
            source: task.source,
            protocol: self.protocol,
            seed,
            assignments: &assignments,
        };
        let resolved = request.resolve()?;
        let shape = resolved.task.shape(&resolved.spec.data)?;
        Ok(Cell {
            id: cell::run_id(&resolved, &shape),
            digest: resolved.spec.digest(),
            label: shape.label,
            model: model.clone(),
            recipe: recipe.to_owned(),
            resolved,
        })
    }
}

/// Returns the cells of a shard: every `count`-th one, so that long tasks are distributed evenly.
pub fn part(cells: Vec<Cell>, shard: Shard) -> Vec<Cell> {
    let numbered = cells.into_iter().enumerate();
    numbered
        .filter(|(index, _)| index % shard.count == shard.index - 1)
        .map(|(_, cell)| cell)
        .collect()
}

/// Returns the records on file of runs that have ended, well or not, by the digest of their
/// settings.
pub fn on_file(records: Vec<Record>) -> HashMap<String, Record> {
    let finished = records
        .into_iter()
        .filter(|record| !matches!(record.outcome, Outcome::Interrupted { .. }));
    finished
        .map(|record| (record.provenance.spec_digest.clone(), record))
        .collect()
}

/// Parses `all` or a list of models with options.
pub fn models(names: &[String]) -> Result<Vec<ModelChoice>> {
    if names.is_empty() {
        return Err(Error::usage("--models names no model"));
    }
    let mut choices = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => choices.extend(ModelChoice::registered()),
            name => choices.push(ModelChoice::parse(name)?),
        }
    }
    Ok(choices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Matrix {
        Matrix {
            tasks: vec!["toy".parse().unwrap(), "image:synthetic".parse().unwrap()],
            models: models(&["bag".to_owned(), "linear".to_owned(), "bag".to_owned()]).unwrap(),
            recipes: vec!["smoke".to_owned()],
            seeds: vec![0, 1, 2],
            protocol: Protocol::Clean,
            assignments: Vec::new(),
        }
    }

    #[test]
    fn shards_part_the_matrix() {
        let ids =
            |cells: Vec<Cell>| -> Vec<String> { cells.into_iter().map(|cell| cell.id).collect() };
        let whole = ids(matrix().cells().unwrap());
        assert_eq!(whole.len(), 12, "a model that is named twice counts once");
        let mut parts: Vec<String> = (1..=5)
            .flat_map(|index| ids(part(matrix().cells().unwrap(), Shard { index, count: 5 })))
            .collect();
        let mut sorted = whole.clone();
        sorted.sort();
        parts.sort();
        assert_eq!(parts, sorted);
    }

    #[test]
    fn shards_are_checked() {
        assert_eq!("2/3".parse(), Ok(Shard { index: 2, count: 3 }));
        for wrong in ["0/3", "4/3", "3", "a/b", "1/0"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
