//! The position-wise half of a block: Dense -> activation -> dropout -> Dense, with what surrounds it.

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Context, Result, VarBuilder,
    kernels::{self, FeedForwardOptions},
    layers::{Dropout, LayerNorm, Linear, activation},
    options::{Activation, BlockOptions},
    params::xavier_uniform,
};

/// Dense (D -> mlp_dim) -> activation -> dropout -> Dense (mlp_dim -> D).
pub struct FeedForward {
    inner: Linear,
    outer: Linear,
    activation: Activation,
    dropout: Dropout,
}

/// What surrounds a layer in its block.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// Applied to the layer's input.
    pub norm: Option<&'a LayerNorm>,
    /// Applied to the layer's output.
    pub dropout: &'a Dropout,
    /// Whether the input is added to the end result.
    pub residual: bool,
}

impl FeedForward {
    /// Parameters `inner` and `outer`, Xavier-uniform weights, biases N(0, 1e-6²).
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, block: &BlockOptions) -> Result<Self> {
        let (dim, hidden) = (block.dim, block.mlp_dim);
        let weight = xavier_uniform(dim, hidden);
        let bias = Some(Init::Randn {
            mean: 0.0,
            stdev: 1e-6,
        });
        Ok(Self {
            inner: Linear::new(&vb.pp("inner"), dim, hidden, weight, bias)?,
            outer: Linear::new(&vb.pp("outer"), hidden, dim, weight, bias)?,
            activation: block.activation,
            dropout: Dropout::new(&vb.pp("drop"), block.dropout),
        })
    }

    /// (B, L, D) -> (B, L, D), from norm to residual.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn forward(&self, x: &Tensor, around: Around, context: &Context) -> Result<Tensor> {
        if kernels::supports(x)
            && let (Some(inner), Some(outer)) = (self.inner.affine(), self.outer.affine())
        {
            let options = FeedForwardOptions {
                norm: around.norm.map(LayerNorm::operands),
                activation: self.activation.into(),
                inner_dropout: self.dropout.draws(context),
                outer_dropout: around.dropout.draws(context),
                residual: around.residual,
            };
            return Ok(kernels::feed_forward(x, inner, outer, &options)?);
        }
        let normal = around.norm.map(|norm| norm.forward(x)).transpose()?;
        let hidden = self.inner.forward(normal.as_ref().unwrap_or(x))?; // (B, L, mlp_dim)
        let hidden = activation::apply(self.activation, &hidden)?;
        let y = self
            .outer
            .forward(&self.dropout.forward(&hidden, context)?)?;
        if around.residual {
            around.dropout.add(x, &y, context)
        } else {
            around.dropout.forward(&y, context)
        }
    }

    /// Operations for one sequence.
    #[must_use]
    pub fn flops(&self, length: usize) -> u64 {
        self.inner.flops(length) + self.outer.flops(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Draws,
        layers::testing::{check_layer, parameters},
    };

    #[test]
    fn gradients_agree_with_differences() {
        for activation in [Activation::Gelu, Activation::GeluErf, Activation::Relu] {
            let parameters = parameters();
            let block = BlockOptions {
                dim: 3,
                mlp_dim: 4,
                dropout: 0.3,
                activation,
                ..BlockOptions::default()
            };
            let feed = FeedForward::new(&parameters.builder(), &block).unwrap();
            let norm = LayerNorm::new(&parameters.builder().pp("norm"), 3, 1e-6).unwrap();
            let dropout = Dropout::new(&parameters.builder().pp("outer_drop"), 0.3);
            let context = Context::new(true, Draws::new(1, 0, 0));
            for residual in [false, true] {
                let around = Around {
                    norm: Some(&norm),
                    dropout: &dropout,
                    residual,
                };
                check_layer("feed forward", &parameters, &[2, 2, 3], |x| {
                    feed.forward(x, around, &context)
                });
            }
        }
    }
}
