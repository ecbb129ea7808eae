//! `lra mini`: a model on the small protocol, and its rank in the table.

mod plan;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use datasets::{Protocol, Source, Store};
use models::Family;
use results::card::{self, Card, RECIPE, SAME_BLOCK};
use results::committed;
use results::{Format, Record, tables};
use serde_json::{Value, json};

use self::plan::{LeftOut, OWN, OnFile, PROBES, Plan, SAME, STAGES};
use crate::cli::mini::MiniArgs;
use crate::cmd;
use crate::error::{Class, Classify, Error, Result};
use crate::model_choice::ModelChoice;
use crate::progress::Reporter;
use crate::recipe::Recipe;
use crate::signals::Stop;
use crate::sweep::comparison::Comparer;
use crate::sweep::estimator::Estimator;
use crate::sweep::forecast::Forecast;
use crate::sweep::job::{Failure, JobOptions};
use crate::sweep::plan::{Cell, Matrix};
use crate::sweep::progress_display::ProgressDisplay;
use crate::sweep::scheduler::{Judge, Scheduler, State};
use crate::sweep::time_left::TimeLeft;
use crate::sweep::{self, comparison, probe, scheduler};
use crate::task_choice::TaskChoice;
use crate::timing::human_duration;
use crate::{limits, overlay, runtime, shell};

/// Runs the command.
pub fn run(arguments: &MiniArgs) -> Result<ExitCode> {
    if arguments.models.is_empty() {
        return ranks(arguments);
    }
    let models = sweep::plan::models(&arguments.models)?;
    let stop = Stop::on_signals().during(Class::Run, "installing signal handlers")?;
    let reporter = Reporter::new(arguments.quiet).with_stop(&stop);
    let table = table(arguments)?;
    let (tasks, left_out) = tasks(arguments, &reporter)?;
    for (task, reason) in &left_out {
        reporter.say(&format!("left out   {task}: {reason}"));
    }
    let mut runs = Runs::new(arguments, &stop, &reporter)?;
    let mut plans = Vec::new();
    for model in models {
        plans.push(runs.plan(model, &tasks, left_out.clone())?);
    }
    runs.announce(&mut plans)?;
    if arguments.dry_run {
        return Ok(match stop.requested() {
            true => Class::Interrupted.into(),
            false => ExitCode::SUCCESS,
        });
    }
    let mut results = Vec::new();
    for (at, plan) in plans.iter().enumerate() {
        let rates = runs.rates(&plans, at)?;
        let own = match rates.is_empty() {
            true => runs.run(&plans, (at, OWN), &plan.stages[OWN])?,
            false => runs.run(&plans, (at, OWN), &runs.cells(&plan.model, &tasks, &rates)?)?,
        };
        let same_block = runs.run(&plans, (at, SAME), &plan.stages[SAME])?;
        if stop.requested() {
            return Ok(Class::Interrupted.into());
        }
        results.push((own, same_block));
    }
    let cards = plans.iter().zip(&results).map(|(plan, (own, same_block))| {
        let own: Vec<&Record> = own.iter().filter_map(State::record).collect();
        Card {
            model: plan.model.to_string(),
            standing: card::standing(plan.model.model, &own, &table),
            own,
            same_block: same_block.iter().filter_map(State::record).collect(),
            left_out: plan.left_out.clone(),
        }
    });
    let cards: Vec<Card> = cards.collect();
    if arguments.json {
        let cards = cards.iter().zip(&results).map(|(card, (own, same_block))| {
            let mut value = card.json();
            value["on_file"] = on_file_as_json(own.iter().chain(same_block));
            value
        });
        cmd::print_json(&cards.collect::<Vec<Value>>())?;
    } else {
        let tables: Vec<_> = cards.iter().map(Card::table).collect();
        cmd::print_tables(Format::Text, &tables)?;
    }
    Ok(scheduler::worst(&runs.states).map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// Returns the runs that models are ranked among, which are by the small protocol.
fn table(arguments: &MiniArgs) -> Result<Vec<Record>> {
    let mut records = match &arguments.table {
        Some(path) => given_table(path)?,
        None => committed::MINI.records().class(Class::Data)?,
    };
    records.retain(|record| record.recipe.name == RECIPE);
    cmd::agree::drop_rates_of_the_recipe(&mut records);
    Ok(records)
}

/// Returns the records of the file or folder that `--table` names.
///
/// # Errors
/// It cannot be read, or holds none; the message says what `--table` takes.
fn given_table(path: &Path) -> Result<Vec<Record>> {
    let refused = |class: Class, told: String| {
        Error::new(
            class,
            format!(
                "{told}; --table takes a folder of runs by `lra mini`, or a CSV file that `lra merge` made of one; \
                 leave it out to rank in the table of this program"
            ),
        )
    };
    let loaded = cmd::load_any(path, false);
    let records = loaded
        .map_err(|error| refused(error.class, error.to_string()))?
        .records;
    if records.is_empty() {
        return Err(refused(
            Class::Data,
            format!("no records under {}", path.display()),
        ));
    }
    Ok(records)
}

/// Prints the table: the ranks of all models in it.
fn ranks(arguments: &MiniArgs) -> Result<ExitCode> {
    let trains = [
        (arguments.glance, "--glance"),
        (!arguments.assignments.is_empty(), "--set"),
        (arguments.dry_run, "--dry-run"),
        (arguments.redo_changed, "--redo-changed"),
        (arguments.accept_changes, "--accept-changes"),
    ];
    if let Some((_, flag)) = trains.iter().find(|(given, _)| *given) {
        return Err(Error::usage(format!(
            "{flag} is for the runs of a model: name one, as in `lra mini s4d`; without a model the table is printed"
        )));
    }
    let records = table(arguments)?;
    let ranks = tables::find("ranks")
        .class(Class::Run)?
        .make(&records, None);
    let format = if arguments.json {
        Format::Json
    } else {
        Format::Text
    };
    cmd::print_tables(format, &[ranks])?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the tasks that count and whose data are here or can be generated, and those that are
/// left out.
fn tasks(arguments: &MiniArgs, reporter: &Reporter) -> Result<(Vec<TaskChoice>, Vec<LeftOut>)> {
    let recipe = Recipe::load(RECIPE)?;
    let store = Store::new(&arguments.place.path());
    let (mut tasks, mut left_out) = (Vec::new(), Vec::new());
    for name in &recipe.body.counted {
        let task = TaskChoice {
            name: name.clone(),
            source: recipe.source(name)?,
        };
        // The settings of the data are the same for every model.
        let matrix = Matrix {
            tasks: vec![task.clone()],
            models: sweep::plan::models(&["bag".to_owned()])?,
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
            let get = match resolved.task.remote().is_empty() {
                true => "make",
                false => "fetch",
            };
            let reason = format!(
                "--glance runs the generated tasks only; for this one, use `lra data {get} {name}{}` and leave out --glance",
                shell::data_flag()
            );
            left_out.push((name.clone(), reason));
            continue;
        }
        match store.open_or_build(resolved.task, &resolved.spec.data_key(), None, reporter) {
            Ok(_) => tasks.push(task),
            Err(error) => left_out.push((name.clone(), without_stand_in(error).to_string())),
        }
    }
    Ok((tasks, left_out))
}

/// Returns an error without the advice to take a stand-in, which is another task than that of the
/// protocol.
fn without_stand_in(mut error: datasets::Error) -> datasets::Error {
    if let datasets::Error::Missing { stand_in, .. } = &mut error {
        *stand_in = None;
    }
    error
}

/// Runs of the protocol, and the records of them that are on file.
struct Runs<'a> {
    arguments: &'a MiniArgs,
    stop: &'a Stop,
    reporter: &'a Reporter,
    options: JobOptions,
    comparer: Comparer<'a>,
    /// States of all cells so far.
    states: Vec<State>,
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
                accept_changes: arguments.accept_changes,
                trackers: Vec::new(),
            },
            comparer: Comparer::new(
                arguments.place.path(),
                std::slice::from_ref(&arguments.device),
                reporter,
            ),
            states: Vec::new(),
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

    /// Returns the runs of a model. In the block of X-formers it runs unless that is its own, or a
    /// glance is wanted; where it cannot take that block it is left out, with the reason.
    fn plan(
        &self,
        model: ModelChoice,
        tasks: &[TaskChoice],
        mut left_out: Vec<LeftOut>,
    ) -> Result<Plan> {
        let registered = models::registry().iter().find(|it| it.name == model.model);
        let family = registered.map(|it| it.family);
        let mut stages = [const { Vec::new() }; STAGES];
        stages[OWN] = self.cells(&model, tasks, &Rates::new())?;
        let recipe = Recipe::load(RECIPE)?;
        let is_rate = |it: &String| overlay::key(it) == probe::RATE;
        let has_rate = self.arguments.assignments.iter().any(is_rate)
            || model.assignments().any(|it| is_rate(&it));
        for task in tasks.iter().filter(|_| !self.arguments.glance) {
            let on_file = recipe.body.rates.iter().any(|rate| {
                rate.model == model.model
                    && rate.task == task.name
                    && family.is_some_and(|family| family.name() == rate.family)
            });
            if !on_file && !has_rate {
                let matrix = Matrix {
                    seeds: self.arguments.seeds.0.iter().copied().take(1).collect(),
                    ..self.matrix(&model, task, self.arguments.assignments.clone())
                };
                stages[PROBES].extend(probe::cells(&matrix, &[])?.cells);
            }
            if family == Some(Family::Xformer) {
                continue;
            }
            let mut assignments = self.arguments.assignments.clone();
            assignments.push(SAME_BLOCK.to_owned());
            match self.matrix(&model, task, assignments).cells() {
                Ok(of_task) => stages[SAME].extend(of_task),
                Err(error) => {
                    let place = format!("{} in the block of X-formers", task.name);
                    left_out.push((place, error.to_string()));
                }
            }
        }
        Ok(Plan {
            model,
            stages,
            left_out,
            forecast: Forecast::new(self.options.data.clone()),
        })
    }

    /// Estimates the runs that are not on file, and says how long they will take.
    ///
    /// # Errors
    /// Errors of [`Runs::on_file`], before anything is run.
    fn announce(&self, plans: &mut [Plan]) -> Result<()> {
        let mut on_file = self.on_file(plans.iter().flat_map(Plan::cells))?;
        // Failed runs are run again.
        on_file.retain(|_, record| record.outcome.is_final());
        if self.arguments.quiet {
            return Ok(());
        }
        let cells: usize = plans.iter().map(|plan| plan.cells().count()).sum();
        self.reporter.start("estimate", 0, Some(cells as u64));
        let mut done = 0;
        let mut lines = Vec::new();
        let mut whole = Duration::ZERO;
        for plan in plans.iter_mut() {
            let mut unknown = BTreeMap::new();
            for stage in [OWN, SAME] {
                let cells = &plan.stages[stage];
                let mut estimator = Estimator::new(&self.options, self.stop, cells, &on_file);
                for cell in cells {
                    done += 1;
                    self.reporter.at(done, &cell.title());
                    if self.stop.requested() {
                        self.reporter.stop();
                        return Ok(());
                    }
                    if !on_file.contains_key(&cell.digest)
                        && let Some(reason) = plan.forecast.learn(cell, &mut estimator)?
                        && stage == OWN
                    {
                        unknown.insert(cell.column(), reason);
                    }
                }
            }
            whole += plan.describe(&on_file, self.options.jobs, &unknown, &mut lines);
        }
        self.reporter.stop();
        if plans.len() > 1 && !whole.is_zero() {
            let whole = human_duration(whole);
            lines.push(format!("           all models: about {whole}"));
        }
        if self.arguments.seeds.0.len() > 1 && !lines.is_empty() {
            lines.push("           fewer seeds take less time: --seeds 0".to_owned());
        }
        lines.iter().for_each(|line| self.reporter.say(line));
        Ok(())
    }

    /// Finds the learning rates of a model on the tasks for which the recipe has none on file.
    fn rates(&mut self, plans: &[Plan], at: usize) -> Result<Rates> {
        let cells = &plans[at].stages[PROBES];
        if cells.is_empty() {
            return Ok(Rates::new());
        }
        self.reporter.say(&format!(
            "{}: looking for its learning rates, which are not on file",
            plans[at].model
        ));
        let states = self.run(plans, (at, PROBES), cells)?;
        Ok(probe::best(cells, &states))
    }

    /// Runs those of `cells` that are not on file; they are a stage of one of the plans. Returns
    /// their states; none if nothing is to be run.
    ///
    /// # Errors
    /// Cells on file have changed, and nothing says what to do about that.
    fn run(
        &mut self,
        plans: &[Plan],
        (at, stage): (usize, usize),
        cells: &[Cell],
    ) -> Result<Vec<State>> {
        if cells.is_empty() || self.stop.requested() {
            return Ok(Vec::new());
        }
        let on_file = self.on_file(cells)?;
        self.comparer.tell_other_raw_files(cells);
        let devices = [self.options.device.clone()];
        let forecast = &plans[at].forecast;
        let planned = cells.iter().map(|cell| forecast.time(cell)).collect();
        let later = plans[at].time(stage + 1, &on_file);
        let others = plans[at + 1..].iter();
        let later = later + others.map(|plan| plan.time(0, &on_file)).sum::<Duration>();
        let display = ProgressDisplay::new(self.arguments.quiet);
        let mut display = display.with_plan(TimeLeft::planned(planned, later));
        let mut scheduler = Scheduler {
            cells,
            options: &self.options,
            jobs: self.options.jobs,
            devices: &devices,
            judge: Judge {
                options: &self.options,
                comparer: &self.comparer,
                retry: true,
                redo_changed: self.arguments.redo_changed,
            },
            stop: self.stop,
            display: &mut display,
        };
        let states = scheduler.run(on_file)?;
        for (cell, state) in cells.iter().zip(&states) {
            if let State::Failed(Failure { reason, .. }) = state {
                self.reporter.error(&format!("{}: {reason}", cell.title()));
            }
        }
        let pairs = cells.iter().zip(&states);
        refuse_changed(pairs.filter_map(|(cell, state)| match state {
            State::Changed(reason) => Some(format!("{}: {reason}", cell.title())),
            _ => None,
        }))?;
        let pairs = cells.iter().zip(&states);
        let not_compared = pairs.filter_map(|(cell, state)| match state {
            State::Scored { not_compared, .. } => Some((cell, not_compared.as_deref()?)),
            _ => None,
        });
        for line in comparison::not_compared(not_compared) {
            self.reporter.note(&line);
        }
        self.tell_old(cells, &states);
        self.states.extend(states.iter().cloned());
        Ok(states)
    }

    /// Says, quiet or not, which scores were on file.
    fn tell_old(&self, cells: &[Cell], states: &[State]) {
        let old = states.iter().filter_map(|state| match state {
            State::Scored {
                record,
                fresh: false,
                ..
            } => Some(record.provenance.created.as_str()),
            _ => None,
        });
        let Some(first) = old.clone().min() else {
            return;
        };
        let mut models: Vec<String> = cells.iter().map(|cell| cell.model.to_string()).collect();
        models.dedup();
        self.reporter.note(&format!(
            "{}: {} of {} on file, the oldest since {first}; another --out runs them again",
            models.join(", "),
            results::counted(old.count() as u64, "score"),
            cells.len()
        ));
    }

    /// Returns the records on file of cells, without those that are to be run again.
    ///
    /// # Errors
    /// Records have changed, and nothing says what to do about that.
    fn on_file<'c>(&self, cells: impl IntoIterator<Item = &'c Cell>) -> Result<OnFile> {
        let mut on_file = cmd::sweep::on_file(&self.options, self.reporter)?;
        let mut changed = Vec::new();
        for cell in cells {
            let Some(record) = on_file.get(&cell.digest) else {
                continue;
            };
            if self.options.accept_changes || !record.outcome.is_final() {
                continue;
            }
            let changes = self.comparer.compare(cell, record)?.changes;
            if !changes.is_empty() {
                on_file.remove(&cell.digest);
                changed.push(format!("{}: {}", cell.title(), changes.join("; ")));
            }
        }
        if !self.arguments.redo_changed {
            refuse_changed(changed)?;
        }
        Ok(on_file)
    }
}

/// Returns the scores that were on file, each with its run and its time.
fn on_file_as_json<'s>(states: impl Iterator<Item = &'s State>) -> Value {
    let old = states.filter_map(|state| match state {
        State::Scored {
            record,
            fresh: false,
            ..
        } => Some(json!({ "id": record.id, "created": record.provenance.created })),
        _ => None,
    });
    old.collect()
}

/// Refuses to go on if cells on file have changed, each described in words.
fn refuse_changed(changed: impl IntoIterator<Item = String>) -> Result<()> {
    let changed: Vec<String> = changed.into_iter().collect();
    match changed.is_empty() {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "{}\n  {}",
            changed.join("\n  "),
            cmd::sweep::CHANGED
        ))),
    }
}
