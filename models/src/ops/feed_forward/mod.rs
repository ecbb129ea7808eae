//! The position-wise half of a block, with everything around it.
//!
//! ```text
//! y = r + m₂ (W₂ m₁ f(W₁ n(x) + b₁) + b₂)
//! y = r + m₂ (W₂ m₁ (f(W₁ n(x) + b₁) ⊙ (V n(x) + c)) + b₂)        with a gate
//! ```
//!
//! x, y (B, L, D), W₁, V (F, D), W₂ (D, F). n is LayerNorm or the identity, each m a dropout mask
//! or 1, and r is x or 0.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::activation::Activation;
use super::{DropoutMask, Normalised, activation, add_dropped, dropout, layer_norm, linear};
use crate::Result;
use crate::ops::supports;

/// Weight (out, in) and optional bias (out) of an affine map from `in` to `out` numbers.
pub type Affine<'a> = (&'a Tensor, Option<&'a Tensor>);

/// Options of [`feed_forward`]: everything around its two products. D is the width of the input and
/// F that of the hidden layer. The formula with the names used here is in [the module](self).
pub struct FeedForwardOptions<'a> {
    /// LayerNorm n of the input. `None` leaves the input as it is.
    pub norm: Option<Normalised<'a>>,
    /// Activation f of the hidden layer, applied to each element.
    pub activation: Activation,
    /// Weight V (F, D) and bias c (F) of the gate, a linear map of the input by which the hidden
    /// layer is multiplied. `None` for no gate.
    pub gate: Option<Affine<'a>>,
    /// Dropout mask m₁ of the hidden layer (B, .., F). `None` drops nothing.
    pub inner_dropout: Option<DropoutMask<'a>>,
    /// Dropout mask m₂ of the output (B, .., D). `None` drops nothing.
    pub outer_dropout: Option<DropoutMask<'a>>,
    /// True if the input is added to the output: r in the formula is then x, and else 0.
    pub residual: bool,
}

/// Returns `y = r + m₂ (W₂ m₁ f(W₁ n(x) + b₁) + b₂)`, (B, .., D), for x (B, .., D). `inner` is W₁
/// (F, D) and b₁ (F) for a hidden layer of width F. `outer` is W₂ (D, F) and b₂ (D).
/// [`FeedForwardOptions`] has the norm n, the activation f, the dropout masks m₁ and m₂, and the
/// residual r. With a gate, f(..) is multiplied by V n(x) + c.
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
