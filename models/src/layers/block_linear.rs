//! A linear layer whose matrix is block-diagonal: groups of neighbouring columns, each with a
//! matrix of its own.

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Result, VarBuilder,
    ops::{matmul, merge_heads, split_heads},
};

/// Maps each of G groups of W columns to O columns.
pub struct BlockLinear {
    /// (G, O, W): outputs, then inputs, as in [`super::Linear`].
    weight: Tensor,
    /// (G O).
    bias: Option<Tensor>,
}

impl BlockLinear {
    /// Creates parameters `weight` (groups, width, width) and, if it has an initialiser, `bias`
    /// (groups width).
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(
        vb: &VarBuilder,
        groups: usize,
        width: usize,
        weight: Init,
        bias: Option<Init>,
    ) -> Result<Self> {
        Self::between(vb, groups, (width, width), weight, bias)
    }

    /// Creates parameters `weight` (groups, outputs, inputs) and, if it has an initialiser, `bias`
    /// (groups outputs).
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn between(
        vb: &VarBuilder,
        groups: usize,
        (inputs, outputs): (usize, usize),
        weight: Init,
        bias: Option<Init>,
    ) -> Result<Self> {
        let bias = bias.map(|init| vb.get_with_hints(groups * outputs, "bias", init));
        Ok(Self {
            weight: vb.get_with_hints((groups, outputs, inputs), "weight", weight)?,
            bias: bias.transpose()?,
        })
    }

    /// Maps (B, L, G W) to (B, L, G O).
    ///
    /// # Errors
    /// If the last dimension is not G W.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let groups = self.weight.dim(0)?;
        // All rows of the batch as one sequence.
        let rows = split_heads(&x.reshape((1, batch * length, ()))?, groups)?; // (1, G, B L, W)
        let weight = self.weight.transpose(1, 2)?.contiguous()?.unsqueeze(0)?;
        let y = merge_heads(&matmul(&rows, &weight)?)?;
        let y = y.reshape((batch, length, ()))?;
        Ok(match &self.bias {
            Some(bias) => y.broadcast_add(bias)?,
            None => y,
        })
    }

    /// Counts the operations for `rows` rows.
    #[must_use]
    pub fn flops(&self, rows: usize) -> u64 {
        2 * rows as u64 * self.weight.elem_count() as u64
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;
    use crate::{
        ops::testing::in_bfloat16,
        testing::{check_layer, close, normal, parameters},
    };

    #[test]
    fn gradients_agree_with_differences() {
        for bias in [None, Some(Init::Const(0.5))] {
            let parameters = parameters();
            let init = Init::Const(0.1);
            let layer = BlockLinear::new(&parameters.builder(), 2, 3, init, bias).unwrap();
            check_layer("block-diagonal linear", &parameters, &[2, 2, 6], |x| {
                layer.forward(x)
            });
        }
    }

    #[test]
    fn a_group_of_columns_reads_itself_alone() {
        let parameters = parameters();
        let init = Init::Uniform { lo: -1.0, up: 1.0 };
        let layer = BlockLinear::new(&parameters.builder(), 3, 2, init, None).unwrap();
        let x = normal("x", &[1, 4, 6]);
        let y = layer.forward(&x).unwrap();
        for group in 0..3 {
            let part = |x: &Tensor| x.narrow(2, 2 * group, 2).unwrap().squeeze(0).unwrap();
            let weight = layer.weight.get(group).unwrap();
            let expected = part(&x).contiguous().unwrap();
            let expected = expected.matmul(&weight.t().unwrap()).unwrap();
            close(&part(&y), &expected, 1e-12, "group");
        }
    }

    #[test]
    fn products_round_both_factors_where_the_run_does() {
        let parameters = parameters();
        let init = Init::Uniform { lo: -1.0, up: 1.0 };
        let layer = BlockLinear::new(&parameters.builder(), 1, 4, init, None).unwrap();
        let x = normal("x", &[1, 3, 4]);
        let rounded = |x: &Tensor| {
            let x = x.to_dtype(DType::BF16).unwrap();
            x.to_dtype(DType::F64).unwrap()
        };
        let weight = rounded(&layer.weight.get(0).unwrap()).t().unwrap();
        let expected = rounded(&x.get(0).unwrap()).matmul(&weight).unwrap();
        for y in in_bfloat16(|| layer.forward(&x).unwrap()) {
            close(&y.get(0).unwrap(), &expected, 1e-12, "rounded");
        }
    }
}
