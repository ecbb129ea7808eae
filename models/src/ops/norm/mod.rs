//! LayerNorm. Ba et al., 2016, arXiv:1607.06450.
//!
//! ```text
//! y = (x - mean) / sqrt(variance + epsilon) * weight + bias
//! ```
//!
//! Mean and variance are those over the last dimension, of width D. The variance is divided by D.

pub(in crate::ops) mod cpu;
pub(in crate::ops) mod cuda;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

use crate::Result;
use crate::cuda::Gpu;
use crate::ops::supports;

/// Parameters of a LayerNorm or BatchNorm over D channels: `(x - μ)/√(σ² + ε) ⊙ weight + bias`.
#[derive(Clone, Copy)]
pub struct Normalised<'a> {
    /// Weight (D) by which the D normalised channels are multiplied.
    pub weight: &'a Tensor,
    /// Bias (D) that is added to the D channels at the end.
    pub bias: &'a Tensor,
    /// Number ε that is added to variances, to keep divisors from 0.
    pub epsilon: f64,
}

/// Returns the LayerNorm of x (.., D) over its last dimension, in the same shape. `norm` has a
/// weight (D) and a bias (D). Unlike candle's fused operation, it passes a gradient.
///
/// # Errors
/// If the last dimension is not D.
pub fn layer_norm(x: &Tensor, norm: &Normalised) -> Result<Tensor> {
    let Normalised {
        weight,
        bias,
        epsilon,
    } = *norm;
    if supports(x) {
        return Ok(cpu::layer_norm(x, weight, bias, epsilon)?);
    }
    if let Some(gpu) = Gpu::of(x).filter(|_| cuda::takes(x)) {
        return Ok(cuda::norm(&gpu, x, weight, Some(bias), epsilon)?);
    }
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let deviation = variance.affine(1.0, epsilon)?.sqrt()?;
    let y = centred.broadcast_div(&deviation)?;
    Ok(y.broadcast_mul(weight)?.broadcast_add(bias)?)
}
