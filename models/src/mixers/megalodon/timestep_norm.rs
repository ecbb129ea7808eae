//! Timestep normalisation: group norm whose statistics are those of the positions so far.

use crate::{ops::ScanOptions, prelude::*};

/// y_t = (x_t - μ_t) / √(σ²_t + ε) ⊙ g + b. μ_t and σ²_t are the mean and the variance of a group
/// of neighbouring channels over all valid positions up to t.
pub(super) struct TimestepNorm {
    /// g (D).
    scale: Tensor,
    /// b (D).
    shift: Tensor,
    groups: usize,
    epsilon: f64,
}

impl TimestepNorm {
    /// Creates parameters `scale`, ones, and `shift`, zeros, of `dim` channels, a multiple of
    /// `groups`.
    pub(super) fn new(vb: &VarBuilder, dim: usize, groups: usize, epsilon: f64) -> Result<Self> {
        Ok(Self {
            scale: vb.get_with_hints(dim, "scale", Init::Const(1.0))?,
            shift: vb.get_with_hints(dim, "shift", Init::Const(0.0))?,
            groups,
            epsilon,
        })
    }

    /// Maps (B, L, D) to (B, L, D). Padding counts in no statistic.
    pub(super) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (batch, length, dim) = x.dims3()?;
        let ones = Tensor::ones(self.groups, x.dtype(), x.device())?;
        let sums = |x: &Tensor| {
            let factors = ones.narrow(0, 0, x.dim(2)?)?;
            ops::scan(x, &factors, ScanOptions::default())
        };
        let valid = match pass.mask() {
            Some(mask) => mask.valid().unsqueeze(2)?,
            None => Tensor::ones((batch, length, 1), x.dtype(), x.device())?,
        };
        // Valid positions up to each, itself counted.
        let at_least_one = |x: &Tensor| x.maximum(&x.ones_like()?);
        let count = at_least_one(&sums(&valid)?)?; // (B, L, 1)
        let grouped = x.reshape((batch, length, self.groups, dim / self.groups))?;
        let own = grouped.mean_keepdim(D::Minus1)?; // (B, L, G, 1)
        let spread = grouped.broadcast_sub(&own)?.sqr()?.mean(D::Minus1)?; // (B, L, G)
        let own = own.squeeze(D::Minus1)?;
        let mean = sums(&own.broadcast_mul(&valid)?)?.broadcast_div(&count)?;
        // Σ (own_s - μ_(s-1)) (own_s - μ_s), not a difference of large sums. The first factor is
        // the second one times n / (n - 1), and both are 0 at the first position.
        let factor = count.div(&at_least_one(&(&count - 1.0)?)?)?;
        let between = (&own - &mean)?.sqr()?.broadcast_mul(&factor)?;
        let variance = sums(&(spread + between)?.broadcast_mul(&valid)?)?.broadcast_div(&count)?;
        let deviation = variance.affine(1.0, self.epsilon)?.sqrt()?;
        let y = grouped.broadcast_sub(&mean.unsqueeze(3)?)?;
        let y = y.broadcast_div(&deviation.unsqueeze(3)?)?;
        let y = y.reshape((batch, length, dim))?;
        let y = y.broadcast_mul(&self.scale)?.broadcast_add(&self.shift)?;
        Ok(y)
    }
}
