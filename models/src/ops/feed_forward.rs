//! The position-wise half of a block, with what surrounds it.
//!     y = r + m₂ (W₂ m₁ f(W₁ n(x) + b₁) + b₂),   with a gate y = r + m₂ (W₂ m₁ (f(W₁ n(x) + b₁) ⊙ (V n(x) + c)) + b₂)
//! x, y (B, L, D), W₁, V (F, D), W₂ (D, F); n LayerNorm or nothing, the m dropout masks or 1, r x or 0.

use candle_core::Tensor;

use super::activation::Activation;
use super::{DropoutMask, Normalised, activation, add_dropped, dropout, layer_norm, linear};
use crate::{
    Result,
    kernels::{self, supports},
};

/// Weight and bias of an affine map.
pub type Affine<'a> = (&'a Tensor, Option<&'a Tensor>);

/// What surrounds the products.
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

/// y for x (B, .., D), from W₁ (F, D) and b₁ (F) to W₂ (D, F) and b₂ (D).
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
        let options = kernels::FeedForwardOptions {
            norm: *norm,
            activation,
            inner_dropout: inner_dropout.as_ref().map(DropoutMask::options),
            outer_dropout: outer_dropout.as_ref().map(DropoutMask::options),
            residual: *residual,
        };
        return Ok(kernels::feed_forward(x, [w1, b1], [w2, b2], &options)?);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::rng::{RngKey, Stream, StreamKey};
    use crate::testing::{check_gradient, normal};

    fn stream(name: &str) -> Stream {
        RngKey::new(1, 2, 3).per_example(StreamKey::new(name))
    }

    /// Of x, W₁, b₁, W₂, b₂, and gain and offset of the norm if they are there; V and c behind those.
    fn run(x: &[Tensor], activation: Activation, rate: f64, residual: bool) -> Result<Tensor> {
        let dropout = |name| (rate > 0.0).then(|| DropoutMask::new(&stream(name), rate));
        let options = FeedForwardOptions {
            norm: (x.len() > 5).then(|| Normalised {
                gain: &x[5],
                offset: &x[6],
                epsilon: 1e-2,
            }),
            activation,
            gate: (x.len() > 7).then(|| (&x[7], Some(&x[8]))),
            inner_dropout: dropout("inner"),
            outer_dropout: dropout("outer"),
            residual,
        };
        let (inner, outer) = ((&x[1], Some(&x[2])), (&x[3], Some(&x[4])));
        feed_forward(&x[0], inner, outer, &options)
    }

    #[test]
    fn the_kernel_meets_its_composed_form() {
        use Activation::{Gelu, GeluErf, Relu, Silu};
        let mut sampler = Sampler::new(31);
        let forms = [
            (vec![3, 5, 7], 9, true, true, Gelu),
            (vec![2, 131, 16], 24, true, true, GeluErf),
            (vec![2, 70, 12], 5, false, true, Relu),
            (vec![2, 40, 9], 7, true, true, Silu),
            (vec![1, 300, 33], 20, true, false, Gelu),
            (vec![9, 4], 6, false, false, GeluErf),
            // With whole tiles that have no gradient.
            (vec![2, 512, 6], 8, true, true, Gelu),
            // Beyond what is summed from partials.
            (vec![2, 3, 180], 400, true, true, Gelu),
            (vec![2, 512, 180], 400, true, false, Gelu),
        ];
        for (shape, inner, norm, residual, activation) in forms {
            let width = shape[shape.len() - 1];
            let scale = |count: usize| (count as f64).powf(-0.5);
            let inputs = [
                sampler.normal(&shape, 1.0),
                sampler.normal(&[inner, width], scale(width)),
                sampler.normal(&[inner], 0.3),
                sampler.normal(&[width, inner], scale(inner)),
                sampler.normal(&[width], 0.3),
                sampler.normal(&[width], 1.0),
                sampler.normal(&[width], 0.3),
            ];
            let inputs = if norm { &inputs[..] } else { &inputs[..5] };
            for rate in [0.0, 0.3] {
                let f = |x: &[Tensor]| Ok(run(x, activation, rate, residual)?);
                agree("feed-forward", inputs, f, f);
            }
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        use Activation::{Gelu, GeluErf, Relu, Sigmoid, Silu};
        let shapes: [&[usize]; 9] = [
            &[2, 2, 3],
            &[4, 3],
            &[4],
            &[3, 4],
            &[3],
            &[3],
            &[3],
            &[4, 3],
            &[4],
        ];
        for (activation, operands) in [
            (Gelu, 5),
            (Gelu, 7),
            (GeluErf, 7),
            (Relu, 7),
            (Gelu, 9),
            (Silu, 9),
            (Sigmoid, 9),
        ] {
            for residual in [false, true] {
                check_gradient("feed forward", &shapes[..operands], |x| {
                    run(x, activation, 0.3, residual)
                });
            }
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        for dtype in [candle_core::DType::F32, candle_core::DType::F64] {
            let shapes: [&[usize]; 5] = [&[2, 3], &[4, 3], &[4], &[3, 5], &[3]];
            let x = shapes.map(|shape| normal("x", shape).to_dtype(dtype).unwrap());
            assert!(run(&x, Activation::Gelu, 0.0, false).is_err());
        }
    }
}
