//! LayerNorm of each head by itself, with a weight for each column: PyTorch's GroupNorm over the
//! columns of a position.

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Result, VarBuilder,
    ops::{Normalised, layer_norm},
};

/// LayerNorm over the columns of a head.
pub struct HeadNorm {
    /// (H V).
    scale: Tensor,
    /// (H V), if there is a shift.
    shift: Option<Tensor>,
    /// Ones and zeros (V).
    plain: [Tensor; 2],
    epsilon: f64,
}

impl HeadNorm {
    /// Creates parameters `scale` (ones) and, if `shifts`, `shift` (zeros), each of `heads` times
    /// `values` numbers.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(
        vb: &VarBuilder,
        heads: usize,
        values: usize,
        epsilon: f64,
        shifts: bool,
    ) -> Result<Self> {
        let width = heads * values;
        let shift = shifts.then(|| vb.get_with_hints(width, "shift", Init::Const(0.0)));
        let (dtype, device) = (vb.dtype(), vb.device());
        Ok(Self {
            scale: vb.get_with_hints(width, "scale", Init::Const(1.0))?,
            shift: shift.transpose()?,
            plain: [
                Tensor::ones(values, dtype, device)?,
                Tensor::zeros(values, dtype, device)?,
            ],
            epsilon,
        })
    }

    /// Maps the outputs of heads (B, L, H, V) to (B, L, H V).
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn forward(&self, y: &Tensor) -> Result<Tensor> {
        let [weight, bias] = &self.plain;
        let norm = Normalised {
            weight,
            bias,
            epsilon: self.epsilon,
        };
        let y = layer_norm(y, &norm)?.flatten_from(2)?;
        let y = y.broadcast_mul(&self.scale)?;
        Ok(match &self.shift {
            Some(shift) => y.broadcast_add(shift)?,
            None => y,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_layer, close, normal, parameters};

    #[test]
    fn gradients_agree_with_differences() {
        for shifts in [false, true] {
            let parameters = parameters();
            let norm = HeadNorm::new(&parameters.builder(), 2, 3, 1e-5, shifts).unwrap();
            check_layer("norm of heads", &parameters, &[2, 2, 2, 3], |y| {
                norm.forward(y)
            });
        }
    }

    #[test]
    fn a_head_is_normalised_by_itself() {
        let parameters = parameters();
        let norm = HeadNorm::new(&parameters.builder(), 2, 4, 0.0, true).unwrap();
        let y = normal("y", &[1, 3, 2, 4]);
        let z = norm.forward(&y).unwrap();
        let larger = Tensor::cat(
            &[
                &(y.narrow(2, 0, 1).unwrap() * 5.0).unwrap(),
                &y.narrow(2, 1, 1).unwrap(),
            ],
            2,
        );
        close(
            &norm.forward(&larger.unwrap()).unwrap(),
            &z,
            1e-10,
            "scaled head",
        );
    }
}
