//! One cell of the table: a model on a task with one seed, from frozen settings to a record.

use std::path::Path;
use std::sync::Arc;

use candle_core::{DType, Device};
use datasets::{Shape, Splits};
use models::{Classifier, Parameters};
use results::record::{self, Outcome, Record};

use crate::batch::Layout;
use crate::ceiling::CeilingGuard;
use crate::checkpoint::State;
use crate::error::{Class, Classify, Error, Result};
use crate::estimate::{Full, Work};
use crate::progress::Reporter;
use crate::run_folder::{Found, RunFolder};
use crate::signals::Stop;
use crate::spec::Resolved;
use crate::timing::Timings;
use crate::train::{Ending, Fit};
use crate::{banner, device, host, process};

/// What to do with a folder that already holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// Show a finished run; refuse to touch an unfinished one.
    Keep,
    /// Go on with an unfinished run; show a finished one.
    Resume,
    /// Start over.
    Replace,
}

/// The surroundings of a run.
pub struct Surroundings<'a> {
    /// Data directory.
    pub data: &'a Path,
    /// Folder that run folders are created in.
    pub out: &'a Path,
    /// Where tensors live.
    pub device: &'a Device,
    /// What to do with an earlier run of the same id.
    pub earlier: Earlier,
    /// Whether to write event files for TensorBoard too.
    pub tensorboard: bool,
    /// Most live bytes; by default nearly what the system allows.
    pub memory_limit: Option<usize>,
    /// What the user sees.
    pub reporter: &'a Reporter,
    /// Whether to stop early.
    pub stop: &'a Stop,
}

/// A finished cell.
pub struct Finished {
    /// What is on file.
    pub record: Record,
    /// False if the record was on file before.
    pub fresh: bool,
}

/// The id of a run, which is also the name of its folder.
pub fn run_id(resolved: &Resolved, shape: &Shape) -> String {
    let cell = &resolved.spec.cell;
    let plain = |c: char| c.is_ascii_alphanumeric() || "@.-_".contains(c);
    let as_path = |name: &str| name.replace(|c| !plain(c), "_");
    format!(
        "{}-{}-{}-s{}-{}",
        as_path(&shape.label),
        cell.model,
        as_path(&cell.recipe),
        cell.seed,
        &resolved.spec.digest()[..8]
    )
}

/// Trains and scores a cell, or picks it up from where it was left.
pub fn run(resolved: &Resolved, around: &Surroundings<'_>) -> Result<Finished> {
    let spec = &resolved.spec;
    device::set_precision(around.device, spec.train.precision)?;
    let shape = resolved.task.shape(&spec.data)?;
    let folder = RunFolder::open(around.out, &run_id(resolved, &shape))?;
    let resumes = match (folder.found()?, around.earlier) {
        (Found::Finished, Earlier::Keep | Earlier::Resume) => {
            let record = results::store::read(&folder.record()).class(Class::Data)?;
            return Ok(Finished {
                record,
                fresh: false,
            });
        }
        (Found::Unfinished, Earlier::Keep) => {
            let place = folder.path().display();
            let message = format!(
                "{place} holds an unfinished run; go on with --resume or start over with --force"
            );
            return Err(Error::usage(message));
        }
        (Found::Unfinished, Earlier::Resume) => {
            folder.expect_spec(spec)?;
            true
        }
        (Found::Nothing, _) | (_, Earlier::Replace) => false,
    };
    // Data may have to be built, and memory may run out over it.
    let draft = draft(resolved, around, &shape);
    let guard = CeilingGuard::arm(&folder, &draft, around.memory_limit)?;
    let store = datasets::Store::new(around.data);
    let splits = store.open_or_build(resolved.task, &spec.data_key(), None, around.reporter);
    let splits = match splits.map_err(Error::from) {
        Err(error) if device::is_out_of_memory(&error.cause) => {
            return failed(draft, &folder, error.cause);
        }
        splits => splits?,
    };
    let draft = Record {
        task: record::Task {
            data_digest: splits.manifest.digest.clone(),
            rows: record::Rows {
                train: splits.train.len(),
                val: splits.val.len(),
                test: splits.test.len(),
            },
            partial: splits.manifest.partial,
            altered: splits.manifest.altered.clone(),
            ..draft.task
        },
        ..draft
    };
    guard.update(&draft);
    train(
        resolved,
        around,
        &shape,
        &folder,
        (draft, guard),
        Arc::new(splits),
        resumes,
    )
}

fn train(
    resolved: &Resolved,
    around: &Surroundings<'_>,
    shape: &Shape,
    folder: &RunFolder,
    (mut draft, guard): (Record, CeilingGuard),
    splits: Arc<Splits>,
    resumes: bool,
) -> Result<Finished> {
    let spec = &resolved.spec;
    draft.baselines = baselines(resolved, &splits);
    let (blank, sizes) = resolved.blank()?;
    draft.model.parameters = sizes.elements() as u64;
    guard.update(&draft);
    if !resumes {
        folder.clear()?;
        folder.save_spec(spec)?;
    }
    let work = Work::new(&spec.train, draft.task.rows);
    let flops = blank.flops(1, shape.max_length);
    let full = Full::of(resolved, &splits, work.passes() * flops as f64)?;
    for line in banner::lines(&draft, resolved, shape, flops) {
        around.reporter.say(&line);
    }
    for how in &splits.manifest.altered {
        around.reporter.say(&format!("ALTERED    {how}"));
    }
    // From here on whatever goes wrong is an outcome of the run.
    let attempt = || {
        device::reset_peak(around.device);
        let parameters = Parameters::new(spec.cell.seed, around.device, DType::F32);
        let (model_shape, options) = (resolved.model_shape(shape), resolved.model_options());
        let build = |parameters: &Parameters| {
            Classifier::new(resolved.model, &model_shape, &options, parameters)
        };
        let fit = Fit {
            spec,
            splits,
            layout: Layout::new(resolved.task.about(), shape.max_length),
            parameters: &parameters,
            classifier: &build(&parameters)?,
            scoring: &build(&parameters.detached())?,
            device: around.device,
            folder,
            reporter: around.reporter,
            stop: around.stop,
            work,
            tensorboard: around.tensorboard,
            full,
        };
        fit.run(resumes)
    };
    let trained = attempt();
    drop(guard);
    around.reporter.stop();

    let record = match trained {
        Ok(trained) => {
            let method = device::method(around.device);
            completed(draft, resolved, shape, folder, &trained, flops, method)?
        }
        Err(error) => return failed(draft, folder, error),
    };
    write(folder, &record)?;
    Ok(Finished {
        record,
        fresh: true,
    })
}

/// Records a failure.
fn failed(draft: Record, folder: &RunFolder, error: anyhow::Error) -> Result<Finished> {
    let reason = format!("{error:#}");
    let outcome = match device::is_out_of_memory(&error) {
        true => Outcome::OutOfMemory { reason },
        false => Outcome::Failed { reason },
    };
    let record = Record {
        outcome,
        created: host::now(),
        ..draft
    };
    // The failure may be the disk's: then the error itself is all there is to show.
    write(folder, &record).map_err(|_| Error {
        class: Class::Run,
        cause: error,
    })?;
    Ok(Finished {
        record,
        fresh: true,
    })
}

fn write(folder: &RunFolder, record: &Record) -> Result<()> {
    results::store::write(&folder.record(), record).class(Class::Run)
}

/// The record as far as it is known before the data are open and the model is built.
fn draft(resolved: &Resolved, around: &Surroundings<'_>, shape: &Shape) -> Record {
    let spec = &resolved.spec;
    let about = resolved.task.about();
    let device = device::describe(around.device);
    Record {
        schema: record::SCHEMA,
        id: run_id(resolved, shape),
        created: host::now(),
        command: process::command_line(),
        outcome: Outcome::Interrupted { step: 0 },
        task: record::Task {
            name: spec.cell.task.clone(),
            label: shape.label.clone(),
            source: spec.cell.source.to_string(),
            protocol: spec.cell.protocol.to_string(),
            classes: about.classes,
            ..record::Task::default()
        },
        model: record::Model {
            name: spec.cell.model.clone(),
            variant: resolved.variant.name.to_owned(),
            parameters: 0,
            masks_padding: resolved.variant.masks_padding,
        },
        recipe: record::Recipe {
            name: spec.cell.recipe.clone(),
            source: resolved.recipe.body.source.clone(),
            published: resolved.recipe.body.published,
            overrides: resolved.overrides.clone(),
            departures: resolved.departures(),
        },
        seed: spec.cell.seed,
        spec_digest: spec.digest(),
        precision: spec.train.precision.to_string(),
        device: device.clone(),
        threads: rayon::current_num_threads(),
        scores: None,
        baselines: Vec::new(),
        speed: None,
        memory: None,
        host: record::Host {
            driver: device::driver(around.device),
            ..host::describe(&device)
        },
        versions: host::versions(),
        revision: host::revision(),
    }
}

/// What trivial predictors score.
fn baselines(resolved: &Resolved, splits: &Splits) -> Vec<record::Baseline> {
    let scored = resolved.task.baselines(splits).into_iter();
    scored
        .map(|it| record::Baseline {
            name: it.name,
            accuracy: it.accuracy,
        })
        .collect()
}

/// Fills in what training has shown; `flops` are those of one example's forward pass.
fn completed(
    draft: Record,
    resolved: &Resolved,
    shape: &Shape,
    folder: &RunFolder,
    (state, ending): &(State, Ending),
    flops: u64,
    memory_method: &str,
) -> Result<Record> {
    let timings = Timings::read(&folder.file("timings.jsonl")).class(Class::Run)?;
    let mut scores = record::Scores {
        val_accuracy: state.best.map(|best| best.accuracy),
        val_loss: state.best.map(|best| best.loss),
        train_loss: state.train_loss,
        best_step: state.best.map(|best| best.step as u64),
        steps: state.step as u64,
        examples_seen: state.examples,
        evaluations: state.evaluations as u64,
        ..record::Scores::default()
    };
    let outcome = match ending {
        Ending::Scored { val, test } => {
            (scores.val_accuracy, scores.val_loss) = (Some(val.accuracy), Some(val.loss));
            (scores.test_accuracy, scores.test_loss) = (Some(test.accuracy), Some(test.loss));
            Outcome::Scored
        }
        Ending::Diverged { step, reason } => Outcome::Diverged {
            step: *step as u64,
            reason: reason.clone(),
        },
        Ending::Interrupted => Outcome::Interrupted {
            step: state.step as u64,
        },
    };
    // What a batch asks for is not always there: the last one of an epoch is smaller, and no batch exceeds the data.
    let examples = state.examples as f64 / state.step.max(1) as f64;
    let tokens = (resolved.task.about().towers * shape.max_length) as f64;
    // Forward, and twice that backward.
    let step_flops = 3.0 * flops as f64 * examples;
    let speed = timings.steps_per_second().map(|rate| record::Speed {
        steps_per_second: rate,
        examples_per_second: rate.median * examples,
        tokens_per_second: rate.median * examples * tokens,
        flops_per_step: step_flops as u64,
        achieved_flops_per_second: rate.median * step_flops,
        timed_steps: timings.steps.len() as u64,
        warmup_steps: timings.warmup.len() as u64,
        phases: timings.phases,
        overhead_share: timings.overhead_share(),
        training_seconds: timings.steps.iter().chain(&timings.warmup).sum(),
        wall_seconds: timings.wall,
    });
    let memory = record::Memory {
        peak_bytes: timings.peak_bytes,
        base_bytes: timings.base_bytes,
        resident_bytes: timings.resident_bytes,
        method: memory_method.to_owned(),
        driver_bytes: timings.driver_bytes,
    };
    Ok(Record {
        outcome,
        scores: Some(scores),
        speed,
        memory: Some(memory),
        created: host::now(),
        ..draft
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn tables_find_the_majority_baseline_by_the_name_that_tasks_give_it() {
        assert_eq!(datasets::MAJORITY, results::record::MAJORITY);
    }
}
