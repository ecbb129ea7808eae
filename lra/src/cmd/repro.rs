//! `lra repro`: a published cell, trained as its source did and compared with the printed figure.

mod list;

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use results::{Format, Record, counted};
use serde_json::{Value, json};

use crate::cell::{IfExists, RunContext};
use crate::cli::parse::Seeds;
use crate::cli::repro::ReproArgs;
use crate::cmd::run::{each_seed, exit_code};
use crate::error::{Class, Classify, Error, Result};
use crate::model_choice::ModelChoice;
use crate::progress::Reporter;
use crate::repro::cell::{PublishedCell, Selection};
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
use crate::{cmd, device, limits, runtime, suggest};

/// Runs the command.
pub fn run(arguments: &ReproArgs) -> Result<ExitCode> {
    if arguments.unoffered {
        list::unoffered(arguments)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before anything is resolved: that computes, and starts the threads.
    runtime::set_up(Some(arguments.machine.threads))?;
    let stop = Stop::on_signals().during(Class::Run, "installing signal handlers")?;
    let cells = match wanted(arguments, &stop)? {
        Some(cells) => cells,
        None => {
            list::cells(arguments, &stop)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
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
    if stop.requested() {
        return Ok(Class::Interrupted.into());
    }
    Ok(exit_code(&records))
}

/// Cells requested by the command line.
enum Wanted {
    One(PublishedCell),
    /// Cells in order of cost by the small step of their model, as many as fit into a budget.
    Several(Timed, Duration),
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
            let selection = Selection::of(Some(source), arguments.recipe.as_deref())?;
            let task = suggest::task(task)?;
            let model = suggest::find("model", model, models::registry(), |it| it.name)?;
            let (task, model) = (task.info().name, model.name);
            let cell = PublishedCell::find(&selection, task, model).map_err(|error| {
                match unoffered::reason_of(source, task, model) {
                    Some(reason) => error.during(reason),
                    None => error,
                }
            })?;
            Ok(Some(Wanted::One(cell)))
        }
        (_, None, None, Some(budget)) => {
            let (cells, _) = cheapest_first(arguments, stop)?;
            Ok(Some(Wanted::Several(cells, budget)))
        }
        (Some(_), None, None, None) if arguments.seeds.is_some() => Err(Error::usage(
            "--seeds is for one cell: `lra repro SOURCE TASK MODEL --seeds A..B`; SOURCE alone lists its cells",
        )),
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
            None => self.arguments.seeds(),
        };
        self.carry_out(&self.plan(cell, estimate, seeds)?)
    }

    /// Reproduces the first seed of one cell after the other. A cell that would take longer than
    /// the rest of the budget, or needs more memory than there is, is left out. A cell that would
    /// take far longer by the small step of its model is left out without being measured, but for
    /// the first.
    fn cheapest(&self, cells: Timed, budget: Duration) -> Result<(Value, Vec<Record>)> {
        let (mut documents, mut all) = (Vec::new(), Vec::new());
        let (began, mut planned) = (Instant::now(), Duration::ZERO);
        let (mut far, mut measured) = (0, 0);
        for (cell, rough) in cells {
            if self.stop.requested() {
                break;
            }
            let spent = match self.arguments.dry_run {
                true => planned,
                false => began.elapsed(),
            };
            let left = budget.saturating_sub(spent);
            let most = ROUGH * left.as_secs_f64();
            if measured > 0 && rough.seconds.is_some_and(|seconds| seconds > most) {
                far += 1;
                continue;
            }
            measured += 1;
            let title = cell.title();
            let estimate = match self.estimate(&cell)? {
                Ok(estimate) => estimate,
                Err(reason) => {
                    self.reporter.say(&format!("{title} left out: {reason}"));
                    continue;
                }
            };
            let time = estimate.time;
            if time > left {
                let (time, left) = (human_duration(time), human_duration(left));
                self.reporter.say(&format!(
                    "{title} left out: it would take about {time}; {left} of the budget are left"
                ));
                continue;
            }
            let plan = self.plan(cell, Ok(estimate), Seeds(vec![0]))?;
            if let Some(reason) = plan.too_large() {
                self.reporter.say(&format!("{title} left out: {reason}"));
                continue;
            }
            planned += time;
            let (document, records) = self.carry_out(&plan)?;
            documents.push(document);
            all.extend(records);
        }
        if far > 0 {
            self.reporter.say(&format!(
                "{} left out unmeasured: by small steps of their models, more than {ROUGH} times the budget that was left",
                counted(far, "cell")
            ));
        }
        if documents.is_empty() && self.stop.requested() {
            return Err(Error::new(
                Class::Interrupted,
                "stopped before a cell was trained",
            ));
        }
        if documents.is_empty() {
            let rest = match far {
                0 => String::new(),
                _ => "; those left out unmeasured are measured by `lra repro SOURCE TASK MODEL --dry-run`".to_owned(),
            };
            return Err(Error::usage(format!(
                "no cell that was measured fits into {}{rest}",
                human_duration(budget)
            )));
        }
        Ok((documents.into(), all))
    }

    fn plan(
        &self,
        cell: PublishedCell,
        estimate: Result<Estimate, String>,
        seeds: Seeds,
    ) -> Result<Plan> {
        let arguments = self.arguments;
        let limit = arguments.machine.memory_limit.map(|bytes| bytes as u64);
        Ok(Plan {
            resolved: cell.resolve(arguments.protocol, &assignments(arguments))?,
            estimate,
            seeds,
            data: self.data.to_owned(),
            memory: limit.or_else(limits::total_memory),
            cell,
        })
    }

    /// Shows the plan of a cell, then trains it and gives the verdict, unless only the plan is
    /// requested.
    fn carry_out(&self, plan: &Plan) -> Result<(Value, Vec<Record>)> {
        let arguments = self.arguments;
        if !arguments.json {
            cmd::print(plan.text())?;
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
        let records = each_seed(&request, &plan.seeds.0, None, &context, |_| Ok(()))?;
        let verdict = Verdict {
            plan,
            records: &records,
        };
        if !arguments.json {
            cmd::print_tables(Format::Text, &[verdict.comparison()?])?;
            if let Some(block) = verdict.block()? {
                cmd::print(format!("\nTo paste:\n\n{block}"))?;
            }
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

/// Factor by which the time by the small step of a model may be too long or too short.
const ROUGH: f64 = 10.0;

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

/// Cells with the rough time of a seed.
type Timed = Vec<(PublishedCell, CellTime)>;

/// Returns the selected cells, cheapest first, and the reason if no time is known.
///
/// # Errors
/// There is none; the error has the reason.
fn cheapest_first(arguments: &ReproArgs, stop: &Stop) -> Result<(Timed, Option<String>)> {
    let data = arguments.place.path();
    let selection = selection(arguments)?;
    let selected = selection.cells()?;
    if selected.is_empty() {
        return Err(unoffered::nothing(&selection)?);
    }
    let (options, on_file) = (job_options(arguments), HashMap::new());
    let estimator = Estimator::new(&options, stop, &[], &on_file);
    let mut speeds = Speeds::new(&estimator);
    let reporter = Reporter::new(arguments.quiet);
    reporter.say("measuring a small step of each model");
    let mut cells = Vec::new();
    for cell in selected {
        let time = speeds.time(&cell, arguments.protocol, &data)?;
        if stop.requested() {
            return Err(Error::new(
                Class::Interrupted,
                "stopped while models were measured",
            ));
        }
        cells.push((cell, time));
    }
    let cost = |time: &CellTime| time.seconds.unwrap_or(f64::INFINITY);
    cells.sort_by(|a, b| {
        let flops = a.1.flops.total_cmp(&b.1.flops);
        cost(&a.1).total_cmp(&cost(&b.1)).then(flops)
    });
    Ok((cells, speeds.failure().map(str::to_owned)))
}

/// Returns the cells that SOURCE and --recipe select.
fn selection(arguments: &ReproArgs) -> Result<Selection> {
    Selection::of(arguments.source.as_deref(), arguments.recipe.as_deref())
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
        trackers: Vec::new(),
    }
}

/// Returns the settings that the command line changes.
fn assignments(arguments: &ReproArgs) -> Vec<String> {
    let micro_batch = arguments.micro_batch.iter();
    micro_batch
        .map(|size| format!("train.micro_batch={size}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_seeds_as_fit_into_a_budget_and_ten_at_most() {
        let estimate = |seconds| Estimate {
            time: Duration::from_secs(seconds),
            peak_bytes: 0,
            basis: String::new(),
            load: String::new(),
        };
        let seeds = |budget, seconds| {
            let seeds = within(Duration::from_secs(budget), &Ok(estimate(seconds)));
            seeds
                .map(|seeds| seeds.0)
                .map_err(|error| error.to_string())
        };
        assert_eq!(seeds(60, 60), Ok(vec![0]));
        assert_eq!(seeds(179, 60), Ok(vec![0, 1]));
        assert_eq!(seeds(60_000, 60), Ok((0..10).collect()));
        let error = seeds(59, 60).unwrap_err();
        assert!(
            error.contains("1 min 00 s") && error.contains("59 s"),
            "{error}"
        );
        let unknown = within(Duration::from_secs(1), &Err("no data".to_owned()));
        assert!(unknown.err().unwrap().to_string().contains("no data"));
    }
}
