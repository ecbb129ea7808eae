//! Gated linear attention. Yang et al., 2023, "Gated Linear Attention Transformers with
//! Hardware-Efficient Training", arXiv:2312.06635.
//!     S_t = diag(a_t) S_(t-1) + k_t v_tᵀ,  y_t = S_tᵀ q_t K^-½,  out = W_o (RMSNorm(y) ⊙ SiLU(x W_g)),  a = σ(x W₁ W₂ + b)^(1/τ)
//! B batch, L length, D width, H heads of width E; q, k, a (B, L, H, K) with K = E / 2, rounded up,
//! v, y (B, L, H, V) with V = E, S (H, K, V); W₁ (D, R), W₂ (R, H K); x, out (B, L, D), W_g (D, H
//! V), W_o (H V, D). τ = `temper`: a state begins to forget at 1 - a near 0.04 rather than at a
//! half. All is causal: a position sees those before it. Time O(L·K·V) per head, in chunks; memory
//! O(L·E). Values have the width `block.qkv_dim`. K, V, R, τ, the shared gain of the heads' norms,
//! the gate and the SwiGLU behind it are those of flash-linear-attention@bc3b101 fla/layers/gla.py
//! and fla/models/gla/configuration_gla.py, with 4 heads. Weights begin uniform within inputs^-½,
//! and b is 0. Its authors have not run this benchmark.
//!
//! # Options
//!
//! `rank` R (16), `temper` τ (16, as in the paper's equation). `decay_init`: `random` (b = 0); or
//! `hippo` (1 - a from 0.0005 to 0.05, even in the logarithm), `log_uniform` (twice that),
//! `retention` (2^(-5 - h) in head h), all without weight decay of b. `direction`: `forward`; `sum`
//! adds a second pass from the end with the same weights, `two` with weights of its own.
//!
//! # Padding
//!
//! Padding has k = 0 and a = 1, so states pass through unchanged.
//!
//! # Departures
//!
//! In the published language model all linear maps begin N(0, 0.02²), biases as 0, and the SwiGLU
//! has no biases (fla/models/gla/modeling_gla.py, _init_weights; fla/modules/mlp.py); here they
//! begin as in the layer alone, uniform within inputs^-½ (±0.125 at D = 64), and the SwiGLU
//! Xavier-uniform (±0.177 at a width of 128) with biases N(0, 1e-6²). b is 0 as in that language
//! model; the layer alone has it uniform within R^-½ (±0.25). The heads' norms have the ε of the
//! block's, `block.norm_epsilon` = 1e-6, as in that language model; the layer alone has 1e-5.

use candle_core::Tensor;
use candle_nn::Init;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder::{Ways, blocks_both_ways},
    layers::{GatedHeadSizes, GatedHeads, Linear, by_head},
    mask::zero_padding,
    model::{Cost, Model, Reference, Variant},
    ops::{
        GatedLinearAttentionOptions,
        activation::softplus,
        gated_linear_attention::{self, gated_linear_attention},
    },
    options::WIDEST,
    params::{Attributes, DecayInit, fan_in_uniform, inverse_softplus},
    rng::Stream,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "gla",
    title: "GLA",
    paper: "Gated Linear Attention Transformers with Hardware-Efficient Training",
    year: 2023,
    arxiv: "2312.06635",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: crate::Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"gate": "glu", "activation": "silu", "norm": "rms"}
    }"#,
    variants: &[Variant::paper(build, include_str!("gla.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 16, range = int(1, WIDEST))]
    rank: usize,
    #[option(default = 16.0, range = positive(1e6))]
    temper: f64,
    #[option(default = DecayInit::Random)]
    decay_init: DecayInit,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Gla::new(layer, &options)?))
    })
}

struct Gla {
    query: Linear,
    key: Linear,
    value: Linear,
    /// W₁, and W₂ with b.
    decay: [Linear; 2],
    output: GatedHeads,
    temper: f64,
    heads: usize,
    /// K.
    keys: usize,
    /// V.
    values: usize,
}

impl Gla {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let (heads, values) = (block.heads, block.head_dim());
        let keys = values.div_ceil(2);
        let linear = |name: &str, inputs: usize, outputs: usize, bias| {
            Linear::new(&vb.pp(name), inputs, outputs, fan_in_uniform(inputs), bias)
        };
        let (init, temper) = (options.decay_init, options.temper);
        // ln σ(b) = -τ r.
        let biases = move |stream: &Stream| -> Vec<f64> {
            match init.rates(stream, heads, keys) {
                Some(rates) => {
                    let rates = rates.iter();
                    rates.map(|rate| -inverse_softplus(rate * temper)).collect()
                }
                None => vec![0.0; heads * keys],
            }
        };
        if init != DecayInit::Random {
            let gate = vb.pp("decay.outer");
            gate.get_with_values(heads * keys, "bias", Attributes::NO_DECAY, biases)?;
        }
        let zeros = Some(Init::Const(0.0));
        let sizes = GatedHeadSizes {
            dim: block.dim,
            heads,
            values,
        };
        Ok(Self {
            query: linear("query", block.dim, heads * keys, None)?,
            key: linear("key", block.dim, heads * keys, None)?,
            value: linear("value", block.dim, heads * values, None)?,
            decay: [
                linear("decay.inner", block.dim, options.rank, None)?,
                linear("decay.outer", options.rank, heads * keys, zeros)?,
            ],
            output: GatedHeads::new(vb, sizes, block.norm_epsilon, true)?,
            temper: options.temper,
            heads,
            keys,
            values,
        })
    }
}

impl Mixer for Gla {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let scale = (self.keys as f64).powf(-0.5);
        let q = self.query.forward(x)?.affine(scale, 0.0)?;
        let k = zero_padding(&self.key.forward(x)?, pass.mask())?;
        let v = self.value.forward(x)?;
        let [inner, outer] = &self.decay;
        // ln σ(z) = -softplus(-z).
        let logits = outer.forward(&inner.forward(x)?)?;
        let log_decay = softplus(&logits.neg()?)?.affine(-1.0 / self.temper, 0.0)?;
        let log_decay = zero_padding(&log_decay, pass.mask())?;
        let [q, k, v, log_decay] = [q, k, v, log_decay].map(|x| by_head(&x, self.heads));
        let log_decay = log_decay?;
        let options = GatedLinearAttentionOptions {
            log_decay: Some(&log_decay),
            packing: pass.packing(),
            ..Default::default()
        };
        let y = gated_linear_attention(&q?, &k?, &v?, &options)?;
        self.output.forward(&y, x)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let [inner, outer] = &self.decay;
        let linears = [&self.query, &self.key, &self.value, inner, outer];
        let linears: u64 = linears.map(|linear| linear.flops(length)).iter().sum();
        let attention = gated_linear_attention::flops(length, self.heads, self.keys, self.values);
        linears + attention + self.output.flops(length)
    }
}
