//! `lra run`: one cell of the table, for one seed or several.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use results::summary::summary;
use results::{Format, Outcome, Record, committed, published};
use serde_json::json;

use crate::cell::{self, Finished, IfExists, RunContext};
use crate::cli::RunArgs;
use crate::colour::Text;
use crate::damaged::Damaged;
use crate::error::{Class, Classify, Error, Result};
use crate::initial::Weights;
use crate::model_choice::ModelChoice;
use crate::output_lock::OutputLock;
use crate::progress::Reporter;
use crate::signals::Stop;
use crate::spec::{Resolved, RunRequest};
use crate::tracker::TrackerKind;
use crate::trained::TrainedRun;
use crate::{cmd, device, overlay, run_folder, runtime, shell, tracker};

/// Published figures that a finished cell is compared with.
const PUBLISHED: &str = "tay2021";

/// Runs the command.
pub fn run(arguments: &RunArgs) -> Result<ExitCode> {
    runtime::set_up(Some(arguments.machine.threads))?;
    let stop = Stop::on_signals().during(Class::Run, "installing signal handlers")?;
    if arguments.stop_on_eof {
        let listening = stop.on_end_of_input();
        listening.during(Class::Run, "starting a thread that reads standard input")?;
    }
    let reporter = Reporter::new(arguments.quiet).with_stop(&stop);
    let device = device::select(&arguments.machine.device)?;
    let mut assignments = arguments.assignments.clone();
    let model = ModelChoice::parse(&arguments.model)?;
    assignments.extend(model.assignments());
    assignments.extend(arguments.steps.map(|steps| format!("train.steps={steps}")));
    assignments.extend(
        arguments
            .micro_batch
            .map(|size| format!("train.micro_batch={size}")),
    );
    let pretrain = arguments.pretrain.as_ref();
    assignments.extend(pretrain.map(|kind| format!("pretrain.kind={kind}")));
    let precision = arguments.precision.as_ref();
    assignments.extend(precision.map(|precision| format!("train.precision={precision}")));
    overlay::check_once(&assignments)?;
    let task = arguments.task.with_source(arguments.source)?;
    if arguments.allow_partial {
        assignments.push(cmd::allow_partial(&task.name)?.to_owned());
    }
    let data = arguments.place.path();
    let context = RunContext {
        data: &data,
        out: &arguments.out,
        device: &device,
        if_exists: match (arguments.resume, arguments.force) {
            (true, _) => IfExists::Resume,
            (_, true) => IfExists::Replace,
            _ => IfExists::Keep,
        },
        accept_changes: arguments.accept_changes,
        tensorboard: arguments.tensorboard,
        memory_limit: arguments.machine.memory_limit,
        reporter: &reporter,
        stop: &stop,
    };
    let seeds = match &arguments.seeds {
        Some(seeds) => seeds.0.clone(),
        None => vec![arguments.seed],
    };
    let several = arguments.seeds.is_some();
    let table = committed::MINI.records().class(Class::Data)?;
    let request = RunRequest {
        task: &task.name,
        model: model.model,
        recipe: &arguments.recipe,
        source: task.source,
        protocol: arguments.protocol,
        seed: arguments.seed,
        assignments: &assignments,
    };
    let from = arguments.from.as_ref();
    let from = from.map(|path| weights_of(path, &reporter)).transpose()?;
    if arguments.dry_run {
        let runs = seeds
            .iter()
            .map(|seed| resolve(&request, *seed, from.as_ref()));
        let runs: Vec<Resolved> = runs.collect::<Result<_>>()?;
        return show_settings(&runs, arguments, several);
    }
    let told = RefCell::new(Vec::new());
    let ran = each_seed(&request, &seeds, from.as_ref(), &context, |record| {
        told.borrow_mut().push(record.clone());
        let folder = arguments.out.join(&record.id);
        for place in track(&arguments.tracker, &folder, record)? {
            reporter.say(&format!("written for a tracker: {}", place.display()));
        }
        if arguments.json {
            return Ok(());
        }
        let next = format!("lra report {}", shell::quoted_path(&arguments.out));
        let text = summary(record, published::source(PUBLISHED).ok(), &table);
        let places = format!("  folder      {}\n  tables      {next}\n", folder.display());
        cmd::print(text.into_iter().collect::<Text>().and(places))
    });
    let records = match ran {
        Ok(records) => records,
        // The seeds before the one that is refused ran.
        Err(error) => {
            let told = told.into_inner();
            if arguments.json && !told.is_empty() {
                cmd::print_json(&told)?;
            }
            return Err(error);
        }
    };
    if arguments.json {
        match (several, &records[..]) {
            (false, [record]) => cmd::print_json(record)?,
            _ => cmd::print_json(&records)?,
        }
    } else if several {
        let tables = cmd::report::make(|kind| kind.by_default, &records, PUBLISHED)?;
        cmd::print_tables(Format::Text, &tables)?;
    }
    Ok(exit_code(&records))
}

/// Returns the weights of a finished run, and tells if another program trained them.
fn weights_of(path: &Path, reporter: &Reporter) -> Result<Weights> {
    let weights = TrainedRun::open(path, &[])?.weights()?;
    for change in &weights.changes {
        reporter.note(&format!("the weights of {}: {change}", weights.run));
    }
    Ok(weights)
}

/// Returns the settings of the run with `seed`.
fn resolve(request: &RunRequest<'_>, seed: u64, from: Option<&Weights>) -> Result<Resolved> {
    let request = RunRequest {
        seed,
        ..request.clone()
    };
    let resolved = request.resolve()?;
    match from {
        Some(weights) => resolved.starting_from(weights),
        None => Ok(resolved),
    }
}

/// Prints the settings of runs in place of running them.
///
/// # Errors
/// A model cannot be built.
fn show_settings(runs: &[Resolved], arguments: &RunArgs, several: bool) -> Result<ExitCode> {
    let (mut text, mut all) = (String::new(), Vec::new());
    for resolved in runs {
        let id = cell::run_id(resolved, &resolved.data_shape()?);
        let (_, sizes) = resolved.meta()?;
        let parameters = sizes.elements();
        let counted = results::counted(parameters as u64, "parameter");
        text += &format!(
            "# {id}: {counted}\n# nothing was run; `lra sweep --dry-run` estimates time and memory\n{}\n",
            resolved.spec.to_toml()?
        );
        all.push(json!({
            "id": id,
            "folder": arguments.out.join(&id).to_string_lossy(),
            "parameters": parameters,
            "settings": resolved.spec,
        }));
    }
    match (arguments.json, several, &all[..]) {
        (false, ..) => cmd::print(&text)?,
        (true, false, [one]) => cmd::print_json(one)?,
        _ => cmd::print_json(&all)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a cell for one seed after the other, each starting from the weights `from` if there are
/// any, and reports each; the last one may be interrupted.
pub fn each_seed(
    request: &RunRequest<'_>,
    seeds: &[u64],
    from: Option<&Weights>,
    context: &RunContext<'_>,
    tell: impl Fn(&Record) -> Result<()>,
) -> Result<Vec<Record>> {
    let reporter = context.reporter;
    let mut records = Vec::new();
    for &seed in seeds {
        let resolved = resolve(request, seed, from)?;
        let Finished {
            record,
            fresh,
            remarks,
        } = cell::run(&resolved, context)?;
        if !fresh {
            let [id, since] = [&record.id, &record.provenance.created].map(|it| disk::escape(it));
            let remedy = match record.outcome.is_final() {
                true => "`lra run --force` runs it again",
                false => {
                    "`lra run --resume` continues from its last checkpoint, --force starts over"
                }
            };
            // Printed even without progress: the reader must know that a figure is an old one.
            reporter.note(&format!("{id} is on file since {since}; {remedy}"));
            for remark in remarks {
                reporter.note(&format!("{id}: {remark}"));
            }
        }
        tell(&record)?;
        tell_ending(&record, context);
        let interrupted = matches!(record.outcome, Outcome::Interrupted { .. });
        records.push(record);
        if interrupted {
            break;
        }
    }
    Ok(records)
}

/// Prints why a run has no score, if it has none.
pub fn tell_ending(record: &Record, context: &RunContext<'_>) {
    if record.outcome == Outcome::Scored {
        return;
    }
    let reporter = context.reporter;
    reporter.error(&format!("{}: {}", record.id, record.outcome));
    let details = context.out.join(&record.id).join(run_folder::ERROR);
    if details.exists() {
        reporter.say(&format!("the whole error is in {}", details.display()));
    }
}

/// Writes a run for experiment trackers into its folder, and returns their folders within it.
fn track(trackers: &[TrackerKind], folder: &Path, record: &Record) -> Result<Vec<PathBuf>> {
    if trackers.is_empty() {
        return Ok(Vec::new());
    }
    // Of two processes that export one run, one waits.
    let _lock = OutputLock::acquire(&folder.join("trackers"))?;
    let spec = run_folder::read_spec(folder)?;
    let settings = spec.map_or_else(Vec::new, |spec| spec.leaves());
    tracker::export(trackers, folder, record, &settings).map_err(|cause| Error {
        class: match cause.is::<Damaged>() {
            true => Class::Data,
            false => Class::Run,
        },
        cause: cause.context("writing the run for a tracker"),
    })
}

/// Returns the exit code of the worst outcome.
pub fn exit_code(records: &[Record]) -> ExitCode {
    let any = |wanted: fn(&Outcome) -> bool| records.iter().any(|record| wanted(&record.outcome));
    if any(|outcome| matches!(outcome, Outcome::Interrupted { .. })) {
        return Class::Interrupted.into();
    }
    if any(|outcome| !matches!(outcome, Outcome::Scored)) {
        return Class::Run.into();
    }
    ExitCode::SUCCESS
}
