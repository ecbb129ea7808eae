//! Kimi Delta Attention. Kimi Team, 2025, "Kimi Linear: An Expressive, Efficient Attention
//! Architecture", arXiv:2510.26692.
//!     S' = diag(a_t) S_(t-1),  S_t = S' + β_t k_t (v_t - S'ᵀ k_t)ᵀ,  y_t = S_tᵀ q_t E^-½,  out = W_o (RMSNorm(y) ⊙ σ(x G₁ G₂ + b))
//!     q, k = unit(SiLU(conv(x W_q))), unit(SiLU(conv(x W_k))),  v = SiLU(conv(x W_v)),  β = σ(x W_β),  a = e^(-e^α softplus(x F₁ F₂ + c))
//! The gated delta rule with a decay for each key channel. B batch, L length, D width, H heads of
//! width E; q, k, a (B, L, H, E), v, y (B, L, H, V) with V = `expand` E, β (B, L, H), α (H), c (H,
//! E), b (H V), S (H, E, V); x, out (B, L, D), F₁, G₁ (D, V), F₂ (V, H E), G₂ (V, H V), W_o (H V,
//! D); conv a causal convolution of each channel, W = `taps`, without a bias; unit(z) = z (|z|² +
//! 1e-6)^-½ for each head's vector z. All is causal: a position sees those before it. Time O(L·E·V)
//! per head, in chunks whose writes are solved for at once; memory O(L·E). Read in
//! flash-linear-attention@bc3b101 fla/layers/kda.py, fla/ops/kda/gate.py and
//! fla/models/kda/modeling_kda.py: e^α ~ U(1, 16), c softplus⁻¹ of numbers between 0.001 and 0.1,
//! even in their logarithm, neither of which decays; the gain of the heads' norms is one for all. A
//! SwiGLU follows. All other weights begin uniform within inputs^-½. Its authors have not run this
//! benchmark.
//!
//! # Options
//!
//! `expand` (1), `taps` W (4); `negative` doubles β (Grazzi et al., 2024, arXiv:2411.12537).
//! `direction`: `forward`; `sum` adds a second pass from the end with the same weights, `two` with
//! weights of its own.
//!
//! # Padding
//!
//! Padding has k = 0 and a = 1, so states pass through unchanged.
//!
//! # Departures
//!
//! Kimi Linear has a layer of softmax attention behind every three of these; here all layers are
//! alike. In the published language model all linear maps and convolutions begin N(0, 0.02²),
//! biases as 0, and the SwiGLU has no biases (fla/models/kda/modeling_kda.py, _init_weights;
//! fla/modules/mlp.py); here they begin as in the layer alone, uniform within inputs^-½ (±0.125 at
//! D = 64), and the SwiGLU Xavier-uniform (±0.177 at a width of 128) with biases N(0, 1e-6²). The
//! heads' norms have the ε of the block's, `block.norm_epsilon` = 1e-6, as in that language model;
//! the layer alone has 1e-5.

use candle_core::Tensor;
use candle_nn::Init;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder::{Ways, blocks_both_ways},
    layers::{Linear, ShortConv, by_head, unit_heads},
    mask::zero_padding,
    model::{Cost, Model, Reference, Variant},
    ops::{
        GatedLinearAttentionOptions,
        activation::{sigmoid, softplus},
        gated_linear_attention::{self, gated_linear_attention},
        rms_norm,
    },
    params::{Attributes, fan_in_uniform, inverse_softplus_of_steps},
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "kda",
    title: "Kimi Delta Attention",
    paper: "Kimi Linear: An Expressive, Efficient Attention Architecture",
    year: 2025,
    arxiv: "2510.26692",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: crate::Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"gate": "glu", "activation": "silu", "norm": "rms"}
    }"#,
    variants: &[Variant::paper(build, include_str!("kda.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 1, range = int(1, 64))]
    expand: usize,
    #[option(default = 4, range = int(1, 1024))]
    taps: usize,
    negative: bool,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Kda::new(layer, &options)?))
    })
}

struct Kda {
    /// Projections and convolutions of q, k and v.
    inputs: [(Linear, ShortConv); 3],
    /// W_β.
    rate: Linear,
    /// F₁ and F₂.
    decay: [Linear; 2],
    /// c (H E).
    step_bias: Tensor,
    /// α (H).
    a_log: Tensor,
    /// G₁, and G₂ with b.
    gate: [Linear; 2],
    /// Of the norm, (V).
    gain: Tensor,
    epsilon: f64,
    /// W_o.
    output: Linear,
    /// The largest β.
    most: f64,
    heads: usize,
    /// E.
    keys: usize,
    /// V.
    values: usize,
}

impl Kda {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let (dim, heads, keys) = (block.dim, block.heads, block.head_dim());
        let values = options.expand * keys;
        let linear = |name: &str, inputs: usize, outputs: usize, bias: Option<Init>| {
            Linear::new(&vb.pp(name), inputs, outputs, fan_in_uniform(inputs), bias)
        };
        let input = |name: &str, width: usize| -> Result<(Linear, ShortConv)> {
            let row = heads * width;
            let conv = ShortConv::new(&vb.pp(name).pp("conv"), row, options.taps, false)?;
            Ok((linear(name, dim, row, None)?, conv))
        };
        let (row, own) = (heads * values, Attributes::NO_DECAY);
        let bias = Some(fan_in_uniform(values));
        Ok(Self {
            inputs: [
                input("query", keys)?,
                input("key", keys)?,
                input("value", values)?,
            ],
            rate: linear("rate", dim, heads, None)?,
            decay: [
                linear("decay.inner", dim, values, None)?,
                linear("decay.outer", values, heads * keys, None)?,
            ],
            step_bias: vb.get_with_values(heads * keys, "step_bias", own, |stream| {
                inverse_softplus_of_steps(stream, heads * keys)
            })?,
            a_log: vb.get_with_values(heads, "a_log", own, |stream| {
                let numbers = stream.uniform(1, heads).into_iter();
                numbers.map(|share| (1.0 + 15.0 * share).ln()).collect()
            })?,
            gate: [
                linear("gate.inner", dim, values, None)?,
                linear("gate.outer", values, row, bias)?,
            ],
            gain: vb.get_with_hints(values, "gain", Init::Const(1.0))?,
            epsilon: block.norm_epsilon,
            output: linear("output", row, dim, None)?,
            most: if options.negative { 2.0 } else { 1.0 },
            heads,
            keys,
            values,
        })
    }
}

impl Mixer for Kda {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let input = |index: usize| -> Result<Tensor> {
            let (linear, conv) = &self.inputs[index];
            conv.forward(&linear.forward(x)?, pass)
        };
        let low_rank = |[inner, outer]: &[Linear; 2]| outer.forward(&inner.forward(x)?);
        let unit = |x: &Tensor| unit_heads(x, self.keys);
        let q = unit(&input(0)?)?.affine((self.keys as f64).powf(-0.5), 0.0)?;
        let k = zero_padding(&unit(&input(1)?)?, pass.mask())?;
        let v = input(2)?;
        let delta = sigmoid(&self.rate.forward(x)?)?.affine(self.most, 0.0)?;
        let step = softplus(&low_rank(&self.decay)?.broadcast_add(&self.step_bias)?)?;
        let step = by_head(&zero_padding(&step, pass.mask())?, self.heads)?; // (B, L, H, E)
        let log_decay = step.broadcast_mul(&self.a_log.exp()?.neg()?.unsqueeze(1)?)?;
        let options = GatedLinearAttentionOptions {
            log_decay: Some(&log_decay),
            delta: Some(&delta),
            ..Default::default()
        };
        let [q, k, v] = [q, k, v].map(|x| by_head(&x, self.heads));
        let y = gated_linear_attention(&q?, &k?, &v?, &options)?;
        let y = rms_norm(&y, &self.gain, self.epsilon)?.flatten_from(2)?;
        self.output
            .forward(&(y * sigmoid(&low_rank(&self.gate)?)?)?)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let (heads, keys, values) = (self.heads, self.keys, self.values);
        let linears = self.inputs.iter().map(|(linear, _)| linear);
        let linears = linears.chain(&self.decay).chain(&self.gate);
        let linears = linears.chain([&self.rate, &self.output]);
        linears.map(|linear| linear.flops(length)).sum::<u64>()
            + gated_linear_attention::flops(length, heads, keys, values)
            + gated_linear_attention::flops_of_delta(length, heads, keys, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        options::BlockOptions,
        testing::{check_layer, parameters, pass},
    };

    #[test]
    fn gradients_agree_with_differences() {
        for negative in [false, true] {
            let parameters = parameters();
            let block = BlockOptions {
                dim: 6,
                qkv_dim: 6,
                heads: 1,
                ..BlockOptions::default()
            };
            let layer = LayerContext::new(parameters.builder(), &block, 5);
            let options = Options {
                taps: 2,
                negative,
                ..Options::default()
            };
            let mixer = Kda::new(&layer, &options).unwrap();
            check_layer("kda", &parameters, &[2, 4, 6], |x| {
                mixer.forward(x, &pass())
            });
        }
    }
}
