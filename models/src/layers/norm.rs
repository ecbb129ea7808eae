//! LayerNorm. Ba et al., 2016, arXiv:1607.06450.
//!     y = (x - mean) / sqrt(variance + epsilon) * scale + shift, over the last dimension, variance divided by D.

use candle_core::{D, Tensor};
use candle_nn::Init;

use crate::{Result, VarBuilder, kernels};

/// LayerNorm over the last dimension, with a gradient (candle's passes none).
pub struct LayerNorm {
    scale: Tensor,
    shift: Tensor,
    epsilon: f64,
}

impl LayerNorm {
    /// Parameters `scale` (ones) and `shift` (zeros), each of `dim` numbers.
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

    /// The same for kernels that begin with it.
    pub(crate) fn operands(&self) -> kernels::Normalised<'_> {
        kernels::Normalised {
            gain: &self.scale,
            offset: &self.shift,
            epsilon: self.epsilon,
        }
    }

    /// (.., D) -> (.., D).
    ///
    /// # Errors
    /// If the last dimension is not D.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if kernels::supports(x) {
            let y = kernels::layer_norm(x, &self.scale, &self.shift, self.epsilon)?;
            return Ok(y);
        }
        let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
        let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
        let deviation = variance.affine(1.0, self.epsilon)?.sqrt()?;
        let y = centred.broadcast_div(&deviation)?;
        Ok(y.broadcast_mul(&self.scale)?.broadcast_add(&self.shift)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::testing::{check_layer, normal, parameters};

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let norm = LayerNorm::new(&parameters.builder(), 5, 1e-6).unwrap();
        check_layer("layer norm", &parameters, &[2, 3, 5], |x| norm.forward(x));
    }

    #[test]
    fn rows_come_out_with_mean_zero_and_biased_variance_one() {
        let parameters = parameters();
        let norm = LayerNorm::new(&parameters.builder(), 4, 1e-6).unwrap();
        let y = norm.forward(&normal("x", &[1, 4])).unwrap();
        let y: Vec<f64> = y.flatten_all().unwrap().to_vec1().unwrap();
        let mean = y.iter().sum::<f64>() / 4.0;
        let variance = y.iter().map(|y| y * y).sum::<f64>() / 4.0;
        assert!(
            mean.abs() < 1e-12 && (variance - 1.0).abs() < 1e-5,
            "{mean} {variance}"
        );
    }
}
