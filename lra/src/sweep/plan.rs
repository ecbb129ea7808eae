//! The cells of a sweep: tasks by models by recipes by seeds, each with its frozen settings.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::str::FromStr;

use datasets::tasks::mine;
use datasets::{Protocol, Source};
use results::{Outcome, Record};

use crate::cell;
use crate::error::{Class, Error, Result};
use crate::model_choice::ModelChoice;
use crate::spec::{Resolved, RunRequest};
use crate::task_choice::TaskChoice;

/// The product of the tasks, models, recipes and seeds given on the command line.
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

/// A cell of the matrix that no run can be made of: its model cannot take its settings.
pub struct Refused {
    /// Task and source, for the head of a column.
    pub column: String,
    /// The task.
    pub task: TaskChoice,
    /// The model with its options.
    pub model: ModelChoice,
    /// Value of `--recipe`.
    pub recipe: String,
    /// Seed.
    pub seed: u64,
    /// The reason.
    pub reason: String,
}

impl Refused {
    /// Returns the name of the cell in tables, as [`Cell::title`] does.
    pub fn title(&self) -> String {
        format!("{} {}, seed {}", self.column, self.model, self.seed)
    }
}

/// The cells of a sweep.
pub struct Planned {
    /// Those that are run.
    pub cells: Vec<Cell>,
    /// Those that cannot be.
    pub refused: Vec<Refused>,
}

impl Matrix {
    /// Returns every cell once: recipes over tasks over models over seeds.
    ///
    /// # Errors
    /// A cell cannot be built.
    pub fn cells(&self) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        self.each(|cell, _| {
            cells.push(cell?);
            Ok(())
        })?;
        Ok(cells)
    }

    /// Returns every cell once, those that cannot be built apart.
    ///
    /// # Errors
    /// No model can be built on a task by a recipe, or no cell can take one of the `typed`
    /// assignments, those of the command line: the words are wrong, not their combination.
    pub fn planned(&self, typed: &[String]) -> Result<Planned> {
        let (mut cells, mut refused) = (Vec::new(), Vec::new());
        // Recipes, tasks and assignments that have been met, each with the first error if no cell
        // has it so far.
        let mut met: Vec<(Vec<String>, Option<Error>)> = Vec::new();
        self.each(|cell, refusal| {
            let mut keys = vec![vec![refusal.recipe.clone(), refusal.task.to_string()]];
            let own: Vec<String> = refusal.model.assignments().collect();
            let of_cell = |it: &&String| self.assignments.contains(it) || own.contains(it);
            keys.extend(typed.iter().filter(of_cell).map(|it| vec![it.clone()]));
            for key in keys {
                let error = cell.as_ref().err().map(Error::again);
                match met.iter_mut().find(|(other, _)| *other == key) {
                    Some((_, first)) if error.is_none() => *first = None,
                    Some(_) => {}
                    None => met.push((key, error)),
                }
            }
            match cell {
                Ok(cell) => cells.push(cell),
                Err(error) if error.class == Class::Usage => refused.push(Refused {
                    reason: error.to_string(),
                    ..refusal
                }),
                Err(error) => return Err(error),
            }
            Ok(())
        })?;
        if let Some(error) = met.into_iter().find_map(|(_, error)| error) {
            return Err(error);
        }
        for refusal in &mut refused {
            let beside = |cell: &&Cell| {
                let of = &cell.resolved.spec.cell;
                cell.recipe == refusal.recipe && of.task.eq_ignore_ascii_case(&refusal.task.name)
            };
            if let Some(cell) = cells.iter().find(beside) {
                refusal.column = cell.column();
            }
        }
        Ok(Planned { cells, refused })
    }

    /// Hands every cell on once, with the words that name it if it cannot be built.
    fn each(&self, mut next: impl FnMut(Result<Cell>, Refused) -> Result<()>) -> Result<()> {
        let mut known: HashMap<String, String> = HashMap::new();
        for recipe in &self.recipes {
            for task in &self.tasks {
                for model in &self.models {
                    for &seed in &self.seeds {
                        let cell = self.cell(recipe, task, model, seed);
                        let words = Refused {
                            column: task.to_string(),
                            task: task.clone(),
                            model: model.clone(),
                            recipe: recipe.clone(),
                            seed,
                            reason: String::new(),
                        };
                        let name = match &cell {
                            Ok(cell) => cell.digest.clone(),
                            Err(_) => format!("{recipe} {}", words.title()),
                        };
                        match known.entry(name) {
                            Entry::Vacant(entry) => {
                                entry.insert(task.name.clone());
                                next(cell, words)?;
                            }
                            // Folders are told apart by their names alone.
                            Entry::Occupied(entry)
                                if mine::is_folder(&task.name) && *entry.get() != task.name =>
                            {
                                return Err(Error::usage(format!(
                                    "{} and {} are two folders of one name, by which runs are called: rename one of them, or sweep each into a folder of its own (--out)",
                                    entry.get(),
                                    task.name
                                )));
                            }
                            Entry::Occupied(_) => {}
                        }
                    }
                }
            }
        }
        Ok(())
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
        let shape = resolved.data_shape()?;
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
/// Those that cannot be built are told by the first shard.
pub fn part(planned: Planned, shard: Shard) -> Planned {
    let numbered = planned.cells.into_iter().enumerate();
    let mine = numbered.filter(|(index, _)| index % shard.count == shard.index - 1);
    Planned {
        cells: mine.map(|(_, cell)| cell).collect(),
        refused: match shard.index {
            1 => planned.refused,
            _ => Vec::new(),
        },
    }
}

/// Returns the stored records of runs that have ended, with any outcome, by the digest of their
/// settings.
pub fn on_file(records: Vec<Record>) -> HashMap<String, Record> {
    let finished = records
        .into_iter()
        .filter(|record| !matches!(record.outcome, Outcome::Interrupted { .. }));
    finished
        .map(|record| (record.provenance.spec_digest.clone(), record))
        .collect()
}

/// Word that stands for every model.
pub const EVERY_MODEL: &str = "all";

/// Parses [`EVERY_MODEL`] or a list of models with options.
pub fn models(names: &[String]) -> Result<Vec<ModelChoice>> {
    if names.is_empty() {
        return Err(Error::usage("--models names no model"));
    }
    let mut choices = Vec::new();
    for name in names {
        match name.as_str() {
            name if name.eq_ignore_ascii_case(EVERY_MODEL) => {
                choices.extend(ModelChoice::registered())
            }
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
            .flat_map(|index| {
                let planned = matrix().planned(&[]).unwrap();
                ids(part(planned, Shard { index, count: 5 }).cells)
            })
            .collect();
        let mut sorted = whole.clone();
        sorted.sort();
        parts.sort();
        assert_eq!(parts, sorted);
    }

    fn of(names: &[&str], assignments: &[&str]) -> Matrix {
        let owned = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        Matrix {
            models: models(&owned(names)).unwrap(),
            assignments: owned(assignments),
            ..matrix()
        }
    }

    #[test]
    fn a_cell_that_cannot_be_built_does_not_end_the_others() {
        let typed = ["block.bias=t5".to_owned()];
        let matrix = of(&["transformer", "s4d"], &["block.bias=t5"]);
        assert!(matrix.cells().is_err(), "all or none");
        let planned = matrix.planned(&typed).unwrap();
        let of_model = |model: &str| {
            let run = planned.cells.iter().filter(|it| it.model.model == model);
            let refused = planned.refused.iter();
            let refused = refused.filter(|it| it.model.model == model);
            (run.count(), refused.count())
        };
        assert_eq!(of_model("transformer"), (6, 0));
        assert_eq!(of_model("s4d"), (0, 6));
        let first = &planned.refused[0];
        assert!(first.reason.contains("block.bias"), "{}", first.reason);
        assert_eq!(first.title(), "toy s4d, seed 0");
        let parts = [1, 2].map(|index| {
            let planned = matrix.planned(&typed).unwrap();
            part(planned, Shard { index, count: 2 }).refused.len()
        });
        assert_eq!(parts, [6, 0], "the first shard tells of them");
    }

    #[test]
    fn a_setting_that_no_cell_can_take_is_an_error() {
        for (names, assignments, typed) in [
            (
                &["bag", "linear"][..],
                &["train.stpes=1"][..],
                "train.stpes=1",
            ),
            (&["s4d", "lru"], &["block.bias=t5"], "block.bias=t5"),
            // A point of a grid, or an option of one model.
            (&["bag", "bag:block.bias=t6"], &[], "block.bias=t6"),
            (&["bag", "linear:zzz=1"], &[], "model.zzz=1"),
        ] {
            let matrix = of(names, assignments);
            let error = matrix.planned(&[typed.to_owned()]).err().unwrap();
            assert_eq!(error.class, Class::Usage);
            let (key, _) = typed.split_once('=').unwrap();
            assert!(error.to_string().contains(key), "{error}");
        }
        let unknown = Matrix {
            tasks: vec!["toy".parse().unwrap(), "listop".parse().unwrap()],
            ..of(&["bag"], &[])
        };
        let error = unknown.planned(&[]).err().unwrap().to_string();
        assert!(error.contains("did you mean 'listops'?"), "{error}");
    }

    #[test]
    fn shards_are_checked() {
        assert_eq!("2/3".parse(), Ok(Shard { index: 2, count: 3 }));
        for wrong in ["0/3", "4/3", "3", "a/b", "1/0"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_run_that_can_be_resumed_is_not_on_file() {
        use crate::sweep::testing::{diverged, scored};
        let states = [scored(0.5, 1.0), diverged(0.5, 1.0), scored(0.5, 1.0)];
        let mut records: Vec<Record> = states
            .iter()
            .map(|it| it.record().unwrap().clone())
            .collect();
        records[2].outcome = Outcome::Interrupted { step: 3 };
        for (record, digest) in records.iter_mut().zip(["a", "b", "c"]) {
            record.provenance.spec_digest = digest.to_owned();
        }
        let found = on_file(records);
        assert!(found.contains_key("a") && found.contains_key("b") && found.len() == 2);
    }
}
