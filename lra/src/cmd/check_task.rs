//! `lra check-task`: checks of a task against the promises of every task.

use std::process::ExitCode;

use datasets::Task;
use datasets::conformance::{self, ConformanceCheck, Failure, Found, Outcome, Subject};
use datasets::tasks;
use results::{Tone, counted};
use serde_json::{Value, json};

use crate::cli::CheckTaskArgs;
use crate::colour::Text;
use crate::error::{Class, Error, Result};
use crate::panics::{self, Panic};
use crate::{cmd, runtime, suggest};

/// Runs the command: exit code 1 if a check fails.
pub fn run(arguments: &CheckTaskArgs) -> Result<ExitCode> {
    let named = arguments.task.as_deref().map(suggest::task).transpose()?;
    let own = tasks::registry()
        .iter()
        .copied()
        .filter(|task| tasks::is_own(*task));
    let chosen: Vec<&'static dyn Task> = match named {
        Some(task) => vec![task],
        None => own.collect(),
    };
    if chosen.is_empty() {
        return Err(Error::usage(
            "this program has no task of its own: name a task, such as `lra check-task mine:FOLDER`; `lra new task NAME` makes a program with one",
        ));
    }
    runtime::set_up(None)?;
    let (mut rows, mut broken) = (Vec::new(), 0);
    for task in chosen {
        let subject = Subject::new(task)?;
        let name = task.info().name;
        let told = |promise: &ConformanceCheck, outcome: &Outcome| match arguments.json {
            true => Ok(()),
            false => cmd::print(line(promise, outcome)),
        };
        let found = conformance::ask(&subject, tried, told)?;
        let count = |which: fn(&Outcome) -> bool| found.iter().filter(|(_, it)| which(it)).count();
        let kept = count(|it| matches!(it, Outcome::Kept(_)));
        let failed = count(|it| matches!(it, Outcome::Broken(_)));
        broken += failed;
        rows.extend(found.iter().map(|(promise, it)| row(name, promise, it)));
        if !arguments.json {
            let all = found.len();
            // The folder as the user wrote it.
            let name = arguments.task.as_deref().unwrap_or(name);
            cmd::print(match all - kept {
                0 => format!("{name}: {all} of {} kept", counted(all as u64, "promise")),
                rest => format!(
                    "{name}: {kept} of {} kept, {failed} broken, {} not tried because of these",
                    counted(all as u64, "promise"),
                    rest - failed
                ),
            })?;
        }
    }
    if arguments.json {
        cmd::print_json(&rows)?;
    }
    Ok(match broken {
        0 => ExitCode::SUCCESS,
        _ => Class::Check.into(),
    })
}

/// Runs a check; a panic of the task is a breach, with its place.
fn tried(promise: &'static ConformanceCheck, subject: &Subject) -> Found {
    let outcome = panics::caught(|| Ok((promise.check)(subject)));
    outcome.unwrap_or_else(|error| {
        let panic = error.cause.downcast_ref::<Panic>();
        let fault = panic.map_or_else(|| error.to_string(), ToString::to_string);
        Err(Failure::Broken(fault))
    })
}

fn line(promise: &ConformanceCheck, outcome: &Outcome) -> Text {
    let words = promise.name.replace('_', " ");
    match outcome {
        Outcome::Kept(None) => format!("ok      {words}").into(),
        Outcome::Kept(Some(remark)) => format!("ok      {words}\n        {remark}").into(),
        Outcome::Broken(wrong) => {
            Text::toned(Tone::Bad, "FAILED").and(format!("  {words}\n        {wrong}"))
        }
        Outcome::NotTried(cause) => {
            let cause = cause.replace('_', " ");
            format!("-       {words}\n        not tried: {cause}").into()
        }
    }
}

fn row(task: &str, promise: &ConformanceCheck, outcome: &Outcome) -> Value {
    let (remark, wrong, cause) = match outcome {
        Outcome::Kept(remark) => (remark.as_deref(), None, None),
        Outcome::Broken(wrong) => (None, Some(wrong.as_str()), None),
        Outcome::NotTried(cause) => (None, None, Some(*cause)),
    };
    json!({
        "task": task,
        "promise": promise.name,
        "wrong": wrong,
        "remark": remark,
        "not_tried_because": cause,
    })
}
