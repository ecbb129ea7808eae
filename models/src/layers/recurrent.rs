//! A recurrent layer whose gates read the state, with the parameters and initial values of
//! PyTorch's.

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Mask, Pass, Result, VarBuilder,
    layers::Linear,
    ops::{self, recurrent::Cell},
    params::{Attributes, fan_in_uniform},
    rng::Stream,
};

/// An LSTM or GRU: see [`ops::recurrent()`].
pub struct Recurrent {
    cell: Cell,
    /// Of the input.
    inner: Linear,
    /// Of the state (G W, W).
    weight: Tensor,
    /// (G W).
    bias: Tensor,
}

impl Recurrent {
    /// Creates parameters `inner` (G W, dim) and `state` (G W, W), each a weight and a bias, all
    /// uniform within W^-½. `start` is added to the inner biases of gate `shifted`.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(
        vb: &VarBuilder,
        cell: Cell,
        dim: usize,
        width: usize,
        (shifted, start): (usize, f64),
    ) -> Result<Self> {
        let (rows, init) = (cell.gates() * width, fan_in_uniform(width));
        let (inner, state) = (vb.pp("inner"), vb.pp("state"));
        let bound = (width as f64).powf(-0.5);
        let biases = |stream: &Stream| {
            let numbers = stream.uniform(1, rows).into_iter().enumerate();
            let of_gate = |index: usize| if index / width == shifted { start } else { 0.0 };
            let biases = numbers.map(|(index, u)| (2.0 * u - 1.0) * bound + of_gate(index));
            biases.collect()
        };
        inner.get_with_values(rows, "bias", Attributes::NO_DECAY, biases)?;
        Ok(Self {
            cell,
            inner: Linear::new(&inner, dim, rows, init, Some(Init::Const(0.0)))?,
            weight: state.get_with_hints((rows, width), "weight", init)?,
            bias: state.get_with_hints(rows, "bias", init)?,
        })
    }

    /// Maps x (B, L, dim) to all states (B, L, W). Padding leaves a state as it was.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = self.inner.forward(x)?;
        let mask = pass.mask().map(Mask::valid);
        ops::recurrent(self.cell, &x, &self.weight, &self.bias, mask)
    }

    /// Counts the operations for one sequence.
    #[must_use]
    pub fn flops(&self, length: usize) -> u64 {
        self.inner.flops(length) + 2 * (length * self.weight.elem_count()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_layer, parameters, pass};

    #[test]
    fn gradients_agree_with_differences() {
        for cell in [Cell::Lstm, Cell::Gru] {
            let parameters = parameters();
            let layer = Recurrent::new(&parameters.builder(), cell, 2, 3, (1, 1.0)).unwrap();
            check_layer("recurrent layer", &parameters, &[2, 3, 2], |x| {
                layer.forward(x, &pass())
            });
        }
    }

    #[test]
    fn biases_of_one_gate_begin_elsewhere() {
        let parameters = parameters();
        let vb = parameters.builder();
        Recurrent::new(&vb, Cell::Lstm, 4, 16, (1, 2.0)).unwrap();
        let bias = vb
            .get_with_hints(64, "inner.bias", Init::Const(0.0))
            .unwrap();
        let bias = bias.to_vec1::<f64>().unwrap();
        for (index, value) in bias.into_iter().enumerate() {
            let start = if (16..32).contains(&index) { 2.0 } else { 0.0 };
            assert!((value - start).abs() <= 0.25, "{index}: {value}");
        }
    }
}
