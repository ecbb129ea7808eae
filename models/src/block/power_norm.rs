//! PowerNorm. Shen, Yao, Gholami, Mahoney, Keutzer, 2020, "PowerNorm: Rethinking Batch
//! Normalization in Transformers", arXiv:2003.07845, algorithm 2.
//!     z = x / √(ψ² + ε),  y = γ ⊙ z + β;   dz = γ ⊙ dy,  dx = (dz - ν ⊙ z) / √(ψ² + ε)
//!     ψ² ← α ψ² + (1 - α) mean x²,   ν ← ν (1 - (1 - α) mean z²) + (1 - α) mean dz ⊙ z
//! x, y, z (B, L, D); γ, β, ψ², ν (D), means over the valid positions of a batch, α = 0.9. At first
//! ψ² = 1 and ν = 0.
//!
//! ψ² and ν are state: constant within an update, and then updated from all of its rows. So no row
//! depends on other rows, and a batch can be split into micro-batches. In its first thousands of
//! updates, the published code uses the statistics of the batch instead, and it has an RMSNorm
//! before; both are left out.

use std::sync::Arc;

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Pass, Result, VarBuilder,
    ops::gradient_hook,
    params::{Buffer, Commit},
};

/// α.
const KEEP: f64 = 0.9;

/// PowerNorm of the channels of x (B, L, D), with its parameters and state: `γ ⊙ x/√(ψ² + ε) + β`
/// (arXiv:2003.07845). ψ² is a running mean of x² in each channel.
pub struct PowerNorm {
    /// γ (D).
    weight: Tensor,
    /// β (D).
    shift: Tensor,
    /// ψ² (D).
    power: Buffer,
    /// ν (D).
    correction: Buffer,
    epsilon: f64,
}

impl PowerNorm {
    /// Creates parameters `scale` (D), ones, and `shift` (D), zeros; buffers `power` and
    /// `correction` (D).
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, dim: usize, epsilon: f64) -> Result<Self> {
        // Sums over the valid positions, with their number as a last row.
        let means = move |sums: &Tensor| -> Result<Vec<Tensor>> {
            let rows = sums.dim(0)? - 1;
            let count = sums.get(rows)?.maximum(1.0)?;
            (0..rows)
                .map(|row| Ok((sums.get(row)? / &count)?))
                .collect()
        };
        let power: Commit = Arc::new(move |power, sums| {
            let means = means(sums)?;
            Ok(((power * KEEP)? + (&means[0] * (1.0 - KEEP))?)?)
        });
        let correction: Commit = Arc::new(move |correction, sums| {
            let means = means(sums)?;
            let kept = (correction * means[0].affine(KEEP - 1.0, 1.0)?)?;
            Ok((kept + (&means[1] * (1.0 - KEEP))?)?)
        });
        Ok(Self {
            weight: vb.get_with_hints(dim, "scale", Init::Const(1.0))?,
            shift: vb.get_with_hints(dim, "shift", Init::Const(0.0))?,
            power: vb.running(dim, "power", Init::Const(1.0), power)?,
            correction: vb.running(dim, "correction", Init::Const(0.0), correction)?,
            epsilon,
        })
    }

    /// Maps (B, L, D) to (B, L, D).
    ///
    /// # Errors
    /// If the last dimension is not D.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let valid = match pass.mask() {
            Some(mask) => mask.valid().clone(),
            None => Tensor::ones(x.dims3().map(|(b, l, _)| (b, l))?, x.dtype(), x.device())?,
        };
        let valid = valid.unsqueeze(2)?; // (B, L, 1)
        let z = x.broadcast_div(&self.power.value().affine(1.0, self.epsilon)?.sqrt()?)?;
        let updates = pass.updates().cloned();
        if updates.is_some() {
            self.power.add(&sums(&[&x.sqr()?], &valid)?, pass)?;
        }
        let correction = self.correction.clone();
        let z = gradient_hook(&z, move |z, dz| {
            if let Some(updates) = &updates {
                updates.add(&correction, &sums(&[&z.sqr()?, &(dz * z)?], &valid)?)?;
            }
            let excess = z.broadcast_mul(correction.value())?.broadcast_mul(&valid)?;
            Ok((dz - excess)?)
        })?;
        Ok(z.broadcast_mul(&self.weight)?.broadcast_add(&self.shift)?)
    }
}

/// Returns the sums of n tensors `terms`, each (B, L, D), over the valid positions (B, L, 1),
/// and below them the number of these positions: (n + 1, D).
fn sums(terms: &[&Tensor], valid: &Tensor) -> Result<Tensor> {
    let rows = terms
        .iter()
        .map(|term| Ok(term.broadcast_mul(valid)?.sum((0, 1))?));
    let mut rows = rows.collect::<Result<Vec<_>>>()?;
    let count = valid.sum_all()?;
    rows.push(count.broadcast_as(rows[0].shape())?.contiguous()?);
    Ok(Tensor::stack(&rows, 0)?)
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Var};

    use super::*;
    use crate::{
        Mask, RngKey,
        params::Updates,
        testing::{check_layer, close, normal, parameters},
    };

    fn pass() -> Pass<'static> {
        Pass::new(true, RngKey::new(1, 0, 0))
    }

    #[test]
    fn gradients_agree_with_differences_while_there_is_no_correction() {
        let parameters = parameters();
        let norm = PowerNorm::new(&parameters.builder(), 5, 1e-6).unwrap();
        check_layer("power", &parameters, &[2, 3, 5], |x| {
            norm.forward(x, &pass())
        });
    }

    /// Compares two updates of a batch, whole and cut in two, with the algorithm in plain loops.
    #[test]
    fn statistics_follow_the_algorithm_however_the_batch_is_cut() {
        let x = normal("x", &[2, 3, 4]);
        let dy = normal("dy", &[2, 3, 4]);
        let valid = Tensor::new(&[[1f64, 1.0, 1.0], [1.0, 0.0, 0.0]], &Device::Cpu).unwrap();
        let dy = dy.broadcast_mul(&valid.unsqueeze(2).unwrap()).unwrap();
        let rows = |x: &Tensor| -> Vec<Vec<f64>> {
            let all: Vec<Vec<f64>> = x.reshape((6, 4)).unwrap().to_vec2().unwrap();
            [0, 1, 2, 3].map(|row| all[row].clone()).to_vec()
        };
        for parts in [1, 2] {
            let parameters = parameters();
            let norm = PowerNorm::new(&parameters.builder(), 4, 1e-6).unwrap();
            let (mut power, mut correction) = (vec![1.0; 4], vec![0.0; 4]);
            for step in 0..2 {
                let updates = Updates::default();
                let mut actual = Vec::new();
                for part in 0..parts {
                    let of = |x: &Tensor| x.chunk(parts, 0).unwrap()[part].clone();
                    let mask = Mask::new(&of(&valid)).unwrap();
                    let pass = pass();
                    let pass = pass.with_updates(&updates);
                    let var = Var::from_tensor(&of(&x)).unwrap();
                    let y = norm.forward(&var, &pass.with_mask(Some(&mask))).unwrap();
                    let sum = (y * of(&dy)).unwrap().sum_all().unwrap();
                    actual.push(sum.backward().unwrap().get(&var).unwrap().clone());
                }
                updates.commit(&parameters).unwrap();
                let actual = Tensor::cat(&actual, 0).unwrap();
                let padded = actual.get(1).unwrap().narrow(0, 1, 2).unwrap();
                close(&padded, &padded.zeros_like().unwrap(), 1e-12, "padding");
                let actual = rows(&actual);
                for d in 0..4 {
                    let root = (power[d] + 1e-6f64).sqrt();
                    let pairs: Vec<(f64, f64)> = rows(&x)
                        .iter()
                        .zip(rows(&dy))
                        .map(|(x, dy)| (x[d] / root, dy[d]))
                        .collect();
                    for ((z, dy), actual) in pairs.iter().zip(&actual) {
                        let expected = (dy - correction[d] * z) / root;
                        assert!((expected - actual[d]).abs() < 1e-12, "step {step}");
                    }
                    let mean = |f: &dyn Fn(f64, f64) -> f64| {
                        pairs.iter().map(|(z, dy)| f(*z, *dy)).sum::<f64>() / 4.0
                    };
                    let square = mean(&|z, _| z * z);
                    let x_square = square * root * root;
                    correction[d] =
                        correction[d] * (1.0 - 0.1 * square) + 0.1 * mean(&|z, dy| z * dy);
                    power[d] = 0.9 * power[d] + 0.1 * x_square;
                }
                let state = |expected: &[f64], buffer: &Buffer| {
                    let expected = Tensor::new(expected, &Device::Cpu).unwrap();
                    close(buffer.value(), &expected, 1e-12, "state");
                };
                state(&power, &norm.power);
                state(&correction, &norm.correction);
            }
        }
    }

    #[test]
    fn padding_alone_leaves_statistics_of_numbers() {
        let parameters = parameters();
        let norm = PowerNorm::new(&parameters.builder(), 4, 1e-6).unwrap();
        let updates = Updates::default();
        let pass = pass();
        let pass = pass.with_updates(&updates);
        let mask = Mask::new(&Tensor::zeros((2, 3), DType::F64, &Device::Cpu).unwrap()).unwrap();
        let x = Var::from_tensor(&normal("x", &[2, 3, 4])).unwrap();
        let y = norm.forward(&x, &pass.with_mask(Some(&mask))).unwrap();
        y.sum_all().unwrap().backward().unwrap();
        updates.commit(&parameters).unwrap();
        for state in [&norm.power, &norm.correction] {
            let numbers = state.value().to_vec1::<f64>().unwrap();
            assert!(numbers.iter().all(|x| x.is_finite()), "{numbers:?}");
        }
    }
}
