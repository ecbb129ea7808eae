//! RetNet. Sun et al., 2023, "Retentive Network: A Successor to Transformer for Large Language
//! Models", arXiv:2307.08621.
//!     S_t = γ_h S_(t-1) + k_t v_tᵀ,  y_t = S_tᵀ q_t E^-½,  out = W_o (RMSNorm(y) ⊙ SiLU(x W_g)),  γ_h = 1 - 2^(-5-h)
//! B batch, L length, D width, H heads h = 0.. H - 1; q, k (B, L, H, E), rotated by their position,
//! v, y (B, L, H, V) with V = `expand` E, S (H, E, V); x, out (B, L, D), W_g (D, H V), W_o (H V,
//! D). The decays γ are not trained. All is causal: a position sees those before it. Time O(L·E·V)
//! per head, in chunks; memory O(L·E). Queries and keys have the width `block.qkv_dim`. The norm of
//! each head is RMSNorm with a gain that all heads share, as in flash-linear-attention@bc3b101
//! fla/layers/multiscale_retention.py, of which `expand` = 2, the scale E^-½, the gate and the
//! SwiGLU behind it are, too (its configuration has 8 heads). Weights begin uniform within
//! inputs^-½, without biases. Its authors have not run this benchmark.
//!
//! # Options
//!
//! `expand` (2): V over E. `direction`: `forward`; `sum` adds a second pass from the end with the
//! same weights, `two` with weights of its own.
//!
//! # Padding
//!
//! Padding has k = 0, and states do not decay there.
//!
//! # Departures
//!
//! The norm of each head is that of flash-linear-attention; the paper has GroupNorm, and the
//! authors' code RMSNorm without a gain, of scores that it has divided by the sum of their sizes
//! and by the root of the sum of decays (microsoft/torchscale@4d1e0e8
//! torchscale/component/multiscale_retention.py:66, 84 and torchscale/architecture/retnet.py:66),
//! which the norm takes away but for its ε, 1e-6 in both (here `block.norm_epsilon`). Neighbouring
//! columns are rotated; in flash-linear-attention it is those E/2 apart, the same function for
//! weights with their rows in another order. The angles are 10000^(-2i/E) as there; the authors'
//! are 10000^(-i/(E/2 - 1)) (retnet.py:25). Weights begin as in that library's layer, uniform
//! within inputs^-½ (±0.125 at D = 64); the authors' begin Xavier-uniform over 2^2.5 (±0.038 for
//! queries and keys, ±0.031 for values and W_g at `expand` = 2), W_o over 2 (±0.088, as here):
//! multiscale_retention.py:69-74. The library's language model begins all N(0, 0.02²), its SwiGLU
//! without biases (fla/models/retnet/modeling_retnet.py, _init_weights); the authors' feed-forward
//! network has GELU in the place of SiLU (torchscale/architecture/config.py:257) and begins uniform
//! within inputs^-½, without biases (torchscale/component/gate_linear_unit.py:25-27). The SwiGLU
//! here begins Xavier-uniform (±0.177 at a width of 128) with biases N(0, 1e-6²).

use candle_core::Tensor;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder::{Ways, blocks_both_ways},
    layers::{GatedHeadSizes, GatedHeads, Linear, by_head, head_decays},
    mask::zero_padding,
    model::{Cost, Model, Reference, Variant},
    ops::{
        GatedLinearAttentionOptions,
        gated_linear_attention::{self, gated_linear_attention},
        rotary,
    },
    params::fan_in_uniform,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "retnet",
    title: "RetNet",
    paper: "Retentive Network: A Successor to Transformer for Large Language Models",
    year: 2023,
    arxiv: "2307.08621",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: crate::Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"gate": "glu", "activation": "silu", "norm": "rms"}
    }"#,
    variants: &[Variant::paper(build, include_str!("retnet.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 2, range = int(1, 64))]
    expand: usize,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(RetNet::new(layer, &options)?))
    })
}

struct RetNet {
    query: Linear,
    key: Linear,
    value: Linear,
    output: GatedHeads,
    /// ln γ (H).
    log_decay: Tensor,
    heads: usize,
    /// E.
    keys: usize,
    /// V.
    values: usize,
}

impl RetNet {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let (heads, keys) = (block.heads, block.head_dim());
        let values = options.expand * keys;
        let linear = |name, outputs| {
            let init = fan_in_uniform(block.dim);
            Linear::new(&vb.pp(name), block.dim, outputs, init, None)
        };
        let sizes = GatedHeadSizes {
            dim: block.dim,
            heads,
            values,
        };
        // Heads beyond the 48th remember as long as f64 can tell.
        let decay = |head: usize| (-(-5.0 - head.min(47) as f64).exp2()).ln_1p();
        let decays = Tensor::from_iter((0..heads).map(decay), vb.device())?;
        Ok(Self {
            query: linear("query", heads * keys)?,
            key: linear("key", heads * keys)?,
            value: linear("value", heads * values)?,
            output: GatedHeads::new(vb, sizes, block.norm_epsilon, true)?,
            log_decay: decays.to_dtype(vb.dtype())?,
            heads,
            keys,
            values,
        })
    }
}

impl Mixer for RetNet {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let rotated = |x: &Tensor| rotary(x, 0, self.heads * self.keys, self.keys);
        let scale = (self.keys as f64).powf(-0.5);
        let q = rotated(&self.query.forward(x)?.affine(scale, 0.0)?)?;
        let k = zero_padding(&rotated(&self.key.forward(x)?)?, pass.mask())?;
        let v = self.value.forward(x)?;
        let log_decay = head_decays(&self.log_decay, pass.mask())?;
        let options = GatedLinearAttentionOptions {
            log_decay: Some(&log_decay),
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
        let linears = [&self.query, &self.key, &self.value];
        let linears: u64 = linears.map(|linear| linear.flops(length)).iter().sum();
        let attention = gated_linear_attention::flops(length, self.heads, self.keys, self.values);
        linears + attention + self.output.flops(length)
    }
}
