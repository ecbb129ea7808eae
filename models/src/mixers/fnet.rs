//! FNet. Lee-Thorp et al., 2021, "FNet: Mixing Tokens with Fourier Transforms", arXiv:2105.03824.
//!     y = s Re(DFT_N(DFT_D(x)))
//! x, y (B, L, D), DFT_D along the width, DFT_N along the length, neither normalised; N is the
//! longest length, to which x is padded with zeros. No parameters. Time O(N·D·log(N·D)), memory
//! O(N·D).
//!
//! # Options
//!
//! Values grow by √(N·D): with `block.norm_place = post`, as in the paper, s = 1; in pre-norm
//! blocks, s = 1/√(N·D), which is not in the paper. `scale` sets s directly (0: these defaults).
//!
//! # Padding
//!
//! Padded tokens are zeros, and the transform always has length N, so neither padding nor the rest
//! of the batch changes a result.
//!
//! # Departures
//!
//! The paper also pads to N, but mixes padding in. The feed-forward network begins Xavier-uniform
//! with biases N(0, 1e-6²); in the authors' code weights and inner biases begin N(0, 0.02²), outer
//! biases as 0 (google-research/google-research@1d4d2f1 f_net/layers.py, FeedForwardLayer). The
//! norms' ε is `block.norm_epsilon` = 1e-6, in that code 1e-12 (LAYER_NORM_EPSILON there). Its
//! LayerNorm and linear layer behind the embedding (EmbeddingLayer) are left out.

use crate::{options::NormPlace, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "fnet",
    title: "FNet",
    paper: "FNet: Mixing Tokens with Fourier Transforms",
    year: 2021,
    arxiv: "2105.03824",
    time: Cost::Linear("O(L·log L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[Variant::mixer::<FNet>(include_str!("fnet.rs"))],
    ..Model::mixer::<FNet>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// s; 0 for 1 in post-norm and 1/√(N·D) in pre-norm blocks.
    #[option(range = not_negative)]
    scale: f64,
}

struct FNet {
    /// N.
    length: usize,
    width: usize,
    scale: f64,
}

impl MixerModel for FNet {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (length, width) = (layer.max_length, layer.block.dim);
        let usual = match layer.block.norm_place {
            NormPlace::Post => 1.0,
            NormPlace::Pre => ((length * width) as f64).powf(-0.5),
        };
        Ok(Self {
            length,
            width,
            scale: match options.scale {
                0.0 => usual,
                scale => scale,
            },
        })
    }
}

impl Mixer for FNet {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let length = x.dim(1)?;
        let x = zero_padding(x, pass.mask())?;
        let x = match self.length - length {
            0 => x,
            missing => x.pad_with_zeros(1, 0, missing)?, // (B, N, D)
        };
        Ok(ops::fft2_real(&x, self.scale)?.narrow(1, 0, length)?)
    }

    /// Transforms are no matrix products: the count is 5 n log₂ n operations per real transform of
    /// n numbers, for both axes.
    fn flops(&self, _length: usize) -> u64 {
        let numbers = (self.length * self.width) as f64;
        (2.5 * numbers * numbers.log2()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        RngKey,
        testing::{check_gradient, close, normal},
    };

    fn mixer() -> FNet {
        FNet {
            length: 7,
            width: 3,
            scale: 0.5,
        }
    }

    fn pass() -> Pass<'static> {
        Pass::new(false, RngKey::new(1, 0, 0))
    }

    #[test]
    fn is_the_sum_of_its_definition() {
        let x = normal("x", &[1, 5, 3]);
        let numbers: Vec<Vec<f64>> = x.get(0).unwrap().to_vec2().unwrap();
        let mut expected = Vec::new();
        for k in 0..5 {
            for c in 0..3 {
                let mut sum = 0.0;
                for (j, row) in numbers.iter().enumerate() {
                    for (d, x) in row.iter().enumerate() {
                        let turns = (k * j) as f64 / 7.0 + (c * d) as f64 / 3.0;
                        sum += x * (2.0 * std::f64::consts::PI * turns).cos();
                    }
                }
                expected.push(0.5 * sum);
            }
        }
        let expected = Tensor::from_vec(expected, (1, 5, 3), x.device()).unwrap();
        let y = mixer().forward(&x, &pass()).unwrap();
        close(&y, &expected, 1e-10, "fnet");
    }

    #[test]
    fn gradients_agree_with_differences() {
        check_gradient("fnet", &[&[2, 4, 3]], |inputs| {
            mixer().forward(&inputs[0], &pass())
        });
    }
}
