//! A mixer written in PyTorch, as a model of this program.
//!
//! The environment variable [`VARIABLE`] names a Python file and a factory in it. The program
//! starts a Python process (`worker.py`), which computes the forward and backward pass of the
//! mixer. Everything else is this program's: embedding, blocks, head, data, optimizer, schedule,
//! record. The parameters of the mixer are parameters of the model here. `protocol.rs` describes
//! what goes through the pipe.

mod mixer;
mod protocol;
mod worker;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use models::{Cost, Model, Variant};

use self::mixer::TorchMixer;
use self::worker::Worker;
use crate::error::{Class, Classify, Error, Result};

/// Environment variable with the Python file and the factory, as `FILE.py:FACTORY`.
pub const VARIABLE: &str = "LRA_TORCH";
/// Environment variable with the Python interpreter.
pub const PYTHON: &str = "LRA_PYTHON";
/// Beginning of the model's name, before that of the factory.
const PREFIX: &str = "torch_";

/// The factory that the environment names.
struct Factory {
    file: PathBuf,
    name: String,
    model: &'static str,
    worker: Mutex<Option<Worker>>,
}

static FACTORY: OnceLock<Factory> = OnceLock::new();

/// Returns the model whose mixer [`VARIABLE`] names; `None` if it is not set.
///
/// # Errors
/// It is not of the form `FILE.py:FACTORY`, or the file cannot be read.
pub fn from_environment() -> Result<Option<&'static Model>> {
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let wrong = || {
        let value = value.to_string_lossy();
        Error::usage(format!(
            "{VARIABLE} = {value}: it must name a Python file and a function or class in it, such as mixer.py:make"
        ))
    };
    let text = value.to_str().ok_or_else(wrong)?;
    let (file, name) = text.rsplit_once(':').ok_or_else(wrong)?;
    if file.is_empty() || name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_')
    {
        return Err(wrong());
    }
    let file = PathBuf::from(file);
    let source = disk::read_to_string(&file);
    let source = source.during(
        Class::Usage,
        format!("{VARIABLE}: reading {}", file.display()),
    )?;
    let model = format!("{PREFIX}{}", name.to_lowercase()).leak();
    let title = format!("{name} (PyTorch)").leak();
    // Two factories of one file are two models, also where their names differ in case alone.
    let source = format!("{source}\n# The factory is {name}.\n").leak();
    let variants = vec![Variant::mixer::<TorchMixer>(source)].leak();
    let factory = Factory {
        file,
        name: name.to_owned(),
        model,
        worker: Mutex::new(None),
    };
    if FACTORY.set(factory).is_err() {
        return Ok(None);
    }
    Ok(Some(Box::leak(Box::new(Model {
        name: model,
        title,
        paper: "none: a PyTorch module",
        year: 2026,
        time: Cost::Mixed("not stated"),
        memory: Cost::Mixed("not stated"),
        variants,
        ..Model::mixer::<TorchMixer>()
    }))))
}

/// Returns the Python process that computes the mixer of `model`, such as `Python 3.11.7 with
/// PyTorch 2.9.1`; `None` if this program computes it.
///
/// # Errors
/// The process cannot be started.
pub fn process_of(model: &Model) -> Result<Option<String>> {
    match FACTORY.get().filter(|factory| factory.model == model.name) {
        None => Ok(None),
        Some(_) => {
            let described = with_worker(|worker| Ok(worker.description().to_owned()));
            described.class(Class::Run).map(Some)
        }
    }
}

/// Returns whether a model of this name is a mixer in PyTorch.
pub fn is_name(model: &str) -> bool {
    model.starts_with(PREFIX)
}

/// Returns whether a Python process computes the mixer of this model.
pub fn computes(model: &str) -> bool {
    FACTORY.get().is_some_and(|factory| factory.model == model)
}

/// Calls `work` with the Python process, which is started if it is not running.
fn with_worker<T>(work: impl FnOnce(&mut Worker) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let factory = FACTORY.get();
    let factory = factory.ok_or_else(|| anyhow::anyhow!("{VARIABLE} is not set"))?;
    let mut worker: MutexGuard<'_, Option<Worker>> = factory
        .worker
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if worker.is_none() {
        let python = std::env::var_os(PYTHON).filter(|value| !value.is_empty());
        let python = python.unwrap_or_else(|| OsString::from("python3"));
        *worker = Some(Worker::start(&python, &factory.file, &factory.name)?);
    }
    match worker.as_mut() {
        Some(worker) => work(worker),
        None => anyhow::bail!("the Python process is gone"),
    }
}
