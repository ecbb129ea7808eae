//! `lra repro`: a published cell, trained as its source did and compared with the printed figure.

mod list;

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use results::{Record, published};
use serde_json::{Value, json};

use crate::cell::{IfExists, RunContext};
use crate::cli::parse::Seeds;
use crate::cli::repro::ReproArgs;
use crate::cmd::run::{each_seed, exit_code};
use crate::error::{Class, Classify, Error, Result};
use crate::model_choice::ModelChoice;
use crate::progress::Reporter;
use crate::recipe::RECIPES;
use crate::repro::cell::{self, PublishedCell};
use crate::repro::hours::{CellTime, Speeds};
use crate::repro::plan::Plan;
use crate::repro::unoffered;
use crate::repro::verdict::Verdict;
use crate::signals::Stop;
use crate::sweep::estimator::{Estimate, Estimator};
use crate::sweep::job::JobOptions;
use crate::sweep::plan::Matrix;
use crate::task_choice::TaskChoice;
use crate::timing::human_duration;
use crate::{cmd, device, runtime, suggest};

/// Runs the command.
pub fn run(arguments: &ReproArgs) -> Result<ExitCode> {
    if arguments.unoffered {
        list::unoffered(arguments)?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = Stop::on_signals().during(Class::Run, "installing signal handlers")?;
    let cells = match wanted(arguments, &stop)? {
        Some(cells) => cells,
        None => {
            list::cells(arguments, &stop)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    runtime::set_up(Some(arguments.machine.threads))?;
    let reporter = Reporter::new(arguments.quiet).with_stop(&stop);
    let data = arguments.place.path();
    let reproduction = Reproduction {
        arguments,
        data: &data,
        stop: &stop,
        reporter: &reporter,
    };
    let (documents, records) = match cells {
        Wanted::One(cell) => reproduction.one(cell, arguments.budget)?,
        Wanted::Several(cells, budget) => reproduction.cheapest(cells, budget)?,
    };
    if arguments.json {
        cmd::print_json(&documents)?;
    }
    Ok(exit_code(&records))
}

/// Cells requested by the command line.
enum Wanted {
    One(PublishedCell),
    /// Cells in order of cost, as many as fit into a budget.
    Several(Vec<PublishedCell>, Duration),
}

/// Returns the requested cells; `None` if a list is requested.
fn wanted(arguments: &ReproArgs, stop: &Stop) -> Result<Option<Wanted>> {
    if arguments.list {
        return Ok(None);
    }
    match (
        &arguments.source,
        &arguments.task,
        &arguments.model,
        arguments.budget,
    ) {
        (Some(source), Some(task), Some(model), _) => {
            let recipe = recipe(arguments)?;
            let task = suggest::find("task", task, datasets::TASKS, |it| it.info().name)?;
            let model = suggest::find("model", model, models::registry(), |it| it.name)?;
            let (task, model) = (task.info().name, model.name);
            let cell = PublishedCell::find(source, task, model, recipe).map_err(|error| {
                match unoffered::reason_of(source, task, model) {
                    Some(reason) => error.during(reason),
                    None => error,
                }
            })?;
            Ok(Some(Wanted::One(cell)))
        }
        (_, None, None, Some(budget)) => {
            let cells = cheapest_first(arguments, stop)?.into_iter();
            let cells = cells.map(|(cell, _)| cell).collect();
            Ok(Some(Wanted::Several(cells, budget)))
        }
        (Some(_), None, None, None) => Ok(None),
        _ => Err(Error::usage(
            "no cell is named: `lra repro SOURCE TASK MODEL` trains one, such as `lra repro tay2021 listops performer`; \
             `lra repro --list` shows all cells, `lra repro SOURCE` those of a source, and `lra repro SOURCE --budget 12h` trains as many as fit",
        )),
    }
}

/// Context of a reproduction, the same for every cell.
struct Reproduction<'a> {
    arguments: &'a ReproArgs,
    data: &'a Path,
    stop: &'a Stop,
    reporter: &'a Reporter,
}

impl Reproduction<'_> {
    /// Reproduces a cell with the requested seeds, or as many as fit into a budget. Returns the
    /// JSON to print, and the records.
    fn one(&self, cell: PublishedCell, budget: Option<Duration>) -> Result<(Value, Vec<Record>)> {
        let estimate = self.estimate(&cell)?;
        let seeds = match budget {
            Some(budget) => within(budget, &estimate)?,
            None => self.arguments.seeds.clone(),
        };
        self.carry_out(cell, estimate, seeds)
    }

    /// Reproduces the first seed of one cell after the other, until the next would take longer than
    /// the rest of the budget.
    fn cheapest(
        &self,
        cells: Vec<PublishedCell>,
        budget: Duration,
    ) -> Result<(Value, Vec<Record>)> {
        let (mut documents, mut all) = (Vec::new(), Vec::new());
        let (began, mut planned) = (Instant::now(), Duration::ZERO);
        for cell in cells {
            let title = cell.title();
            let estimate = match self.estimate(&cell)? {
                Ok(estimate) => estimate,
                Err(reason) => {
                    self.reporter.say(&format!("{title} left out: {reason}"));
                    continue;
                }
            };
            let spent = match self.arguments.dry_run {
                true => planned,
                false => began.elapsed(),
            };
            let left = budget.saturating_sub(spent);
            if estimate.time > left {
                let (time, left) = (human_duration(estimate.time), human_duration(left));
                self.reporter.say(&format!(
                    "{title} would take about {time}; {left} of the budget are left"
                ));
                break;
            }
            planned += estimate.time;
            let (document, records) = self.carry_out(cell, Ok(estimate), Seeds(vec![0]))?;
            documents.push(document);
            all.extend(records);
            if self.stop.requested() {
                break;
            }
        }
        if documents.is_empty() {
            return Err(Error::usage(format!(
                "no cell fits into {}",
                human_duration(budget)
            )));
        }
        Ok((documents.into(), all))
    }

    /// Shows the plan of a cell, then trains it and gives the verdict, unless only the plan is
    /// requested.
    fn carry_out(
        &self,
        cell: PublishedCell,
        estimate: Result<Estimate, String>,
        seeds: Seeds,
    ) -> Result<(Value, Vec<Record>)> {
        let arguments = self.arguments;
        let plan = Plan {
            resolved: cell.resolve(arguments.protocol, &assignments(arguments))?,
            estimate,
            seeds,
            data: self.data.to_owned(),
            cell,
        };
        if !arguments.json {
            cmd::print(&plan.text())?;
        }
        if arguments.dry_run {
            return Ok((plan.json(), Vec::new()));
        }
        let device = device::select(&arguments.machine.device)?;
        let context = RunContext {
            data: self.data,
            out: &arguments.out,
            device: &device,
            if_exists: IfExists::Continue,
            accept_changes: arguments.accept_changes,
            tensorboard: false,
            memory_limit: arguments.machine.memory_limit,
            reporter: self.reporter,
            stop: self.stop,
        };
        let assignments = assignments(arguments);
        let request = plan.cell.request(arguments.protocol, &assignments);
        let records = each_seed(&request, &plan.seeds.0, &context, |_| Ok(()))?;
        let verdict = Verdict {
            plan: &plan,
            records: &records,
        };
        if !arguments.json {
            cmd::print(&verdict.text()?)?;
        }
        let document = json!({
            "plan": plan.json(),
            "records": records,
            "comparison": verdict.comparison()?.objects(),
        });
        Ok((document, records))
    }

    /// Returns the time and memory of one seed here, or the reason why they are not known.
    fn estimate(&self, cell: &PublishedCell) -> Result<Result<Estimate, String>> {
        let arguments = self.arguments;
        let matrix = Matrix {
            tasks: vec![TaskChoice {
                name: cell.figure.task.clone(),
                source: None,
            }],
            models: vec![ModelChoice::parse(&cell.figure.entry)?],
            recipes: vec![cell.recipe.to_owned()],
            seeds: vec![0],
            protocol: arguments.protocol,
            assignments: assignments(arguments),
        };
        let cells = matrix.cells()?;
        let options = job_options(arguments);
        let on_file = cmd::sweep::on_file(&options, self.reporter)?;
        Estimator::new(&options, self.stop, &cells, &on_file).estimate(&cells[0])
    }
}

/// Largest number of seeds within a budget.
const MOST_SEEDS: u64 = 10;

/// Returns the seeds that fit into a time.
fn within(budget: Duration, estimate: &Result<Estimate, String>) -> Result<Seeds> {
    let time = match estimate {
        Ok(estimate) => estimate.time,
        Err(reason) => {
            return Err(Error::usage(format!(
                "--budget: the time of a seed is not known: {reason}"
            )));
        }
    };
    match (budget.as_secs_f64() / time.as_secs_f64()) as u64 {
        0 => Err(Error::usage(format!(
            "one seed takes about {}, more than the budget of {}",
            human_duration(time),
            human_duration(budget)
        ))),
        fit => Ok(Seeds((0..fit.min(MOST_SEEDS)).collect())),
    }
}

/// Returns the cells of the requested source, or of all sources, with the time of a seed, cheapest
/// first.
fn cheapest_first(arguments: &ReproArgs, stop: &Stop) -> Result<Vec<(PublishedCell, CellTime)>> {
    let data = arguments.place.path();
    let (only, recipe) = (source(arguments)?, recipe(arguments)?);
    let (options, on_file) = (job_options(arguments), HashMap::new());
    let estimator = Estimator::new(&options, stop, &[], &on_file);
    let mut speeds = Speeds::new(&estimator);
    let reporter = Reporter::new(arguments.quiet);
    reporter.say("measuring a small step of each model");
    let mut cells = Vec::new();
    for cell in cell::all()? {
        let shares = |source: &published::Source| {
            std::ptr::eq(source, cell.source) || source.recipes.contains(&cell.recipe)
        };
        if only.is_none_or(shares) && recipe.is_none_or(|name| name == cell.recipe) {
            let time = speeds.time(&cell, arguments.protocol, &data)?;
            if stop.requested() {
                return Err(Error::new(
                    Class::Interrupted,
                    "stopped while models were measured",
                ));
            }
            cells.push((cell, time));
        }
    }
    let cost = |time: &CellTime| time.seconds.unwrap_or(f64::INFINITY);
    cells.sort_by(|a, b| {
        let flops = a.1.flops.total_cmp(&b.1.flops);
        cost(&a.1).total_cmp(&cost(&b.1)).then(flops)
    });
    Ok(cells)
}

/// Returns the requested source.
fn source(arguments: &ReproArgs) -> Result<Option<&'static published::Source>> {
    let only = arguments.source.as_deref().map(suggest::source);
    only.transpose()
}

/// Returns the name of the requested recipe.
fn recipe(arguments: &ReproArgs) -> Result<Option<&'static str>> {
    let named = arguments.recipe.as_deref();
    let found = named.map(|name| suggest::find("recipe", name, RECIPES, |(name, _)| name));
    Ok(found.transpose()?.map(|(name, _)| *name))
}

fn job_options(arguments: &ReproArgs) -> JobOptions {
    JobOptions {
        data: arguments.place.path(),
        data_option: arguments.place.data.clone(),
        out: arguments.out.clone(),
        device: arguments.machine.device.clone(),
        threads: arguments.machine.threads,
        jobs: 1,
        memory_limit: arguments.machine.memory_limit,
        accept_changes: arguments.accept_changes,
    }
}

/// Returns the settings that the command line changes.
fn assignments(arguments: &ReproArgs) -> Vec<String> {
    let micro_batch = arguments.micro_batch.iter();
    micro_batch
        .map(|size| format!("train.micro_batch={size}"))
        .collect()
}
