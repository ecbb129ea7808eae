//! `lra repro`: a published cell, trained as its source did and held against the printed figure.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use datasets::Store;
use results::table::{Cell, Column, Row, Table};
use results::tables;
use results::{Format, Outcome, Record, published, width, wrap};
use serde_json::{Value, json};

use crate::cell::{IfExists, RunContext};
use crate::cli::parse::Seeds;
use crate::cli::repro::ReproArgs;
use crate::cmd::run::{each_seed, exit_code};
use crate::error::{Class, Classify, Error, Result};
use crate::estimate::planned_rows;
use crate::milestone::Milestone;
use crate::model_choice::ModelChoice;
use crate::progress::Reporter;
use crate::published_cell::{self, PublishedCell};
use crate::signals::Stop;
use crate::spec::{Resolved, RunRequest};
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
    runtime::set_up(arguments.threads)?;
    let stop = Stop::on_signals().during(Class::Run, "installing signal handlers")?;
    let reporter = Reporter::new(arguments.quiet).with_stop(&stop);
    let data = arguments.place.path();
    let plan = Plan {
        resolved: cell.resolve(arguments.protocol)?,
        estimate: estimate(&cell, arguments, &data, &stop, &reporter)?,
        arguments,
        data: &data,
        cell,
    };
    let seeds = plan.seeds()?;
    if !arguments.json {
        cmd::print(&plan.text(&seeds))?;
    }
    if arguments.dry_run {
        if arguments.json {
            cmd::print_json(&plan.json(&seeds))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let device = device::select(&arguments.device)?;
    let context = RunContext {
        data: &data,
        out: &arguments.out,
        device: &device,
        if_exists: IfExists::Resume,
        tensorboard: false,
        memory_limit: arguments.memory_limit,
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
    let records = each_seed(&request, &seeds.0, &context, |_| Ok(()))?;
    let verdict = Verdict {
        plan: &plan,
        records: &records,
    };
    match arguments.json {
        true => cmd::print_json(&json!({"plan": plan.json(&seeds), "records": records}))?,
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
        device: arguments.device.clone(),
        threads: arguments.threads,
        memory_limit: arguments.memory_limit,
    };
    let on_file = cmd::sweep::on_file(&options, reporter)?;
    Estimator::new(&options, stop, &cells, &on_file).estimate(&cells[0])
}

/// What would be done, and what is known of it.
struct Plan<'a> {
    arguments: &'a ReproArgs,
    data: &'a Path,
    cell: PublishedCell,
    resolved: Resolved,
    estimate: Result<Estimate, String>,
}

impl Plan<'_> {
    /// The seeds that are asked for, or as many as fit into the budget.
    fn seeds(&self) -> Result<Seeds> {
        let Some(budget) = self.arguments.budget else {
            return Ok(self.arguments.seeds.clone());
        };
        let time = match &self.estimate {
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

    /// Every known difference between what is printed and what is run here.
    fn differences(&self) -> Vec<String> {
        let mut all = self.resolved.departures();
        let variant = self.resolved.variant.name;
        if variant != "paper" && !self.cell.source.key.starts_with(variant) {
            all.push(format!("variant {variant}"));
        }
        all
    }

    fn milestones(&self) -> Vec<Milestone> {
        let (rows, complete) = planned_rows(&self.resolved, self.data);
        match complete {
            true => self.resolved.milestones(rows.train),
            false => Vec::new(),
        }
    }

    /// Where the data comes from: what there is, or how to get it.
    fn data(&self) -> String {
        let store = Store::new(self.data);
        let (task, key) = (self.resolved.task, self.resolved.spec.data_key());
        match store.open(task, &key) {
            Ok(splits) => format!(
                "{} / {} / {} examples, at hand",
                splits.train.len(),
                splits.val.len(),
                splits.test.len()
            ),
            Err(_) if key.source == datasets::Source::Generated => {
                "drawn when it is first used".to_owned()
            }
            Err(error) => error.to_string(),
        }
    }

    fn text(&self, seeds: &Seeds) -> String {
        let PublishedCell {
            source,
            figure,
            recipe,
        } = &self.cell;
        let mut lines = Lines::default();
        lines.add(
            "published",
            &format!(
                "{} on {}: {}{}, {} ({}, {})",
                figure.model,
                figure.task,
                figure.text(),
                if figure.value.is_some() { " %" } else { "" },
                source.alias,
                source.key,
                source.year
            ),
        );
        lines.add(
            "read in",
            &format!("{}: {}", figure.source, figure.trust.words()),
        );
        lines.add("defect", &figure.defect);
        lines.add("remark", &figure.notes);
        let settings = &self.resolved.spec.cell;
        lines.add(
            "here",
            &format!(
                "model {} ({}), recipe {recipe}, protocol {}, source {}, seed {seeds}",
                figure.entry, self.resolved.variant.name, settings.protocol, settings.source,
            ),
        );
        lines.add("follows", &self.resolved.recipe.body.source);
        lines.add("data", &self.data());
        for difference in self.differences() {
            lines.add("departs", &difference);
        }
        for it in self.milestones() {
            let percent = 100.0 * it.accuracy;
            lines.add(
                "milestone",
                &format!("{percent:.1} % by update {} ({})", it.step, it.whose),
            );
        }
        lines.add("cost", &self.cost(seeds));
        lines.text
    }

    fn cost(&self, seeds: &Seeds) -> String {
        let count = seeds.0.len();
        match &self.estimate {
            Ok(it) => {
                let all = u32::try_from(count).map_or(Duration::MAX, |n| it.time.saturating_mul(n));
                let together = match count {
                    1 => String::new(),
                    _ => format!(", {} for {count} seeds", human_duration(all)),
                };
                let gib = it.peak_bytes as f64 / (1u64 << 30) as f64;
                format!(
                    "about {} per seed{together}, {gib:.2} GiB of memory, {} of disk beside the data; known from {}",
                    human_duration(it.time),
                    mib(self.disk()),
                    it.basis
                )
            }
            Err(reason) => format!("not known: {reason}"),
        }
    }

    /// Bytes of a run folder, logs aside: weights, two moments of each, the best weights.
    fn disk(&self) -> u64 {
        let blank = self.resolved.blank();
        blank.map_or(0, |(_, sizes)| 16 * sizes.elements() as u64)
    }

    fn json(&self, seeds: &Seeds) -> Value {
        let PublishedCell {
            source,
            figure,
            recipe,
        } = &self.cell;
        let estimate = self.estimate.as_ref();
        let milestones: Vec<Value> = self
            .milestones()
            .into_iter()
            .map(|it| json!({"step": it.step, "accuracy": it.accuracy, "whose": it.whose}))
            .collect();
        json!({
            "source": source.key,
            "task": figure.task,
            "model": figure.entry,
            "published": figure.value,
            "read_in": figure.source,
            "trust": figure.trust.words(),
            "defect": figure.defect,
            "recipe": recipe,
            "protocol": self.resolved.spec.cell.protocol,
            "seeds": seeds.0,
            "departures": self.differences(),
            "milestones": milestones,
            "seconds_per_seed": estimate.ok().map(|it| it.time.as_secs_f64()),
            "peak_bytes": estimate.ok().map(|it| it.peak_bytes),
            "basis": estimate.map_or_else(Clone::clone, |it| it.basis.clone()),
        })
    }
}

/// The most seeds that a budget buys.
const MOST_SEEDS: u64 = 10;

fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", (bytes as f64 / (1u64 << 20) as f64).ceil())
}

/// Lines of a name and words, folded.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    /// Adds one, unless there is nothing to say.
    fn add(&mut self, name: &str, words: &str) {
        const INDENT: usize = 11;
        if !words.is_empty() {
            let words = wrap(words, width(), INDENT, INDENT);
            self.text += &format!("{name:<INDENT$}{words}\n");
        }
    }
}

/// What came of it.
struct Verdict<'a> {
    plan: &'a Plan<'a>,
    records: &'a [Record],
}

impl Verdict<'_> {
    /// The comparison with interval and verdict, and a block to paste.
    fn text(&self) -> Result<String> {
        let source = self.plan.cell.source;
        let kind = tables::find("comparison").class(Class::Run)?;
        let table = kind.make(self.records, Some(source));
        let shown = Format::Text.render(std::slice::from_ref(&table));
        if !self.records.iter().any(|it| it.outcome == Outcome::Scored) {
            return Ok(shown);
        }
        Ok(format!("{shown}\nTo paste:\n\n{}", self.markdown(table)))
    }

    fn markdown(&self, table: Table) -> String {
        let PublishedCell { source, figure, .. } = &self.plan.cell;
        let mut text = format!(
            "### {} on {}, {}\n\nRead in: {} ({}).\n\n",
            figure.model,
            figure.task,
            source.alias,
            figure.source,
            figure.trust.words()
        );
        text += &Format::Markdown.render(&[table]);
        text += "\n";
        for difference in self.plan.differences() {
            text += &format!("- Departs: {difference}.\n");
        }
        let scored = self.records.iter();
        for record in scored.filter(|it| it.outcome == Outcome::Scored) {
            let made = &record.provenance;
            text += &format!(
                "- {}: `{}`, lra {}{}, {} on {} with {} threads.\n",
                record.id,
                made.command,
                made.versions.lra,
                made.revision
                    .as_ref()
                    .map_or(String::new(), |it| format!(" ({})", it.commit)),
                made.device,
                made.host.cpu,
                made.threads
            );
        }
        text
    }
}

/// All cells, cheapest first.
fn list(arguments: &ReproArgs) -> Result<()> {
    let data = arguments.place.path();
    let only = arguments.source.as_deref().map(published::source);
    let only = only.transpose().class(Class::Usage)?;
    let mut cells = Vec::new();
    let mut unknown = false;
    for cell in published_cell::all()? {
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Verb};

    /// What `--dry-run` says of it, but for the measurement.
    #[test]
    fn every_published_cell_has_a_plan() {
        for cell in published_cell::all().unwrap() {
            let (alias, figure, recipe) = (cell.source.alias, cell.figure, cell.recipe);
            let words = ["lra", "repro", alias, &figure.task, &figure.entry];
            let Verb::Repro(arguments) = Cli::parse_from(words).verb else {
                panic!("{words:?} is another verb");
            };
            let plan = Plan {
                resolved: cell.resolve(arguments.protocol).unwrap(),
                estimate: Err("not measured".to_owned()),
                arguments: &arguments,
                data: Path::new("no data"),
                cell,
            };
            let text = plan.text(&Seeds(vec![0]));
            let fits = text.lines().all(|line| line.chars().count() <= width());
            assert!(fits && text.contains(recipe), "{words:?}: {text}");
            plan.json(&Seeds(vec![0]));
        }
    }
}
