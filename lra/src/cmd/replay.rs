//! `lra replay`: trains a recorded run again and compares the scores to the bit.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use datasets::tasks::mine;
use datasets::{Protocol, Source};
use results::Record;
use results::record::StartedFrom;
use serde_json::{Value, json};

use crate::cell::{self, Finished, IfExists, RunContext, changes};
use crate::cli::score::ReplayArgs;
use crate::error::{Class, Classify, Error, Result};
use crate::progress::Reporter;
use crate::signals::Stop;
use crate::spec::{Resolved, RunRequest};
use crate::trained::TrainedRun;
use crate::{cmd, device, overlay, run_folder, runtime};

/// Runs the command: exit code 1 if the scores differ, that of `lra run` if there are none.
pub fn run(arguments: &ReplayArgs) -> Result<ExitCode> {
    runtime::set_up(Some(arguments.computing.threads))?;
    let stop = Stop::on_signals().during(Class::Run, "installing signal handlers")?;
    let reporter = Reporter::new(arguments.quiet).with_stop(&stop);
    let device = device::select(&arguments.computing.device)?;
    let file = file_of(&arguments.record);
    let folder = &arguments.record;
    if !file.exists() && run_folder::read_spec(folder)?.is_some() {
        return Err(run_folder::unfinished(folder));
    }
    let record = results::store::read(&file).class(Class::Data)?;
    if !record.outcome.is_final() {
        return Err(Error::usage(format!(
            "{}: {}; only a run that was scored or diverged can be replayed",
            disk::escape(&file.display().to_string()),
            record.outcome
        )));
    }
    let resolved = resolve(
        &record,
        &task_name(&record, &file)?,
        arguments.recipe.as_deref(),
        arguments.from.as_deref(),
    )?;
    let data = arguments.place.path();
    let context = RunContext {
        data: &data,
        out: &arguments.out,
        device: &device,
        if_exists: match arguments.force {
            true => IfExists::Replace,
            false => IfExists::Continue,
        },
        accept_changes: false,
        tensorboard: false,
        memory_limit: None,
        reporter: &reporter,
        stop: &stop,
    };
    let target = arguments
        .out
        .join(cell::run_id(&resolved, &resolved.data_shape()?));
    refuse_itself(&arguments.record, &target)?;
    let finished = cell::run(&resolved, &context)?;
    if !finished.fresh {
        return Err(Error::usage(format!(
            "{} holds a finished run, and nothing was trained: --force trains it again in its place, --out DIR in another folder",
            disk::escape(&target.display().to_string())
        )));
    }
    let Finished { record: now, .. } = finished;
    // A run that did not come to its end says nothing about scores.
    if !now.outcome.is_final() {
        cmd::run::tell_ending(&now, &context);
        return Ok(cmd::run::exit_code(&[now]));
    }
    let devices = [device::describe(&device)];
    let mut reasons = changes::of_program(&record, resolved.task, resolved.model, &devices)?;
    reasons.extend(changes::of_data(&record, &now.task.data_digest));
    let differing = differences(&record, &now);
    match arguments.json {
        true => cmd::print_json(&json!({
            "id": record.id,
            "folder": arguments.out.join(&now.id).to_string_lossy(),
            "equal": differing.is_empty(),
            "differences": differing,
            "changes": reasons,
        }))?,
        false => cmd::print(text(&record, &differing, &reasons))?,
    }
    Ok(match differing.is_empty() {
        true => ExitCode::SUCCESS,
        false => Class::Check.into(),
    })
}

/// Refuses to train the recorded run in its own folder, where it would be compared with itself.
fn refuse_itself(record: &Path, target: &Path) -> Result<()> {
    let record = file_of(record).canonicalize();
    let own = record.ok().and_then(|it| it.parent().map(Path::to_owned));
    match own.is_some() && own == target.canonicalize().ok() {
        true => Err(Error::usage(format!(
            "{} is the folder of the recorded run itself: name another by --out DIR",
            disk::escape(&target.display().to_string())
        ))),
        false => Ok(()),
    }
}

/// Returns the file of a record, which may be named by the folder of its run.
fn file_of(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.join(results::store::FILE),
        false => path.to_owned(),
    }
}

/// Returns the name of the run's task. A folder is the one that the settings beside the record
/// name, if they are there.
fn task_name(record: &Record, file: &Path) -> Result<String> {
    let spec = match mine::is_folder(&record.task.name) {
        true => file.parent().map(run_folder::read_spec).transpose()?,
        false => None,
    };
    let of_spec = spec.flatten().map(|spec| spec.cell.task);
    Ok(of_spec.unwrap_or_else(|| record.task.name.clone()))
}

/// Returns the settings of the run, as this program resolves them.
///
/// # Errors
/// It lacks the task, the model or the recipe, or comes to other settings.
fn resolve(
    record: &Record,
    task_name: &str,
    recipe: Option<&str>,
    from: Option<&Path>,
) -> Result<Resolved> {
    let named = &record.recipe.name;
    let recipe = match recipe {
        Some(recipe) => recipe,
        None if named.starts_with("file:") => {
            return Err(Error::usage(format!(
                "the recipe of the run, {named}, was a file: give it with --recipe FILE"
            )));
        }
        None => named,
    };
    let task = &record.task;
    let source: Source = task.source.parse().map_err(Error::usage)?;
    let protocol: Protocol = task.protocol.parse().map_err(Error::usage)?;
    let started = record.from.as_ref();
    let weights = match (started, from) {
        (Some(started), None) => {
            return Err(Error::usage(format!(
                "the run started from the weights of {}: give its folder with --from RUN",
                started.run
            )));
        }
        (None, Some(_)) => {
            return Err(Error::usage(
                "the run started from random weights: leave --from out",
            ));
        }
        (_, from) => from.map(|path| TrainedRun::open(path, &[])?.weights()),
    };
    let weights = weights.transpose()?;
    let mut assignments = record.recipe.overrides.clone();
    // The weights that it started from are no setting.
    assignments.retain(|it| overlay::key(it) != StartedFrom::KEY);
    let request = RunRequest {
        task: task_name,
        model: &record.model.name,
        recipe,
        source: Some(source),
        protocol,
        seed: record.seed,
        assignments: &assignments,
    };
    let mut resolved = request.resolve()?;
    if let Some(weights) = &weights {
        resolved = resolved.starting_from(weights)?;
        let given = resolved.spec.from.as_ref().map(|it| &it.weights);
        if let (Some(started), Some(given)) = (started, given)
            && started.weights != *given
        {
            return Err(Error::usage(format!(
                "{}: --from has other weights, {given}, than the run started from: those of {}, {}",
                record.id, started.run, started.weights
            )));
        }
    }
    let [then, now] = [&record.provenance.spec_digest, &resolved.spec.digest()];
    let short = |digest: &str| digest.get(..12).unwrap_or(digest).to_owned();
    if then != now {
        return Err(Error::usage(format!(
            "{}: this program comes to other settings from {} and the same --set: their digest is {}, that of the record {}{}",
            record.id,
            match *named == resolved.spec.cell.recipe {
                true => "the same recipe".to_owned(),
                false => format!(
                    "recipe {}, not {named} of the record,",
                    resolved.spec.cell.recipe
                ),
            },
            short(now),
            short(then),
            match &record.provenance.revision {
                None => String::new(),
                Some(made) => format!("; it was made by the sources of commit {}", made.words()),
            }
        )));
    }
    Ok(resolved)
}

/// Returns the scores in which two records differ, with both values.
fn differences(then: &Record, now: &Record) -> Vec<Value> {
    let outcomes = [&then.outcome, &now.outcome].map(ToString::to_string);
    let outcome = (outcomes[0] != outcomes[1])
        .then(|| json!({ "score": "outcome", "then": outcomes[0], "now": outcomes[1] }));
    let scores = [then, now].map(|record| json!(record.scores));
    let pretraining = [then, now].map(|record| json!(record.pretraining));
    let differing = [("", scores), ("pretraining.", pretraining)];
    let differing = differing
        .iter()
        .flat_map(|(prefix, both)| differing_values(prefix, both));
    outcome.into_iter().chain(differing).collect()
}

/// Returns the values that differ between two objects, by name after a prefix. Times and memory are
/// no scores.
fn differing_values(prefix: &str, [then, now]: &[Value; 2]) -> Vec<Value> {
    let names = then.as_object().into_iter().chain(now.as_object());
    let names: BTreeSet<&String> = names.flat_map(|scores| scores.keys()).collect();
    let is_score = |name: &&String| !["wall_seconds", "peak_bytes"].contains(&name.as_str());
    let differing = names.into_iter().filter(is_score);
    let differing = differing.filter(|name| then[*name] != now[*name]);
    differing
        .map(|name| {
            json!({ "score": format!("{prefix}{name}"), "then": then[name], "now": now[name] })
        })
        .collect()
}

fn text(record: &Record, differing: &[Value], reasons: &[String]) -> String {
    let mut lines = vec![disk::escape(&record.id)];
    if differing.is_empty() {
        let scores = record.scores.as_ref().and_then(|it| it.test_accuracy);
        let score = scores.map_or(String::new(), |it| {
            format!(": test accuracy {:.2} %", 100.0 * it)
        });
        lines.push(format!("  equal to the bit{score}"));
    }
    for it in differing {
        let name = it["score"].as_str().unwrap_or_default();
        lines.push(format!(
            "  DIFFERS     {name}: {} then, {} now",
            it["then"], it["now"]
        ));
    }
    lines.extend(
        reasons
            .iter()
            .map(|reason| format!("  changed     {reason}")),
    );
    if !differing.is_empty() && reasons.is_empty() {
        lines.push(
            "  Program, data, device and instructions are the same: please report this.".to_owned(),
        );
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use results::Outcome;
    use results::record::Pretraining;

    use super::*;
    use crate::sweep::testing::timed;

    #[test]
    fn scores_of_every_phase_and_the_outcome_are_compared_and_times_are_not() {
        let mut then = timed(1.0);
        then.pretraining = Some(Pretraining {
            wall_seconds: 1.0,
            peak_bytes: 10,
            val_loss: Some(0.5),
            ..Pretraining::default()
        });
        let differ = |change: fn(&mut Record)| {
            let mut now = then.clone();
            change(&mut now);
            let found = differences(&then, &now);
            let names = found
                .iter()
                .map(|it| it["score"].as_str().unwrap().to_owned());
            names.collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(differ(|_| ()), none);
        assert_eq!(
            differ(|it| *it = Record {
                speed: None,
                memory: None,
                ..it.clone()
            }),
            none
        );
        assert_eq!(
            differ(|it| {
                let pretraining = it.pretraining.as_mut().unwrap();
                pretraining.wall_seconds = 2.0;
                pretraining.peak_bytes = 20;
            }),
            none
        );
        let last_bit = |it: &mut Record| {
            let loss = &mut it.scores.as_mut().unwrap().val_loss;
            *loss = loss.map(f64::next_up);
        };
        assert_eq!(differ(last_bit), ["val_loss"]);
        assert_eq!(
            differ(|it| it.scores.as_mut().unwrap().test_loss = None),
            ["test_loss"]
        );
        assert_eq!(
            differ(|it| it.scores.as_mut().unwrap().best_step = Some(3)),
            ["best_step"]
        );
        let pretrained = |it: &mut Record| it.pretraining.as_mut().unwrap().val_loss = Some(0.25);
        assert_eq!(differ(pretrained), ["pretraining.val_loss"]);
        let diverged = |it: &mut Record| {
            it.outcome = Outcome::Diverged {
                step: 9,
                reason: "the loss is not finite".to_owned(),
            };
        };
        assert_eq!(differ(diverged), ["outcome"]);
        assert!(differ(|it| it.pretraining = None).contains(&"pretraining.val_loss".to_owned()));
    }
}
