//! One training step: a batch to the device, forward, loss, backward, update. `lra run` repeats it,
//! `lra bench` measures it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use anyhow::Context as _;
use candle_core::{DType, Device, Tensor};
use models::loss::{AuxLosses, DenseLosses};
use models::params::Updates;
use models::pass::Supervision;
use models::{Classifier, Parameters, Pass, RngKey, TokenModel};

use crate::batch::{HostBatch, Positions};
use crate::optim::{Gradients, Norm, Updater};
use crate::runtime;
use crate::spec::TrainOptions;
use crate::timing::{Phase, StepClock, StepTime};

/// A model that learns, by its objective.
#[derive(Clone, Copy)]
pub enum Network<'a> {
    /// Learns to classify.
    Classes(&'a Classifier),
    /// Learns to predict tokens, in pretraining.
    Tokens(&'a TokenModel),
}

impl Network<'_> {
    /// Returns the floating point operations of a forward pass that classifies `rows` examples of
    /// `length` positions; 0 in pretraining, whose speed is not measured.
    pub fn flops(&self, rows: usize, length: usize) -> u64 {
        match self {
            Network::Classes(classifier) => classifier.flops(rows, length),
            Network::Tokens(_) => 0,
        }
    }
}

/// Makes updates of a model's weights.
pub struct Trainer<'a> {
    /// The model over the weights.
    pub network: Network<'a>,
    /// The weights and buffers.
    pub parameters: &'a Parameters,
    /// The weights with their moments.
    pub updater: Updater,
    /// Training options.
    pub options: &'a TrainOptions,
    /// Seed of every random draw.
    pub seed: u64,
    /// Device that holds everything.
    pub device: &'a Device,
}

/// A step whose results may not be finished on the device yet.
pub struct PendingStep {
    /// Examples in its batch.
    pub rows: usize,
    /// Positions of each of their sequences, padding included.
    pub length: usize,
    /// True if its time is left out of the speed figures.
    pub warms_up: bool,
    /// The losses of each micro-batch.
    losses: Vec<Losses>,
    gradient_norm: Norm,
    began: Instant,
    time: StepTime,
}

/// Rows of a batch that one pass processes together.
struct Part<'a> {
    host: &'a HostBatch,
    rows: Range<usize>,
    /// Fraction of training that is done.
    progress: f64,
}

/// The losses of a micro-batch, on the device.
struct Losses {
    rows: f64,
    /// Mean cross-entropy, rank 0.
    cross_entropy: Tensor,
    /// Mean loss of all labels, rank 0, where positions have labels too.
    weighted: Option<Tensor>,
    /// Means of the model's other losses before their weights, rank 0, by name.
    aux: Vec<(&'static str, Tensor)>,
}

/// The results of a finished step.
pub struct Step {
    /// Examples in its batch.
    pub rows: usize,
    /// True if its time is left out of the speed figures.
    pub warms_up: bool,
    /// Sum of the cross-entropies of its examples, in nats; for a pretraining, of the means over
    /// their predicted tokens.
    pub loss: f64,
    /// Sum over its examples of the loss of all labels, where positions have labels too.
    pub weighted_loss: Option<f64>,
    /// Sums over its examples of the model's other losses, before their weights, by name.
    pub aux: BTreeMap<&'static str, f64>,
    /// Global L2 norm of the gradient, before clipping.
    pub gradient_norm: f64,
    /// Duration of the step.
    pub time: StepTime,
}

impl Trainer<'_> {
    /// Makes update number `step`, counted from 0. The time that `next` takes to return the batch
    /// is part of the step.
    pub fn step(
        &mut self,
        step: usize,
        warms_up: bool,
        next: impl FnOnce() -> anyhow::Result<HostBatch>,
    ) -> anyhow::Result<PendingStep> {
        let began = Instant::now();
        let mut clock = StepClock::start(self.device);
        let host = next()?;
        let (losses, gradient_norm) =
            runtime::among_workers(self.device, || self.update(step, &host, &mut clock))?;
        Ok(PendingStep {
            rows: host.len(),
            length: host.length(),
            warms_up,
            losses,
            gradient_norm,
            began,
            time: clock.stop(),
        })
    }

    /// Makes update number `step` with a batch. Returns the losses of its micro-batches, and the
    /// norm of their gradient.
    fn update(
        &mut self,
        step: usize,
        host: &HostBatch,
        clock: &mut StepClock<'_>,
    ) -> anyhow::Result<(Vec<Losses>, Norm)> {
        let options = self.options;
        let mut gradients = self.updater.no_gradients();
        let mut losses = Vec::new();
        let updates = Updates::default();
        let rows = host.len();
        for first in (0..rows).step_by(options.forward_examples()) {
            let last = (first + options.forward_examples()).min(rows);
            let rng = RngKey::new(self.seed, step as u64, first as u64);
            let pass = Pass::new(true, rng);
            let pass = pass.with_updates(&updates);
            let part = Part {
                host,
                rows: first..last,
                progress: step as f64 / options.steps as f64,
            };
            losses.push(self.micro_batch(clock, &pass, part, &mut gradients)?);
        }
        let rates = (options.rate(step), options.beta1_at(step));
        let gradient_norm = clock.phase(Phase::Optimizer, || {
            let norm = self.updater.update(gradients, rates, step + 1)?;
            updates.commit(self.parameters)?;
            anyhow::Ok(norm)
        })?;
        Ok((losses, gradient_norm))
    }

    /// Copies losses and gradient norms of consecutive steps to the host, waiting for the device.
    pub fn collect(&self, pending: &[PendingStep]) -> anyhow::Result<Vec<Step>> {
        let mut sums = Vec::new();
        for step in pending {
            let (mut loss, mut weighted) = (0.0, None);
            let mut aux = BTreeMap::new();
            let number = |mean: &Tensor| mean.to_dtype(DType::F64)?.to_scalar::<f64>();
            for losses in &step.losses {
                loss += number(&losses.cross_entropy)? * losses.rows;
                if let Some(mean) = &losses.weighted {
                    *weighted.get_or_insert(0.0) += number(mean)? * losses.rows;
                }
                for (name, mean) in &losses.aux {
                    *aux.entry(*name).or_insert(0.0) += number(mean)? * losses.rows;
                }
            }
            sums.push((loss, weighted, aux, step.gradient_norm.read()?));
        }
        self.device.synchronize()?;
        // Steps that ran while the next ones were queued have no individual times, only an equal
        // share.
        let shared = pending.first().filter(|_| !self.device.is_cpu());
        let share = shared.map(|first| first.began.elapsed().as_secs_f64() / pending.len() as f64);
        let steps = pending.iter().zip(sums);
        Ok(steps
            .map(|(step, (loss, weighted_loss, aux, gradient_norm))| Step {
                rows: step.rows,
                warms_up: step.warms_up,
                loss,
                weighted_loss,
                aux,
                gradient_norm,
                time: StepTime {
                    seconds: share.unwrap_or(step.time.seconds),
                    ..step.time
                },
            })
            .collect())
    }

    /// Adds the gradients of some rows of a batch; returns their losses.
    fn micro_batch(
        &self,
        clock: &mut StepClock<'_>,
        pass: &Pass,
        part: Part<'_>,
        gradients: &mut Gradients,
    ) -> anyhow::Result<Losses> {
        let Part {
            host,
            rows,
            progress,
        } = part;
        let (count, total) = (rows.len() as f64, host.len() as f64);
        let batch = clock.phase(Phase::Transfer, || host.to_device(rows, self.device))?;
        let (losses, weighted) = clock.phase(Phase::Forward, || {
            let aux = AuxLosses::default();
            let supervision = Supervision {
                labels: batch.labels,
                progress,
            };
            let pass = pass.with_losses(&aux).with_supervision(&supervision);
            let (cross_entropy, weighted) = match (self.network, &batch.dense) {
                (Network::Classes(classifier), Some(Positions { labels: dense, .. })) => {
                    let logits = classifier.forward_dense(&batch.inputs, dense, &pass)?;
                    let weight = self.options.sequence_weight;
                    let losses = DenseLosses::of(&logits, &supervision.labels, dense, weight)?;
                    (losses.sequence.mean_all()?, Some(losses.weighted))
                }
                (Network::Classes(classifier), None) => {
                    let logits = classifier.forward(&batch.inputs, &pass)?;
                    let loss = models::loss::cross_entropy(&logits, &supervision.labels)?;
                    (loss, None)
                }
                (Network::Tokens(model), _) => {
                    let predicted = model.forward(&batch.inputs, &pass)?;
                    (predicted.losses.mean_all()?, None)
                }
            };
            let aux = aux.means()?;
            let losses = Losses {
                rows: count,
                cross_entropy: cross_entropy.detach(),
                weighted: weighted.as_ref().map(Tensor::detach),
                aux: aux
                    .iter()
                    .map(|(name, mean)| (*name, mean.detach()))
                    .collect(),
            };
            let loss = self.weighted_sum(weighted.unwrap_or(cross_entropy), &aux)?;
            // The batch's loss is the mean over its rows, regardless of the micro-batches.
            let weighted = if count == total {
                loss
            } else {
                (loss * (count / total))?
            };
            anyhow::Ok((losses, weighted))
        })?;
        clock.phase(Phase::Backward, || {
            let found = models::ops::backward(&weighted)?;
            self.updater.accumulate(gradients, found)
        })?;
        Ok(losses)
    }

    /// Returns the loss that is minimised.
    fn weighted_sum(
        &self,
        mut loss: Tensor,
        aux: &[(&'static str, Tensor)],
    ) -> anyhow::Result<Tensor> {
        for (name, mean) in aux {
            let weight = self.options.aux.get(*name);
            let weight =
                *weight.with_context(|| format!("the model does not declare its loss {name}"))?;
            if weight != 0.0 {
                loss = (loss + (mean.to_dtype(DType::F32)? * weight)?)?;
            }
        }
        Ok(loss)
    }
}
