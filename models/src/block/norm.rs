//! The norms of a block (`block.norm`), over the last dimension, of width D.
//!
//! | value | y | parameters | source |
//! |---|---|---|---|
//! | `layer` | (x - μ)/√(σ² + ε) ⊙ g + b | g = 1, b = 0 | Ba et al. 2016, arXiv:1607.06450 |
//! | `rms` | x/√(mean x² + ε) ⊙ g | g = 1 | Zhang & Sennrich 2019, arXiv:1910.07467 |
//! | `scale` | g x/√(‖x‖² + ε²) | one number g = √D | Nguyen & Salazar 2019, arXiv:1910.05895 |
//! | `scale`, `scale_norm` = `rms` | g x/√(mean x² + ε) | one number g = 1 | facebookresearch/mega, fairseq/modules/scale_norm.py, commit aeaa4b4 |
//! | `ada` | (1 - SG(y/10)) ⊙ y, y = (x - μ)/(s + ε) | none | Xu et al. 2019, arXiv:1911.07013 |
//! | `power` | γ ⊙ x/√(ψ² + ε) + β, ψ² a running mean of x² by channel | γ = 1, β = 0 | Shen et al. 2020, arXiv:2003.07845, see [`super::power_norm`] |
//! | `batch`, `batch_masked` | (x - μ)/√(σ² + ε) ⊙ γ + β, μ and σ² by channel over a batch, running ones in evaluation | γ = 1, β = 0 | Ioffe & Szegedy 2015, arXiv:1502.03167, see [`super::batch_norm`] |
//! | `none` | x | none | |
//!
//! μ and σ² are the mean and variance of a row; s is its standard deviation with D - 1 in the
//! denominator (as in AdaNorm's published code); SG passes no gradient; ε is `block.norm_epsilon`.
//! ScaleNorm's paper has max(‖x‖, ε) in place of the root, which differs if ‖x‖ is of the order of
//! ε. Both forms of ScaleNorm are the same function at first; their weights learn at different rates
//! under Adam. Mega, GAU and FLASH have the second form, other models the first.

use candle_core::{D, Tensor};
use candle_nn::Init;

use super::{batch_norm::BatchNorm, power_norm::PowerNorm};
use crate::{
    Pass, Result, VarBuilder,
    layers::LayerNorm,
    ops::rms_norm,
    options::{BlockOptions, NormKind, ScaleNorm},
};

/// Norm of rows x of width D, with its parameters. In the formulas, μ and σ² are the mean and the
/// variance of a row, and ε is `block.norm_epsilon`.
pub enum Norm {
    /// LayerNorm: `(x - μ)/√(σ² + ε) ⊙ g + b` (arXiv:1607.06450).
    Layer(LayerNorm),
    /// RMSNorm, `x/√(mean x² + ε) ⊙ g` (arXiv:1910.07467). With a single number g it is ScaleNorm
    /// by the root mean square.
    Rms {
        /// Gain g: (D) for RMSNorm, or (1) for ScaleNorm.
        weight: Tensor,
        /// ε, added to the mean square.
        epsilon: f64,
    },
    /// ScaleNorm by the Euclidean norm: `g x/√(‖x‖² + ε²)` (arXiv:1910.05895).
    Scale {
        /// Gain g, (1).
        weight: Tensor,
        /// ε, whose square is added to the squared norm.
        epsilon: f64,
    },
    /// AdaNorm: `(1 - y/10) ⊙ y` for `y = (x - μ)/(s + ε)`, with no gradient through y/10
    /// (arXiv:1911.07013). The standard deviation s of a row has D - 1 in its denominator.
    Ada {
        /// ε, added to the standard deviation.
        epsilon: f64,
    },
    /// PowerNorm: x divided by the root of a running mean of x² in each channel (arXiv:2003.07845).
    Power(Box<PowerNorm>),
    /// BatchNorm: each channel by its mean and variance over a batch, or by running ones in
    /// evaluation (arXiv:1502.03167).
    Batch(Box<BatchNorm>),
    /// No norm: the output is x.
    None,
}

impl Norm {
    /// Returns the norm that `block` asks for.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, block: &BlockOptions) -> Result<Self> {
        let (dim, epsilon) = (block.dim, block.norm_epsilon);
        Ok(match block.norm {
            NormKind::Layer => Self::Layer(LayerNorm::new(vb, dim, epsilon)?),
            NormKind::Rms => Self::Rms {
                weight: vb.get_with_hints(dim, "scale", Init::Const(1.0))?,
                epsilon,
            },
            NormKind::Scale => match block.scale_norm {
                ScaleNorm::Norm => Self::Scale {
                    weight: vb.get_with_hints(1, "scale", Init::Const((dim as f64).sqrt()))?,
                    epsilon,
                },
                ScaleNorm::Rms => Self::Rms {
                    weight: vb.get_with_hints(1, "scale", Init::Const(1.0))?,
                    epsilon,
                },
            },
            NormKind::Ada => Self::Ada { epsilon },
            NormKind::Power => Self::Power(Box::new(PowerNorm::new(vb, dim, epsilon)?)),
            NormKind::Batch => Self::Batch(Box::new(BatchNorm::new(vb, block, false)?)),
            NormKind::BatchMasked => Self::Batch(Box::new(BatchNorm::new(vb, block, true)?)),
            NormKind::None => Self::None,
        })
    }

    /// Returns whether y is the same for packed sequences, which holds if the statistics do not
    /// count padding.
    #[must_use]
    pub fn supports_varlen(&self) -> bool {
        match self {
            Self::Batch(norm) => norm.is_masked(),
            Self::Power(_) => false,
            _ => true,
        }
    }

    /// Returns whether y at a valid position depends on x at padded ones.
    #[must_use]
    pub fn counts_padding(&self) -> bool {
        matches!(self, Self::Batch(norm) if !norm.is_masked())
    }

    /// Maps (B, L, D) to (B, L, D), in a pass over these L positions.
    ///
    /// # Errors
    /// If the last dimension is not D.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        Ok(match self {
            Self::Layer(norm) => norm.forward(x)?,
            Self::Rms { weight, epsilon } => rms_norm(x, weight, *epsilon)?,
            Self::Scale { weight, epsilon } => {
                let square = x.sqr()?.sum_keepdim(D::Minus1)?;
                let root = square.affine(1.0, squared(*epsilon))?.sqrt()?;
                x.broadcast_mul(&root.recip()?.broadcast_mul(weight)?)?
            }
            Self::Ada { epsilon } => {
                let dim = x.dim(D::Minus1)? as f64;
                let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
                let square = centred.sqr()?.sum_keepdim(D::Minus1)?;
                // ε² keeps the root's gradient finite where a row is constant.
                let deviation = square
                    .affine(1.0 / (dim - 1.0), squared(*epsilon))?
                    .sqrt()?;
                let y = centred.broadcast_div(&(deviation + *epsilon)?)?;
                (y.detach().affine(-0.1, 1.0)? * y)?
            }
            Self::Power(norm) => norm.forward(x, pass)?,
            Self::Batch(norm) => norm.forward(x, pass)?,
            Self::None => x.clone(),
        })
    }
}

/// Returns ε², or the smallest number of f32 where it is less: beside zeros it must not be 0.
fn squared(epsilon: f64) -> f64 {
    (epsilon * epsilon).max(f64::from(f32::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_layer, normal, parameters};

    fn norm(kind: NormKind) -> (crate::Parameters, Norm) {
        let block = BlockOptions {
            dim: 5,
            norm: kind,
            ..BlockOptions::default()
        };
        let parameters = parameters();
        let norm = Norm::new(&parameters.builder(), &block).unwrap();
        (parameters, norm)
    }

    fn pass() -> Pass<'static> {
        Pass::new(false, crate::RngKey::new(1, 0, 0))
    }

    /// Checked against Mega's code with the committed ε: a row of deviation √ε distinguishes the
    /// mean square from the norm.
    #[test]
    fn scale_norm_by_the_root_mean_square_is_that_of_mega() {
        let block = BlockOptions {
            dim: 4,
            norm: NormKind::Scale,
            scale_norm: ScaleNorm::Rms,
            norm_epsilon: 1e-5,
            ..BlockOptions::default()
        };
        let parameters = parameters();
        let norm = Norm::new(&parameters.builder(), &block).unwrap();
        let (_, weight) = parameters.all().remove(0);
        assert_eq!(weight.to_vec1::<f64>().unwrap(), [1.0]);
        let row = [1e-3, -2e-3, 3e-3, 5e-3];
        let x = Tensor::new(&[[row]], &candle_core::Device::Cpu).unwrap();
        let y = norm.forward(&x, &pass()).unwrap().flatten_all().unwrap();
        let mean = row.iter().map(|x| x * x).sum::<f64>() / 4.0;
        for (x, y) in row.iter().zip(y.to_vec1::<f64>().unwrap()) {
            assert!((y - x / (mean + 1e-5).sqrt()).abs() < 1e-12, "{y}");
        }
        check_layer("ScaleNorm", &parameters, &[2, 3, 4], |x| {
            norm.forward(x, &pass())
        });
    }

    /// The square of a small ε is 0 in f32.
    #[test]
    fn rows_of_zeros_stay_finite_with_any_epsilon() {
        for kind in [
            NormKind::Layer,
            NormKind::Rms,
            NormKind::Scale,
            NormKind::Ada,
        ] {
            let block = BlockOptions {
                dim: 5,
                norm: kind,
                norm_epsilon: 1e-24,
                ..BlockOptions::default()
            };
            let device = &candle_core::Device::Cpu;
            let parameters = crate::Parameters::new(1, device, candle_core::DType::F32);
            let norm = Norm::new(&parameters.builder(), &block).unwrap();
            let x = Tensor::zeros((1, 2, 5), candle_core::DType::F32, device).unwrap();
            let x = candle_core::Var::from_tensor(&x).unwrap();
            let y = norm.forward(&x, &pass()).unwrap();
            let gradients = y.sum_all().unwrap().backward().unwrap();
            for tensor in [&y, gradients.get(&x).unwrap()] {
                let numbers = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                assert!(
                    numbers.iter().all(|it| it.is_finite()),
                    "{kind:?}: {numbers:?}"
                );
            }
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        for kind in [
            NormKind::Layer,
            NormKind::Rms,
            NormKind::Scale,
            NormKind::None,
        ] {
            let (parameters, norm) = norm(kind);
            check_layer(&format!("{kind:?}"), &parameters, &[2, 3, 5], |x| {
                norm.forward(x, &pass())
            });
        }
    }

    #[test]
    fn values_are_those_of_the_definitions() {
        let x = normal("x", &[1, 1, 5]);
        let row: Vec<f64> = x.flatten_all().unwrap().to_vec1().unwrap();
        let mean = row.iter().sum::<f64>() / 5.0;
        let squares: f64 = row.iter().map(|x| x * x).sum();
        let spread: f64 = row.iter().map(|x| (x - mean).powi(2)).sum();
        for kind in [
            NormKind::Rms,
            NormKind::Scale,
            NormKind::Ada,
            NormKind::None,
        ] {
            let y = norm(kind).1.forward(&x, &pass()).unwrap();
            let y: Vec<f64> = y.flatten_all().unwrap().to_vec1().unwrap();
            for (x, y) in row.iter().zip(y) {
                let expected = match kind {
                    NormKind::Rms => x / (squares / 5.0).sqrt(),
                    NormKind::Scale => 5f64.sqrt() * x / squares.sqrt(),
                    NormKind::Ada => {
                        let y = (x - mean) / (spread / 4.0).sqrt();
                        (1.0 - 0.1 * y) * y
                    }
                    _ => *x,
                };
                assert!((y - expected).abs() < 1e-5, "{kind:?}: {y} {expected}");
            }
        }
    }

    #[test]
    fn the_gradient_of_ada_leaves_its_factor_out() {
        // With the factor held fixed, y is linear in the normalised row: its gradient is the factor
        // times the gradient of that row.
        let (_, norm) = norm(NormKind::Ada);
        let x = candle_core::Var::from_tensor(&normal("x", &[2, 5])).unwrap();
        let seed = normal("seed", &[2, 5]);
        let y = norm.forward(&x, &pass()).unwrap();
        let gradient = (y * &seed).unwrap().sum_all().unwrap().backward().unwrap();
        let dim = 5.0;
        let centred = x.broadcast_sub(&x.mean_keepdim(1).unwrap()).unwrap();
        let square = centred.sqr().unwrap().sum_keepdim(1).unwrap();
        let deviation = square
            .affine(1.0 / (dim - 1.0), 1e-12)
            .unwrap()
            .sqrt()
            .unwrap();
        let row = centred.broadcast_div(&(deviation + 1e-6).unwrap()).unwrap();
        let seed = (row.detach().affine(-0.1, 1.0).unwrap() * seed).unwrap();
        let expected = (row * seed).unwrap().sum_all().unwrap().backward().unwrap();
        let apart = (gradient.get(&x).unwrap() - expected.get(&x).unwrap()).unwrap();
        let apart = apart
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .to_scalar::<f64>()
            .unwrap();
        assert!(apart < 1e-12, "{apart}");
    }
}
