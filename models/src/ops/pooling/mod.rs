//! Weighted sums and maxima over the length.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::{check, exact_matmul};
use crate::Result;
use crate::ops::supports;

/// Returns the sums (B, D) of `hidden` (B, L, D) over the L positions, weighted by `weights`
/// (B, L). The weights are constants, which get no gradient.
///
/// # Errors
/// If shapes do not fit.
pub fn weighted_sum(hidden: &Tensor, weights: &Tensor) -> Result<Tensor> {
    if supports(hidden) {
        return Ok(cpu::weighted_sum(hidden, weights)?);
    }
    let (batch, length, _) = hidden.dims3()?;
    check(weights.dims() == [batch, length], "weighted_sum", || {
        format!("weights {:?} of {:?}", weights.shape(), hidden.shape())
    })?;
    let weights = weights.detach().unsqueeze(1)?;
    Ok(exact_matmul(&weights, hidden)?.squeeze(1)?)
}

/// Returns the largest values of `x` along dimension `dim`, which is left out of the shape. Equal
/// values share the gradient, as in JAX and in PyTorch's `amax`. Where a value is NaN, so is the
/// result.
///
/// # Errors
/// If there is no such dimension.
pub(crate) fn max(x: &Tensor, dim: usize) -> Result<Tensor> {
    let most = x.detach().max_keepdim(dim)?;
    let equal = x.detach().broadcast_eq(&most)?.to_dtype(x.dtype())?;
    let shares = equal.broadcast_div(&equal.sum_keepdim(dim)?)?;
    let mean = x.mul(&shares)?.sum(dim)?;
    // The mean of equal values may be rounded. Its difference from itself is 0, or NaN.
    let gradient = (&mean - mean.detach())?;
    Ok((most.squeeze(dim)? + gradient)?)
}
