//! `lra repro`: a published cell, trained as its source did and held against the printed figure.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use results::table::{Cell, Column, Row, Table};
use results::{Format, Record, published};
use serde_json::{Value, json};

use crate::cell::{IfExists, RunContext};
use crate::cli::parse::Seeds;
use crate::cli::repro::ReproArgs;
use crate::cmd::run::{each_seed, exit_code};
use crate::error::{Class, Classify, Error, Result};
use crate::model_choice::ModelChoice;
use crate::progress::Reporter;
use crate::repro::cell::{self, PublishedCell};
use crate::repro::plan::Plan;
use crate::repro::verdict::Verdict;
use crate::signals::Stop;
use crate::sweep::estimator::{Estimate, Estimator};
use crate::sweep::job::JobOptions;
use crate::sweep::plan::Matrix;
use crate::task_choice::TaskChoice;
use crate::timing::human_duration;
use crate::{cmd, device, runtime};

/// Runs the command.
pub fn run(arguments: &ReproArgs) -> Result<ExitCode> {
    if arguments.list {
        list(arguments)?;
        return Ok(ExitCode::SUCCESS);
    }
    let cells = wanted(arguments)?;
    runtime::set_up(arguments.machine.threads)?;
    let stop = Stop::on_signals().during(Class::Run, "installing signal handlers")?;
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

/// What is asked for.
enum Wanted {
    One(PublishedCell),
    /// Cheapest first, as many as a budget buys.
    Several(Vec<PublishedCell>, Duration),
}

fn wanted(arguments: &ReproArgs) -> Result<Wanted> {
    match (
        &arguments.source,
        &arguments.task,
        &arguments.model,
        arguments.budget,
    ) {
        (Some(source), Some(task), Some(model), _) => {
            let recipe = arguments.recipe.as_deref();
            PublishedCell::find(source, task, model, recipe).map(Wanted::One)
        }
        (_, None, None, Some(budget)) => {
            let cells = cheapest_first(arguments)?.0;
            let recipe = arguments.recipe.as_deref();
            let cells = cells.into_iter().map(|(cell, _)| cell);
            let follows = |cell: &PublishedCell| recipe.is_none_or(|name| name == cell.recipe);
            Ok(Wanted::Several(cells.filter(follows).collect(), budget))
        }
        _ => Err(Error::usage(
            "which cell? `lra repro SOURCE TASK MODEL`, such as `lra repro tay2021 listops performer`; \
             `lra repro --list` shows them all, and `lra repro SOURCE --budget 12h` trains as many as fit",
        )),
    }
}

/// What reproducing needs, whatever the cell.
struct Reproduction<'a> {
    arguments: &'a ReproArgs,
    data: &'a Path,
    stop: &'a Stop,
    reporter: &'a Reporter,
}

impl Reproduction<'_> {
    /// A cell with the seeds that are asked for, or as many as a budget buys: what is printed as JSON, and the records.
    fn one(&self, cell: PublishedCell, budget: Option<Duration>) -> Result<(Value, Vec<Record>)> {
        let estimate = self.estimate(&cell)?;
        let seeds = match budget {
            Some(budget) => within(budget, &estimate)?,
            None => self.arguments.seeds.clone(),
        };
        self.carry_out(cell, estimate, seeds)
    }

    /// The first seed of one cell after the other, until the next would take longer than what is left of the budget.
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

    /// Shows the plan of a cell, and unless that is all that is wanted, trains it and gives the verdict.
    fn carry_out(
        &self,
        cell: PublishedCell,
        estimate: Result<Estimate, String>,
        seeds: Seeds,
    ) -> Result<(Value, Vec<Record>)> {
        let arguments = self.arguments;
        let plan = Plan {
            resolved: cell.resolve(arguments.protocol)?,
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
        let request = plan.cell.request(arguments.protocol);
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

    /// Time and memory of one seed here, or why they are not known.
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
            assignments: Vec::new(),
        };
        let cells = matrix.cells()?;
        let options = JobOptions {
            data: self.data.to_owned(),
            data_option: arguments.place.data.clone(),
            out: arguments.out.clone(),
            device: arguments.machine.device.clone(),
            threads: arguments.machine.threads,
            jobs: 1,
            memory_limit: arguments.machine.memory_limit,
            accept_changes: arguments.accept_changes,
        };
        let on_file = cmd::sweep::on_file(&options, self.reporter)?;
        Estimator::new(&options, self.stop, &cells, &on_file).estimate(&cells[0])
    }
}

/// The most seeds that a budget buys.
const MOST_SEEDS: u64 = 10;

/// As many seeds as fit into a time.
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

/// The cells of the source that is asked for, or all, with the operations of a seed, cheapest first; and whether all operations are
/// known.
fn cheapest_first(arguments: &ReproArgs) -> Result<(Vec<(PublishedCell, f64)>, bool)> {
    let data = arguments.place.path();
    let only = arguments.source.as_deref().map(published::source);
    let only = only.transpose().class(Class::Usage)?;
    let mut cells = Vec::new();
    let mut known = true;
    for cell in cell::all()? {
        let shares = |source: &published::Source| {
            std::ptr::eq(source, cell.source) || source.recipes.contains(&cell.recipe)
        };
        if only.is_none_or(shares) {
            let (flops, complete) = cell.flops(arguments.protocol, &data)?;
            known &= complete;
            cells.push((cell, flops));
        }
    }
    cells.sort_by(|a, b| a.1.total_cmp(&b.1));
    Ok((cells, known))
}

/// All cells, cheapest first.
fn list(arguments: &ReproArgs) -> Result<()> {
    let (cells, known) = cheapest_first(arguments)?;
    let rows = cells.iter().map(|(cell, flops)| {
        let PublishedCell {
            source,
            figure,
            recipe,
        } = cell;
        Row::new(vec![
            Cell::with(source.alias, "source", source.alias),
            Cell::with(figure.task.clone(), "task", figure.task.clone()),
            Cell::with(figure.entry.clone(), "model", figure.entry.clone()),
            Cell::with(figure.text(), "published", figure.value),
            Cell::with(*recipe, "recipe", *recipe),
            Cell::with(format!("{:.1}", flops / 1e15), "flops", *flops),
        ])
    });
    let mut table = Table {
        name: "cells".to_owned(),
        title: "Published cells that can be trained here".to_owned(),
        unit: String::new(),
        columns: vec![
            Column::key("source"),
            Column::key("task"),
            Column::key("model"),
            Column::value("published"),
            Column::text("recipe"),
            Column::value("PFLOP"),
        ],
        rows: rows.collect(),
        notes: vec![
            "PFLOP: floating point operations of one seed, in 10^15, every sequence at its full length.".to_owned(),
            "lra repro SOURCE TASK MODEL --dry-run: the printed figure, every known difference, the time here.".to_owned(),
        ],
    };
    if !known {
        table.notes.push(
            "Of data that is not at hand, the operations of evaluations are left out.".to_owned(),
        );
    }
    match arguments.json {
        true => cmd::print_json(&cmd::list::objects(&table)),
        false => cmd::print(&Format::Text.render(&[table])),
    }
}
