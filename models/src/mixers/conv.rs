//! Convolutions of a few taps: the control for locality. Miralles-González, Huertas-Tato, Martín,
//! Camacho, 2025, "On the locality bias and results in the Long Range Arena", arXiv:2501.14850.
//!     y_td = b_d + Σ_j k_dj x_(t+j-(K-1)/2, d),   out = a ⊙ σ(g), [a, g] = W f(y) + c
//! B batch, L length, D width; x, y, out (B, L, D), k (D, K), W (2D, D). A position sees K - 1
//! others, and with n layers n (K - 1): with four layers and K = 5 the 8 before and the 8 behind
//! it. A score beside it says how much of a task needs more than that. The paper cuts the kernels
//! of other models to 5 and 61 taps; this is the same layer as `long_conv` and `s4d`, with a kernel
//! that is short from the start. Time O(L·K), memory O(L). k and b begin uniform within K^-½, as in
//! PyTorch (within (K D)^-½ with `kind` = full), W and c within D^-½.
//!
//! # Options
//!
//! `kernel` K. `kind`: `depthwise`, a kernel for each channel, or `full`, y_t = b + Σ_j k_j
//! x_(t+j-..) with k (D, D, K), O(L·K·D). `direction`: `both`, for which K is odd, or `forward`,
//! the position and the K - 1 before it.
//!
//! # Padding
//!
//! Padded positions enter the kernels as zeros, and so does what lies before and behind a sequence.
//!
//! # Departures
//!
//! The layer and the block are those of `s4d` and `long_conv`, without a feed-forward network. A
//! convolutional network in the authors' code (pablomiralles22/long-transformers@ec33dc6
//! configs/listops/conv.json) is another: seven convolutions of 5 and 3 taps over all channels, or
//! groups of them, to a width of 4096, each followed by mean pooling, LayerNorm, dropout and ReLU,
//! without residuals. Its convolutions begin as PyTorch's do
//! (src/models/layers/layer_builder.py:54), like k and b here; W and c, which it does not have,
//! begin as PyTorch's linear layers. The norms' ε is `block.norm_epsilon` = 1e-6, in that code 1e-5
//! (torch.nn.LayerNorm, layer_builder.py:71).

use crate::{
    layers::{Direction, GluOutput, OutputGate, OutputInit},
    ops::{Padding, conv1d, depthwise_conv1d},
    params::fan_in_uniform,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "conv",
    title: "Convolution",
    paper: "On the locality bias and results in the Long Range Arena",
    year: 2025,
    arxiv: "2501.14850",
    time: Cost::Linear("O(L·K)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none", "activation": "gelu_erf"}}"#,
    variants: &[Variant::mixer::<Conv>(include_str!("conv.rs"))],
    ..Model::mixer::<Conv>()
};

/// The channels that an output of the convolution is made of.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Depthwise,
    Full,
}

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// K.
    #[option(default = 5, range = int(1, 4096))]
    kernel: usize,
    #[option(default = Kind::Depthwise)]
    kind: Kind,
    #[option(default = Direction::Both)]
    direction: Direction,
}

struct Conv {
    /// k (D, K) or (D, D, K).
    weight: Tensor,
    /// b (D).
    bias: Tensor,
    padding: Padding,
    output: GluOutput,
}

impl MixerModel for Conv {
    type Options = Options;

    fn check(options: &Options, _: &ModelContext) -> Result<()> {
        require(
            options.direction == Direction::Forward || !options.kernel.is_multiple_of(2),
            "model.kernel",
            options.kernel,
            "odd, as many taps on either side (model.direction = forward takes any)",
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim, taps) = (layer.vb.pp("conv"), layer.block.dim, options.kernel);
        let (weight, init) = match options.kind {
            Kind::Depthwise => {
                let init = fan_in_uniform(taps);
                (vb.get_with_hints((dim, taps), "weight", init)?, init)
            }
            Kind::Full => {
                let init = fan_in_uniform(dim * taps);
                (vb.get_with_hints((dim, dim, taps), "weight", init)?, init)
            }
        };
        Ok(Self {
            weight,
            bias: vb.get_with_hints(dim, "bias", init)?,
            padding: match options.direction {
                Direction::Both => Padding::Same,
                Direction::Forward => Padding::Causal,
            },
            output: GluOutput::new(&layer.vb, layer.block, OutputGate::Full, OutputInit::Torch)?,
        })
    }
}

impl Mixer for Conv {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = pass.padded(x, |x, pass| {
            let x = zero_padding(x, pass.mask())?;
            let (weight, bias) = (&self.weight, Some(&self.bias));
            match weight.rank() {
                2 => depthwise_conv1d(&x, weight, bias, self.padding, 1),
                _ => conv1d(&x, weight, bias, self.padding, 1),
            }
        })?;
        self.output.forward(&y, pass)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        self.padding == Padding::Causal
    }

    fn flops(&self, length: usize) -> u64 {
        2 * (length * self.weight.elem_count()) as u64 + self.output.flops(length)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Var;
    use serde_json::json;

    use super::*;
    use crate::{
        options::overlay,
        testing::{check_layer, normal, parameters, pass},
    };

    fn block() -> BlockOptions {
        BlockOptions {
            dim: 3,
            layers: 2,
            ..BlockOptions::default()
        }
    }

    fn build(changes: serde_json::Value, longest: usize) -> Result<Box<dyn Encoder>> {
        let mut options = MODEL.defaults();
        overlay(&mut options, &changes);
        let (parameters, block) = (parameters(), block());
        let vb = parameters.builder();
        MODEL.build(&ModelContext::new(vb, &block, &MODEL, &options, longest))
    }

    #[test]
    fn two_layers_reach_as_far_as_their_taps_say() {
        for (changes, expected) in [
            (json!({"kernel": 3}), 6..11),
            (json!({"kernel": 5, "kind": "full"}), 4..13),
            (json!({"kernel": 4, "direction": "forward"}), 2..9),
        ] {
            let encoder = build(changes, 17).unwrap();
            let x = Var::from_tensor(&normal("x", &[1, 17, 3])).unwrap();
            let y = encoder.forward(&x, &pass()).unwrap().hidden;
            let one = (y.narrow(1, 8, 1).unwrap() * normal("weights", &[1, 1, 3])).unwrap();
            let gradients = one.sum_all().unwrap().backward().unwrap();
            let rows = gradients.get(&x).unwrap().get(0).unwrap();
            let rows: Vec<Vec<f64>> = rows.to_vec2().unwrap();
            for (position, row) in rows.iter().enumerate() {
                let seen = row.iter().any(|x| *x != 0.0);
                assert_eq!(seen, expected.contains(&position), "{position}");
            }
        }
    }

    #[test]
    fn an_even_kernel_has_no_middle() {
        let error = build(json!({"kernel": 4}), 9).err().unwrap().to_string();
        assert!(error.starts_with("model.kernel = 4 "), "{error}");
    }

    #[test]
    fn gradients_agree_with_differences() {
        for (kind, direction) in [
            (Kind::Depthwise, Direction::Both),
            (Kind::Full, Direction::Forward),
        ] {
            let (parameters, block) = (parameters(), block());
            let layer = LayerContext::new(parameters.builder(), &block, 9);
            let options = Options {
                kernel: 3,
                kind,
                direction,
            };
            let mixer = Conv::new(&layer, &options).unwrap();
            check_layer("conv", &parameters, &[2, 4, 3], |x| {
                mixer.forward(x, &pass())
            });
        }
    }
}
