//! The position-wise part of a block: Dense -> activation -> dropout -> Dense.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};

use crate::{
    Context, Result,
    layers::{Dropout, Linear, activation},
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

    /// (B, L, D) -> (B, L, D).
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        let hidden = activation::apply(self.activation, &self.inner.forward(x)?)?; // (B, L, mlp_dim)
        self.outer.forward(&self.dropout.forward(&hidden, context)?)
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
            let context = Context::new(true, Draws::new(1, 0, 0));
            check_layer("feed forward", &parameters, &[2, 2, 3], |x| {
                feed.forward(x, &context)
            });
        }
    }
}
