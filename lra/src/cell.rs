//! One cell of the table: a model on a task with one seed, from frozen settings to a record.
//!
//! [`run`] goes: open the run folder and look at what it holds; open the data; build the model; fit it; write the record.

mod bits;
mod record;

use std::path::Path;
use std::sync::Arc;

use candle_core::{DType, Device};
use datasets::{Shape, Splits};
use models::{Classifier, Parameters};
use results::Record;

use crate::batch::Layout;
use crate::checkpoint::State;
use crate::error::{Class, Error, Result};
use crate::estimate::{FullTask, Workload};
use crate::memory_limit::OomGuard;
use crate::progress::Reporter;
use crate::run_folder::{Damaged, Found, RunFolder};
use crate::signals::Stop;
use crate::spec::Resolved;
use crate::step::Learner;
use crate::train::{Ending, Fit};
use crate::{banner, checkpoint, device, panics};

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
///
/// # Errors
/// The settings, the folder or the data are at fault. A run that fails for its own reasons leaves a record of it.
pub fn run(resolved: &Resolved, context: &RunContext<'_>) -> Result<Finished> {
    device::set_precision(context.device, resolved.spec.train.precision)?;
    let shape = resolved.task.shape(&resolved.spec.data)?;
    let id = run_id(resolved, &shape);
    if context.if_exists == IfExists::Replace {
        RunFolder::clear_lock(context.out, &id)?;
    }
    let folder = RunFolder::open(context.out, &id)?;
    let resumes = match start(resolved, context, &folder)? {
        Start::OnFile(record) => {
            return Ok(Finished {
                record: *record,
                fresh: false,
            });
        }
        Start::Resume => true,
        Start::Anew => false,
    };
    let draft = record::draft(resolved, context, &shape);
    let mut attempt = Attempt {
        resolved,
        context,
        shape: &shape,
        folder: &folder,
        // From here on: data may have to be built, and memory may run out over it.
        guard: OomGuard::record_oom_for(&folder, &draft, context.memory_limit)?,
        draft,
    };
    let trained = panics::caught(|| attempt.train(resumes));
    let Attempt { draft, guard, .. } = attempt;
    drop(guard);
    context.reporter.stop();
    let record = match trained {
        Ok(trained) => {
            record::complete(draft, resolved, &shape, &folder, &trained, context.device)?
        }
        Err(error) if error.class == Class::Run || device::is_out_of_memory(&error.cause) => {
            record::fail(draft, &folder, error)?
        }
        Err(error) => return Err(error),
    };
    Ok(Finished {
        record,
        fresh: true,
    })
}

/// How a run begins.
enum Start {
    /// Not at all: its record is on file.
    OnFile(Box<Record>),
    /// From what an earlier run left.
    Resume,
    /// From nothing.
    Anew,
}

fn start(resolved: &Resolved, context: &RunContext<'_>, folder: &RunFolder) -> Result<Start> {
    let found = match context.if_exists {
        IfExists::Replace => return Ok(Start::Anew),
        IfExists::Keep | IfExists::Resume => folder.found()?,
    };
    match (found, context.if_exists) {
        (Found::Nothing, _) => Ok(Start::Anew),
        (Found::Finished(record), _) | (Found::Failed(record), IfExists::Keep) => {
            Ok(Start::OnFile(record))
        }
        (Found::Unfinished, IfExists::Keep) => {
            let place = folder.path().display();
            Err(Error::usage(format!(
                "{place} holds an unfinished run; go on with --resume or start over with --force"
            )))
        }
        (Found::Unfinished | Found::Failed(_), _) => Ok(match folder.holds(&resolved.spec)? {
            true => Start::Resume,
            false => Start::Anew,
        }),
    }
}

/// The part of a run that may fail and leave a record.
struct Attempt<'a> {
    resolved: &'a Resolved,
    context: &'a RunContext<'a>,
    shape: &'a Shape,
    folder: &'a RunFolder,
    guard: OomGuard,
    /// The record as far as it is known.
    draft: Record,
}

/// The result of training.
struct Trained {
    /// That of pretraining, if there was one.
    pretraining: Option<State>,
    state: State,
    ending: Ending,
    /// Floating point operations of a forward pass of one example.
    flops: u64,
    /// The loss of knowing the label shares alone.
    prior_loss: Option<f64>,
}

impl Attempt<'_> {
    /// Opens the data, builds the model, trains and scores it. What becomes known on the way goes into the draft.
    fn train(&mut self, resumes: bool) -> Result<Trained> {
        let (resolved, shape) = (self.resolved, self.shape);
        let splits = self.open_data()?;
        let (blank, sizes) = resolved.blank()?;
        self.draft.model.parameters = sizes.elements() as u64;
        self.guard.update(&self.draft);
        match resumes {
            true => self.folder.keep_error(None)?,
            false => {
                self.folder.clear()?;
                self.folder.save_spec(&resolved.spec)?;
            }
        }
        let flops = blank.flops(1, shape.max_length);
        for line in banner::lines(&self.draft, resolved, shape, flops) {
            self.context.reporter.say(&line);
        }
        for how in &splits.manifest.altered {
            self.context.reporter.say(&format!("ALTERED    {how}"));
        }
        let prior_loss = datasets::prior_loss(&splits);
        let pretraining = match self.pretrain(&splits, resumes)? {
            Some((state, Some(ending))) => {
                return Ok(Trained {
                    pretraining: Some(state),
                    state: State::default(),
                    ending,
                    flops,
                    prior_loss,
                });
            }
            other => other.map(|(state, _)| state),
        };
        let (state, ending) = self.fit(splits, flops, resumes)?;
        Ok(Trained {
            pretraining,
            state,
            ending,
            flops,
            prior_loss,
        })
    }

    fn open_data(&mut self) -> Result<Arc<Splits>> {
        let store = datasets::Store::new(self.context.data);
        let splits = store.open_or_build(
            self.resolved.task,
            &self.resolved.spec.data_key(),
            None,
            self.context.reporter,
        )?;
        record::describe(&mut self.draft.task, &splits);
        self.guard.update(&self.draft);
        self.draft.baselines = record::baselines(self.resolved, &splits);
        Ok(Arc::new(splits))
    }

    /// Pretrains, where that is asked for; there is an ending if the run ends with it.
    fn pretrain(
        &self,
        splits: &Arc<Splits>,
        resumes: bool,
    ) -> Result<Option<(State, Option<Ending>)>> {
        let (resolved, context) = (self.resolved, self.context);
        let spec = &resolved.spec;
        let Some(objective) = spec.pretrain.objective() else {
            return Ok(None);
        };
        device::reset_peak(context.device);
        let parameters = Parameters::new(spec.cell.seed, context.device, DType::F32);
        let shape = resolved.model_shape(self.shape);
        let build = |parameters: &Parameters| {
            let model = resolved.token_model(objective, &shape, parameters);
            model.map_err(in_building)
        };
        let (model, scoring) = (build(&parameters)?, build(&parameters.detached())?);
        let (options, rows) = (spec.pretrain.training(&spec.train), self.draft.task.rows);
        let training = Workload::new(&spec.train, rows);
        let fit = Fit {
            options: &options,
            seed: spec.cell.seed,
            splits: Arc::clone(splits),
            layout: Layout::new(resolved.task.about(), self.shape.max_length),
            parameters: &parameters,
            learner: Learner::Tokens(&model),
            scoring: Learner::Tokens(&scoring),
            device: context.device,
            folder: self.folder,
            files: self.folder.pretraining(),
            reporter: context.reporter,
            stop: context.stop,
            workload: Workload::of_pretraining(&options, rows).and(training),
            tensorboard: false,
            full: None,
            milestones: Vec::new(),
        };
        fit.pretrain(resumes).map(Some).map_err(in_training)
    }

    fn fit(&self, splits: Arc<Splits>, flops: u64, resumes: bool) -> Result<(State, Ending)> {
        let (resolved, context) = (self.resolved, self.context);
        let spec = &resolved.spec;
        let workload = Workload::new(&spec.train, self.draft.task.rows);
        let full = FullTask::of(resolved, &splits, workload.passes() * flops as f64)?;
        device::reset_peak(context.device);
        let parameters = Parameters::new(spec.cell.seed, context.device, DType::F32);
        let (model_shape, options) = (resolved.model_shape(self.shape), resolved.model_options());
        let classifier = resolved.classifier(&model_shape, &parameters);
        let classifier = classifier.map_err(in_building)?;
        let scoring = parameters.detached();
        let scoring = Classifier::new(resolved.model, &model_shape, &options, &scoring);
        let scoring = scoring.map_err(in_building)?;
        let files = self.folder.training();
        let trained = resumes && files.checkpoint.exists();
        if !spec.pretrain.is_off() && !trained {
            let learned = self.folder.pretraining().best;
            checkpoint::load_pretrained(&learned, &parameters).map_err(in_training)?;
        }
        let fit = Fit {
            options: &spec.train,
            seed: spec.cell.seed,
            splits,
            layout: Layout::new(resolved.task.about(), self.shape.max_length)
                .bucketed(resolved.spec.train.bucket),
            parameters: &parameters,
            learner: Learner::Classes(&classifier),
            scoring: Learner::Classes(&scoring),
            device: context.device,
            folder: self.folder,
            files,
            reporter: context.reporter,
            stop: context.stop,
            workload,
            tensorboard: context.tensorboard,
            full,
            milestones: resolved.milestones(self.draft.task.rows.train),
        };
        fit.run(resumes).map_err(in_training)
    }
}

/// Sorts the error of a model that cannot be built: its settings are at fault, or the run is.
fn in_building(cause: models::Error) -> Error {
    let class = match cause {
        models::Error::Option { .. } | models::Error::Options { .. } => Class::Usage,
        _ => Class::Run,
    };
    Error {
        class,
        cause: cause.into(),
    }
}

/// The error of a run that fails in training.
fn in_training(cause: anyhow::Error) -> Error {
    Error {
        // A damaged checkpoint says nothing of the run.
        class: match cause.is::<Damaged>() {
            true => Class::Data,
            false => Class::Run,
        },
        cause,
    }
}
