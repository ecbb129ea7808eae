//! Softmax over the last dimension, with padded keys left out.

pub(in crate::ops) mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

use crate::cuda::Gpu;
use crate::ops::supports;
use crate::{Mask, Result};

/// Returns the softmax of `scores` (B, H, Q, K) over K, in the same shape. Keys that `mask` (B, K)
/// says are padding get weight 0, and a sequence without a valid key gets zeros throughout. Without
/// a mask, scores may have any number of dimensions.
///
/// Scores must be finite. A key is hidden by the mask, not by a score of minus infinity. A row with
/// a NaN becomes NaN.
///
/// # Errors
/// If a tensor operation fails.
pub fn masked(scores: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    if supports(scores) {
        return Ok(cpu::softmax(scores, mask.map(Mask::valid))?);
    }
    if let Some(gpu) = Gpu::of(scores) {
        return Ok(cuda::softmax(&gpu, scores, mask.map(Mask::valid))?);
    }
    composed(scores, mask)
}

fn composed(scores: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    // The shift is a constant (it cancels), so no gradient has to pass through the maximum.
    let constant = scores.detach();
    let Some(mask) = mask else {
        let max = constant.max_keepdim(D::Minus1)?; // (B, H, Q, 1)
        let weights = scores.broadcast_sub(&max)?.exp()?;
        let total = weights.sum_keepdim(D::Minus1)?;
        return Ok(weights.broadcast_mul(&total.recip()?)?);
    };
    let additive = mask.additive().unsqueeze(1)?.unsqueeze(1)?; // (B, 1, 1, K)
    let max = constant.broadcast_add(&additive)?.max_keepdim(D::Minus1)?; // (B, H, Q, 1)
    let shift = additive.broadcast_sub(&max)?; // (B, H, Q, K)
    let weights = (scores + shift)?.exp()?;
    let total = weights.sum_keepdim(D::Minus1)?;
    let any = mask.has_valid().unsqueeze(1)?.unsqueeze(1)?; // (B, 1, 1, 1)
    Ok(weights.broadcast_mul(&any.broadcast_div(&total)?)?)
}
