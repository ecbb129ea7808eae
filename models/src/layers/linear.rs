//! `y = x Wᵀ + b` over the last dimension.

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Result, VarBuilder,
    ops::{Affine, linear},
};

/// Linear layer y = x Wᵀ + b over the last dimension, with or without b. The weight W is (out, in),
/// as PyTorch keeps it, and the bias b is (out).
#[derive(Clone)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    /// Creates the parameters `weight` (outputs, inputs) and `bias` (outputs) with the given
    /// initial values. If `bias` is `None`, the layer has no bias.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(
        vb: &VarBuilder,
        inputs: usize,
        outputs: usize,
        weight: Init,
        bias: Option<Init>,
    ) -> Result<Self> {
        Ok(Self {
            weight: vb.get_with_hints((outputs, inputs), "weight", weight)?,
            bias: bias
                .map(|init| vb.get_with_hints(outputs, "bias", init))
                .transpose()?,
        })
    }

    /// Returns one layer whose outputs are those of `layers`, none of which has a bias, in order.
    ///
    /// # Errors
    /// If the layers differ in their inputs.
    pub(crate) fn stacked(layers: &[&Self]) -> Result<Self> {
        let weights: Vec<&Tensor> = layers.iter().map(|layer| &layer.weight).collect();
        Ok(Self {
            weight: Tensor::cat(&weights, 0)?,
            bias: None,
        })
    }

    /// Returns the layer from the first `inputs` of this layer's inputs to the first `outputs` of
    /// its outputs.
    pub(crate) fn leading(&self, inputs: usize, outputs: usize) -> Result<Self> {
        let weight = self.weight.narrow(0, 0, outputs)?.narrow(1, 0, inputs)?;
        let bias = self.bias.as_ref();
        Ok(Self {
            weight: weight.contiguous()?,
            bias: bias.map(|bias| bias.narrow(0, 0, outputs)).transpose()?,
        })
    }

    /// Returns this layer with its outputs times `factor`, a single number; the layer has no bias.
    pub(crate) fn times(&self, factor: &Tensor) -> Result<Self> {
        Ok(Self {
            weight: self.weight.broadcast_mul(factor)?,
            bias: None,
        })
    }

    /// Returns this layer with weights that get no gradient.
    pub(crate) fn detached(&self) -> Self {
        Self {
            weight: self.weight.detach(),
            bias: self.bias.as_ref().map(Tensor::detach),
        }
    }

    /// Returns a layer of the same shape with zeros as output.
    pub(crate) fn silenced(&self) -> Result<Self> {
        Ok(Self {
            weight: self.weight.zeros_like()?,
            bias: None,
        })
    }

    /// Returns the weight and bias, for operations that are more than this layer.
    pub(crate) fn operands(&self) -> Affine<'_> {
        (&self.weight, self.bias.as_ref())
    }

    /// Maps x (.., in) to (.., out), for the numbers of inputs and outputs of the layer.
    ///
    /// # Errors
    /// If the last dimension is not `in`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        linear(x, &self.weight, self.bias.as_ref())
    }

    /// Counts the floating-point operations for `rows` rows, a multiply-add being two.
    #[must_use]
    pub fn flops(&self, rows: usize) -> u64 {
        2 * rows as u64 * self.weight.elem_count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        params::xavier_uniform,
        testing::{check_layer, parameters},
    };

    #[test]
    fn gradients_agree_with_differences() {
        for bias in [None, Some(Init::Const(0.5))] {
            let parameters = parameters();
            let vb = parameters.builder();
            let linear = Linear::new(&vb, 4, 3, xavier_uniform(4, 3), bias).unwrap();
            check_layer("linear", &parameters, &[2, 2, 4], |x| linear.forward(x));
        }
    }
}
