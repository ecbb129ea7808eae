//! One cell of the table: a model on a task with one seed, from frozen settings to a record.
//!
//! [`run`] opens the run folder and inspects what it holds, opens the data, builds the model,
//! trains it and writes the record.

mod bits;
pub mod changes;
mod record;

use std::path::Path;
use std::sync::Arc;

use candle_core::{DType, Device};
use datasets::{DenseBaseline, Shape, Source, Splits};
use models::Parameters;
use results::Record;

use crate::cell::changes::StoredData;
use crate::checkpoint::State;
use crate::damaged::Damaged;
use crate::error::{Class, Error, Result};
use crate::estimate::Workload;
use crate::memory_limit::OomGuard;
use crate::progress::Reporter;
use crate::recipe::Recipe;
use crate::run_folder::{Found, Missing, RunFolder};
use crate::signals::Stop;
use crate::spec::{Cell, Difference, Resolved};
use crate::step::Network;
use crate::tracker::tensorboard;
use crate::train::{TrainOutcome, TrainRun};
use crate::{banner, checkpoint, device, panics};

/// Treatment of a run folder that already holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// Shows a run that has ended, with any outcome; refuses to touch an unfinished one.
    Keep,
    /// Resumes an unfinished or failed run, and reports if there is none; shows a run with a final
    /// record.
    Resume,
    /// Like `Resume`, for callers that do not know whether a run was started.
    Continue,
    /// Starts over, regardless of the contents of the folder.
    Replace,
}

/// Surroundings of a run: folders, device, limits and reporting.
pub struct RunContext<'a> {
    /// Data directory.
    pub data: &'a Path,
    /// Folder to create run folders in.
    pub out: &'a Path,
    /// Device that holds the tensors.
    pub device: &'a Device,
    /// Treatment of a run folder that already holds a run.
    pub if_exists: IfExists,
    /// True if a run with other data, another program or another machine is accepted as the
    /// requested one.
    pub accept_changes: bool,
    /// True to also write event files for TensorBoard.
    pub tensorboard: bool,
    /// Limit on live heap bytes; the default is 95 % of the memory that the system allows.
    pub memory_limit: Option<usize>,
    /// Reporter of progress on standard error.
    pub reporter: &'a Reporter,
    /// Flag that asks the run to stop early.
    pub stop: &'a Stop,
}

/// A finished cell.
pub struct Finished {
    /// The record on file.
    pub record: Record,
    /// False if the record was on file before.
    pub fresh: bool,
    /// Remarks on a record on file: its differences to one that would be made now, and what was not
    /// compared.
    pub remarks: Vec<String>,
}

/// Returns the id of a run, which is also the name of its folder.
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

/// Trains and scores a cell, or resumes it from where it stopped.
///
/// # Errors
/// The settings, the folder or the data are at fault. A run that fails for its own reasons leaves a
/// record of the failure.
pub fn run(resolved: &Resolved, context: &RunContext<'_>) -> Result<Finished> {
    device::set_precision(context.device, resolved.spec.train.precision)?;
    let shape = resolved.data_shape()?;
    let id = run_id(resolved, &shape);
    if context.if_exists == IfExists::Replace {
        RunFolder::clear_way(context.out, &id)?;
    }
    let folder = RunFolder::open(context.out, &id)?;
    let mut draft = record::draft(resolved, context, &shape)?;
    let mut resumes = false;
    let before = match start(resolved, context, &folder, &draft)? {
        Start::OnFile(record, mut remarks) => {
            if context.tensorboard && !folder.file(tensorboard::FOLDER).exists() {
                remarks.push(
                    "no event files for TensorBoard, which are written while a run trains; --tracker writes a finished run"
                        .to_owned(),
                );
            }
            return Ok(Finished {
                record: *record,
                fresh: false,
                remarks,
            });
        }
        Start::Resume(before) => {
            resumes = true;
            draft.provenance.accepted_changes = before.accepted;
            // The steps of both parts count in its speed.
            if let Some(earlier) = before.record.as_ref().map(|record| &record.provenance)
                && (earlier.jobs, earlier.threads)
                    != (draft.provenance.jobs, draft.provenance.threads)
            {
                draft.provenance.jobs = Some(results::record::SEVERAL);
            }
            // Known even if this attempt ends before it opens the data.
            if let Some(earlier) = &before.record {
                draft.task.data_digest = earlier.task.data_digest.clone();
            }
            before.record
        }
        Start::Anew => {
            if let Some(other) = other_raw_files(resolved, context) {
                if !context.accept_changes {
                    return Err(Error::usage(format!(
                        "{other}; or train on the stored data with --accept-changes"
                    )));
                }
                context.reporter.note(&other);
            }
            let spec = &resolved.spec;
            if let Some(remark) = spec.train.endless_warmup() {
                context.reporter.note(&remark);
            }
            let pretrains = !spec.pretrain.is_off();
            let pretraining = pretrains.then(|| spec.pretrain.training(&spec.train));
            if let Some(remark) = pretraining.and_then(|it| it.endless_warmup()) {
                context.reporter.note(&format!(
                    "in pretraining, whose steps are pretrain.steps, {remark}"
                ));
            }
            None
        }
    };
    // A failure before the files of an earlier run are removed leaves that run as it is.
    let owns = context.if_exists != IfExists::Replace || !folder.holds_a_run();
    let mut attempt = RunAttempt {
        resolved,
        context,
        shape: &shape,
        folder: &folder,
        // The guard is set from here on: data may have to be built, which can run out of memory.
        guard: OomGuard::record_oom_for(&folder, owns.then_some(&draft), context.memory_limit)?,
        draft,
        owns,
    };
    let trained = panics::caught(|| attempt.train(resumes, before.as_deref()));
    let RunAttempt {
        draft, guard, owns, ..
    } = attempt;
    drop(guard);
    context.reporter.stop();
    let record = match trained {
        Ok(trained) => record::complete(draft, resolved, &folder, &trained, context.device)?,
        Err(error)
            if owns && (error.class == Class::Run || device::is_out_of_memory(&error.cause)) =>
        {
            record::fail(draft, &folder, error)?
        }
        Err(error) => return Err(error),
    };
    Ok(Finished {
        record,
        fresh: true,
        remarks: Vec::new(),
    })
}

/// Starting point of a run.
enum Start {
    /// The run does not start: its record is on file, with remarks as in [`Finished`].
    OnFile(Box<Record>, Vec<String>),
    /// The run resumes from the state that an earlier one left.
    Resume(Before),
    /// The run starts from random weights.
    Anew,
}

/// Information about the run that is resumed.
struct Before {
    /// The record as far as it is known; `None` if it is lost.
    record: Option<Box<Record>>,
    /// Accepted changes since the start of the run, in words.
    accepted: Vec<String>,
}

fn start(
    resolved: &Resolved,
    context: &RunContext<'_>,
    folder: &RunFolder,
    draft: &Record,
) -> Result<Start> {
    let found = match context.if_exists {
        IfExists::Replace => return Ok(Start::Anew),
        IfExists::Keep | IfExists::Resume | IfExists::Continue => folder.found(&resolved.spec)?,
    };
    let place = folder.path().display();
    match (found, context.if_exists) {
        (Found::Nothing, IfExists::Resume) => {
            context.reporter.note(&nothing_to_resume(resolved, folder));
            Ok(Start::Anew)
        }
        (Found::Nothing, _) => Ok(Start::Anew),
        (Found::Finished(record), _) => {
            let device = std::slice::from_ref(&draft.provenance.device);
            let mut changes = changes::of_program(&record, resolved.task, resolved.model, device)?;
            let stored = {
                let key = resolved.spec.data_key();
                StoredData::find(resolved.task, &key, context.data, context.reporter)?
            };
            changes.extend(stored.changes(&record));
            if !changes.is_empty() && !context.accept_changes {
                let ways = match stored.other_raw_files() {
                    Some(_) => {
                        "first make the data again, then run it again with --force, or show it anyway with --accept-changes"
                    }
                    None => {
                        "run it again with --force, show it anyway with --accept-changes, or choose another --out"
                    }
                };
                return Err(Error::usage(format!(
                    "{}; {ways}",
                    changes::of_finished(folder.path(), &changes)
                )));
            }
            changes.extend(stored.not_compared(&record));
            Ok(Start::OnFile(record, changes))
        }
        (Found::Failed(record), IfExists::Keep) => Ok(Start::OnFile(record, Vec::new())),
        (Found::Unfinished, IfExists::Keep) => Err(Error::usage(format!(
            "{place} holds an unfinished run; continue with --resume or start over with --force"
        ))),
        (Found::Unfinished | Found::Failed(_), _) => go_on(resolved, context, folder, draft),
    }
}

/// Decides how to resume a run that was started.
fn go_on(
    resolved: &Resolved,
    context: &RunContext<'_>,
    folder: &RunFolder,
    draft: &Record,
) -> Result<Start> {
    let before = RunFolder::begun(folder.path(), &resolved.spec)?;
    let saved = folder.can_go_on(!resolved.spec.pretrain.is_off(), before.as_ref())?;
    let same = folder.holds(&resolved.spec)?;
    if !(saved && same) {
        let place = folder.path().display();
        context.reporter.note(&format!(
            "nothing was saved in {place} before that run ended: it begins again at step 1"
        ));
        return Ok(Start::Anew);
    }
    let device = std::slice::from_ref(&draft.provenance.device);
    let mut changes = match &before {
        Some(record) => changes::of_program(record, resolved.task, resolved.model, device)?,
        None => vec![format!(
            "the data and the program that it began with are not known, since {} is missing",
            folder.draft().display()
        )],
    };
    changes.extend(folder.nameless());
    // Their digest is compared once they are open: they may have to be built first.
    changes.extend(other_raw_files(resolved, context));
    if !changes.is_empty() && !context.accept_changes {
        return Err(cannot_go_on(folder, &changes));
    }
    let earlier = before
        .as_ref()
        .map(|record| record.provenance.accepted_changes.clone());
    Ok(Start::Resume(Before {
        record: before.map(Box::new),
        accepted: earlier
            .unwrap_or_default()
            .into_iter()
            .chain(changes)
            .collect(),
    }))
}

/// Returns the difference between the raw files of the run's stored data and those that are raw
/// now.
fn other_raw_files(resolved: &Resolved, context: &RunContext<'_>) -> Option<String> {
    changes::other_raw_files(resolved.task, &resolved.spec.data_key(), context.data)
}

fn cannot_go_on(folder: &RunFolder, changes: &[String]) -> Error {
    Error::usage(format!(
        "{} holds an unfinished run that began under other conditions: {}; start over with --force, or continue with \
         --accept-changes, which the record will mention",
        folder.path().display(),
        changes.join("; ")
    ))
}

/// Returns the message that there is no run to resume, with the runs of the same cell that have
/// other settings.
fn nothing_to_resume(resolved: &Resolved, folder: &RunFolder) -> String {
    let place = folder.path().display();
    let mut text = format!("no earlier run in {place}: training begins at step 1");
    for (other, spec) in folder.siblings() {
        if spec.cell == resolved.spec.cell {
            let differences = Difference::list(&spec.differences(&resolved.spec));
            let line = format!(
                "{} is another run of this cell, from which this run cannot continue: this run has {differences}",
                other.display()
            );
            // Words of its settings are no lines of their own.
            text += &format!("\n{}", disk::escape(&line));
        }
    }
    text
}

/// The part of a run that may fail and leave a record.
struct RunAttempt<'a> {
    resolved: &'a Resolved,
    context: &'a RunContext<'a>,
    shape: &'a Shape,
    folder: &'a RunFolder,
    guard: OomGuard,
    /// The record as far as it is known.
    draft: Record,
    /// True if the folder holds no other run, whose record a failure would replace.
    owns: bool,
}

/// The result of training.
struct Trained {
    /// The result of pretraining, if there was one.
    pretraining: Option<State>,
    state: State,
    outcome: TrainOutcome,
    /// Loss of a predictor that only knows the class shares.
    prior_loss: Option<f64>,
    /// Scores of trivial predictors on labels at positions, by group.
    dense_baselines: Vec<DenseBaseline>,
}

impl RunAttempt<'_> {
    /// Opens the data, builds the model, trains and scores it. Facts that become known are added to
    /// the draft.
    fn train(&mut self, resumes: bool, before: Option<&Record>) -> Result<Trained> {
        let (resolved, shape) = (self.resolved, self.shape);
        let splits = self.open_data()?;
        let changed =
            before.and_then(|before| changes::of_data(before, &self.draft.task.data_digest));
        if let Some(change) = changed {
            if !self.context.accept_changes {
                return Err(cannot_go_on(self.folder, &[change]));
            }
            self.draft.provenance.accepted_changes.push(change);
        }
        let (meta, sizes) = resolved.meta()?;
        self.draft.model.parameters = sizes.elements() as u64;
        match resumes {
            true => self.folder.keep_error(None)?,
            false => {
                self.folder.clear()?;
                self.folder.save_spec(&resolved.spec)?;
            }
        }
        self.owns = true;
        self.guard.update(&self.draft);
        self.folder.save_draft(&self.draft)?;
        let was_stopped =
            before.is_some_and(|it| matches!(it.outcome, results::Outcome::Interrupted { .. }));
        if resumes && (!was_stopped || !self.draft.provenance.accepted_changes.is_empty()) {
            // From here on the draft describes the inputs of the run, whenever it ends, and the
            // failure that it goes on from is no longer its outcome.
            self.folder.remove_record()?;
        }
        let flops = meta.flops(1, shape.train_length);
        for line in banner::lines(&self.draft, resolved, shape, flops) {
            self.context.reporter.say(&line);
        }
        for how in &splits.manifest.altered {
            self.context.reporter.say(&format!("ALTERED    {how}"));
        }
        if meta.reads_first_token_alone() {
            self.context.reporter.note(
                "head.pooling = first: the first state of this causal model sees the first token alone; use mean or cls for a score of whole sequences",
            );
        }
        let (batch, rows) = (resolved.spec.train.batch, splits.train.len());
        if batch > rows {
            self.context.reporter.note(&format!(
                "train.batch = {batch} is more than there is to train on ({}), so every update has all of it",
                results::counted(rows as u64, "example")
            ));
        }
        let prior_loss = datasets::prior_loss(&splits, resolved.spec.train.sequence_weight);
        let dense_baselines = splits.dense_baselines().unwrap_or_default();
        let pretraining = match self.pretrain(&splits, resumes)? {
            Some((state, Some(outcome))) => {
                return Ok(Trained {
                    pretraining: Some(state),
                    state: State::default(),
                    outcome,
                    prior_loss,
                    dense_baselines,
                });
            }
            other => other.map(|(state, _)| state),
        };
        let (state, outcome) = self.train_classifier(Arc::clone(&splits), resumes)?;
        splits.check_unchanged()?;
        Ok(Trained {
            pretraining,
            state,
            outcome,
            prior_loss,
            dense_baselines,
        })
    }

    /// Returns the digest of the run's settings.
    fn digest(&self) -> &str {
        &self.draft.provenance.spec_digest
    }

    fn open_data(&mut self) -> Result<Arc<Splits>> {
        let store = datasets::Store::new(self.context.data);
        let (task, key) = (self.resolved.task, self.resolved.spec.data_key());
        let splits = match self.context.accept_changes {
            // Other files have been reported.
            true => store.open_as_stored(task, &key, self.context.reporter)?,
            false => store.open_or_build(task, &key, None, self.context.reporter)?,
        };
        record::describe(&mut self.draft.task, &splits);
        self.guard.update(&self.draft);
        self.draft.baselines = record::baselines(self.resolved, &splits);
        Ok(Arc::new(splits))
    }

    /// Pretrains if the settings request it. Returns an outcome if the run ends with it.
    fn pretrain(
        &self,
        splits: &Arc<Splits>,
        resumes: bool,
    ) -> Result<Option<(State, Option<TrainOutcome>)>> {
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
        let after = Workload::new(&spec.train, rows);
        let training = TrainRun {
            options: &options,
            seed: spec.cell.seed,
            digest: self.digest(),
            splits: Arc::clone(splits),
            layouts: spec
                .layouts(resolved.task, self.shape)
                .map(|layout| layout.bucketed(options.bucket)),
            parameters: &parameters,
            network: Network::Tokens(&model),
            scoring: Network::Tokens(&scoring),
            device: context.device,
            folder: self.folder,
            files: self.folder.pretraining(),
            reporter: context.reporter,
            stop: context.stop,
            workload: Workload::of_pretraining(&options, rows).and(after),
            tensorboard: false,
            milestones: Vec::new(),
        };
        training.pretrain(resumes).map(Some).map_err(in_training)
    }

    fn train_classifier(
        &self,
        splits: Arc<Splits>,
        resumes: bool,
    ) -> Result<(State, TrainOutcome)> {
        let (resolved, context) = (self.resolved, self.context);
        let spec = &resolved.spec;
        let workload = Workload::new(&spec.train, self.draft.task.rows);
        if let Some(line) = full_task(resolved) {
            context.reporter.say(&line);
        }
        device::reset_peak(context.device);
        let parameters = Parameters::new(spec.cell.seed, context.device, DType::F32);
        let model_shape = resolved.model_shape(self.shape);
        let classifier = resolved.classifier(&model_shape, &parameters);
        let classifier = classifier.map_err(in_building)?;
        let scoring = resolved.scorer(&model_shape, &parameters.detached());
        let scoring = scoring.map_err(in_building)?;
        let files = self.folder.training();
        let trained = resumes && files.checkpoint.exists();
        if !spec.pretrain.is_off() && !trained {
            let learned = self.folder.pretraining().best;
            checkpoint::load_pretrained(&learned, self.digest(), &parameters)
                .map_err(in_training)?;
        }
        if let Some(initial) = resolved.initial.as_ref().filter(|_| !trained) {
            initial.load(&parameters).map_err(in_building)?;
        }
        let training = TrainRun {
            options: &spec.train,
            seed: spec.cell.seed,
            digest: self.digest(),
            splits,
            layouts: spec
                .layouts(resolved.task, self.shape)
                .map(|layout| layout.bucketed(spec.train.bucket)),
            parameters: &parameters,
            network: Network::Classes(&classifier),
            scoring: Network::Classes(&scoring),
            device: context.device,
            folder: self.folder,
            files,
            reporter: context.reporter,
            stop: context.stop,
            workload,
            tensorboard: context.tensorboard,
            milestones: resolved.milestones(self.draft.task.rows.train),
        };
        training.run(resumes).map_err(in_training)
    }
}

/// Returns the line that names the full task behind a reduced recipe. `None` if the recipe is not a
/// reduced one, the full one has no settings for the task, or the data is synthetic.
fn full_task(resolved: &Resolved) -> Option<String> {
    let recipe = resolved.recipe.body.full.as_ref()?;
    let Cell {
        task,
        model,
        source,
        ..
    } = &resolved.spec.cell;
    let known = Recipe::load(recipe).ok()?.body.of_task(task).is_some();
    (known && *source != Source::Synthetic).then(|| {
        format!(
            "full task  for the time of {task} by recipe {recipe}: \
             lra sweep --tasks {task} --models {model} --recipe {recipe} --dry-run"
        )
    })
}

/// Classifies the error of a model that cannot be built: its settings are at fault, or the run is.
fn in_building(cause: models::Error) -> Error {
    let class = match cause.is_of_options() {
        true => Class::Usage,
        false => Class::Run,
    };
    Error {
        class,
        cause: cause.into(),
    }
}

/// Returns the error of a run that fails in training.
fn in_training(cause: anyhow::Error) -> Error {
    Error {
        // A damaged or removed file says nothing about the run itself.
        class: match (cause.is::<Damaged>(), cause.is::<Missing>()) {
            (true, _) => Class::Data,
            (_, true) => Class::Usage,
            _ => Class::Run,
        },
        cause,
    }
}
