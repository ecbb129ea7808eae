//! Token embeddings as complex vectors that rotate with the position. Wang, Zhao, Lioma, Li, Zhang,
//! Simonsen, 2019, "Encoding word order in complex embeddings", arXiv:1912.12333.
//!     x_t = [r ⊙ cos(ω t + θ) ; r ⊙ sin(ω t + θ)]
//! for the token at position t, with amplitudes r, frequencies ω and phases θ, each (D/2). x_t (D)
//! holds the real part of r e^{i(ω t + θ)}, then the imaginary part. At first ω_c = 10000^{-2
//! c / D} for all tokens, as in a sinusoid, and θ = 0. The Transformer above it stays real; the
//! paper's complex one has twice as many weights.

use candle_core::{D, Device, Tensor};
use candle_nn::Init;

use crate::{Result, VarBuilder, ops::embed, params::Attributes};

/// r, ω and θ of every token.
pub struct ComplexEmbedding {
    /// r (V, D/2).
    amplitude: Tensor,
    /// ω (V, D/2) in radians per position, less its initial value.
    frequency: Tensor,
    /// θ (V, D/2) in radians.
    phase: Tensor,
    /// Initial values of ω, (D/2).
    first: Tensor,
}

impl ComplexEmbedding {
    /// Creates parameters (V, D/2): `amplitude` N(0, 1), `frequency` and `phase` zeros. D is even.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, vocabulary: usize, dim: usize) -> Result<Self> {
        let half = dim / 2;
        let table = |name, init| {
            vb.get_with_attributes((vocabulary, half), name, init, Attributes::NO_DECAY)
        };
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        let first: Vec<f64> = (0..half)
            .map(|c| 10_000f64.powf(-2.0 * c as f64 / dim as f64))
            .collect();
        let first = Tensor::from_vec(first, half, &Device::Cpu)?;
        Ok(Self {
            amplitude: table("amplitude", normal)?,
            frequency: table("frequency", Init::Const(0.0))?,
            phase: table("phase", Init::Const(0.0))?,
            first: first.to_dtype(vb.dtype())?.to_device(vb.device())?,
        })
    }

    /// Maps ids (B, L), of which the first is at position `start`, to vectors (B, L, D).
    ///
    /// # Errors
    /// If an id is not below V.
    pub fn forward(&self, ids: &Tensor, start: usize) -> Result<Tensor> {
        let [amplitude, frequency, phase] = [&self.amplitude, &self.frequency, &self.phase]
            .map(|table| embed(ids, table, None, None));
        let end = start + ids.dim(1)?;
        let t = Tensor::arange(start as u32, end as u32, self.first.device())?;
        let t = t.to_dtype(self.first.dtype())?.unsqueeze(1)?; // (L, 1)
        let turned = frequency?.broadcast_add(&self.first)?.broadcast_mul(&t)?;
        let (amplitude, angle) = (amplitude?, (turned + phase?)?);
        let (real, imaginary) = ((&amplitude * angle.cos()?)?, (amplitude * angle.sin()?)?);
        Ok(Tensor::cat(&[real, imaginary], D::Minus1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_layer, parameters};

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let layer = ComplexEmbedding::new(&parameters.builder(), 4, 6).unwrap();
        let ids = Tensor::new(&[[1u32, 2, 1], [3, 0, 0]], &Device::Cpu).unwrap();
        // The added x has the output's shape and gives the helper an input to differentiate by.
        check_layer("complex", &parameters, &[2, 3, 6], |x| {
            Ok((layer.forward(&ids, 1)? + x)?)
        });
    }

    #[test]
    fn a_token_keeps_its_length_and_turns() {
        let parameters = parameters();
        let layer = ComplexEmbedding::new(&parameters.builder(), 2, 4).unwrap();
        let ids = Tensor::new(&[[1u32, 1, 1]], &Device::Cpu).unwrap();
        let x = layer.forward(&ids, 5).unwrap().get(0).unwrap();
        let x: Vec<Vec<f64>> = x.to_vec2().unwrap();
        for (index, row) in x.iter().enumerate() {
            for (c, rate) in [1.0, 0.01].into_iter().enumerate() {
                let length = row[c].hypot(row[2 + c]);
                assert!((length - x[0][c].hypot(x[0][2 + c])).abs() < 1e-12);
                let turn = (row[2 + c].atan2(row[c]) - x[0][2 + c].atan2(x[0][c])).cos();
                assert!((turn - (rate * index as f64).cos()).abs() < 1e-12);
            }
        }
    }
}
