//! Position encoding by a convolution. Chu, Tian, Zhang, Wang, Wei, Xia, Shen, 2021, "Conditional
//! Positional Encodings for Vision Transformers", arXiv:2102.10882.
//!     y_t = x_t + b + Σ_j w_j ⊙ x_{t + j - 1},  j = 0, 1, 2
//! x, y (B, L, D) after the first block, w (D, 3), b (D). Positions become visible through the
//! zeros around a sequence, whose effect spreads in later blocks; padding is zeros too. The paper's
//! 3 x 3 convolution covers an image; here it runs along the sequence. A CLS token is left
//! unchanged.

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Mask, Result, VarBuilder,
    mask::zero_padding,
    ops::{Padding, depthwise_conv1d},
};

/// Width of the kernel.
const WIDTH: usize = 3;

/// x plus a depthwise convolution of x.
pub struct ConditionalPositions {
    /// w (D, 3).
    kernel: Tensor,
    /// b (D).
    bias: Tensor,
    cls: bool,
}

impl ConditionalPositions {
    /// Creates parameters `kernel` (D, 3), uniform within 1/√3, and `bias` (D), zeros.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, dim: usize, cls: bool) -> Result<Self> {
        let reach = (WIDTH as f64).powf(-0.5);
        let init = Init::Uniform {
            lo: -reach,
            up: reach,
        };
        Ok(Self {
            kernel: vb.get_with_hints((dim, WIDTH), "kernel", init)?,
            bias: vb.get_with_hints(dim, "bias", Init::Const(0.0))?,
            cls,
        })
    }

    /// Maps (B, L, D) to (B, L, D).
    ///
    /// # Errors
    /// If the last dimension is not D.
    pub fn forward(&self, x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        let first = usize::from(self.cls);
        let tokens = zero_padding(x, mask)?.narrow(1, first, x.dim(1)? - first)?;
        if tokens.elem_count() == 0 {
            return Ok(x.clone());
        }
        let marks = depthwise_conv1d(
            &tokens.contiguous()?,
            &self.kernel,
            Some(&self.bias),
            Padding::Same,
            1,
        )?;
        Ok((x + marks.pad_with_zeros(1, first, 0)?)?)
    }

    /// Counts the operations for one sequence.
    #[must_use]
    pub fn flops(&self, length: usize) -> u64 {
        2 * (length * self.kernel.elem_count()) as u64
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::testing::{check_layer, normal, parameters};

    #[test]
    fn gradients_agree_with_differences() {
        for cls in [false, true] {
            let parameters = parameters();
            let layer = ConditionalPositions::new(&parameters.builder(), 3, cls).unwrap();
            let valid = Tensor::new(&[[1f64, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]], &Device::Cpu);
            let mask = Mask::new(&valid.unwrap()).unwrap();
            check_layer("conditional", &parameters, &[2, 4, 3], |x| {
                layer.forward(x, Some(&mask))
            });
        }
    }

    #[test]
    fn edges_alone_tell_equal_tokens_apart() {
        let parameters = parameters();
        let layer = ConditionalPositions::new(&parameters.builder(), 2, true).unwrap();
        let x = Tensor::ones((1, 6, 2), DType::F64, &Device::Cpu).unwrap();
        let y: Vec<Vec<f64>> = layer
            .forward(&x, None)
            .unwrap()
            .get(0)
            .unwrap()
            .to_vec2()
            .unwrap();
        assert_eq!(y[0], [1.0, 1.0], "the CLS slot stays");
        assert_eq!((&y[2], &y[3]), (&y[3], &y[4]));
        assert!(y[1] != y[2] && y[5] != y[4] && y[1] != y[5]);
        // A sequence of a CLS slot alone has no tokens.
        let x = normal("x", &[1, 1, 2]);
        let y = layer.forward(&x, None).unwrap();
        assert_eq!(y.to_vec3::<f64>().unwrap(), x.to_vec3::<f64>().unwrap());
    }
}
