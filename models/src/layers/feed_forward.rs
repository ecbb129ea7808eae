//! The position-wise half of a block, with its norm, dropout and residual.
//!     y = W₂ dropout(f(W₁ x + b₁)) + b₂,   with a gate y = W₂ dropout(f(W₁ x + b₁) ⊙ (V x + c)) + b₂
//! x, y (B, L, D), W₁, V (F, D), W₂ (D, F). The gate is that of Shazeer 2020, "GLU Variants Improve
//! Transformer", arXiv:2002.05202: GLU with f = sigmoid, ReGLU with relu, GEGLU with gelu, SwiGLU
//! with silu, Bilinear with the identity. The paper has no biases in gated networks; here all
//! layers have them.

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Pass, Result, VarBuilder,
    layers::{Dropout, LayerNorm, Linear},
    ops::{self, FeedForwardOptions},
    options::{Activation, BlockOptions, Gate},
    params::xavier_uniform,
};

/// Dense (D -> mlp_dim) -> activation, times a gate if there is one -> dropout -> Dense (mlp_dim ->
/// D).
pub struct FeedForward {
    inner: Linear,
    gate: Option<Linear>,
    outer: Linear,
    activation: Activation,
    dropout: Dropout,
}

/// Everything around a layer in its block; empty by default.
#[derive(Clone, Copy, Default)]
pub struct FusedSublayer<'a> {
    /// Applied to the layer's input.
    pub norm: Option<&'a LayerNorm>,
    /// Applied to the layer's output.
    pub dropout: Option<&'a Dropout>,
    /// True if the input is added to the end result.
    pub residual: bool,
}

impl FeedForward {
    /// Creates parameters `inner`, `outer` and, if gated, `gate`: Xavier-uniform weights, biases
    /// N(0, 1e-6²).
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, block: &BlockOptions) -> Result<Self> {
        let bias = Init::Randn {
            mean: 0.0,
            stdev: 1e-6,
        };
        Self::drawn(vb, block, xavier_uniform(block.dim, block.mlp_dim), bias)
    }

    /// Builds the layer with other initial values.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn drawn(vb: &VarBuilder, block: &BlockOptions, weight: Init, bias: Init) -> Result<Self> {
        Self::drawn_by_fan_in(vb, block, |_| weight, bias)
    }

    /// Builds the layer with weights that begin as `weight` says for their number of inputs.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn drawn_by_fan_in(
        vb: &VarBuilder,
        block: &BlockOptions,
        weight: impl Fn(usize) -> Init,
        bias: Init,
    ) -> Result<Self> {
        let (dim, hidden) = (block.dim, block.mlp_dim);
        let linear = |name, inputs, outputs| {
            Linear::new(&vb.pp(name), inputs, outputs, weight(inputs), Some(bias))
        };
        Ok(Self {
            inner: linear("inner", dim, hidden)?,
            gate: match block.gate {
                Gate::None => None,
                Gate::Glu => Some(linear("gate", dim, hidden)?),
            },
            outer: linear("outer", hidden, dim)?,
            activation: block.activation,
            dropout: Dropout::new(&vb.pp("drop"), block.dropout).tied(block.dropout_tied),
        })
    }

    /// Maps (B, L, D) to (B, L, D), from norm to residual.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn forward(&self, x: &Tensor, around: FusedSublayer, pass: &Pass) -> Result<Tensor> {
        let options = FeedForwardOptions {
            norm: around.norm.map(LayerNorm::operands),
            activation: self.activation,
            gate: self.gate.as_ref().map(Linear::operands),
            inner_dropout: self.dropout.mask(pass),
            outer_dropout: around.dropout.and_then(|dropout| dropout.mask(pass)),
            residual: around.residual,
        };
        ops::feed_forward(x, self.inner.operands(), self.outer.operands(), &options)
    }

    /// Counts the operations for one sequence.
    #[must_use]
    pub fn flops(&self, length: usize) -> u64 {
        let gate = self.gate.as_ref().map_or(0, |gate| gate.flops(length));
        self.inner.flops(length) + gate + self.outer.flops(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        RngKey,
        testing::{check_layer, parameters},
    };

    #[test]
    fn gradients_agree_with_differences() {
        for (activation, gate) in [
            (Activation::Gelu, Gate::None),
            (Activation::GeluErf, Gate::None),
            (Activation::Relu, Gate::None),
            (Activation::Gelu, Gate::Glu),
            (Activation::Silu, Gate::Glu),
            (Activation::Sigmoid, Gate::Glu),
        ] {
            let parameters = parameters();
            let block = BlockOptions {
                dim: 3,
                mlp_dim: 4,
                dropout: 0.3,
                activation,
                gate,
                ..BlockOptions::default()
            };
            let feed = FeedForward::new(&parameters.builder(), &block).unwrap();
            let norm = LayerNorm::new(&parameters.builder().pp("norm"), 3, 1e-6).unwrap();
            let dropout = Dropout::new(&parameters.builder().pp("outer_drop"), 0.3);
            let pass = Pass::new(true, RngKey::new(1, 0, 0));
            for residual in [false, true] {
                let around = FusedSublayer {
                    norm: Some(&norm),
                    dropout: Some(&dropout),
                    residual,
                };
                check_layer("feed forward", &parameters, &[2, 2, 3], |x| {
                    feed.forward(x, around, &pass)
                });
            }
        }
    }
}
