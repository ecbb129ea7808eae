//! LayerNorm with its parameters, see [`layer_norm`].

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Result, VarBuilder,
    ops::{Normalised, layer_norm},
};

/// LayerNorm over the last dimension, of width D, with its parameters (arXiv:1607.06450).
#[derive(Clone)]
pub struct LayerNorm {
    scale: Tensor,
    shift: Tensor,
    epsilon: f64,
}

impl LayerNorm {
    /// Creates the parameters `scale` (D), ones, and `shift` (D), zeros, for D = `dim`. `epsilon`
    /// is added to variances.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, dim: usize, epsilon: f64) -> Result<Self> {
        Ok(Self {
            scale: vb.get_with_hints(dim, "scale", Init::Const(1.0))?,
            shift: vb.get_with_hints(dim, "shift", Init::Const(0.0))?,
            epsilon,
        })
    }

    /// Returns the norm's operands, for operations that begin with it.
    pub(crate) fn operands(&self) -> Normalised<'_> {
        Normalised {
            weight: &self.scale,
            bias: &self.shift,
            epsilon: self.epsilon,
        }
    }

    /// Maps x (.., D) to its LayerNorm over the last dimension, in the same shape.
    ///
    /// # Errors
    /// If the last dimension is not D.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        layer_norm(x, &self.operands())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_layer, parameters};

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let norm = LayerNorm::new(&parameters.builder(), 5, 1e-6).unwrap();
        check_layer("layer norm", &parameters, &[2, 3, 5], |x| norm.forward(x));
    }
}
