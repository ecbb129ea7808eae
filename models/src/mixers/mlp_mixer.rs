//! MLP-Mixer. Tolstikhin et al., 2021, "MLP-Mixer: An all-MLP Architecture for Vision",
//! arXiv:2105.01601.
//!     y = W₂ gelu(W₁ x + b₁) + b₂, along the length: a feed-forward network of positions, the same for every channel
//! B batch, L length, D width, N longest length, T hidden width; x, y (B, L, D), W₁ (T, N), b₁ (T),
//! W₂ (N, T), b₂ (N). Time O(L·T·D), memory O((L + T)·D). A shorter sequence uses the first L
//! columns of W₁ and the first L rows of W₂ and b₂. GELU is the exact one, by the error function.
//! The block's feed-forward network is the paper's network of channels. Each layer has 2·N·T
//! weights, which at thousands of tokens is far more than in other models of that width.
//!
//! # Options
//!
//! `hidden` T (0: 256, at most N).
//!
//! # Padding
//!
//! Padded tokens are zeros before the sum, so they have no effect; the paper has no padding.
//!
//! # Departures
//!
//! The network of channels begins Xavier-uniform with biases N(0, 1e-6²); in the authors' code
//! LeCun-normal with biases 0, as the network of positions
//! (google-research/vision_transformer@c6de1e5 vit_jax/models_mixer.py:27-29). Their GELU is the
//! approximation by tanh.

use crate::{ops::activation::gelu_erf, params::LECUN_NORMAL, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "mlp_mixer",
    title: "MLP-Mixer",
    paper: "MLP-Mixer: An all-MLP Architecture for Vision",
    year: 2021,
    arxiv: "2105.01601",
    time: Cost::Linear("O(L·T)"),
    memory: Cost::Linear("O(L + T)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[Variant::mixer::<MlpMixer>(include_str!("mlp_mixer.rs"))],
    ..Model::mixer::<MlpMixer>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// T; 0 for 256 or N, whichever is less.
    #[option(range = int(0, WIDEST))]
    hidden: usize,
}

struct MlpMixer {
    /// W₁ and b₁.
    inner: Linear,
    /// W₂ and b₂.
    outer: Linear,
    hidden: usize,
    dim: usize,
}

impl MixerModel for MlpMixer {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let hidden = match options.hidden {
            0 => layer.max_length.min(256),
            hidden => hidden,
        };
        let linear = |name, inputs, outputs| {
            let bias = Some(Init::Const(0.0));
            Linear::new(&layer.vb.pp(name), inputs, outputs, LECUN_NORMAL, bias)
        };
        Ok(Self {
            inner: linear("inner", layer.max_length, hidden)?,
            outer: linear("outer", hidden, layer.max_length)?,
            hidden,
            dim: layer.block.dim,
        })
    }
}

impl Mixer for MlpMixer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let length = x.dim(1)?;
        let x = zero_padding(x, pass.mask())?;
        let x = swap_axes(&x)?; // (B, D, L)
        let inner = self.inner.leading(length, self.hidden)?;
        let hidden = gelu_erf(&inner.forward(&x)?)?; // (B, D, T)
        let y = self.outer.leading(self.hidden, length)?.forward(&hidden)?;
        swap_axes(&y)
    }

    fn flops(&self, length: usize) -> u64 {
        2 * 2 * (length * self.hidden * self.dim) as u64
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        Mask, Parameters, RngKey,
        options::BlockOptions,
        testing::{check_layer, close, normal, parameters},
    };

    fn mixer(parameters: &Parameters) -> MlpMixer {
        let block = BlockOptions {
            dim: 3,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 6);
        MlpMixer::new(&layer, &Options { hidden: 4 }).unwrap()
    }

    fn pass() -> Pass<'static> {
        Pass::new(false, RngKey::new(1, 0, 0))
    }

    #[test]
    fn positions_are_mixed_as_the_definition_says() {
        let parameters = parameters();
        let mixer = mixer(&parameters);
        let saved = parameters.save().unwrap();
        let matrix = |path: &str| saved[path].to_vec2::<f64>().unwrap();
        let (inner, outer) = (matrix("inner.weight"), matrix("outer.weight"));
        let x = normal("x", &[1, 5, 3]);
        let valid = Tensor::new(&[[1.0, 1.0, 1.0, 0.0, 1.0f64]], &Device::Cpu).unwrap();
        let mask = Mask::new(&valid).unwrap();
        let y = mixer.forward(&x, &pass().with_mask(Some(&mask))).unwrap();
        let rows = x.get(0).unwrap().to_vec2::<f64>().unwrap();
        let mut expected = vec![vec![0.0; 3]; 5];
        for channel in 0..3 {
            for hidden in 0..4 {
                let column = [0, 1, 2, 4].map(|j| inner[hidden][j] * rows[j][channel]);
                let sum = Tensor::new(&[column.iter().sum::<f64>()], &Device::Cpu).unwrap();
                let active = gelu_erf(&sum).unwrap().to_vec1::<f64>().unwrap()[0];
                for (i, row) in expected.iter_mut().enumerate() {
                    row[channel] += outer[i][hidden] * active;
                }
            }
        }
        let expected = Tensor::new(expected, &Device::Cpu)
            .unwrap()
            .unsqueeze(0)
            .unwrap();
        assert_eq!(expected.dtype(), DType::F64);
        close(&y, &expected, 1e-12, "mlp_mixer");
    }

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let mixer = mixer(&parameters);
        for length in [6, 4] {
            check_layer("mlp_mixer", &parameters, &[2, length, 3], |x| {
                mixer.forward(x, &pass())
            });
        }
    }
}
