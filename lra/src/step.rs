//! One training step: a batch to the device, forward, loss, backward, update. `lra run` repeats it, `lra bench` measures it.

use std::ops::Range;
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use models::{Classifier, Context, Draws};

use crate::batch::HostBatch;
use crate::optim::{AdamW, Gradients, Norm};
use crate::spec::TrainOptions;
use crate::timing::{Phase, StepClock, StepTime};

/// Makes updates of a model's weights.
pub struct Trainer<'a> {
    /// The model over the weights.
    pub classifier: &'a Classifier,
    /// The weights with their moments.
    pub optimizer: AdamW,
    /// How to update.
    pub options: &'a TrainOptions,
    /// Seed of every random draw.
    pub seed: u64,
    /// Where it all lives.
    pub device: &'a Device,
}

/// A step whose results may still be under way on the device.
pub struct Unread {
    /// Examples in its batch.
    pub rows: usize,
    /// Whether its time is left out of the speed figures.
    pub warms_up: bool,
    /// Mean loss of each micro-batch, rank 0, and its number of rows.
    losses: Vec<(Tensor, f64)>,
    gradient_norm: Norm,
    began: Instant,
    time: StepTime,
}

/// What a step came to.
pub struct Step {
    /// Examples in its batch.
    pub rows: usize,
    /// Whether its time is left out of the speed figures.
    pub warms_up: bool,
    /// Sum of the losses of its examples.
    pub loss: f64,
    /// Global L2 norm of the gradient, before clipping.
    pub gradient_norm: f64,
    /// How long it took.
    pub time: StepTime,
}

impl Trainer<'_> {
    /// The update after `made` others. The time `next` takes to hand over the batch belongs to the step.
    pub fn step(
        &mut self,
        made: usize,
        warms_up: bool,
        next: impl FnOnce() -> anyhow::Result<HostBatch>,
    ) -> anyhow::Result<Unread> {
        let options = self.options;
        let began = Instant::now();
        let mut clock = StepClock::start(self.device);
        let host = next()?;
        let mut gradients = self.optimizer.no_gradients();
        let mut losses = Vec::new();
        let rows = host.len();
        for first in (0..rows).step_by(options.forward_examples()) {
            let last = (first + options.forward_examples()).min(rows);
            losses.push(self.micro_batch(&mut clock, made, &host, first..last, &mut gradients)?);
        }
        let rate = options
            .schedule
            .rate(options.rate, made, options.warmup, options.steps);
        let gradient_norm = clock.phase(Phase::Optimizer, || {
            self.optimizer.update(gradients, rate, made + 1)
        })?;
        Ok(Unread {
            rows,
            warms_up,
            losses,
            gradient_norm,
            began,
            time: clock.stop(),
        })
    }

    /// Reads what some steps in a row came to, waiting for the device.
    pub fn read(&self, unread: &[Unread]) -> anyhow::Result<Vec<Step>> {
        let mut sums = Vec::new();
        for step in unread {
            let mut loss = 0.0;
            for (mean, rows) in &step.losses {
                loss += mean.to_dtype(DType::F64)?.to_scalar::<f64>()? * rows;
            }
            sums.push((loss, step.gradient_norm.read()?));
        }
        self.device.synchronize()?;
        // Steps that ran while the next ones were handed over have no times of their own, only an equal share.
        let shared = unread.first().filter(|_| !self.device.is_cpu());
        let share = shared.map(|first| first.began.elapsed().as_secs_f64() / unread.len() as f64);
        let steps = unread.iter().zip(sums);
        Ok(steps
            .map(|(step, (loss, gradient_norm))| Step {
                rows: step.rows,
                warms_up: step.warms_up,
                loss,
                gradient_norm,
                time: StepTime {
                    seconds: share.unwrap_or(step.time.seconds),
                    ..step.time
                },
            })
            .collect())
    }

    /// Adds the gradients of some rows of a batch; returns their mean loss and their number.
    fn micro_batch(
        &self,
        clock: &mut StepClock<'_>,
        made: usize,
        host: &HostBatch,
        rows: Range<usize>,
        gradients: &mut Gradients,
    ) -> anyhow::Result<(Tensor, f64)> {
        let (count, total) = (rows.len() as f64, host.len() as f64);
        let draws = Draws::new(self.seed, made as u64, rows.start as u64);
        let context = Context::new(true, draws);
        let batch = clock.phase(Phase::Transfer, || host.to_device(rows, self.device))?;
        let (mean, weighted): (Tensor, Tensor) = clock.phase(Phase::Forward, || {
            let logits = self.classifier.forward(&batch.inputs, &context)?;
            let mean = models::loss::cross_entropy(&logits, &batch.labels)?;
            // The batch's loss is the mean over its rows, whatever the micro-batches.
            let weighted = if count == total {
                mean.clone()
            } else {
                (&mean * (count / total))?
            };
            candle_core::Result::Ok((mean, weighted))
        })?;
        clock.phase(Phase::Backward, || {
            let found = models::kernels::backward(&weighted)?;
            self.optimizer.accumulate(gradients, found)
        })?;
        Ok((mean.detach(), count))
    }
}
