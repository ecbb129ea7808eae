//! `lra check-model`: checks of one model against the guarantees of every model.

mod other_files;

use std::process::ExitCode;

use candle_core::{DType, Device};
use models::Model;
use models::conformance::{self, Check, Outcome};
use models::options::{self, BlockOptions, EmbedOptions, HeadOptions, OptionSet, Range};
use results::{Tone, counted};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cli::CheckModelArgs;
use crate::colour::Text;
use crate::error::{Class, Classify, Result};
use crate::model_choice::ModelChoice;
use crate::panics::{self, Panic};
use crate::{child, cmd, host, memory, overlay, runtime, suggest, torch};

/// Environment variable that makes libraries keep the backtrace of an error, which contains the
/// line of the model.
const TRACES: &str = "RUST_LIB_BACKTRACE";
/// Environment variable by which the process that checks gets the model's digest from the one that
/// started it; empty if the model could not be run there.
const DIGEST: &str = "LRA_CHECK_MODEL_DIGEST";

/// Runs the command: exit code 1 if a check fails.
pub fn run(arguments: &CheckModelArgs) -> Result<ExitCode> {
    let choice = ModelChoice::parse(&arguments.model)?;
    let model = with_options(&choice)?;
    runtime::set_up(None)?;
    if std::env::var_os(DIGEST).is_none() {
        return check_in_another_process(model);
    }
    conformance::count_heap_by(|work| {
        memory::start();
        work();
        memory::peak()
    });
    conformance::time_passes_by(host::processor_seconds);
    conformance::digest_elsewhere_by(|_| std::env::var(DIGEST).ok()?.parse().ok());
    let told = |promise: &Check, outcome: &Outcome| match arguments.json {
        true => Ok(()),
        false => cmd::print(line(model, promise, outcome)),
    };
    let found = conformance::ask(|promise| tried(model, promise), told)?;
    let count = |which: fn(&Outcome) -> bool| found.iter().filter(|(_, it)| which(it)).count();
    let kept = count(|it| matches!(it, Outcome::Kept));
    let broken = count(|it| matches!(it, Outcome::Broken(_)));
    let rest = count(|it| matches!(it, Outcome::NotTried(_)));
    let unchecked = count(|it| matches!(it, Outcome::Unchecked(_)));
    if arguments.json {
        let rows = found.iter().map(|(promise, it)| row(model, promise, it));
        cmd::print_json(&rows.collect::<Vec<Value>>())?;
    } else {
        let all = counted(found.len() as u64, "promise");
        let mut line = format!("{choice}: {kept} of {all} kept");
        if broken > 0 {
            line += &format!(", {broken} broken, {rest} not tried because of these");
        }
        if unchecked > 0 {
            line += &format!(", {unchecked} cannot be checked");
        }
        cmd::print(&line)?;
        if let Some(note) = other_values(model, &choice) {
            cmd::print(&note)?;
        }
    }
    Ok(match broken {
        0 => ExitCode::SUCCESS,
        _ => Class::Check.into(),
    })
}

/// Returns the registry's model, with the options of a choice as settings of its own.
///
/// # Errors
/// A setting is unknown, or has no such value.
fn with_options(choice: &ModelChoice) -> Result<&'static Model> {
    let model = *suggest::find("model", choice.model, models::registry(), |it| it.name)?;
    if choice.options.is_empty() {
        return Ok(model);
    }
    let defaults = json!(models::Options::of(model));
    let mut all = defaults.clone();
    for assignment in choice.assignments() {
        overlay::merge(
            &mut all,
            &overlay::parse_assignment(&assignment)?,
            &assignment,
        )?;
    }
    let options = models::Options {
        embed: read("embed", &all, &defaults, EmbedOptions::RANGES)?,
        block: read("block", &all, &defaults, BlockOptions::RANGES)?,
        head: read("head", &all, &defaults, HeadOptions::RANGES)?,
        model: all["model"].clone(),
    };
    // The model's own options are read when it is built.
    let parameters = models::Parameters::meta(&Device::Cpu, DType::F32);
    let shape = models::testing::shape(1);
    models::Classifier::new(model, &shape, &options, &parameters).map_err(suggest::of_model)?;
    // A check lasts as long as the process.
    let settings: &'static str = all.to_string().leak();
    Ok(Box::leak(Box::new(Model { settings, ..*model })))
}

fn read<T: DeserializeOwned>(
    section: &str,
    all: &Value,
    defaults: &Value,
    ranges: &[Range],
) -> Result<T> {
    options::read(section, &all[section], &defaults[section], ranges).map_err(suggest::of_model)
}

/// Returns a line that says which values of the model's options were checked, if it has any that
/// are words.
fn other_values(model: &Model, choice: &ModelChoice) -> Option<String> {
    let Value::Object(options) = models::Options::of(model).model else {
        return None;
    };
    let words = options
        .iter()
        .filter(|(name, value)| value.is_string() && *name != "variant");
    let words: Vec<String> = words
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    (!words.is_empty()).then(|| {
        format!(
            "checked with {}; `check-model {}:OPTION=VALUE` checks another value",
            words.join(", "),
            choice.model
        )
    })
}

/// Starts this command again, for two reasons. Errors of tensor operations know their origin if
/// [`TRACES`] is set when a program starts, and a digest of this process shows whether the model
/// computes the same in another one.
fn check_in_another_process(model: &'static Model) -> Result<ExitCode> {
    // A model that panics has no digest; the checks describe the fault.
    let digest = panics::caught(|| Ok(conformance::digest(model)));
    let digest = digest.map_or_else(|_| String::new(), |digest| digest.to_string());
    let mut command = child::command_of_this_program()?;
    command
        .args(std::env::args_os().skip(1))
        .env(DIGEST, digest);
    if std::env::var_os(TRACES).is_none() && std::env::var_os("RUST_BACKTRACE").is_none() {
        command.env(TRACES, "1");
    }
    let status = command
        .status()
        .during(Class::Run, "starting this program again")?;
    Ok(match status.code().map(u8::try_from) {
        Some(Ok(code)) => code.into(),
        _ => Class::Run.into(),
    })
}

/// Promises on operations and memory that are counted in this process.
const COUNTED: [&str; 5] = [
    "operations_are_those_counted",
    "operations_grow_as_the_card_says",
    "memory_grows_as_the_card_says",
    "peak_memory_grows_as_the_card_says",
    "time_grows_as_the_card_says",
];

/// Runs a check.
fn tried(model: &'static Model, promise: &Check) -> Outcome {
    if torch::computes(model.name) && COUNTED.contains(&promise.name) {
        return Outcome::Unchecked("PyTorch computes this mixer in a process of its own");
    }
    broken(model, promise).map_or(Outcome::Kept, Outcome::Broken)
}

/// Returns the failure of a check, if it fails.
fn broken(model: &'static Model, promise: &Check) -> Option<String> {
    let outcome = panics::caught(|| {
        (promise.check)(model);
        Ok(())
    });
    let Some(error) = outcome.err() else {
        return products_beside(model, promise);
    };
    // For a message of the check itself, the place within the check is left out.
    let said = error.cause.downcast_ref::<Panic>().filter(|panic| {
        let file = panic.file().unwrap_or_default();
        file.contains("models/src/conformance")
    });
    Some(said.map_or_else(|| error.to_string(), |panic| panic.said().to_owned()))
}

/// Returns a breach of the promise about products in other files than the model's own.
fn products_beside(model: &Model, promise: &Check) -> Option<String> {
    if promise.name != "products_are_those_that_can_be_rounded" {
        return None;
    }
    let places = other_files::direct_products_beside(model);
    (!places.is_empty()).then(|| {
        format!(
            "{}: products by candle in files that its source names, which `--precision bf16` does not round and which are not counted; \
             `lra::models::ops` has `matmul`, `exact_matmul` and `cumsum`: {}",
            model.name,
            places.join("; ")
        )
    })
}

fn line(model: &Model, promise: &Check, outcome: &Outcome) -> Text {
    let words = promise.name.replace('_', " ");
    match outcome {
        Outcome::Kept => format!("ok      {words}").into(),
        Outcome::Broken(wrong) => {
            let broken =
                Text::toned(Tone::Bad, "FAILED").and(format!("  {words}\n        {wrong}"));
            match promise.place(model, wrong) {
                Some(place) => broken.and(format!("\n        look at {place}")),
                None => broken,
            }
        }
        Outcome::NotTried(cause) => {
            let cause = cause.replace('_', " ");
            format!("-       {words}\n        not tried: {cause}").into()
        }
        Outcome::Unchecked(reason) => format!("-       {words}\n        {reason}").into(),
    }
}

fn row(model: &Model, promise: &Check, outcome: &Outcome) -> Value {
    let (wrong, cause) = match outcome {
        Outcome::Kept => (None, None),
        Outcome::Broken(wrong) => (Some(wrong.as_str()), None),
        Outcome::NotTried(cause) | Outcome::Unchecked(cause) => (None, Some(*cause)),
    };
    let place = wrong.and_then(|wrong| promise.place(model, wrong));
    json!({
        "promise": promise.name,
        "wrong": wrong,
        "place": place.map(|place| place.to_string()),
        "not_tried_because": cause,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broken promise names the line of the model's source that is to be looked at.
    #[test]
    fn a_broken_promise_points_at_a_line() {
        let model = models::mixers::find("linear").unwrap();
        let named = "every_parameter_has_a_finite_gradient_that_is_not_zero";
        let promise = conformance::CHECKS.iter().find(|it| it.name == named);
        let broken = Outcome::Broken("encoder.0.mixer.output.weight has no gradient".to_owned());
        let file = tempfile::tempfile().unwrap();
        let printed = line(model, promise.unwrap(), &broken).on(&file);
        assert!(
            printed.starts_with("FAILED  every parameter has a finite gradient"),
            "{printed}"
        );
        let place = printed.rsplit_once("look at ").unwrap().1;
        assert!(place.contains("linear.rs:"), "{printed}");
        let row = row(model, promise.unwrap(), &broken);
        assert_eq!(row["place"], place);
        assert_eq!(
            row["wrong"],
            "encoder.0.mixer.output.weight has no gradient"
        );
    }
}
