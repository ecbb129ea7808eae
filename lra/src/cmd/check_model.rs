//! `lra check-model`: what every model promises, tried on one.

use std::process::ExitCode;

use models::contract::PROMISES;
use serde_json::{Value, json};

use crate::cli::CheckModelArgs;
use crate::error::{Class, Result};
use crate::{cmd, panics, suggest};

/// Runs the command: exit code 1 if a promise is not kept.
pub fn run(arguments: &CheckModelArgs) -> Result<ExitCode> {
    let registry = models::registry();
    let model = *suggest::find("model", &arguments.model, registry, |model| model.name)?;
    let mut found: Vec<(&str, Option<String>)> = Vec::new();
    for promise in PROMISES {
        let outcome = panics::caught(|| {
            (promise.check)(model);
            Ok(())
        });
        let wrong = outcome.err().map(|error| error.to_string());
        if !arguments.json {
            let words = promise.name.replace('_', " ");
            cmd::print(&match &wrong {
                None => format!("ok      {words}"),
                Some(wrong) => format!("FAILED  {words}\n        {wrong}"),
            })?;
        }
        found.push((promise.name, wrong));
    }
    let failed = found.iter().filter(|(_, wrong)| wrong.is_some()).count();
    if arguments.json {
        let row = |(name, wrong): &(&str, Option<String>)| json!({"promise": name, "wrong": wrong});
        cmd::print_json(&found.iter().map(row).collect::<Vec<Value>>())?;
    } else {
        let kept = PROMISES.len() - failed;
        cmd::print(&format!(
            "{}: {kept} of {} promises kept",
            model.name,
            PROMISES.len()
        ))?;
    }
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => Class::Check.into(),
    })
}
