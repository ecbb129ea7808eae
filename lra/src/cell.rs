//! One cell of the table: a model on a task with one seed, from frozen settings to a record.

use std::path::Path;
use std::sync::Arc;

use candle_core::{DType, Device};
use datasets::{Shape, Splits};
use models::{Classifier, Parameters};
use results::record::{self, Outcome, Record};

use crate::batch::Layout;
use crate::checkpoint::State;
use crate::error::{Class, Classify, Error, Result};
use crate::estimate::{FullTask, Workload};
use crate::memory_limit::OomGuard;
use crate::progress::Reporter;
use crate::run_folder::{Damaged, Found, RunFolder};
use crate::signals::Stop;
use crate::spec::Resolved;
use crate::timing::Timings;
use crate::train::{Ending, Fit};
use crate::{banner, device, host, panics, runtime};

/// What to do with a run folder that already holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// Show a run that has ended, well or not; refuse to touch an unfinished one.
    Keep,
    /// Go on with a run that is unfinished or failed; show one whose record is final.
    Resume,
    /// Start over, whatever is there.
    Replace,
}

/// Where a run takes place, and how.
pub struct RunContext<'a> {
    /// Data directory.
    pub data: &'a Path,
    /// Folder that run folders are created in.
    pub out: &'a Path,
    /// Where tensors live.
    pub device: &'a Device,
    /// What to do if the run folder holds a run.
    pub if_exists: IfExists,
    /// Whether to write event files for TensorBoard too.
    pub tensorboard: bool,
    /// Most live heap bytes; the default is 95 % of what the system allows.
    pub memory_limit: Option<usize>,
    /// Progress on standard error.
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
pub fn run(resolved: &Resolved, context: &RunContext<'_>) -> Result<Finished> {
    let spec = &resolved.spec;
    device::set_precision(context.device, spec.train.precision)?;
    let shape = resolved.task.shape(&spec.data)?;
    let folder = RunFolder::open(context.out, &run_id(resolved, &shape))?;
    let found = match context.if_exists {
        IfExists::Replace => Found::Nothing,
        IfExists::Keep | IfExists::Resume => folder.found()?,
    };
    let resumes = match (found, context.if_exists) {
        (Found::Finished(record), _) | (Found::Failed(record), IfExists::Keep) => {
            return Ok(Finished {
                record: *record,
                fresh: false,
            });
        }
        (Found::Unfinished, IfExists::Keep) => {
            let place = folder.path().display();
            let message = format!(
                "{place} holds an unfinished run; go on with --resume or start over with --force"
            );
            return Err(Error::usage(message));
        }
        (Found::Unfinished | Found::Failed(_), _) => folder.holds(spec)?,
        (Found::Nothing, _) => false,
    };
    let mut draft = draft(resolved, context, &shape);
    // Data may have to be built, and memory may run out over it.
    let guard = OomGuard::record_oom_for(&folder, &draft, context.memory_limit)?;
    let attempt = Attempt {
        resolved,
        context,
        shape: &shape,
        folder: &folder,
        guard: &guard,
    };
    let trained = panics::caught(|| attempt.train(&mut draft, resumes));
    drop(guard);
    context.reporter.stop();
    let record = match trained {
        Ok(trained) => {
            let record = completed(draft, resolved, &shape, &folder, &trained, context.device)?;
            write(&folder, &record)?;
            record
        }
        Err(error) if error.class == Class::Run || device::is_out_of_memory(&error.cause) => {
            failed(draft, &folder, error)?
        }
        Err(error) => return Err(error),
    };
    Ok(Finished {
        record,
        fresh: true,
    })
}

/// The part of a run that may fail and leave a record.
struct Attempt<'a> {
    resolved: &'a Resolved,
    context: &'a RunContext<'a>,
    shape: &'a Shape,
    folder: &'a RunFolder,
    guard: &'a OomGuard,
}

/// The result of training.
struct Trained {
    state: State,
    ending: Ending,
    /// Floating point operations of a forward pass of one example.
    flops: u64,
}

impl Attempt<'_> {
    /// Opens the data, trains and scores. What becomes known on the way goes into the draft of the record.
    fn train(&self, draft: &mut Record, resumes: bool) -> Result<Trained> {
        let Attempt {
            resolved,
            context,
            shape,
            folder,
            guard,
        } = *self;
        let spec = &resolved.spec;
        let store = datasets::Store::new(context.data);
        let splits =
            store.open_or_build(resolved.task, &spec.data_key(), None, context.reporter)?;
        let splits = Arc::new(splits);
        describe(&mut draft.task, &splits);
        guard.update(draft);
        draft.baselines = baselines(resolved, &splits);
        let (blank, sizes) = resolved.blank()?;
        draft.model.parameters = sizes.elements() as u64;
        guard.update(draft);
        match resumes {
            true => folder.keep_error(None)?,
            false => {
                folder.clear()?;
                folder.save_spec(spec)?;
            }
        }
        let workload = Workload::new(&spec.train, draft.task.rows);
        let flops = blank.flops(1, shape.max_length);
        let full = FullTask::of(resolved, &splits, workload.passes() * flops as f64)?;
        for line in banner::lines(draft, resolved, shape, flops) {
            context.reporter.say(&line);
        }
        for how in &splits.manifest.altered {
            context.reporter.say(&format!("ALTERED    {how}"));
        }
        device::reset_peak(context.device);
        let parameters = Parameters::new(spec.cell.seed, context.device, DType::F32);
        let (model_shape, options) = (resolved.model_shape(shape), resolved.model_options());
        let build = |parameters: &Parameters| {
            Classifier::new(resolved.model, &model_shape, &options, parameters).class(Class::Run)
        };
        let fit = Fit {
            spec,
            splits,
            layout: Layout::new(resolved.task.about(), shape.max_length),
            parameters: &parameters,
            classifier: &build(&parameters)?,
            scoring: &build(&parameters.detached())?,
            device: context.device,
            folder,
            reporter: context.reporter,
            stop: context.stop,
            workload,
            tensorboard: context.tensorboard,
            full,
        };
        let (state, ending) = fit.run(resumes).map_err(|cause| Error {
            // What a run cannot go on from says nothing of the run.
            class: match cause.is::<Damaged>() {
                true => Class::Data,
                false => Class::Run,
            },
            cause,
        })?;
        Ok(Trained {
            state,
            ending,
            flops,
        })
    }
}

fn write(folder: &RunFolder, record: &Record) -> Result<()> {
    results::store::write(&folder.record(), record).class(Class::Run)
}

/// Writes down that a run failed: its record has the first line of the error, a file beside it the rest.
fn failed(draft: Record, folder: &RunFolder, error: Error) -> Result<Record> {
    let (message, full) = (error.to_string(), panics::in_full(&error));
    let reason = message.lines().next().unwrap_or_default().to_owned();
    let outcome = match device::is_out_of_memory(&error.cause) {
        true => Outcome::OutOfMemory { reason },
        false => Outcome::Failed { reason },
    };
    let record = Record {
        outcome,
        created: host::now(),
        ..draft
    };
    // The failure may be the disk's: then the error itself is all there is to show.
    write(folder, &record).map_err(|_| error)?;
    if full.lines().count() > 1 {
        folder.keep_error(Some(&full))?;
    }
    Ok(record)
}

/// Fills in what the data have shown.
fn describe(task: &mut record::Task, splits: &Splits) {
    task.data_digest = splits.manifest.digest.clone();
    task.rows = record::Rows {
        train: splits.train.len(),
        val: splits.val.len(),
        test: splits.test.len(),
    };
    task.partial = splits.manifest.partial;
    task.altered = splits.manifest.altered.clone();
}

/// The record as far as it is known before the data are open and the model is built.
fn draft(resolved: &Resolved, context: &RunContext<'_>, shape: &Shape) -> Record {
    let spec = &resolved.spec;
    let about = resolved.task.about();
    let device = device::describe(context.device);
    Record {
        schema: record::SCHEMA,
        id: run_id(resolved, shape),
        created: host::now(),
        command: runtime::command_line(),
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
            driver: device::driver(context.device),
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
    trained: &Trained,
    device: &Device,
) -> Result<Record> {
    let Trained {
        state,
        ending,
        flops,
    } = trained;
    let timings = Timings::read(&folder.timings()).class(Class::Run)?;
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
    let step_flops = 3.0 * *flops as f64 * examples;
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
        method: device::method(device).to_owned(),
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
