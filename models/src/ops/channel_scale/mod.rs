//! Channels times one number each, alone or added to a residual stream.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use crate::Result;
use crate::ops::supports;

/// Returns λ ⊙ x, (.., D), for x (.., D). `scale` is λ (D), or (1) for one number for all channels.
///
/// # Errors
/// If shapes do not fit.
pub fn scale_channels(x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::scale_channels(None, x, scale)?);
    }
    Ok(x.broadcast_mul(scale)?)
}

/// Returns r + λ ⊙ x, (.., D), for `residual` r and x, both (.., D). `scale` is λ (D), or (1) for
/// one number for all channels.
///
/// # Errors
/// If shapes do not fit.
pub fn add_scaled_channels(residual: &Tensor, x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::scale_channels(Some(residual), x, scale)?);
    }
    Ok((residual + x.broadcast_mul(scale)?)?)
}
