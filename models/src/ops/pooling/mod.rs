//! Weighted sums over the length.

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
