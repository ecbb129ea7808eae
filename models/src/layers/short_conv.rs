//! `y = SiLU(conv(x))`: a convolution of a few taps, each channel by itself, before a recurrence;
//! causal, or to both sides.

use candle_core::Tensor;

use crate::{
    Pass, Result, VarBuilder,
    mask::zero_padding,
    ops::{Padding, activation::silu, depthwise_conv1d},
    params::fan_in_uniform,
};

/// A depth-wise convolution and SiLU.
pub struct ShortConv {
    /// (channels, taps).
    weight: Tensor,
    /// (channels).
    bias: Option<Tensor>,
    padding: Padding,
}

impl ShortConv {
    /// Creates a causal convolution with parameters `weight` (channels, taps) and, if it has one,
    /// `bias` (channels), uniform within taps^-½ as PyTorch's.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, channels: usize, taps: usize, bias: bool) -> Result<Self> {
        let init = fan_in_uniform(taps);
        let bias = bias.then(|| vb.get_with_hints(channels, "bias", init));
        Ok(Self {
            weight: vb.get_with_hints((channels, taps), "weight", init)?,
            bias: bias.transpose()?,
            padding: Padding::Causal,
        })
    }

    /// Returns the same convolution with as many positions behind a position as before it.
    #[must_use]
    pub fn centred(self) -> Self {
        Self {
            padding: Padding::Same,
            ..self
        }
    }

    /// Maps (B, L, channels) to (B, L, channels). Padded positions are zeros to those beside them.
    ///
    /// # Errors
    /// If x does not have the number of channels that the weights have.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = zero_padding(x, pass.mask())?;
        let bias = self.bias.as_ref();
        silu(&depthwise_conv1d(&x, &self.weight, bias, self.padding, 1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        RngKey,
        testing::{self, check_layer, parameters},
    };

    #[test]
    fn gradients_agree_with_differences() {
        for bias in [false, true] {
            let parameters = parameters();
            let conv = ShortConv::new(&parameters.builder(), 3, 2, bias).unwrap();
            let pass = Pass::new(false, RngKey::new(1, 0, 0));
            check_layer("short convolution", &parameters, &[2, 4, 3], |x| {
                conv.forward(x, &pass)
            });
            let parameters = testing::parameters();
            let conv = ShortConv::new(&parameters.builder(), 3, 3, bias).unwrap();
            let conv = conv.centred();
            check_layer("centred convolution", &parameters, &[2, 4, 3], |x| {
                conv.forward(x, &pass)
            });
        }
    }
}
