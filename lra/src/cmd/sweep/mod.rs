//! `lra sweep`: the matrix, cell by cell.

mod script;

use std::collections::HashMap;
use std::process::ExitCode;

use results::record::Scores;
use results::store::{SWEEP_LOG, record_file};
use results::table::{Cell as TableCell, Column, Row, Table};
use results::{Format, Record, Tone};
use serde_json::{Value, json};

use crate::cli::sweep::SweepArgs;
use crate::cmd;
use crate::colour::{self, Text};
use crate::error::{Class, Classify, Result};
use crate::model_choice::ModelChoice;
use crate::progress::Reporter;
use crate::run_folder::RunFolder;
use crate::signals::Stop;
use crate::sweep::comparison::Comparer;
use crate::sweep::estimator::{Estimate, Estimator};
use crate::sweep::job::{Failure, JobOptions};
use crate::sweep::plan::{self, Cell, Matrix, Planned, Refused};
use crate::sweep::progress_display::{ProgressDisplay, grid, legend};
use crate::sweep::scheduler::{Judge, Scheduler, Standing, State};
use crate::sweep::time_left::makespan;
use crate::sweep::{best, comparison, probe, scheduler, search};
use crate::task_choice::TaskChoice;
use crate::timing::human_duration;
use crate::{limits, overlay, shell, stderr};

/// Advice on records that differ from what would be made here.
pub const CHANGED: &str = "what has changed is neither used nor run again: --redo-changed runs it again, --accept-changes takes it as it is";

/// Runs the command.
pub fn run(arguments: &SweepArgs) -> Result<ExitCode> {
    let Planned { cells, refused } = planned(arguments)?;
    let jobs = arguments.jobs();
    let share = || limits::total_memory().map(|bytes| (bytes as f64 * 0.95) as usize / jobs);
    let devices = arguments.devices();
    let options = JobOptions {
        data: arguments.place.path(),
        data_option: arguments.place.data.clone(),
        out: arguments.out.clone(),
        device: devices[0].clone(),
        threads: (script::threads(arguments) / jobs).max(1),
        jobs,
        memory_limit: arguments.memory_limit.or_else(share),
        accept_changes: arguments.accept_changes,
        trackers: arguments.tracker.clone(),
    };
    let stop = Stop::on_signals().during(Class::Run, "installing signal handlers")?;
    let reporter = Reporter::new(arguments.quiet);
    let on_file = known(arguments, &options, &reporter)?;
    for cell in &refused {
        reporter.error(&format!("{}: {}", cell.title(), cell.reason));
    }
    let comparer = Comparer::new(options.data.clone(), &devices, &reporter);
    comparer.tell_other_raw_files(&cells);
    let judge = Judge {
        options: &options,
        comparer: &comparer,
        retry: arguments.retry_failed,
        redo_changed: arguments.redo_changed,
    };
    if arguments.emit.is_some() || arguments.dry_run {
        comparer.tell_missing_data(&cells);
    }
    if let Some(system) = arguments.emit {
        let mut estimator = Estimator::new(&options, &stop, &cells, &on_file);
        cmd::print(&script::script(
            system,
            arguments,
            &cells,
            &mut estimator,
            &stop,
        )?)?;
        return Ok(match refused.len() {
            0 => ExitCode::SUCCESS,
            count => {
                let count = results::counted(count as u64, "cell");
                stderr::warning(format!(
                    "{count} cannot be built here (see above): the numbers of elements, cores and hours are without them"
                ));
                Class::Usage.into()
            }
        });
    }
    if arguments.dry_run {
        let mut estimator = Estimator::new(&options, &stop, &cells, &on_file);
        return dry_run(
            arguments,
            (&cells, &refused),
            &on_file,
            judge,
            &mut estimator,
            &reporter,
            &stop,
        );
    }
    let mut display = ProgressDisplay::new(arguments.quiet);
    let mut scheduler = Scheduler {
        cells: &cells,
        options: &options,
        jobs,
        devices: &devices,
        judge,
        stop: &stop,
        display: &mut display,
    };
    let states = scheduler.run(on_file)?;
    if arguments.json {
        let pairs = cells.iter().zip(&states);
        let run = pairs.map(|(cell, state)| as_json(cell, &options, state));
        let cells: Vec<Value> = run.chain(refused.iter().map(refused_as_json)).collect();
        cmd::print_json(&cells)?;
    } else {
        cmd::print(outcome(&cells, &states, &refused, &options))?;
        if arguments.probe {
            let (table, lines) = probe::report(&cells, &states);
            cmd::print_tables(Format::Text, &[table])?;
            cmd::print(format!("\n{lines}"))?;
        }
        if !arguments.grid.is_empty() {
            let mut table = best::table(&cells, &states, arguments.grid.len());
            if arguments.shard.is_some() {
                table.notes.push(
                    "Only the settings of this shard were compared; those of the others may be better."
                        .to_owned(),
                );
            }
            cmd::print_tables(Format::Text, &[table])?;
        }
    }
    Ok(exit_code(&states, &refused, stop.requested()))
}

/// Returns the cells that the command line asks for.
fn planned(arguments: &SweepArgs) -> Result<Planned> {
    let mut assignments = arguments.assignments.clone();
    assignments.extend(arguments.steps.map(|steps| format!("train.steps={steps}")));
    overlay::check_once(&assignments)?;
    let mut models = plan::models(&arguments.models)?;
    let points = search::points(&arguments.grid, arguments.trials.map(usize::from))?;
    for model in &models {
        let fixed: Vec<String> = assignments
            .iter()
            .cloned()
            .chain(model.assignments())
            .collect();
        overlay::check_once(&fixed)?;
        search::check_free(&arguments.grid, &fixed)?;
    }
    let mut typed = assignments.clone();
    typed.extend(models.iter().flat_map(ModelChoice::assignments));
    typed.extend(search::assignments(&points));
    if arguments.components {
        let components: Vec<_> = models
            .iter()
            .flat_map(ModelChoice::with_each_component)
            .collect();
        models.extend(components);
    }
    let models = search::at_each(&models, &points);
    let tasks = arguments.tasks.iter();
    let tasks: Vec<TaskChoice> = tasks
        .map(|task| task.with_source(arguments.source))
        .collect::<Result<_>>()?;
    let matrix = Matrix {
        tasks,
        models,
        recipes: arguments.recipe.clone(),
        seeds: arguments.seeds.0.clone(),
        protocol: arguments.protocol,
        assignments,
    };
    let planned = match arguments.probe {
        true => probe::cells(&matrix, &typed)?,
        false => matrix.planned(&typed)?,
    };
    Ok(match arguments.shard {
        Some(shard) => plan::part(planned, shard),
        None => planned,
    })
}

/// Returns the finished runs in the sweep's folder and in the given files. If both have a cell,
/// that of the folder counts.
fn known(
    arguments: &SweepArgs,
    options: &JobOptions,
    reporter: &Reporter,
) -> Result<HashMap<String, Record>> {
    let merged = record_file::merge(&arguments.on_file).class(Class::Data)?;
    cmd::merge::warn(&merged);
    let mut known = plan::on_file(merged.records);
    known.extend(on_file(options, reporter)?);
    Ok(known)
}

/// Returns the finished runs in the sweep's folder. Damaged records are named and left out.
pub fn on_file(options: &JobOptions, reporter: &Reporter) -> Result<HashMap<String, Record>> {
    if !options.out.exists() {
        return Ok(HashMap::new());
    }
    let loaded = results::store::load(&options.out).class(Class::Data)?;
    for (path, reason) in &loaded.skipped {
        reporter.warn(&format!("{} left out: {reason}", path.display()));
    }
    // As for `lra run`, a copy of a run's folder under another name is another run's.
    let pairs = loaded.records.into_iter().zip(loaded.folders);
    let own = pairs.filter(|(record, folder)| *folder == options.out.join(&record.id));
    Ok(plan::on_file(own.map(|(record, _)| record).collect()))
}

/// Returns the states of the cells, and where to read more.
fn outcome(cells: &[Cell], states: &[State], refused: &[Refused], options: &JobOptions) -> Text {
    let mut lines = grid(cells, states, refused);
    lines.extend(["".into(), legend()]);
    let failed = |title: &str, reason: &str| {
        stderr::headed(Tone::Bad, "failed:", &format!("{title}: {reason}"))
    };
    let told = refused.iter();
    lines.extend(told.map(|it| failed(&it.title(), &it.reason)));
    for (cell, state) in cells.iter().zip(states) {
        if let State::Failed(Failure { reason, .. }) = state {
            let log = options.folder(cell).join(SWEEP_LOG);
            lines.push(failed(&cell.title(), reason));
            lines.push(format!("        {}", log.display()).into());
        }
        if let State::Changed(changes) = state {
            let folder = options.folder(cell);
            lines.push(format!("changed: {}: {changes}", cell.title()).into());
            lines.push(format!("         {}", folder.display()).into());
        }
    }
    if states
        .iter()
        .any(|state| matches!(state, State::Changed(_)))
    {
        lines.push(CHANGED.into());
    }
    let pairs = cells.iter().zip(states);
    let not_compared = comparison::not_compared(pairs.filter_map(|(cell, state)| match state {
        State::Scored { not_compared, .. } => Some((cell, not_compared.as_deref()?)),
        _ => None,
    }));
    lines.extend(not_compared.into_iter().map(Text::from));
    let scored = |state: &State| matches!(state, State::Scored { .. });
    // Cells of `--on-file` alone leave no folder.
    if options.out.exists() && states.iter().any(scored) {
        let out = shell::quoted_path(&options.out);
        lines.push(format!("tables: lra report {out}").into());
    }
    colour::joined(lines)
}

/// Returns success if every cell is scored; the code of wrong usage if all others have changed or
/// cannot be built; else that of a failed run.
fn exit_code(states: &[State], refused: &[Refused], stopped: bool) -> ExitCode {
    if stopped {
        return Class::Interrupted.into();
    }
    let of_refused = (!refused.is_empty()).then_some(Class::Usage);
    let worst = scheduler::worst(states).or(of_refused);
    worst.map_or(ExitCode::SUCCESS, ExitCode::from)
}

/// Returns a cell that cannot be built as JSON: it has failed, and has neither an id nor a folder.
fn refused_as_json(cell: &Refused) -> Value {
    json!({
        "id": Value::Null,
        "task": cell.task.name,
        "source": cell.task.source,
        "model": cell.model.to_string(),
        "recipe": cell.recipe,
        "seed": cell.seed,
        "state": "failed",
        "detail": cell.reason,
        "val_accuracy": Value::Null,
        "val_loss": Value::Null,
        "not_compared": Value::Null,
        "folder": Value::Null,
    })
}

fn as_json(cell: &Cell, options: &JobOptions, state: &State) -> Value {
    let settings = &cell.resolved.spec.cell;
    let (word, detail) = match state {
        State::Pending => ("pending", Value::Null),
        State::Running => ("running", Value::Null),
        State::Elsewhere => ("elsewhere", Value::Null),
        State::Scored {
            record,
            fresh: true,
            ..
        } => ("scored", json!(record.test_accuracy())),
        State::Scored {
            record,
            fresh: false,
            ..
        } => ("on file", json!(record.test_accuracy())),
        State::Failed(Failure { reason, .. }) => ("failed", json!(reason)),
        State::Changed(changes) => ("changed", json!(changes)),
        State::Interrupted => ("interrupted", Value::Null),
    };
    let not_compared = match state {
        State::Scored { not_compared, .. } => not_compared.as_deref(),
        _ => None,
    };
    let scores = state.score().and_then(|record| record.scores.as_ref());
    json!({
        "id": cell.id,
        "task": settings.task,
        "source": settings.source,
        "model": cell.model.to_string(),
        "recipe": settings.recipe,
        "seed": settings.seed,
        "state": word,
        "detail": detail,
        "val_accuracy": scores.and_then(Scores::deciding_accuracy),
        "val_loss": scores.and_then(Scores::deciding_loss),
        "not_compared": not_compared,
        "folder": options.folder(cell).to_string_lossy(),
    })
}

/// Shows the cells that would be run.
fn dry_run(
    arguments: &SweepArgs,
    (cells, refused): (&[Cell], &[Refused]),
    on_file: &HashMap<String, Record>,
    judge: Judge<'_>,
    estimator: &mut Estimator<'_>,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<ExitCode> {
    let mut lines = Vec::new();
    reporter.start("estimate", 0, Some(cells.len() as u64));
    for (index, cell) in cells.iter().enumerate() {
        reporter.at(index as u64, &cell.title());
        let folder = judge.options.folder(cell);
        let begun = folder.join("spec.toml").exists();
        // The record of an unfinished run tells whether it can go on.
        let begun_run = RunFolder::begun(&folder, &cell.resolved.spec);
        let unfinished = begun_run.as_ref().ok().cloned().flatten();
        let pretrains = !cell.resolved.spec.pretrain.is_off();
        // Reads logs, so only what would be resumed is asked.
        let missing = || RunFolder::can_resume(&folder, pretrains, unfinished.as_ref()).err();
        let known = on_file.get(&cell.digest).cloned();
        let known_here = known.is_some();
        let standing = match known {
            Some(known) => judge.standing(cell, known)?,
            None => judge.standing_of_begun(cell, begun_run)?,
        };
        // The reason why nothing can be told of its time.
        let mut unusable = None;
        let (state, not_compared) = match standing {
            Standing::Over(State::Changed(_)) => ("changed", None),
            Standing::Over(State::Scored { not_compared, .. }) => ("on file", not_compared),
            Standing::Over(other) => {
                let state = other.unscored().unwrap_or("on file");
                if let State::Failed(Failure {
                    record: None,
                    reason,
                    ..
                }) = other
                {
                    unusable = Some(reason);
                }
                (state, None)
            }
            Standing::ToRun { .. } if known_here => ("again", None),
            Standing::ToRun { force: true } => ("again", None),
            Standing::ToRun { force: false } if begun => ("resume", None),
            Standing::ToRun { force: false } => ("run", None),
        };
        let (state, estimate) = match (state == "resume").then(missing).flatten() {
            Some(missing) => ("incomplete", Err(missing.to_string())),
            None => match unusable {
                Some(reason) => (state, Err(reason)),
                None => (state, estimator.estimate(cell)?),
            },
        };
        lines.push(Line {
            cell,
            state,
            not_compared,
            estimate,
        });
        if stop.requested() {
            reporter.stop();
            return Ok(Class::Interrupted.into());
        }
    }
    reporter.stop();
    if arguments.json {
        let planned = lines.iter().map(Line::json);
        let all: Vec<Value> = planned.chain(refused.iter().map(refused_as_json)).collect();
        cmd::print_json(&all)?;
    } else {
        let mut table = plan_table(&lines, arguments.jobs());
        table.rows.extend(refused.iter().map(refused_row));
        cmd::print_tables(Format::Text, &[table])?;
    }
    Ok(match refused.is_empty() {
        true => ExitCode::SUCCESS,
        false => Class::Usage.into(),
    })
}

/// Returns the line of the plan for a cell that cannot be built.
fn refused_row(cell: &Refused) -> Row {
    let words = [
        cell.column.clone(),
        cell.model.to_string(),
        cell.recipe.clone(),
        cell.seed.to_string(),
        "failed".to_owned(),
        String::new(),
        String::new(),
        cell.reason.clone(),
    ];
    Row::new(words.map(TableCell::text).to_vec())
}

/// A line of the plan.
struct Line<'a> {
    cell: &'a Cell,
    state: &'static str,
    /// Reason why the data of a record on file were not compared.
    not_compared: Option<String>,
    estimate: Result<Estimate, String>,
}

impl Line<'_> {
    fn json(&self) -> Value {
        let settings = &self.cell.resolved.spec.cell;
        let estimate = self.estimate.as_ref();
        json!({
            "id": self.cell.id,
            "task": settings.task,
            "source": settings.source,
            "model": self.cell.model.to_string(),
            "recipe": settings.recipe,
            "seed": settings.seed,
            "state": self.state,
            "not_compared": self.not_compared,
            "seconds": estimate.ok().map(|it| it.time.as_secs_f64()),
            "peak_bytes": estimate.ok().map(|it| it.peak_bytes),
            "basis": estimate.map_or_else(Clone::clone, |it| it.basis.clone()),
        })
    }

    fn row(&self) -> Row {
        let settings = &self.cell.resolved.spec.cell;
        let mut cells = vec![
            TableCell::text(self.cell.column()),
            TableCell::text(self.cell.model.to_string()),
            TableCell::text(settings.recipe.clone()),
            TableCell::text(settings.seed.to_string()),
            TableCell::text(self.state),
        ];
        match &self.estimate {
            Ok(estimate) => {
                let mib = estimate.peak_bytes as f64 / (1u64 << 20) as f64;
                cells.extend([
                    TableCell::text(human_duration(estimate.time)),
                    TableCell::text(format!("{mib:.0} MiB")),
                    TableCell::text(estimate.basis.clone()),
                ]);
            }
            Err(reason) => {
                cells.extend([TableCell::default(), TableCell::default()]);
                cells.push(TableCell::text(reason.clone()));
            }
        }
        Row::new(cells)
    }
}

fn plan_table(lines: &[Line<'_>], jobs: usize) -> Table {
    let kept = ["on file", "changed", "incomplete", "failed", "diverged"];
    let stays = |line: &Line<'_>| kept.contains(&line.state);
    let to_do = || lines.iter().filter(|line| !stays(line));
    let times = to_do().filter_map(|line| line.estimate.as_ref().ok().map(|it| it.time));
    let whole = makespan(times, jobs);
    let unknown = to_do().filter(|line| line.estimate.is_err()).count();
    let count = to_do().count();
    let of_all = results::counted(lines.len() as u64, "cell");
    let note = match count > 0 && unknown == count {
        true => format!("{count} of {of_all} to run, in an unknown time"),
        false => {
            let time = human_duration(whole);
            let mut note = format!(
                "{count} of {of_all} to run, about {time} with {jobs} at a time on cores of their own; runs that share \
                 cores take longer"
            );
            if unknown > 0 {
                note += &format!("; {unknown} of them not counted, since nothing is known");
            }
            note
        }
    };
    let reasons = lines.iter();
    let reasons = reasons.filter_map(|line| Some((line.cell, line.not_compared.as_deref()?)));
    let reasons = comparison::not_compared(reasons).into_iter();
    let mut measured = to_do().filter_map(|line| line.estimate.as_ref().ok());
    let busy = measured.find(|it| !it.load.is_empty());
    let busy = busy.map(|it| format!("the steps were measured{}", it.load));
    let notes = std::iter::once(note).chain(busy).chain(reasons);
    Table {
        name: "plan".to_owned(),
        title: "Plan".to_owned(),
        unit: String::new(),
        columns: vec![
            Column::key("task"),
            Column::key("model"),
            Column::key("recipe"),
            Column::key("seed"),
            Column::text("to do"),
            Column::value("time"),
            Column::value("memory"),
            Column::text("known from"),
        ],
        rows: lines.iter().map(Line::row).collect(),
        notes: notes.map(|note| format!("{note}.")).collect(),
        ..Table::default()
    }
}
