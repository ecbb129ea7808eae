//! The output of linear attention with decays: `W_o (RMSNorm(y) ⊙ SiLU(W_g x))`, the norm over each
//! head by itself with one gain for all of them.

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Mask, Result, VarBuilder,
    layers::Linear,
    ops::{activation::silu, rms_norm},
    params::fan_in_uniform,
};

/// Returns the decays `log_decay` (H) of heads where there is padding as those of tokens, (B, L,
/// H), so that padding decays nothing.
///
/// # Errors
/// If a tensor operation fails.
pub fn head_decays(log_decay: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    match mask {
        Some(mask) => Ok(mask.valid().unsqueeze(2)?.broadcast_mul(log_decay)?),
        None => Ok(log_decay.clone()),
    }
}

/// Width of the heads' outputs, and of what they become.
#[derive(Clone, Copy)]
pub struct GatedHeadSizes {
    /// Width of x and of the output.
    pub dim: usize,
    /// H.
    pub heads: usize,
    /// V, of one head.
    pub values: usize,
}

/// Norm of each head, gate and projection.
pub struct GatedHeads {
    /// W_g, if there is a gate.
    gate: Option<Linear>,
    /// (V).
    gain: Tensor,
    epsilon: f64,
    /// W_o.
    output: Linear,
}

impl GatedHeads {
    /// Creates parameters `gain` (V), `output` (D, H V) and, if `gated`, `gate` (H V, D), without
    /// biases.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, sizes: GatedHeadSizes, epsilon: f64, gated: bool) -> Result<Self> {
        let GatedHeadSizes { dim, heads, values } = sizes;
        let row = heads * values;
        let linear = |name: &str, inputs: usize, outputs: usize| {
            Linear::new(&vb.pp(name), inputs, outputs, fan_in_uniform(inputs), None)
        };
        Ok(Self {
            gate: gated.then(|| linear("gate", dim, row)).transpose()?,
            gain: vb.get_with_hints(values, "gain", Init::Const(1.0))?,
            epsilon,
            output: linear("output", row, dim)?,
        })
    }

    /// Maps the heads' outputs y (B, L, H, V) of x (B, L, D) to (B, L, D).
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn forward(&self, y: &Tensor, x: &Tensor) -> Result<Tensor> {
        let y = rms_norm(y, &self.gain, self.epsilon)?.flatten_from(2)?;
        let y = match &self.gate {
            Some(gate) => (y * silu(&gate.forward(x)?)?)?,
            None => y,
        };
        self.output.forward(&y)
    }

    /// Counts the operations for `rows` rows.
    #[must_use]
    pub fn flops(&self, rows: usize) -> u64 {
        let gate = self.gate.as_ref().map_or(0, |gate| gate.flops(rows));
        gate + self.output.flops(rows)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn padding_decays_nothing_wherever_it_is() {
        let tensor = |numbers: &[f64]| Tensor::new(numbers, &Device::Cpu).unwrap();
        let log_decay = tensor(&[-0.5, -0.25]);
        let valid = tensor(&[1.0, 0.0, 1.0]).unsqueeze(0).unwrap();
        let mask = Mask::new(&valid).unwrap();
        let decays = head_decays(&log_decay, Some(&mask)).unwrap();
        let decays = decays.to_vec3::<f64>().unwrap();
        assert_eq!(decays, [[[-0.5, -0.25], [0.0, 0.0], [-0.5, -0.25]]]);
        let decays = head_decays(&log_decay, None).unwrap();
        assert_eq!(decays.to_vec1::<f64>().unwrap(), [-0.5, -0.25]);
    }
}
