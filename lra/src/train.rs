//! The training loop.

mod metrics_writer;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use anyhow::Context as _;
use candle_core::Device;
use datasets::Splits;
use models::{Parameters, RngKey};
use results::metrics::Line;

use self::metrics_writer::MetricsWriter;
use crate::batch::{Layout, Prefetcher};
use crate::checkpoint::{self, Evaluation, Interval, State};
use crate::estimate::{RunEstimator, Workload};
use crate::eval::{Score, Scorer};
use crate::load;
use crate::milestone::Milestone;
use crate::optim::Updater;
use crate::progress::Reporter;
use crate::run_folder::{Missing, PhaseFiles, RunFolder};
use crate::signals::Stop;
use crate::spec::{Select, TrainOptions};
use crate::step::{Network, PendingStep, Trainer};

/// Inputs of the training of a run, or of its pretraining.
pub struct TrainRun<'a> {
    /// Training options.
    pub options: &'a TrainOptions,
    /// The seed of the run.
    pub seed: u64,
    /// Digest of the run's settings, which its files name.
    pub digest: &'a str,
    /// The data.
    pub splits: Arc<Splits>,
    /// Conversion of rows into tensors: for training and validation, and for the test split.
    pub layouts: [Layout; 2],
    /// The weights.
    pub parameters: &'a Parameters,
    /// The model over the weights.
    pub network: Network<'a>,
    /// Learner of the same model over the same weights, detached for scoring.
    pub scoring: Network<'a>,
    /// Device that holds everything.
    pub device: &'a Device,
    /// The run's folder.
    pub folder: &'a RunFolder,
    /// Paths of logs and checkpoints within the folder.
    pub files: PhaseFiles,
    /// Reporter of progress on standard error.
    pub reporter: &'a Reporter,
    /// Flag that requests an early stop of the run.
    pub stop: &'a Stop,
    /// Steps and scored examples of the whole run, from which its duration is estimated.
    pub workload: Workload,
    /// True to also write event files for TensorBoard.
    pub tensorboard: bool,
    /// Accuracies that published runs had during training.
    pub milestones: Vec<Milestone>,
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum TrainOutcome {
    /// All steps were made and the selected weights were scored.
    Scored {
        /// Score on the validation split, or on the part that evaluations use.
        val: Score,
        /// Score on the test split, which is scored only this once.
        test: Score,
    },
    /// A loss, the gradient, a score or a weight stopped being finite.
    Diverged {
        /// Step at which it happened.
        step: usize,
        /// Name of the value that was not finite.
        reason: String,
    },
    /// A stop was requested; the state is saved.
    Interrupted,
}

impl TrainRun<'_> {
    /// Trains from the last checkpoint, or from the start, to the end, and scores the test split
    /// once.
    pub fn run(&self, resume: bool) -> anyhow::Result<(State, TrainOutcome)> {
        let mut session = self.session(resume)?;
        let outcome = match session.train()? {
            Some(outcome) => outcome,
            None => session.finish()?,
        };
        session.metrics.write_timings(session.state.step)?;
        Ok((session.state, outcome))
    }

    /// Pretrains in the same way. It ends with the best weights stored and scores nothing. Returns
    /// an ending if the end was not reached.
    pub fn pretrain(&self, resume: bool) -> anyhow::Result<(State, Option<TrainOutcome>)> {
        let mut session = self.session(resume)?;
        let outcome = session.train()?;
        self.reporter.stop();
        session.metrics.write_timings(session.state.step)?;
        Ok((session.state, outcome))
    }

    fn session(&self, resume: bool) -> anyhow::Result<Session<'_>> {
        let mut updater = Updater::new(self.parameters, self.options)?;
        let mut state = State::default();
        if resume && self.files.checkpoint.exists() {
            let file = &self.files.checkpoint;
            state = checkpoint::load(file, self.digest, self.parameters, &mut updater)?;
            if state.best.is_some() && !self.files.best.exists() {
                return Err(Missing(vec![self.files.best.clone()]).into());
            }
            if let Some(best) = state.best
                && self.takes_best()
            {
                // The best weights are only needed at the end, when it would be too late to find
                // them damaged.
                let step = checkpoint::check_parameters(&self.files.best, self.digest)?;
                // Weights later than this checkpoint replaced the best ones before the run was
                // killed. Their step is repeated; another build may then find other weights.
                if step.is_some_and(|step| step > best.step) {
                    state.best = None;
                }
            }
            let (step, phase) = (state.step, self.phase());
            self.reporter.say(&match self.network {
                Network::Classes(_) => format!("resuming after step {step}"),
                Network::Tokens(_) => format!("resuming after step {step} of {phase}ing"),
            });
        }
        let mut metrics = MetricsWriter::open(self, &state)?;
        if state.step > 0 {
            metrics.note_saved(state.step)?;
        }
        Ok(Session {
            run: self,
            metrics,
            trainer: Trainer {
                network: self.network,
                parameters: self.parameters,
                updater,
                options: self.options,
                seed: self.seed,
                device: self.device,
            },
            state,
            estimator: RunEstimator::default(),
            pending: Vec::new(),
        })
    }

    fn options(&self) -> &TrainOptions {
        self.options
    }

    fn phase(&self) -> &'static str {
        match self.network {
            Network::Classes(_) => "train",
            Network::Tokens(_) => "pretrain",
        }
    }

    /// Returns whether the best weights are needed at the end.
    fn takes_best(&self) -> bool {
        match self.network {
            Network::Classes(_) => self.options.select == Select::Best,
            Network::Tokens(_) => true,
        }
    }

    /// Returns whether one score is better than another: by accuracy over all labels if classes are
    /// learned, by loss if tokens are.
    fn is_better(&self, score: &Score, best: &Evaluation) -> bool {
        match self.network {
            Network::Classes(_) => score.deciding_accuracy() > best.deciding_accuracy(),
            Network::Tokens(_) => score.loss < best.loss,
        }
    }

    /// Ends the phase at `step`, because `what` is not finite.
    fn diverged(&self, step: usize, what: &str) -> TrainOutcome {
        self.reporter.stop();
        let place = match self.network {
            Network::Classes(_) => "",
            Network::Tokens(_) => " in pretraining",
        };
        TrainOutcome::Diverged {
            step,
            reason: format!("the {what} is not finite{place}"),
        }
    }

    fn rng(&self, step: usize) -> RngKey {
        RngKey::new(self.seed, step as u64, 0)
    }

    /// Returns the scorer of the validation split.
    fn scorer(&self) -> Scorer<'_> {
        let options = self.options();
        Scorer {
            network: self.scoring,
            layout: self.layouts[0],
            batch: options.batch,
            part: options.forward_examples(),
            dense: match self.scoring {
                Network::Classes(_) => self.splits.manifest.dense.clone(),
                Network::Tokens(_) => None,
            },
            sequence_weight: self.options.sequence_weight,
            device: self.device,
        }
    }

    /// Returns the scorer of the test split. Where its rows are longer, fewer of them make a batch.
    fn test_scorer(&self) -> Scorer<'_> {
        let (scorer, [training, test]) = (self.scorer(), self.layouts);
        scorer.of_longer_rows(training, test)
    }
}

/// The part of a run that one process carries out.
struct Session<'a> {
    run: &'a TrainRun<'a>,
    trainer: Trainer<'a>,
    state: State,
    metrics: MetricsWriter<'a>,
    estimator: RunEstimator,
    /// Steps whose results have not been copied to the host yet.
    pending: Vec<PendingStep>,
}

impl Session<'_> {
    /// Runs the training loop; returns an ending if not all steps were made.
    fn train(&mut self) -> anyhow::Result<Option<TrainOutcome>> {
        let run = self.run;
        let options = run.options();
        // Checkpoints of older versions may contain a score that is not finite.
        let scores = [self.state.best, self.state.last];
        if let Some(found) = scores.into_iter().flatten().find(|it| !it.is_finite()) {
            return Ok(Some(run.diverged(found.step, "validation loss")));
        }
        let first = self.state.step;
        let prefetcher = Prefetcher::start(
            Arc::clone(&run.splits),
            run.layouts[0],
            run.seed,
            options.batch,
            first,
        )
        .context("starting the thread that prepares batches")?;
        run.reporter
            .start(run.phase(), first as u64, Some(options.steps as u64));
        loop {
            let step = self.state.step;
            if self.evaluation_due()
                && let Some(outcome) = self.evaluate()?
            {
                return Ok(Some(outcome));
            }
            if step > first
                && (step.is_multiple_of(options.checkpoint_period()) || step == options.steps)
            {
                self.save()?;
            }
            if step >= options.steps {
                break;
            }
            if run.stop.requested() {
                if let Some(diverged) = self.collect()? {
                    return Ok(Some(diverged));
                }
                return self.interrupt().map(Some);
            }
            self.step(&prefetcher, step - first < options.speed_warmup)?;
            let step = self.state.step;
            // On the CPU a step is over when it returns. A GPU works asynchronously and is waited
            // for only when the results of its steps are used.
            if (run.device.is_cpu() || self.results_due(first))
                && let Some(diverged) = self.collect()?
            {
                return Ok(Some(diverged));
            }
            if step.is_multiple_of(options.log_every) || step == options.steps {
                self.log()?;
            }
        }
        Ok(None)
    }

    /// Returns whether the results of the steps made so far are used before the next one: by the
    /// log, an evaluation, a checkpoint or the end; or because the timed steps begin, after
    /// `speed_warmup` steps from `first` on.
    fn results_due(&self, first: usize) -> bool {
        let (options, step) = (self.run.options(), self.state.step);
        let periods = [
            options.log_every,
            options.eval_period(),
            options.checkpoint_period(),
        ];
        periods.iter().any(|period| step.is_multiple_of(*period))
            || step == options.steps
            || step - first == options.speed_warmup
    }

    /// Makes one update.
    fn step(&mut self, prefetcher: &Prefetcher, warms_up: bool) -> anyhow::Result<()> {
        let run = self.run;
        let step = self.trainer.step(self.state.step, warms_up, || {
            prefetcher
                .next()
                .context("the thread that prepares batches was lost")
        })?;
        self.state.step += 1;
        self.state.examples += step.rows as u64;
        self.state.tokens += (step.rows * run.layouts[0].towers * step.length) as u64;
        self.state.flops += run.network.flops(step.rows, step.length);
        self.pending.push(step);
        Ok(())
    }

    /// Copies loss and gradient norm of the pending steps to the host, waiting for the device, and
    /// adds them to the log's interval. Returns an ending if one of them diverged.
    fn collect(&mut self) -> anyhow::Result<Option<TrainOutcome>> {
        let run = self.run;
        let pending = std::mem::take(&mut self.pending);
        for (index, step) in self.trainer.collect(&pending)?.into_iter().enumerate() {
            let number = self.state.step + 1 + index - pending.len();
            let (time, warms_up) = (step.time, step.warms_up);
            self.metrics.time(time, warms_up);
            let line = self.estimator.add(time, warms_up, number, &run.workload);
            if let Some(line) = line {
                run.reporter.say(&(line + &load::remark()));
            }
            let interval = &mut self.state.interval;
            interval.steps += 1;
            interval.examples += step.rows;
            interval.loss += step.loss;
            for (name, sum) in step.aux {
                *interval.aux.entry(name.to_owned()).or_insert(0.0) += sum;
                *interval.aux_examples.entry(name.to_owned()).or_insert(0) += step.rows;
            }
            if let Some(sum) = step.weighted_loss {
                *interval.weighted_loss.get_or_insert(0.0) += sum;
            }
            interval.gradient_norm += step.gradient_norm;
            let aux = interval.aux.iter().find(|(_, sum)| !sum.is_finite());
            let what = match aux {
                _ if !step.loss.is_finite() => "loss".to_owned(),
                _ if step.weighted_loss.is_some_and(|loss| !loss.is_finite()) => {
                    "loss of the labels at positions".to_owned()
                }
                _ if !step.gradient_norm.is_finite() => "gradient".to_owned(),
                Some((name, _)) => format!("loss {name}"),
                None => continue,
            };
            return Ok(Some(run.diverged(number, &what)));
        }
        Ok(None)
    }

    /// Writes one line about the steps since the last one.
    fn log(&mut self) -> anyhow::Result<()> {
        let options = self.run.options();
        let Interval {
            steps,
            examples,
            loss,
            aux,
            aux_examples,
            weighted_loss,
            gradient_norm,
        } = std::mem::take(&mut self.state.interval);
        let step = self.state.step;
        let loss = loss / examples as f64;
        self.state.train_loss = Some(loss);
        self.metrics.note(Line::Train {
            step,
            loss,
            aux: aux
                .into_iter()
                .map(|(name, sum)| {
                    let examples = aux_examples.get(&name).copied().unwrap_or(examples);
                    (name, sum / examples as f64)
                })
                .collect(),
            weighted_loss: weighted_loss.map(|sum| sum / examples as f64),
            gradient_norm: gradient_norm / steps as f64,
            learning_rate: options.rate(step - 1),
            examples: self.state.examples,
        })?;
        self.run.reporter.at(step as u64, &self.message());
        self.metrics.write_timings(step)
    }

    fn message(&self) -> String {
        let loss = self
            .state
            .train_loss
            .map_or(String::new(), |loss| format!("loss {loss:.3}"));
        let accuracy = self.state.last.map_or(String::new(), |last| {
            let all = last.weighted_accuracy;
            let all = all.map_or(String::new(), |all| {
                format!(", {:.1} % of all labels", 100.0 * all)
            });
            format!(", val {:.1} %{all}", 100.0 * last.accuracy)
        });
        let speed = self.metrics.last_step().map_or(String::new(), |seconds| {
            format!(", {:.2} steps/s", 1.0 / seconds)
        });
        format!("{loss}{accuracy}{speed}")
    }

    /// Returns whether the present weights must be scored before training goes on.
    fn evaluation_due(&self) -> bool {
        let (options, step) = (self.run.options(), self.state.step);
        let scored = self.state.last.is_some_and(|last| last.step == step);
        step > 0 && !scored && (step.is_multiple_of(options.eval_period()) || step == options.steps)
    }

    /// Scores the validation split and keeps the weights if they are the best so far. Returns an
    /// ending if a stop was requested meanwhile, or if the score or a weight is not finite.
    fn evaluate(&mut self) -> anyhow::Result<Option<TrainOutcome>> {
        let run = self.run;
        // No score and no best weights are older than the first checkpoint: see
        // `run_folder/inventory.rs`.
        if !run.files.checkpoint.exists() {
            self.save()?;
        }
        let limit = run.options().eval_examples;
        let rng = run.rng(self.state.step - 1);
        let going_on = |_| !run.stop.requested();
        let scored = run.scorer().score(&run.splits.val, limit, rng, going_on)?;
        let Some(score) = scored else {
            return self.interrupt().map(Some);
        };
        if !score.is_finite() {
            return Ok(Some(run.diverged(self.state.step, "validation loss")));
        }
        // A weight that no scored example uses does not affect any loss.
        if let Some(weight) = checkpoint::not_finite(run.parameters)? {
            let what = format!("weight {weight}");
            return Ok(Some(run.diverged(self.state.step, &what)));
        }
        let best = self.state.best;
        let is_best = best.is_none_or(|best| run.is_better(&score, &best));
        let Score {
            accuracy,
            loss,
            examples,
            dense,
        } = score;
        let step = self.state.step;
        let evaluation = Evaluation {
            step,
            accuracy,
            loss,
            weighted_accuracy: dense.as_ref().map(|it| it.weighted_accuracy),
        };
        let before = self.state.last.map_or(0, |last| last.step);
        self.state.evaluations += 1;
        self.state.last = Some(evaluation);
        self.metrics.note(Line::Validation {
            step,
            loss,
            accuracy,
            examples,
            dense,
        })?;
        if is_best {
            checkpoint::save_parameters(&run.files.best, run.digest, step, run.parameters)?;
            self.state.best = Some(evaluation);
        }
        let best = self.state.best.map_or(accuracy, |best| best.accuracy);
        let milestones = run.milestones.iter();
        for passed in milestones.filter(|it| (before + 1..=step).contains(&it.step)) {
            run.reporter.say(&passed.verdict(best));
        }
        run.reporter.at(step as u64, &self.message());
        Ok(None)
    }

    /// Saves everything needed to resume from here.
    fn save(&mut self) -> anyhow::Result<()> {
        self.metrics.write_timings(self.state.step)?;
        self.metrics.sync(&mut self.state)?;
        checkpoint::save(
            &self.run.files.checkpoint,
            self.run.digest,
            &self.state,
            self.run.parameters,
            &self.trainer.updater,
        )?;
        self.metrics.note_saved(self.state.step)
    }

    fn interrupt(&mut self) -> anyhow::Result<TrainOutcome> {
        self.save()?;
        self.run.reporter.stop();
        Ok(TrainOutcome::Interrupted)
    }

    /// Scores the selected weights.
    fn finish(&mut self) -> anyhow::Result<TrainOutcome> {
        let run = self.run;
        let options = run.options();
        let step = match options.select {
            Select::Best => {
                checkpoint::load_parameters(&run.files.best, run.digest, run.parameters)?;
                self.state.best.map_or(self.state.step, |best| best.step)
            }
            Select::Last => self.state.step,
        };
        let scorer = run.scorer();
        let rng = || run.rng(step - 1);
        run.reporter
            .start("test", 0, Some(run.splits.test.len() as u64));
        let going_on = |done| {
            run.reporter.at(done as u64, "");
            !run.stop.requested()
        };
        let val = scorer.score(&run.splits.val, options.eval_examples, rng(), |_| {
            !run.stop.requested()
        })?;
        let test = run
            .test_scorer()
            .score(&run.splits.test, 0, rng(), going_on)?;
        run.reporter.stop();
        Ok(match (val, test) {
            (Some(val), _) if !val.is_finite() => run.diverged(step, "validation loss"),
            (_, Some(test)) if !test.is_finite() => run.diverged(step, "test loss"),
            (Some(val), Some(test)) => TrainOutcome::Scored { val, test },
            _ => TrainOutcome::Interrupted,
        })
    }
}
