//! The position-wise half of a block, with everything around it.
//!     y = r + m₂ (W₂ m₁ f(W₁ n(x) + b₁) + b₂),   with a gate y = r + m₂ (W₂ m₁ (f(W₁ n(x) + b₁) ⊙ (V n(x) + c)) + b₂)
//! x, y (B, L, D), W₁, V (F, D), W₂ (D, F); n LayerNorm or the identity, the m dropout masks or 1,
//! r x or 0.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::activation::Activation;
use super::{DropoutMask, Normalised, activation, add_dropped, dropout, layer_norm, linear};
use crate::Result;
use crate::ops::supports;

/// Weight and bias of an affine map.
pub type Affine<'a> = (&'a Tensor, Option<&'a Tensor>);

/// Everything around the two products, with the names of the formula above.
pub struct FeedForwardOptions<'a> {
    /// n.
    pub norm: Option<Normalised<'a>>,
    /// f.
    pub activation: Activation,
    /// V and c.
    pub gate: Option<Affine<'a>>,
    /// m₁.
    pub inner_dropout: Option<DropoutMask<'a>>,
    /// m₂.
    pub outer_dropout: Option<DropoutMask<'a>>,
    /// Whether r is x.
    pub residual: bool,
}

/// Returns y (B, .., D) of x (B, .., D), with W₁ (F, D) and b₁ (F) in `inner`, W₂ (D, F) and b₂ (D)
/// in `outer`.
///
/// # Errors
/// If shapes do not fit.
pub fn feed_forward(
    x: &Tensor,
    inner: Affine,
    outer: Affine,
    options: &FeedForwardOptions,
) -> Result<Tensor> {
    let FeedForwardOptions {
        norm,
        gate,
        inner_dropout,
        outer_dropout,
        residual,
        ..
    } = options;
    if supports(x)
        && let (None, Some(activation)) = (gate, options.activation.fused())
        && let ((w1, Some(b1)), (w2, Some(b2))) = (inner, outer)
    {
        let options = cpu::FeedForwardOptions {
            norm: *norm,
            activation,
            inner_dropout: inner_dropout.as_ref().map(DropoutMask::options),
            outer_dropout: outer_dropout.as_ref().map(DropoutMask::options),
            residual: *residual,
        };
        return Ok(cpu::feed_forward(x, [w1, b1], [w2, b2], &options)?);
    }
    let affine = |x: &Tensor, (weight, bias): Affine| linear(x, weight, bias);
    let normal = norm.as_ref().map(|norm| layer_norm(x, norm)).transpose()?;
    let normal = normal.as_ref().unwrap_or(x);
    let hidden = activation::apply(options.activation, &affine(normal, inner)?)?; // (B, .., F)
    let hidden = match gate {
        Some(gate) => (hidden * affine(normal, *gate)?)?,
        None => hidden,
    };
    let hidden = match inner_dropout {
        Some(mask) => dropout(&hidden, mask)?,
        None => hidden,
    };
    let y = affine(&hidden, outer)?;
    match (outer_dropout, residual) {
        (Some(mask), true) => add_dropped(x, &y, mask),
        (Some(mask), false) => dropout(&y, mask),
        (None, true) => Ok((x + y)?),
        (None, false) => Ok(y),
    }
}
