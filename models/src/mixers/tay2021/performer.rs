//! The 2021 code's FAVOR+ on all tasks but ListOps: features max(x, 0) + 0.001 of the raw vectors
//! (`kernel=relu`, the default here). On ListOps it used random features (`kernel=favor`,
//! `features=2`; 0 stands for its default of 256):
//!     φ_r(x) = (exp(w_r·x' - |x'|²/2 - max) + ε) / √M,  x' = x / E^¼,  y_i = φ(q_i) S / d_i,  d_i = φ(q_i)·z, and 2ε more where |d_i| <= ε
//! where max is the largest w·x' of a query's row, or of all keys of a head; unlike the authors'
//! constant it has a gradient. That code drew w at every call, from the bits of the queries' sum.
//! Here w is drawn at every step from the seed, so `redraw` is refused. Padding is summed like any
//! token. Its sines and cosines (`nonnegative_features` = False) and its causal form, which no
//! configuration has, are left out. Symbols as in the paper's form.

use crate::{
    mixers::performer::{Favor, Kernel, Options},
    ops::{
        linear,
        linear_attention::{self, EPS, FeatureMap, exponential},
    },
    prelude::*,
};

pub const VARIANT: Variant = Variant {
    name: "tay2021",
    masks_padding: false,
    ..Variant::paper(build, include_str!("performer.rs"))
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    options.check()?;
    require(
        options.redraw == 0,
        "model.redraw",
        options.redraw,
        "0 with model.variant = tay2021, which redraws at every step",
    )?;
    require(
        options.kernel != Kernel::Trig,
        "model.kernel",
        "trig",
        "relu or favor with model.variant = tay2021, whose configurations have no other",
    )?;
    encoder::blocks(context, |layer| {
        Ok(Box::new(Performer::new(layer, &options)?))
    })
}

struct Performer {
    projections: Projections,
    heads: usize,
    width: usize,
    /// Random features; none for the ReLU kernel.
    favor: Option<Favor>,
}

impl Performer {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let favor = match options.kernel {
            Kernel::Favor => {
                let features = match options.features {
                    0 => 256,
                    features => features,
                };
                Some(Favor::new(layer, features, 1, options.epsilon))
            }
            Kernel::Relu | Kernel::Auto | Kernel::Trig => None,
        };
        Ok(Self {
            projections: Projections::new(layer)?,
            heads: layer.block.heads,
            width: layer.block.head_dim(),
            favor,
        })
    }
}

impl Mixer for Performer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = match &self.favor {
            Some(favor) => {
                let w = favor.directions(pass, x)?;
                attend(&self.projections.split(x)?, &w, favor.epsilon)?
            }
            None => {
                let map = FeatureMap::Relu { floor: 1e-3 };
                self.projections.attend_by_features(x, map, EPS, None)?
            }
        };
        self.projections.merge(&y)
    }

    fn stops_gradients(&self) -> Option<&'static str> {
        let favor = self.favor.is_some();
        favor.then_some("the shift of exponents is a constant, and ε does not let it cancel")
    }

    fn flops(&self, length: usize) -> u64 {
        let (count, map) = match &self.favor {
            Some(favor) => (favor.count, favor.flops(length) * self.heads as u64),
            None => (self.width, 0),
        };
        self.projections.flops(length)
            + linear_attention::flops(length, self.heads, count, self.width)
            + map
    }
}

/// Maps queries, keys and values (B, L, H, E) by the features of directions w (M, E), to (B, L, H,
/// E).
fn attend([q, k, v]: &[Tensor; 3], w: &Tensor, epsilon: f64) -> Result<Tensor> {
    let (count, width) = w.dims2()?;
    let directions = w.affine((width as f64).powf(-0.25), 0.0)?.detach();
    let ratio = (count as f64).powf(-0.5);
    let features = |x: &Tensor, whole: bool| -> Result<Tensor> {
        let projected = linear(x, &directions, None)?; // (B, L, H, M)
        let largest = projected.max_keepdim(D::Minus1)?;
        let largest = match whole {
            true => largest.max_keepdim(1)?,
            false => largest,
        };
        let phi = exponential(&projected, x, &largest)?;
        swap_axes(&phi.affine(ratio, ratio * epsilon)?) // (B, H, L, M)
    };
    let (q, k) = (features(q, false)?, features(k, true)?);
    let v = swap_axes(v)?; // (B, H, L, E)
    let totals = k.sum_keepdim(2)?; // (B, H, 1, M)
    let denominators = matmul(&q, &totals.t()?)?; // (B, H, L, 1)
    let tiny = denominators.abs()?.le(epsilon)?.to_dtype(v.dtype())?;
    let denominators = (denominators + tiny.affine(2.0 * epsilon, 0.0)?)?;
    let y = matmul(&q, &matmul(&k.t()?, &v)?)?.broadcast_div(&denominators)?;
    swap_axes(&y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_gradient, normal};

    #[test]
    fn gradients_agree_with_differences_the_maxima_included() {
        let w = normal("w", &[2, 3]);
        let shape: &[usize] = &[2, 4, 2, 3];
        // ε is so large that the maxima do not cancel.
        check_gradient("performer 2021", &[shape, shape, shape], |inputs| {
            let qkv = [inputs[0].clone(), inputs[1].clone(), inputs[2].clone()];
            attend(&qkv, &w, 0.1)
        });
    }
}
