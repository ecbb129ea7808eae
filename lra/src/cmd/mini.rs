//! `lra mini`: a model on the small protocol, and its rank in the table of all models.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;

use datasets::{Protocol, Source, Store};
use models::Family;
use results::agreement::Standing;
use results::card::{self, Card, RECIPE, SAME_BLOCK};
use results::{Format, Record};
use serde_json::Value;

use crate::cli::mini::MiniArgs;
use crate::cmd;
use crate::error::{Class, Classify, Error, Result};
use crate::model_choice::ModelChoice;
use crate::progress::Reporter;
use crate::recipe::Recipe;
use crate::signals::Stop;
use crate::sweep::job::JobOptions;
use crate::sweep::plan::{self, Cell, Matrix};
use crate::sweep::probe;
use crate::sweep::progress_display::ProgressDisplay;
use crate::sweep::scheduler::{Scheduler, State};
use crate::task_choice::TaskChoice;
use crate::{limits, runtime};

/// Runs the command.
pub fn run(arguments: &MiniArgs) -> Result<ExitCode> {
    let models = plan::models(&arguments.models)?;
    let stop = Stop::on_signals().during(Class::Run, "installing signal handlers")?;
    let reporter = Reporter::new(arguments.quiet).with_stop(&stop);
    let table = match &arguments.table {
        Some(path) => cmd::load(path, false)?.records,
        None => card::committed().class(Class::Data)?,
    };
    let (tasks, left_out) = tasks(arguments, &reporter)?;
    let mut runs = Runs::new(arguments, &stop, &reporter)?;
    // A model that cannot be built is told before another one is trained.
    for model in &models {
        runs.cells(model, &tasks, &Rates::new())?;
    }
    let mut cards = Vec::new();
    for model in &models {
        let rates = match arguments.glance {
            true => HashMap::new(),
            false => runs.rates(model, &tasks)?,
        };
        let own = runs.run(&runs.cells(model, &tasks, &rates)?)?;
        let mut left_out = left_out.clone();
        let same_block = match arguments.glance {
            true => Vec::new(),
            false => runs.same_block(model, &tasks, &mut left_out)?,
        };
        if stop.requested() {
            return Ok(Class::Interrupted.into());
        }
        cards.push((model.to_string(), own, same_block, left_out));
    }
    let cards: Vec<Card> = cards
        .iter()
        .map(|(model, own, same_block, left_out)| {
            let own: Vec<&Record> = own.iter().collect();
            let table: Vec<&Record> = table.iter().collect();
            let name = own.first().map_or("", |record| record.model.name.as_str());
            Card {
                model: model.clone(),
                standing: Standing::of(name, &own, &table),
                own,
                same_block: same_block.iter().collect(),
                left_out: left_out.clone(),
            }
        })
        .collect();
    if arguments.json {
        cmd::print_json(&cards.iter().map(Card::json).collect::<Vec<Value>>())?;
    } else {
        let tables: Vec<_> = cards.iter().map(Card::table).collect();
        cmd::print(&Format::Text.render(&tables))?;
    }
    Ok(match runs.failed {
        true => Class::Run.into(),
        false => ExitCode::SUCCESS,
    })
}

/// A task that is left out, and the reason.
type LeftOut = (String, String);

/// Returns the tasks of the recipe whose data is stored or can be generated, and those that are
/// left out.
fn tasks(arguments: &MiniArgs, reporter: &Reporter) -> Result<(Vec<TaskChoice>, Vec<LeftOut>)> {
    let recipe = Recipe::load(RECIPE)?;
    let store = Store::new(&arguments.place.path());
    let (mut tasks, mut left_out) = (Vec::new(), Vec::new());
    for name in recipe.body.tasks.keys() {
        let task: TaskChoice = name.parse().map_err(Error::usage)?;
        let task = task.with_source(None)?;
        // The settings of the data are the same for every model.
        let matrix = Matrix {
            tasks: vec![task.clone()],
            models: plan::models(&["bag".to_owned()])?,
            recipes: vec![RECIPE.to_owned()],
            seeds: vec![0],
            protocol: Protocol::Clean,
            assignments: arguments.assignments.clone(),
        };
        let cells = matrix.cells()?;
        let resolved = &cells[0].resolved;
        if resolved.spec.cell.source != Source::Official {
            tasks.push(task);
            continue;
        }
        if arguments.glance {
            let reason = "--glance runs the generated tasks only".to_owned();
            left_out.push((name.clone(), reason));
            continue;
        }
        match store.open_or_build(resolved.task, &resolved.spec.data_key(), None, reporter) {
            Ok(_) => tasks.push(task),
            Err(error) => left_out.push((name.clone(), error.to_string())),
        }
    }
    Ok((tasks, left_out))
}

/// Runs of the protocol, and the records of them that are on file.
struct Runs<'a> {
    arguments: &'a MiniArgs,
    stop: &'a Stop,
    reporter: &'a Reporter,
    options: JobOptions,
    failed: bool,
}

/// Learning rates by task.
type Rates = HashMap<String, f64>;

impl<'a> Runs<'a> {
    fn new(arguments: &'a MiniArgs, stop: &'a Stop, reporter: &'a Reporter) -> Result<Self> {
        let jobs = usize::from(arguments.jobs);
        let memory = limits::total_memory().map(|bytes| (bytes as f64 * 0.95) as usize / jobs);
        let out: PathBuf = arguments.out.clone();
        Ok(Runs {
            arguments,
            stop,
            reporter,
            options: JobOptions {
                data: arguments.place.path(),
                data_option: arguments.place.data.clone(),
                out,
                device: arguments.device.clone(),
                threads: (runtime::threads(arguments.threads) / jobs).max(1),
                jobs,
                memory_limit: memory,
                accept_changes: false,
            },
            failed: false,
        })
    }

    fn matrix(&self, model: &ModelChoice, task: &TaskChoice, assignments: Vec<String>) -> Matrix {
        Matrix {
            tasks: vec![task.clone()],
            models: vec![model.clone()],
            recipes: vec![RECIPE.to_owned()],
            seeds: self.arguments.seeds.0.clone(),
            protocol: Protocol::Clean,
            assignments,
        }
    }

    /// Returns the cells of a model on all tasks and seeds, at these learning rates where given.
    fn cells(&self, model: &ModelChoice, tasks: &[TaskChoice], rates: &Rates) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for task in tasks {
            let mut assignments = self.arguments.assignments.clone();
            let rate = rates.get(&task.name);
            assignments.extend(rate.map(|rate| format!("train.learning_rate={rate:e}")));
            cells.extend(self.matrix(model, task, assignments).cells()?);
        }
        Ok(cells)
    }

    /// Finds the learning rates of a model on the tasks for which the recipe has none on file.
    fn rates(&mut self, model: &ModelChoice, tasks: &[TaskChoice]) -> Result<Rates> {
        let recipe = Recipe::load(RECIPE)?;
        let on_file: HashSet<&str> = recipe
            .body
            .rates
            .iter()
            .filter(|rate| rate.model == model.model)
            .map(|rate| rate.task.as_str())
            .collect();
        let wanted: Vec<TaskChoice> = tasks
            .iter()
            .filter(|task| !on_file.contains(task.name.as_str()))
            .cloned()
            .collect();
        if wanted.is_empty() {
            return Ok(Rates::new());
        }
        self.reporter.say(&format!(
            "{model}: looking for its learning rates, which are not on file"
        ));
        let mut cells = Vec::new();
        for task in &wanted {
            let matrix = Matrix {
                seeds: self.arguments.seeds.0.iter().copied().take(1).collect(),
                ..self.matrix(model, task, self.arguments.assignments.clone())
            };
            cells.extend(probe::cells(&matrix, &[])?.cells);
        }
        let records = self.run(&cells)?;
        let records = plan::on_file(records);
        Ok(probe::best(&cells, &records))
    }

    /// Runs a model in the block of X-formers, unless that is its own. A model that does not
    /// support it is left out, with the reason.
    fn same_block(
        &mut self,
        model: &ModelChoice,
        tasks: &[TaskChoice],
        left_out: &mut Vec<LeftOut>,
    ) -> Result<Vec<Record>> {
        let mut cells = Vec::new();
        let registered = models::registry().iter().find(|it| it.name == model.model);
        if registered.is_some_and(|it| it.family == Family::Xformer) {
            return Ok(Vec::new());
        }
        for task in tasks {
            let mut assignments = self.arguments.assignments.clone();
            assignments.push(SAME_BLOCK.to_owned());
            match self.matrix(model, task, assignments).cells() {
                Ok(of_task) => cells.extend(of_task),
                Err(error) => {
                    left_out.push((
                        format!("{} in the block of X-formers", task.name),
                        error.to_string(),
                    ));
                }
            }
        }
        self.run(&cells)
    }

    /// Runs the cells that are not on file. Returns all records, those that were on file included.
    fn run(&mut self, cells: &[Cell]) -> Result<Vec<Record>> {
        if cells.is_empty() || self.stop.requested() {
            return Ok(Vec::new());
        }
        let on_file = cmd::sweep::on_file(&self.options, self.reporter)?;
        let devices = [self.options.device.clone()];
        let mut display = ProgressDisplay::new(self.arguments.quiet);
        let mut scheduler = Scheduler {
            cells,
            options: &self.options,
            jobs: self.options.jobs,
            devices: &devices,
            retry: true,
            redo_changed: false,
            stop: self.stop,
            display: &mut display,
        };
        let states = scheduler.run(on_file)?;
        self.failed |= states
            .iter()
            .any(|state| !matches!(state, State::Scored { .. }));
        for (cell, state) in cells.iter().zip(&states) {
            if let State::Failed(reason) | State::Changed(reason) = state {
                self.reporter.error(&format!("{}: {reason}", cell.title()));
            }
        }
        let mut on_file = cmd::sweep::on_file(&self.options, self.reporter)?;
        Ok(cells
            .iter()
            .filter_map(|cell| on_file.remove(&cell.digest))
            .collect())
    }
}
