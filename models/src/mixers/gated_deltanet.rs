//! Gated DeltaNet. Yang, Kautz & Hatamizadeh, 2024, "Gated Delta Networks: Improving Mamba2 with
//! Delta Rule", arXiv:2412.06464.
//!     S' = a_t S_(t-1),  S_t = S' + β_t k_t (v_t - S'ᵀ k_t)ᵀ,  y_t = S_tᵀ q_t K^-½,  out = W_o (RMSNorm(y) ⊙ SiLU(x W_g))
//!     q, k = unit(SiLU(conv(x W_q))), unit(SiLU(conv(x W_k))),  v = SiLU(conv(x W_v)),  β = σ(x W_β),  a = e^(-e^α softplus(x W_a + b))
//! B batch, L length, D width, H heads of width E; q, k (B, L, H, K) with K = ¾ E, rounded up, v, y
//! (B, L, H, V) with V = `expand` K, a, β (B, L, H), α, b (H), S (H, K, V); x, out (B, L, D), W_g
//! (D, H V), W_o (H V, D); conv a causal convolution of each channel, W = `taps`, without a bias;
//! unit(z) = z (|z|² + 1e-6)^-½ for each head's vector z. All is causal: a position sees those
//! before it. Time O(L·K·V) per head, in chunks whose writes are solved for at once; memory O(L·E).
//! Read in flash-linear-attention@bc3b101 fla/layers/gated_deltanet.py: e^α ~ U(0, 16), b
//! softplus⁻¹ of numbers between 0.001 and 0.1, even in their logarithm, neither of which decays;
//! the gain of the heads' norms is one for all. A SwiGLU follows. All other weights begin uniform
//! within inputs^-½. Its authors have not run this benchmark.
//!
//! # Options
//!
//! `expand` (2), `taps` W (4); `negative` doubles β (Grazzi et al., 2024, arXiv:2411.12537).
//! `direction`: `forward`; `sum` adds a second pass from the end with the same weights, `two` with
//! weights of its own.
//!
//! # Padding
//!
//! Padding has k = 0 and a = 1, so states pass through unchanged.
//!
//! # Departures
//!
//! e^α begins at 0.001 at least here. In the published language model all linear maps and
//! convolutions begin N(0, 0.02²), biases as 0, and the SwiGLU has no biases
//! (fla/models/gated_deltanet/modeling_gated_deltanet.py, _init_weights; fla/modules/mlp.py); here
//! they begin as in the layer alone, uniform within inputs^-½ (±0.125 at D = 64), and the SwiGLU
//! Xavier-uniform (±0.177 at a width of 128) with biases N(0, 1e-6²). The heads' norms have the ε
//! of the block's, `block.norm_epsilon` = 1e-6, as in that language model; the layer alone has
//! 1e-5.

use candle_core::Tensor;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder::{Ways, blocks_both_ways},
    layers::{GatedHeadSizes, GatedHeads, Linear, ShortConv, by_head, unit_heads},
    mask::zero_padding,
    model::{Cost, Model, Reference, Variant},
    ops::{
        GatedLinearAttentionOptions,
        activation::{sigmoid, softplus},
        gated_linear_attention::{self, gated_linear_attention},
    },
    params::{Attributes, fan_in_uniform, inverse_softplus_of_steps},
    rng::Stream,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "gated_deltanet",
    title: "Gated DeltaNet",
    paper: "Gated Delta Networks: Improving Mamba2 with Delta Rule",
    year: 2024,
    arxiv: "2412.06464",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: crate::Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"gate": "glu", "activation": "silu", "norm": "rms"}
    }"#,
    variants: &[Variant::paper(build, include_str!("gated_deltanet.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 2, range = int(1, 64))]
    expand: usize,
    #[option(default = 4, range = int(1, 1024))]
    taps: usize,
    negative: bool,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(GatedDeltaNet::new(layer, &options)?))
    })
}

struct GatedDeltaNet {
    /// Projections and convolutions of q, k and v.
    inputs: [(Linear, ShortConv); 3],
    /// W_β.
    rate: Linear,
    /// W_a.
    step: Linear,
    /// b (H).
    step_bias: Tensor,
    /// α (H).
    a_log: Tensor,
    output: GatedHeads,
    /// The largest β.
    most: f64,
    heads: usize,
    /// K.
    keys: usize,
    /// V.
    values: usize,
}

impl GatedDeltaNet {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let (dim, heads) = (block.dim, block.heads);
        let keys = (3 * block.head_dim()).div_ceil(4);
        let values = options.expand * keys;
        let linear = |vb, outputs| Linear::new(&vb, dim, outputs, fan_in_uniform(dim), None);
        let input = |name: &str, width: usize| -> Result<(Linear, ShortConv)> {
            let (layer, row) = (vb.pp(name), heads * width);
            let conv = ShortConv::new(&layer.pp("conv"), row, options.taps, false)?;
            Ok((linear(layer, row)?, conv))
        };
        let own = |name, values: &dyn Fn(&Stream) -> Vec<f64>| {
            vb.get_with_values(heads, name, Attributes::NO_DECAY, values)
        };
        let steps = |stream: &Stream| inverse_softplus_of_steps(stream, heads);
        let logarithms = |stream: &Stream| {
            let numbers = stream.uniform(1, heads).into_iter();
            // Not 0, of which there is no logarithm.
            numbers.map(|share| (16.0 * share).max(1e-3).ln()).collect()
        };
        let sizes = GatedHeadSizes { dim, heads, values };
        Ok(Self {
            inputs: [
                input("query", keys)?,
                input("key", keys)?,
                input("value", values)?,
            ],
            rate: linear(vb.pp("rate"), heads)?,
            step: linear(vb.pp("step"), heads)?,
            step_bias: own("step_bias", &steps)?,
            a_log: own("a_log", &logarithms)?,
            output: GatedHeads::new(vb, sizes, block.norm_epsilon, true)?,
            most: if options.negative { 2.0 } else { 1.0 },
            heads,
            keys,
            values,
        })
    }
}

impl Mixer for GatedDeltaNet {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let input = |index: usize| -> Result<Tensor> {
            let (linear, conv) = &self.inputs[index];
            conv.forward(&linear.forward(x)?, pass)
        };
        let unit = |x: &Tensor| unit_heads(x, self.keys);
        let q = unit(&input(0)?)?.affine((self.keys as f64).powf(-0.5), 0.0)?;
        let k = zero_padding(&unit(&input(1)?)?, pass.mask())?;
        let v = input(2)?;
        let delta = sigmoid(&self.rate.forward(x)?)?.affine(self.most, 0.0)?;
        let step = softplus(&self.step.forward(x)?.broadcast_add(&self.step_bias)?)?;
        let log_decay = step.broadcast_mul(&self.a_log.exp()?.neg()?)?;
        let log_decay = zero_padding(&log_decay, pass.mask())?; // (B, L, H)
        let options = GatedLinearAttentionOptions {
            log_decay: Some(&log_decay),
            delta: Some(&delta),
            ..Default::default()
        };
        let [q, k, v] = [q, k, v].map(|x| by_head(&x, self.heads));
        let y = gated_linear_attention(&q?, &k?, &v?, &options)?;
        self.output.forward(&y, x)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let (heads, keys, values) = (self.heads, self.keys, self.values);
        let inputs = self.inputs.iter().map(|(linear, _)| linear.flops(length));
        inputs.sum::<u64>()
            + self.rate.flops(length)
            + self.step.flops(length)
            + gated_linear_attention::flops(length, heads, keys, values)
            + gated_linear_attention::flops_of_delta(length, heads, keys, values)
            + self.output.flops(length)
    }
}
