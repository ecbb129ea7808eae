//! LayerNorm. Ba et al., 2016, arXiv:1607.06450.
//!     y = (x - mean) / sqrt(variance + epsilon) * weight + bias, over the last dimension, variance divided by D.

pub(in crate::ops) mod cpu;
pub(in crate::ops) mod cuda;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

use crate::Result;
use crate::cuda::Gpu;
use crate::ops::supports;

/// The parameters of a LayerNorm.
#[derive(Clone, Copy)]
pub struct Normalised<'a> {
    /// (D).
    pub weight: &'a Tensor,
    /// (D).
    pub bias: &'a Tensor,
    /// Added to variances.
    pub epsilon: f64,
}

/// Returns the LayerNorm of x (.., D), with a gradient (candle's passes none).
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
    if let Some(gpu) = Gpu::of(x) {
        return Ok(cuda::norm(&gpu, x, weight, Some(bias), epsilon)?);
    }
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let deviation = variance.affine(1.0, epsilon)?.sqrt()?;
    let y = centred.broadcast_div(&deviation)?;
    Ok(y.broadcast_mul(weight)?.broadcast_add(bias)?)
}
