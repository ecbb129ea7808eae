//! The output layer after the filter of a state-space model or a long convolution. It takes the
//! place of a Transformer's feed-forward network.
//!
//! | gate | output of y (B, L, D), z = dropout(f(y)) | source |
//! |---|---|---|
//! | `full` | a ⊙ σ(g), [a, g] = W z + b, W (2D, D) | S4, arXiv:2111.00396 |
//! | `half` | z ⊙ σ(W z + b), W (D, D) | S5's `half_glu1`, arXiv:2208.04933 |
//! | `half_linear` | y ⊙ σ(W z + b) | S5's `half_glu2` |
//!
//! f is `block.activation`.

use candle_core::Tensor;
use candle_nn::Init;
use serde::{Deserialize, Serialize};

use crate::{
    Pass, Result, VarBuilder,
    layers::{Dropout, Linear},
    ops::{GatedValue, gated_linear},
    options::{Activation, BlockOptions},
    params::LECUN_NORMAL,
};

/// Gate of the output of y (B, L, D), whose sigmoid multiplies a value. z is dropout(f(y)), for the
/// activation f.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputGate {
    /// The gate is the second half of a linear layer of z, whose first half is the value.
    Full,
    /// The gate is a linear layer of z, and z is the value.
    Half,
    /// The gate is a linear layer of z, and the value is y, before activation and dropout.
    HalfLinear,
}

/// Initial values of the linear layer: the defaults of the library that a model was published with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputInit {
    /// Weights and biases uniform within 1/√D.
    Torch,
    /// LeCun-normal weights, biases zeros.
    Flax,
}

/// Activation, dropout and gated linear layer.
pub struct GluOutput {
    activation: Activation,
    dropout: Dropout,
    linear: Linear,
    gate: OutputGate,
}

impl GluOutput {
    /// Creates parameters `output`: weights as `init` says, biases zeros or, with PyTorch's initial
    /// values, uniform within 1/√D like the weights.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(
        vb: &VarBuilder,
        block: &BlockOptions,
        gate: OutputGate,
        init: OutputInit,
    ) -> Result<Self> {
        let dim = block.dim;
        let bound = (dim as f64).powf(-0.5);
        let uniform = Init::Uniform {
            lo: -bound,
            up: bound,
        };
        let (weight, bias) = match init {
            OutputInit::Torch => (uniform, uniform),
            OutputInit::Flax => (LECUN_NORMAL, Init::Const(0.0)),
        };
        let outputs = match gate {
            OutputGate::Full => 2 * dim,
            OutputGate::Half | OutputGate::HalfLinear => dim,
        };
        Ok(Self {
            activation: block.activation,
            dropout: Dropout::new(&vb.pp("drop"), block.dropout).tied(block.dropout_tied),
            linear: Linear::new(&vb.pp("output"), dim, outputs, weight, Some(bias))?,
            gate,
        })
    }

    /// Maps (B, L, D) to (B, L, D).
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn forward(&self, y: &Tensor, pass: &Pass) -> Result<Tensor> {
        let value = match self.gate {
            OutputGate::Full => GatedValue::Linear,
            OutputGate::Half => GatedValue::Activated,
            OutputGate::HalfLinear => GatedValue::Input,
        };
        let (operands, mask) = (self.linear.operands(), self.dropout.mask(pass));
        gated_linear(y, operands, self.activation, mask.as_ref(), value)
    }

    /// Counts the operations for one sequence.
    #[must_use]
    pub fn flops(&self, length: usize) -> u64 {
        self.linear.flops(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        RngKey,
        testing::{check_layer, normal, parameters},
    };

    /// Equal positions have equal outputs as long as the same of their elements are dropped.
    #[test]
    fn dropout_is_the_same_at_all_positions_if_it_is_tied() {
        for tied in [false, true] {
            let block = BlockOptions {
                dim: 8,
                dropout: 0.5,
                dropout_tied: tied,
                ..BlockOptions::default()
            };
            let vb = parameters().builder();
            let output = GluOutput::new(&vb, &block, OutputGate::Half, OutputInit::Torch).unwrap();
            let x = normal("x", &[2, 1, 8]).broadcast_as((2, 5, 8)).unwrap();
            let pass = Pass::new(true, RngKey::new(1, 0, 0));
            let y = output.forward(&x.contiguous().unwrap(), &pass).unwrap();
            let apart = y.broadcast_sub(&y.narrow(1, 0, 1).unwrap()).unwrap();
            let apart = apart.abs().unwrap().max_all().unwrap();
            assert_eq!(apart.to_scalar::<f64>().unwrap() < 1e-12, tied);
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        for (gate, tied) in [
            (OutputGate::Full, false),
            (OutputGate::Half, false),
            (OutputGate::HalfLinear, true),
        ] {
            let block = BlockOptions {
                dim: 4,
                dropout: 0.3,
                dropout_tied: tied,
                ..BlockOptions::default()
            };
            let parameters = parameters();
            let output =
                GluOutput::new(&parameters.builder(), &block, gate, OutputInit::Torch).unwrap();
            let pass = Pass::new(true, RngKey::new(1, 0, 0));
            check_layer("filter output", &parameters, &[2, 3, 4], |x| {
                output.forward(x, &pass)
            });
        }
    }
}
