//! The gated output behind the filter of a state space, by S4 (Gu et al., 2021, arXiv:2111.00396)
//! or S5 (arXiv:2208.04933).
//!
//! ```text
//! y = a ⊙ σ(g),  [a, g] = W z + b,  z = m ⊙ f(x)
//! y = z ⊙ σ(W z + b)    or    y = x ⊙ σ(W z + b)
//! ```
//!
//! x, y, z (B, L, D), W (2D, D) or (D, D). m is a dropout mask or 1, and f an activation.

pub(in crate::ops) mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

use super::activation::Activation;
use super::{
    DropoutMask,
    activation::{apply, sigmoid},
    dropout,
    feed_forward::Affine,
    linear,
};
use crate::Result;
use crate::cuda::Gpu;
use crate::ops::supports;

pub use self::cpu::GatedValue;

/// Returns the gated output `y = a ⊙ σ(g)`, (B, .., D), for x (B, .., D). The linear layer reads
/// `z = m ⊙ f(x)`, where `activation` is f and the dropout `mask` is m. With
/// [`GatedValue::Linear`], a and g are the halves of W z + b for W (2D, D) and b (2D). Otherwise g
/// is W z + b for W (D, D) and b (D), and a is z or x.
///
/// # Errors
/// If shapes do not fit.
pub fn gated_linear(
    x: &Tensor,
    (weight, bias): Affine,
    activation: Activation,
    mask: Option<&DropoutMask>,
    value: GatedValue,
) -> Result<Tensor> {
    if let (true, Some(activation), Some(bias)) = (supports(x), activation.fused(), bias) {
        let options = cpu::GatedLinearOptions {
            activation,
            dropout: mask.map(DropoutMask::options),
            value,
        };
        return Ok(cpu::gated_linear(x, weight, bias, options)?);
    }
    let z = apply(activation, x)?;
    let z = match mask {
        Some(mask) => dropout(&z, mask)?,
        None => z,
    };
    let (made, width) = (linear(&z, weight, bias)?, x.dim(D::Minus1)?);
    if let Some(gpu) = Gpu::of(&made) {
        return Ok(match value {
            GatedValue::Linear => cuda::gate_halves(&gpu, &made)?,
            GatedValue::Activated => cuda::gate(&gpu, &z, &made)?,
            GatedValue::Input => cuda::gate(&gpu, x, &made)?,
        });
    }
    let half = |from| made.narrow(D::Minus1, from, width);
    Ok(match value {
        GatedValue::Linear => (half(0)? * sigmoid(&half(width)?)?)?,
        GatedValue::Activated => (z * sigmoid(&made)?)?,
        GatedValue::Input => (x * sigmoid(&made)?)?,
    })
}
