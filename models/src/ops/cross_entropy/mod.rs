//! The softmax cross-entropy.

pub(in crate::ops) mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

use crate::Result;
use crate::cuda::Gpu;
use crate::ops::supports;

/// Returns the mean over the batch of the softmax cross-entropy in nats, a scalar:
/// `mean_b(log Σ_c exp x_bc - x_b,label)`.
///
/// `logits` are x (B, C), and `labels` are (B) of type u32, each less than C.
///
/// # Errors
/// If shapes do not agree, or in main memory a label is not below C. On a GPU such a label gives
/// NaN.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    if supports(logits) {
        return Ok(cpu::cross_entropy(logits, labels)?);
    }
    let batch = logits.dim(0)?;
    let sum = match Gpu::of(logits) {
        Some(gpu) => cuda::cross_entropies(&gpu, logits, labels)?.sum_all()?,
        None => composed(logits, labels)?.sum_all()?,
    };
    Ok(sum.affine(1.0 / batch as f64, 0.0)?)
}

/// Returns the softmax cross-entropy in nats of each row, (B), as [`cross_entropy`] averages it.
/// `logits` are (B, C), and `labels` are (B) of type u32.
///
/// # Errors
/// Errors of [`cross_entropy`].
pub(crate) fn cross_entropies(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    if supports(logits) {
        return Ok(cpu::cross_entropies(logits, labels)?);
    }
    if let Some(gpu) = Gpu::of(logits) {
        return Ok(cuda::cross_entropies(&gpu, logits, labels)?);
    }
    Ok(composed(logits, labels)?.squeeze(1)?)
}

/// Returns (B, 1).
fn composed(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    // The maximum is a constant: it cancels, so no gradient has to pass through it.
    let max = logits.detach().max_keepdim(D::Minus1)?; // (B, 1)
    let shifted = logits.broadcast_sub(&max)?; // (B, C)
    let log_sum = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?; // (B, 1)
    let chosen = shifted.gather(&labels.unsqueeze(1)?, 1)?; // (B, 1)
    Ok((log_sum - chosen)?)
}
