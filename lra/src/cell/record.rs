//! The record of a run: drafted before the start, completed as facts become known, written at the
//! end.

use candle_core::Device;
use datasets::{DenseBaseline, Shape, Splits, tasks};
use results::record::{self, Outcome, Provenance, Record};

use super::{RunContext, Trained, bits, run_id};
use crate::checkpoint::State;
use crate::error::{Class, Classify, Error, Result};
use crate::initial::Initial;
use crate::run_folder::{self, PhaseFiles, RunFolder};
use crate::spec::{PretrainKind, PretrainOptions, Resolved, Select};
use crate::timing::Timings;
use crate::train::TrainOutcome;
use crate::{device, host, panics, provenance, stderr};

/// Returns the record as far as it is known before the data are open and the model is built.
///
/// # Errors
/// The executable, which contains a custom model or task, cannot be read.
pub(super) fn draft(
    resolved: &Resolved,
    context: &RunContext<'_>,
    shape: &Shape,
) -> Result<Record> {
    let spec = &resolved.spec;
    let info = resolved.task.info();
    Ok(Record {
        schema: record::SCHEMA,
        id: run_id(resolved, shape),
        outcome: Outcome::Interrupted { step: 0 },
        task: record::Task {
            name: spec.cell.task_name(),
            label: shape.label.clone(),
            source: spec.cell.source.to_string(),
            protocol: spec.cell.protocol.to_string(),
            classes: shape.classes,
            // A part of no average over the benchmark's tasks.
            probe: info.probe || tasks::is_own(resolved.task),
            own: provenance::own_task(resolved.task)?,
            ..record::Task::default()
        },
        model: record::Model {
            name: spec.cell.model.clone(),
            variant: resolved.variant.name.to_owned(),
            default_variant: Some(resolved.has_default_variant()),
            parameters: 0,
            masks_padding: resolved.variant.masks_padding,
            rule_violation: resolved.rule_violation.map(str::to_owned),
            family: resolved.family.map(|family| family.name().to_owned()),
            own: provenance::own_model(resolved.model)?,
            unrounded: provenance::unrounded(resolved.model, spec.train.precision),
        },
        recipe: resolved.recipe_of_record(),
        seed: spec.cell.seed,
        from: resolved.initial.as_ref().map(Initial::of_record),
        pretraining: None,
        scores: None,
        baselines: Vec::new(),
        speed: None,
        memory: None,
        provenance: Provenance {
            spec_digest: spec.digest(),
            precision: spec.train.precision.to_string(),
            ..provenance::of_process(context.device, rayon::current_num_threads())
        },
    })
}

/// Fills in the digest, rows and flags of the data.
pub(super) fn describe(task: &mut record::Task, splits: &Splits) {
    task.data_digest = splits.manifest.digest.clone();
    task.rows = record::Rows {
        train: splits.train.len(),
        val: splits.val.len(),
        test: splits.test.len(),
    };
    task.partial = splits.manifest.partial;
    task.altered = splits.manifest.altered.clone();
}

/// Returns the test accuracies of the task's trivial predictors.
pub(super) fn baselines(resolved: &Resolved, splits: &Splits) -> Vec<record::Baseline> {
    let scored = resolved.task.baselines(splits).into_iter();
    scored
        .map(|it| record::Baseline {
            name: it.name,
            accuracy: it.accuracy,
        })
        .collect()
}

/// Fills in scores, speed and memory of a run that ended normally, and writes the record.
pub(super) fn complete(
    draft: Record,
    resolved: &Resolved,
    folder: &RunFolder,
    trained: &Trained,
    device: &Device,
) -> Result<Record> {
    let Trained {
        state,
        outcome: ended,
        ..
    } = trained;
    let read = |files: &PhaseFiles| Timings::read(&files.timings).class(Class::Data);
    let training = folder.training();
    // A run may have ended before training began.
    let timings = match training.timings.exists() {
        true => read(&training)?,
        false => Timings::default(),
    };
    let pretraining = match &trained.pretraining {
        Some(state) => {
            let timings = read(&folder.pretraining())?;
            Some(pretraining(&resolved.spec.pretrain, state, &timings))
        }
        None => None,
    };
    let mut scores = record::Scores {
        val_accuracy: state.best.map(|best| best.accuracy),
        val_loss: state.best.map(|best| best.loss),
        train_loss: state.train_loss,
        best_step: state.best.map(|best| best.step as u64),
        steps: state.step as u64,
        examples_seen: state.examples,
        evaluations: state.evaluations as u64,
        prior_loss: trained.prior_loss,
        ..record::Scores::default()
    };
    let outcome = match ended {
        TrainOutcome::Scored { val, test } => {
            (scores.val_accuracy, scores.val_loss) = (Some(val.accuracy), Some(val.loss));
            (scores.test_accuracy, scores.test_loss) = (Some(test.accuracy), Some(test.loss));
            scores.val_dense = val.dense.clone();
            let dense = test.dense.clone();
            scores.test_dense = dense.map(|it| beside_majority(it, &trained.dense_baselines));
            if resolved.spec.train.select == Select::Last {
                scores.best_step = Some(state.step as u64);
            }
            let log = results::metrics::read(folder.path()).map_err(run_folder::unusable)?;
            scores.bits_gained = trained
                .prior_loss
                .and_then(|prior| bits::gained(prior, &log, test.deciding_loss()));
            Outcome::Scored
        }
        TrainOutcome::Diverged { step, reason } => Outcome::Diverged {
            step: *step as u64,
            reason: reason.clone(),
        },
        TrainOutcome::Interrupted => Outcome::Interrupted {
            step: state.step as u64,
        },
    };
    let before = pretraining.as_ref().map_or(0, |it| it.peak_bytes);
    let memory = record::Memory {
        peak_bytes: timings.peak_bytes.max(before),
        base_bytes: timings.base_bytes,
        resident_bytes: timings.resident_bytes,
        method: device::method(device).to_owned(),
        driver_bytes: timings.driver_bytes,
    };
    let seconds_before = pretraining.as_ref().map_or(0.0, |it| it.wall_seconds);
    let record = Record {
        outcome,
        scores: Some(scores),
        speed: speed(&timings, &trained.state, seconds_before),
        memory: training.timings.exists().then_some(memory),
        pretraining,
        provenance: now(draft.provenance),
        ..draft
    };
    write(folder, &record)?;
    Ok(record)
}

/// Returns the scores of labels at positions, each group with the accuracy of always predicting its
/// most frequent class.
fn beside_majority(mut dense: record::Dense, baselines: &[DenseBaseline]) -> record::Dense {
    for group in &mut dense.groups {
        let baseline = baselines.iter().find(|it| it.group == group.name);
        group.majority = baseline.map(|it| it.majority);
    }
    dense
}

/// Returns the outcome of a pretraining for the record.
fn pretraining(options: &PretrainOptions, state: &State, timings: &Timings) -> record::Pretraining {
    record::Pretraining {
        kind: match options.kind {
            PretrainKind::None => "none",
            PretrainKind::Masked => "masked",
            PretrainKind::Next => "next",
        }
        .to_owned(),
        share: options.share,
        steps: state.step as u64,
        examples_seen: state.examples,
        train_loss: state.train_loss,
        val_loss: state.best.map(|best| best.loss),
        val_accuracy: state.best.map(|best| best.accuracy),
        best_step: state.best.map(|best| best.step as u64),
        wall_seconds: timings.wall,
        peak_bytes: timings.peak_bytes,
    }
}

/// Returns the speed of the timed steps. The run began `seconds_before` seconds before training
/// did.
fn speed(timings: &Timings, state: &State, seconds_before: f64) -> Option<record::Speed> {
    // Averages over the steps: the last batch of an epoch may be smaller, no batch exceeds the
    // data, and batches of rows sorted by length have different lengths.
    let [examples, tokens, flops] = [state.examples, state.tokens, state.flops]
        .map(|sum| sum as f64 / state.step.max(1) as f64);
    // One forward pass, and a backward pass of twice its cost.
    let step_flops = 3.0 * flops;
    let speed = timings.steps_per_second().map(|rate| record::Speed {
        steps_per_second: rate,
        examples_per_second: rate.median * examples,
        tokens_per_second: rate.median * tokens,
        flops_per_step: step_flops as u64,
        achieved_flops_per_second: rate.median * step_flops,
        timed_steps: timings.steps.len() as u64,
        warmup_steps: timings.warmup.len() as u64,
        phases: timings.phases,
        overhead_share: timings.overhead_share(),
        training_seconds: timings.steps.iter().chain(&timings.warmup).sum(),
        wall_seconds: seconds_before + timings.wall,
    });
    speed.filter(record::Speed::is_finite)
}

/// Writes the record of a failed run, with the first line of the error, and a file next to it with
/// the full error.
pub(super) fn fail(draft: Record, folder: &RunFolder, error: Error) -> Result<Record> {
    let (message, full) = (error.to_string(), panics::in_full(&error));
    let reason = message.lines().next().unwrap_or_default().to_owned();
    let outcome = match device::is_out_of_memory(&error.cause) {
        true => Outcome::OutOfMemory { reason },
        false => Outcome::Failed { reason },
    };
    let record = Record {
        outcome,
        provenance: now(draft.provenance),
        ..draft
    };
    // The disk may be the cause of the failure; then only the error itself can be shown.
    write(folder, &record).map_err(|_| error)?;
    if full.lines().count() > 1 {
        // The error itself matters more than where its full text is.
        if let Err(other) = folder.keep_error(Some(&full)) {
            stderr::line(format!("note: {other}"));
        }
    }
    Ok(record)
}

fn now(provenance: Provenance) -> Provenance {
    Provenance {
        created: host::now(),
        ..provenance
    }
}

fn write(folder: &RunFolder, record: &Record) -> Result<()> {
    results::store::write(&folder.record(), record).map_err(run_folder::unwritable)
}

#[cfg(test)]
mod tests {
    use results::record::Phases;

    use super::*;

    #[test]
    fn tables_find_the_majority_baseline_by_the_name_that_tasks_give_it() {
        assert_eq!(datasets::MAJORITY, record::MAJORITY);
    }

    /// Returns the state after 5 updates with this many examples in all.
    fn trained(examples: u64, tokens: u64) -> State {
        State {
            step: 5,
            examples,
            tokens,
            flops: 1000 * examples,
            ..State::default()
        }
    }

    #[test]
    fn speed_is_that_of_the_timed_steps_and_time_that_of_the_whole_run() {
        // 7 examples per step of 16 tokens each.
        let trained = trained(35, 35 * 16);
        let timings = Timings {
            wall: 20.0,
            warmup: vec![4.0, 4.0],
            steps: vec![0.5, 0.5, 0.5],
            phases: Phases {
                forward: 0.3,
                backward: 0.9,
                ..Phases::default()
            },
            ..Timings::default()
        };
        // A backward pass costs twice a forward pass.
        let speed = speed(&timings, &trained, 100.0).unwrap();
        assert_eq!(speed.steps_per_second.median, 2.0);
        assert_eq!(
            (speed.examples_per_second, speed.tokens_per_second),
            (14.0, 224.0)
        );
        assert_eq!(
            (speed.flops_per_step, speed.achieved_flops_per_second),
            (21_000, 42_000.0)
        );
        assert_eq!((speed.timed_steps, speed.warmup_steps), (3, 2));
        assert_eq!((speed.training_seconds, speed.wall_seconds), (9.5, 120.0));
        assert!((speed.overhead_share - 0.2).abs() < 1e-12);
        let untimed = Timings::default();
        assert!(super::speed(&untimed, &trained, 0.0).is_none());
    }

    #[test]
    fn groups_of_labels_stand_beside_the_majority_of_the_same_name() {
        let group = |name: &str| record::DenseGroup {
            name: name.to_owned(),
            labels: 1,
            accuracy: 0.5,
            loss: 1.0,
            majority: None,
        };
        let dense = record::Dense {
            groups: ["a", "b", "c"].map(group).to_vec(),
            ..record::Dense::default()
        };
        let baselines = [("b", 0.25), ("a", 0.75)].map(|(name, majority)| DenseBaseline {
            group: name.to_owned(),
            train: Vec::new(),
            labels: 1,
            majority,
        });
        let found = beside_majority(dense, &baselines);
        let found: Vec<_> = found.groups.iter().map(|it| it.majority).collect();
        assert_eq!(found, [Some(0.75), Some(0.25), None]);
    }

    /// The last batch of an epoch may be smaller, so the mean is no whole number.
    #[test]
    fn examples_per_second_are_those_of_the_mean_batch() {
        let trained = trained(36, 360);
        let timings = Timings {
            steps: vec![0.5],
            phases: Phases {
                forward: 0.5,
                ..Phases::default()
            },
            ..Timings::default()
        };
        let speed = speed(&timings, &trained, 0.0).unwrap();
        assert!((speed.examples_per_second - 14.4).abs() < 1e-12);
        assert!((speed.tokens_per_second - 144.0).abs() < 1e-12);
        assert_eq!(speed.flops_per_step, 21_600);
    }
}
