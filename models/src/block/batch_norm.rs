//! BatchNorm, as in state-space models and convolutions. Ioffe and Szegedy, 2015, "Batch
//! Normalization", arXiv:1502.03167.
//!     y = (x - μ)/√(σ² + ε) ⊙ γ + β;   running mean ← (1 - m) running mean + m μ,   running variance ← (1 - m) running variance + m σ² R/(R - 1)
//! x, y (B, L, D), all others (D). In training, μ and σ² are those of the R positions of a batch;
//! otherwise the running ones are used. m is `block.norm_momentum`, PyTorch's `momentum`.
//!
//! With `batch`, as in the published code, padding is among the R positions: a batch with longer
//! sequences has other statistics. With `batch_masked` it is left out. In either case, a row's
//! output in training depends on the other rows, and each micro-batch of a split batch has its own
//! statistics. The running statistics are those of the whole update.

use std::sync::Arc;

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Pass, Result, VarBuilder,
    ops::{Moments, Normalised, batch_norm, batch_norm_by},
    options::BlockOptions,
    params::{Buffer, Commit},
};

/// BatchNorm of the channels of x (B, L, D), with its parameters and running statistics:
/// `(x - μ)/√(σ² + ε) ⊙ γ + β` (arXiv:1502.03167). The mean μ and the variance σ² of a channel are
/// those of the batch in training, and running ones in evaluation.
pub struct BatchNorm {
    /// γ (D).
    weight: Tensor,
    /// β (D).
    bias: Tensor,
    /// The running mean (D).
    mean: Buffer,
    /// The running variance (D).
    variance: Buffer,
    epsilon: f64,
    /// True if padding is left out of the statistics.
    masked: bool,
}

impl BatchNorm {
    /// Creates parameters `scale` (D), ones, and `shift` (D), zeros; buffers `mean`, zeros, and
    /// `variance`, ones.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, block: &BlockOptions, masked: bool) -> Result<Self> {
        let (dim, momentum) = (block.dim, block.norm_momentum);
        // Sums over the passes, (3, D): R (μ - running mean), R (σ² + (μ - running mean)²), R.
        let averages = |sums: &Tensor| -> Result<[Tensor; 3]> {
            let count = sums.get(2)?.maximum(1.0)?;
            Ok([(sums.get(0)? / &count)?, (sums.get(1)? / &count)?, count])
        };
        let mean: Commit = Arc::new(move |mean, sums| {
            let [apart, _, _] = averages(sums)?;
            Ok((mean + (apart * momentum)?)?)
        });
        let variance: Commit = Arc::new(move |variance, sums| {
            let [apart, square, count] = averages(sums)?;
            let unbiased = (&count / (&count - 1.0)?.maximum(1.0)?)?;
            let found = ((square - apart.sqr()?)? * unbiased)?;
            let next = ((variance * (1.0 - momentum))? + (found * momentum)?)?;
            // A batch of padding alone has no variance.
            Ok(sums.get(2)?.gt(0.0)?.where_cond(&next, variance)?)
        });
        Ok(Self {
            weight: vb.get_with_hints(dim, "scale", Init::Const(1.0))?,
            bias: vb.get_with_hints(dim, "shift", Init::Const(0.0))?,
            mean: vb.running(dim, "mean", Init::Const(0.0), mean)?,
            variance: vb.running(dim, "variance", Init::Const(1.0), variance)?,
            epsilon: block.norm_epsilon,
            masked,
        })
    }

    /// Returns whether padding is left out of the statistics.
    #[must_use]
    pub fn is_masked(&self) -> bool {
        self.masked
    }

    /// Maps (B, L, D) to (B, L, D).
    ///
    /// # Errors
    /// If the last dimension is not D.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let norm = Normalised {
            weight: &self.weight,
            bias: &self.bias,
            epsilon: self.epsilon,
        };
        if !pass.train {
            let moments = Moments::new(self.mean.value(), self.variance.value())?;
            return batch_norm_by(x, &norm, &moments);
        }
        let valid = pass.mask().filter(|_| self.masked).map(|mask| mask.valid());
        let (y, moments) = batch_norm(x, &norm, valid)?;
        if pass.updates().is_some() {
            let (batch, length, _) = x.dims3()?;
            let apart = (moments.mean()? - self.mean.value())?;
            let square = (moments.variance()? + apart.sqr()?)?;
            let count = match valid {
                Some(valid) => valid.sum_all()?.broadcast_as(apart.shape())?,
                None => apart.ones_like()?.affine((batch * length) as f64, 0.0)?,
            };
            let rows = Tensor::stack(&[apart, square, count.ones_like()?], 0)?;
            let sums = rows.broadcast_mul(&count.contiguous()?)?;
            // Both get the same (3, D); each takes the sums that its next value needs.
            self.mean.add(&sums, pass)?;
            self.variance.add(&sums, pass)?;
        }
        Ok(y)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::*;
    use crate::{
        Mask, RngKey,
        params::Updates,
        testing::{check_layer, close, normal, parameters},
    };

    fn block() -> BlockOptions {
        BlockOptions {
            dim: 3,
            norm_epsilon: 1e-5,
            norm_momentum: 0.25,
            ..BlockOptions::default()
        }
    }

    fn mask() -> Mask {
        let valid = [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]];
        Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
    }

    #[test]
    fn gradients_agree_with_differences() {
        let mask = mask();
        for (masked, train) in [(false, true), (true, true), (true, false)] {
            let parameters = parameters();
            let norm = BatchNorm::new(&parameters.builder(), &block(), masked).unwrap();
            let pass = Pass::new(train, RngKey::new(1, 0, 0));
            let pass = pass.with_mask(Some(&mask));
            check_layer("batch norm", &parameters, &[2, 4, 3], |x| {
                norm.forward(x, &pass)
            });
        }
    }

    /// Running statistics are those of all rows of the batch for any split of it, as PyTorch's are
    /// of one pass.
    #[test]
    fn running_statistics_are_those_of_the_whole_update() {
        let (x, mask) = ((normal("x", &[2, 4, 3]) + 5.0).unwrap(), mask());
        for cut in [false, true] {
            let parameters = parameters();
            let norm = BatchNorm::new(&parameters.builder(), &block(), true).unwrap();
            let updates = Updates::default();
            let pass = Pass::new(true, RngKey::new(1, 0, 0));
            let pass = pass.with_updates(&updates);
            match cut {
                false => {
                    norm.forward(&x, &pass.with_mask(Some(&mask))).unwrap();
                }
                true => {
                    for row in 0..2 {
                        let mask = mask.valid().narrow(0, row, 1).unwrap();
                        let mask = Mask::new(&mask).unwrap();
                        let x = x.narrow(0, row, 1).unwrap();
                        norm.forward(&x, &pass.with_mask(Some(&mask))).unwrap();
                    }
                }
            }
            updates.commit(&parameters).unwrap();
            let data: Vec<Vec<Vec<f64>>> = x.to_vec3().unwrap();
            let rows: Vec<&Vec<f64>> = data[0].iter().chain(&data[1][..2]).collect();
            let of = |channel: usize| rows.iter().map(move |row| row[channel]);
            let (mut mean, mut variance) = (vec![], vec![]);
            for channel in 0..3 {
                let average = of(channel).sum::<f64>() / 6.0;
                let squares = of(channel).map(|x| (x - average).powi(2)).sum::<f64>();
                mean.push(0.25 * average);
                variance.push(0.75 + 0.25 * squares / 5.0);
            }
            let tensor = |values| Tensor::new(values, &Device::Cpu).unwrap();
            close(norm.mean.value(), &tensor(mean), 1e-12, "mean");
            close(norm.variance.value(), &tensor(variance), 1e-12, "variance");
        }
    }

    /// The unbiased variance of one number would be 0 / 0.
    #[test]
    fn a_single_position_has_a_variance_of_0() {
        let parameters = parameters();
        let norm = BatchNorm::new(&parameters.builder(), &block(), true).unwrap();
        let updates = Updates::default();
        let pass = Pass::new(true, RngKey::new(1, 0, 0));
        let x = normal("x", &[1, 1, 3]);
        norm.forward(&x, &pass.with_updates(&updates)).unwrap();
        updates.commit(&parameters).unwrap();
        let variance = Tensor::new(&[0.75f64; 3], &Device::Cpu).unwrap();
        close(norm.variance.value(), &variance, 1e-12, "variance");
    }

    /// A batch of padding alone has no moments.
    #[test]
    fn padding_alone_changes_no_running_statistic() {
        let parameters = parameters();
        let norm = BatchNorm::new(&parameters.builder(), &block(), true).unwrap();
        let before = [norm.mean.value(), norm.variance.value()].map(|it| it.copy().unwrap());
        let updates = Updates::default();
        let pass = Pass::new(true, RngKey::new(1, 0, 0));
        let pass = pass.with_updates(&updates);
        let mask = Mask::new(&mask().valid().zeros_like().unwrap()).unwrap();
        let x = normal("x", &[2, 4, 3]);
        norm.forward(&x, &pass.with_mask(Some(&mask))).unwrap();
        updates.commit(&parameters).unwrap();
        close(norm.mean.value(), &before[0], 1e-12, "mean");
        close(norm.variance.value(), &before[1], 1e-12, "variance");
    }
}
