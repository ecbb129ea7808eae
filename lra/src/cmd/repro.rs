//! `lra repro`: a published cell, trained as its source did and held against the printed figure.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use results::table::{Cell, Column, Row, Table};
use results::{Format, published};
use serde_json::json;

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
use crate::spec::RunRequest;
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
    let (Some(source), Some(task), Some(model)) =
        (&arguments.source, &arguments.task, &arguments.model)
    else {
        return Err(Error::usage(
            "which cell? `lra repro SOURCE TASK MODEL`, such as `lra repro tay2021 listops performer`; \
             `lra repro --list` shows them all",
        ));
    };
    let cell = PublishedCell::find(source, task, model, arguments.recipe.as_deref())?;
    runtime::set_up(arguments.machine.threads)?;
    let stop = Stop::on_signals().during(Class::Run, "installing signal handlers")?;
    let reporter = Reporter::new(arguments.quiet).with_stop(&stop);
    let data = arguments.place.path();
    let estimate = estimate(&cell, arguments, &data, &stop, &reporter)?;
    let seeds = match arguments.budget {
        Some(budget) => within(budget, &estimate)?,
        None => arguments.seeds.clone(),
    };
    let plan = Plan {
        resolved: cell.resolve(arguments.protocol)?,
        estimate,
        seeds,
        data: data.clone(),
        cell,
    };
    if !arguments.json {
        cmd::print(&plan.text())?;
    }
    if arguments.dry_run {
        if arguments.json {
            cmd::print_json(&plan.json())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let device = device::select(&arguments.machine.device)?;
    let context = RunContext {
        data: &data,
        out: &arguments.out,
        device: &device,
        if_exists: IfExists::Resume,
        tensorboard: false,
        memory_limit: arguments.machine.memory_limit,
        reporter: &reporter,
        stop: &stop,
    };
    let request = RunRequest {
        task: &plan.cell.figure.task,
        model: &plan.cell.figure.entry,
        recipe: plan.cell.recipe,
        source: None,
        protocol: arguments.protocol,
        seed: 0,
        assignments: &[],
    };
    let records = each_seed(&request, &plan.seeds.0, &context, |_| Ok(()))?;
    let verdict = Verdict {
        plan: &plan,
        records: &records,
    };
    match arguments.json {
        true => cmd::print_json(&json!({"plan": plan.json(), "records": records}))?,
        false => cmd::print(&verdict.text()?)?,
    }
    Ok(exit_code(&records))
}

/// Time and memory of one seed here, or why they are not known.
fn estimate(
    cell: &PublishedCell,
    arguments: &ReproArgs,
    data: &Path,
    stop: &Stop,
    reporter: &Reporter,
) -> Result<Result<Estimate, String>> {
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
        data: data.to_owned(),
        out: arguments.out.clone(),
        device: arguments.machine.device.clone(),
        threads: arguments.machine.threads,
        memory_limit: arguments.machine.memory_limit,
    };
    let on_file = cmd::sweep::on_file(&options, reporter)?;
    Estimator::new(&options, stop, &cells, &on_file).estimate(&cells[0])
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

/// All cells, cheapest first.
fn list(arguments: &ReproArgs) -> Result<()> {
    let data = arguments.place.path();
    let only = arguments.source.as_deref().map(published::source);
    let only = only.transpose().class(Class::Usage)?;
    let mut cells = Vec::new();
    let mut unknown = false;
    for cell in cell::all()? {
        let shares = |source: &published::Source| {
            std::ptr::eq(source, cell.source) || source.recipes.contains(&cell.recipe)
        };
        if only.is_none_or(shares) {
            let (flops, complete) = cell.flops(arguments.protocol, &data)?;
            unknown |= !complete;
            cells.push((cell, flops));
        }
    }
    cells.sort_by(|a, b| a.1.total_cmp(&b.1));
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
    if unknown {
        table.notes.push(
            "Of data that is not at hand, the operations of evaluations are left out.".to_owned(),
        );
    }
    match arguments.json {
        true => cmd::print_json(&cmd::list::objects(&table)),
        false => cmd::print(&Format::Text.render(&[table])),
    }
}
