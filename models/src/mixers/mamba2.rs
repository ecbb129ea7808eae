//! Mamba-2. Dao & Gu, 2024, "Transformers are SSMs: Generalized Models and Efficient Algorithms
//! Through Structured State Space Duality", arXiv:2405.21060.
//!     [z | u | b | c | s] = x W_in,  [u | b | c] ← SiLU(conv([u | b | c])),  δ = softplus(s + β),  a = e^(-δ e^α)
//!     S_t = a_t S_(t-1) + δ_t b_t u_tᵀ,  y = Sᵀ c + skip ⊙ u,  out = RMSNorm(y ⊙ SiLU(z)) W_out
//! B batch, L length, D width, D' = `expand` D in H heads of P = `head_width` channels, N =
//! `state`; x, out (B, L, D), z, u, y (B, L, D'), b, c (B, L, N), which all heads share, s, δ, a
//! (B, L, H), S (H, N, P), β, α, skip (H); conv a causal convolution of each channel, W = `taps`,
//! with a bias. All is causal: a position sees those before it. Time O(L·N·P) per head, in chunks;
//! memory O(L·D'). No feed-forward (`block.ffn` = none). Read in state-spaces/mamba@e9594ce
//! mamba_ssm/modules/mamba2.py: the gate is before the norm; e^α ~ U(1, 16), skip = 1 and β
//! softplus⁻¹ of numbers between 0.001 and 0.1, even in their logarithm, none of which decays; one
//! group of b and c. All else begins as PyTorch's layers.
//!
//! # Options
//!
//! `state` N (64), `expand` (2), `taps` W (4), `head_width` P (0: 64, or the largest divisor of D'
//! that divides 64). `direction`: `forward`; `sum` adds a second pass from the end with the same
//! weights, `two` with weights of its own.
//!
//! # Padding
//!
//! Padding has u = b = c = 0 before conv and δ = 0, so states pass through unchanged.
//!
//! # Departures
//!
//! `state` is 128 in the published code. W_out begins uniform within inputs^-½ (±0.088 at D = 64);
//! the published language model divides that by the root of the number of layers
//! (state-spaces/mamba@e9594ce mamba_ssm/models/mixer_seq_simple.py:113-121). The inner norm has
//! the ε of the block's, `block.norm_epsilon` = 1e-5, as in the published code.

use candle_core::Tensor;
use candle_nn::Init;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder::{Ways, blocks_both_ways},
    layers::{Linear, ShortConv, by_head, head_width},
    mask::zero_padding,
    model::{Cost, Model, Reference, Variant},
    ops::{
        GatedLinearAttentionOptions,
        activation::{silu, softplus},
        columns,
        gated_linear_attention::{self, gated_linear_attention},
        rms_norm,
    },
    options::WIDEST,
    params::{Attributes, fan_in_uniform, inverse_softplus_of_steps},
    rng::Stream,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "mamba2",
    title: "Mamba-2",
    paper: "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State Space Duality",
    year: 2024,
    arxiv: "2405.21060",
    time: Cost::Linear("O(L·N·P)"),
    memory: Cost::Linear("O(L·D)"),
    reference: Reference::Equations,
    family: crate::Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"ffn": "none", "norm": "rms", "norm_epsilon": 1e-5}
    }"#,
    variants: &[Variant::paper(build, include_str!("mamba2.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 64, range = int(1, 1024))]
    state: usize,
    #[option(default = 2, range = int(1, 64))]
    expand: usize,
    #[option(default = 4, range = int(1, 1024))]
    taps: usize,
    #[option(range = int(0, WIDEST))]
    head_width: usize,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Mamba2::new(layer, &options)?))
    })
}

struct Mamba2 {
    /// W_in.
    inner: Linear,
    conv: ShortConv,
    /// β.
    step: Tensor,
    /// α.
    a_log: Tensor,
    skip: Tensor,
    /// Of the norm, (D').
    gain: Tensor,
    epsilon: f64,
    /// W_out.
    outer: Linear,
    /// D'.
    width: usize,
    heads: usize,
    /// N.
    state: usize,
}

impl Mamba2 {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim) = (&layer.vb, layer.block.dim);
        let (width, state) = (options.expand * dim, options.state);
        let heads = width / head_width(options.head_width, width)?;
        let steps = |stream: &Stream| inverse_softplus_of_steps(stream, heads);
        let logarithms = |stream: &Stream| {
            let numbers = stream.uniform(1, heads).into_iter();
            numbers.map(|share| (1.0 + 15.0 * share).ln()).collect()
        };
        let own = |name, values: &dyn Fn(&Stream) -> Vec<f64>| {
            vb.get_with_values(heads, name, Attributes::NO_DECAY, values)
        };
        let linear = |name: &str, inputs: usize, outputs: usize| {
            Linear::new(&vb.pp(name), inputs, outputs, fan_in_uniform(inputs), None)
        };
        let mixed = width + 2 * state;
        Ok(Self {
            inner: linear("inner", dim, width + mixed + heads)?,
            conv: ShortConv::new(&vb.pp("conv"), mixed, options.taps, true)?,
            step: own("step", &steps)?,
            a_log: own("a_log", &logarithms)?,
            skip: vb.get_with_hints(heads, "skip", Init::Const(1.0))?,
            gain: vb.get_with_hints(width, "gain", Init::Const(1.0))?,
            epsilon: layer.block.norm_epsilon,
            outer: linear("outer", width, dim)?,
            width,
            heads,
            state,
        })
    }
}

impl Mixer for Mamba2 {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (width, state, heads) = (self.width, self.state, self.heads);
        let all = self.inner.forward(x)?;
        let z = columns(&all, 0, width)?;
        let mixed = columns(&all, width, width + 2 * state)?;
        let mixed = self.conv.forward(&mixed, pass)?;
        let u = by_head(&columns(&mixed, 0, width)?, heads)?;
        // (B, L, 1, N).
        let shared = |start| by_head(&columns(&mixed, start, state)?, 1);
        let (b, c) = (shared(width)?, shared(width + state)?);
        let step = columns(&all, 2 * width + 2 * state, heads)?.broadcast_add(&self.step)?;
        let step = zero_padding(&softplus(&step)?, pass.mask())?; // (B, L, H)
        let log_decay = step.broadcast_mul(&self.a_log.exp()?.neg()?)?;
        let k = step.unsqueeze(3)?.broadcast_mul(&b)?; // (B, L, H, N)
        let q = c.broadcast_as(k.shape())?.contiguous()?;
        let options = GatedLinearAttentionOptions {
            log_decay: Some(&log_decay),
            ..Default::default()
        };
        let y = gated_linear_attention(&q, &k, &u, &options)?;
        let y = (y + u.broadcast_mul(&self.skip.unsqueeze(1)?)?)?.flatten_from(2)?;
        let y = rms_norm(&(y * silu(&z)?)?, &self.gain, self.epsilon)?;
        self.outer.forward(&y)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let (heads, head) = (self.heads, self.width / self.heads);
        let attention = gated_linear_attention::flops(length, heads, self.state, head);
        self.inner.flops(length) + attention + self.outer.flops(length)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{Parameters, options::BlockOptions};

    /// A layer as wide as that of the smallest published model, 768, with 128 states: 24 of them
    /// and an embedding of 50,288 ids, which is the output's too, are its 130 million.
    #[test]
    fn weights_are_as_many_as_in_the_published_model() {
        let parameters = Parameters::meta(&Device::Cpu, DType::F32);
        let block = BlockOptions {
            dim: 768,
            ..BlockOptions::default()
        };
        let options = Options {
            state: 128,
            ..Options::default()
        };
        Mamba2::new(
            &LayerContext::new(parameters.builder(), &block, 9),
            &options,
        )
        .unwrap();
        let layer = parameters.elements() + 768;
        let all = 24 * layer + 50_288 * 768 + 768;
        assert_eq!(all, 128_989_632);
    }
}
