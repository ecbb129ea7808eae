//! Megalodon. Ma et al., 2024, "Megalodon: Efficient LLM Pretraining and Inference with Unlimited
//! Context Length", arXiv:2404.08801.
//!     x̂ = TimestepNorm(x),  m = RMSNorm(K→ * x̂ + K← * x̂ + ω ⊙ x̂),  K_l = h^-½ Re Σ_n p γ q^l,  p = σ(α), q = (1 - p σ(δ)) e^(iφ), φ_n = 2π n σ(θ) / h
//!     [z | r | c] = m W_m + b_m,  Q = g₀ ⊙ ẑ / √E + b₀, K = g₁ ⊙ ẑ / √E + b₁, ẑ the RMSNorm of each head of z,  V = SiLU(x̂ W_v + b_v)
//!     y = x + c + (SiLU(r) ⊙ (A V)) W_h,  A = softmax(R(Q) R(K)ᵀ) in each head,  out = x + W₂ SiLU(W₁ LayerNorm(y))
//! TimestepNorm normalises a group of channels by mean and variance of all its numbers so far; R
//! rotates neighbouring columns by their position. The last line is the two-hop residual: the
//! feed-forward network adds to the block's input, not to y. B batch, L length, D width, h modes, s
//! width of z in heads of E, v width of V and r, C chunk; x, x̂, m, c, y, out (B, L, D), K (D, L),
//! α, δ, γ (R D, h) and θ (R D) for R directions, ω (D), z (B, L, s), V, r (B, L, v). Time
//! O(L²·(s+v)), with chunks O(L·C·(s+v)), and O(L·D·h) for the average; memory O(L·(D+v)), with
//! `forward` and without chunks O(L²). Read in XuezheMax/megalodon@cff8ba5, megalodon/modules and
//! megalodon/model/mega.py: weights start as N(0, 1 / (3 inputs)), biases, b₀ and b₁ as 0, gains,
//! g₀ and g₁ as 1, α, δ ~ N(0, 0.2²), Re γ ~ N(0, 1), Im γ = 0, ω ~ N(0, 0.25²), and σ(θ) = D^(-k /
//! D) for k = 1 .. D in random order. All ε are `block.norm_epsilon` = 1e-5.
//!
//! # Options
//!
//! `norm`: `timestep`, or `block` for the norm of `block.norm` in its place; `groups` of
//! TimestepNorm (0: one for every 32 channels, as published for D = 1024 and 2048, or the next
//! smaller divisor of D). `shared` s (0: D / 2) and `values` v (0: `block.mlp_dim`), both rounded
//! up to a multiple of `block.heads`, of which the published code has one for each 1,024 channels;
//! `modes` h; `chunk` C (0: all positions see each other): positions attend within their chunk of
//! C, and m crosses chunks; `direction`: `both`, or `forward` as in the published language model,
//! where no position sees a later one; `hidden_dropout` on m, on the gated values and in the
//! feed-forward network. `block.gate = glu` is the SwiGLU of the larger published models.
//!
//! # Padding
//!
//! Padding is zeros to the average, no key, and counts in no statistic of TimestepNorm.
//!
//! # Departures
//!
//! The published code is that of the language model, which is causal. Its form for this benchmark
//! was not released, nor its settings: the average from the end and attention to both sides are
//! those of Mega, and TimestepNorm runs from the first position in either case. The feed-forward
//! network has biases, which begin as 0; the published one has none. The last norm is LayerNorm or
//! what `block.norm` says, in the published code TimestepNorm. Published gains are kept as 1 plus a
//! parameter of zeros. ω is cut at four deviations there. A learned scale of the feed-forward
//! branch (`rescale_nffn`) and another base of rotary angles (`rope_base`), both off unless they
//! are set there, are left out. TimestepNorm of one channel per group is possible here; the
//! published one refuses it without a prior.

mod average;
#[cfg(test)]
mod tests;
mod timestep_norm;

use self::{average::ComplexAverage, timestep_norm::TimestepNorm};
use crate::{
    Encoded,
    block::norm::Norm,
    layers::{Direction, FeedForward, FusedSublayer},
    ops::{activation::silu, attention::BlockLists, columns, rms_norm, rotary},
    options::{ChannelKind, NormPlace},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "megalodon",
    title: "Megalodon",
    paper: "Megalodon: Efficient LLM Pretraining and Inference with Unlimited Context Length",
    year: 2024,
    arxiv: "2404.08801",
    time: Cost::Quadratic("O(L²·E)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"heads": 1, "activation": "silu", "norm_epsilon": 1e-5}
    }"#,
    variants: &[Variant::paper(build, include_str!("mod.rs"))],
    ..Model::with_options::<Options>()
};

/// The norm in front of the moving average.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FirstNorm {
    Timestep,
    Block,
}

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = FirstNorm::Timestep)]
    norm: FirstNorm,
    #[option(range = int(0, WIDEST))]
    groups: usize,
    #[option(range = int(0, WIDEST))]
    shared: usize,
    #[option(range = int(0, WIDEST))]
    values: usize,
    #[option(default = 16, range = int(1, 1024))]
    modes: usize,
    #[option(range = int(0, LONGEST))]
    chunk: usize,
    #[option(default = Direction::Both)]
    direction: Direction,
    #[option(range = probability)]
    hidden_dropout: f64,
}

/// Channels for each group of TimestepNorm.
const OF_GROUP: usize = 32;

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    const REASON: &str = "because the feed-forward network adds to the block's input";
    let (options, block): (Options, _) = (context.options()?, context.block);
    require(
        matches!(block.ffn, ChannelKind::Dense),
        "block.ffn",
        to_json(&block.ffn),
        "dense",
    )?;
    require(
        block.norm_place == NormPlace::Pre,
        "block.norm_place",
        "post",
        format!("pre, {REASON}"),
    )?;
    require(
        options.groups == 0 || block.dim.is_multiple_of(options.groups),
        "model.groups",
        options.groups,
        format!("0, or a divisor of block.dim = {}", block.dim),
    )?;
    context.refuse_block_axes(REASON)?;
    let layer = |layer: usize| {
        let vb = context.vb.layer(layer, block.share);
        Layer::new(&vb, block, &options)
    };
    Ok(Box::new(Megalodon {
        layers: (0..block.layers).map(layer).collect::<Result<_>>()?,
        last_norm: encoder::last_norm(context)?,
        shared: block.share,
        direction: options.direction,
    }))
}

struct Megalodon {
    layers: Vec<Layer>,
    last_norm: Option<Norm>,
    /// True if all layers have the same weights.
    shared: bool,
    direction: Direction,
}

impl Encoder for Megalodon {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded> {
        let mut x = x.clone();
        for (index, layer) in self.layers.iter().enumerate() {
            let pass = match self.shared {
                true => pass.of_repetition(index),
                false => *pass,
            };
            x = layer.forward(&x, &pass)?;
        }
        let hidden = match &self.last_norm {
            Some(norm) => norm.forward(&x, pass)?,
            None => x,
        };
        Ok(Encoded {
            hidden,
            mask: pass.mask().cloned(),
        })
    }

    fn is_causal(&self) -> bool {
        self.direction == Direction::Forward
    }

    fn flops(&self, length: usize) -> u64 {
        let layers = self.layers.iter().map(|layer| layer.flops(length));
        layers.fold(0, u64::saturating_add)
    }
}

/// x̂.
enum Leading {
    Timestep(TimestepNorm),
    Block(Norm),
}

struct Layer {
    norm: Leading,
    average: ComplexAverage,
    /// Gain of the average's norm (D).
    gain: Tensor,
    /// W_m and b_m, which map to z, r and c.
    gates: Linear,
    /// W_v and b_v.
    values: Linear,
    /// W_h.
    hidden: Linear,
    /// g and b (2, s).
    scale: Tensor,
    shift: Tensor,
    /// Ones (E).
    plain: Tensor,
    feed_norm: Norm,
    feed: FeedForward,
    average_dropout: Dropout,
    values_dropout: Dropout,
    dropout: Dropout,
    feed_dropout: Dropout,
    attention_dropout: Dropout,
    /// D, s and v.
    widths: [usize; 3],
    heads: usize,
    chunk: usize,
    direction: Direction,
    epsilon: f64,
}

impl Layer {
    fn new(vb: &VarBuilder, block: &BlockOptions, options: &Options) -> Result<Self> {
        let (dim, heads, mixer) = (block.dim, block.heads, vb.pp("mixer"));
        let filled = |size: usize, usual: usize| {
            let size = if size == 0 { usual } else { size };
            size.next_multiple_of(heads)
        };
        let shared = filled(options.shared, dim.div_ceil(2));
        let values = filled(options.values, block.mlp_dim);
        let groups = match options.groups {
            0 => {
                let most = (dim / OF_GROUP).max(1);
                let fits = |groups: &usize| dim.is_multiple_of(*groups);
                (1..=most).rev().find(fits).unwrap_or(1)
            }
            groups => groups,
        };
        let weight = |inputs: usize| Init::Randn {
            mean: 0.0,
            stdev: (3.0 * inputs as f64).powf(-0.5),
        };
        let zeros = Init::Const(0.0);
        let linear = |name, inputs, outputs, bias| {
            Linear::new(&mixer.pp(name), inputs, outputs, weight(inputs), bias)
        };
        let dropout = |name, rate| Dropout::new(&mixer.pp(name), rate).tied(block.dropout_tied);
        let pair =
            |name, init| mixer.get_with_attributes((2, shared), name, init, Attributes::NO_DECAY);
        let norm = mixer.pp("norm");
        let inner = BlockOptions {
            dropout: options.hidden_dropout,
            ..block.clone()
        };
        let epsilon = block.norm_epsilon;
        Ok(Self {
            norm: match options.norm {
                FirstNorm::Timestep => {
                    Leading::Timestep(TimestepNorm::new(&norm, dim, groups, epsilon)?)
                }
                FirstNorm::Block => Leading::Block(Norm::new(&norm, block)?),
            },
            average: ComplexAverage::new(
                &mixer.pp("average"),
                dim,
                options.modes,
                options.direction,
            )?,
            gain: mixer.get_with_hints(dim, "average_norm.scale", Init::Const(1.0))?,
            gates: linear("gates", dim, shared + values + dim, Some(zeros))?,
            values: linear("values", dim, values, Some(zeros))?,
            hidden: linear("hidden", values, dim, None)?,
            scale: pair("attention.scale", Init::Const(1.0))?,
            shift: pair("attention.shift", zeros)?,
            plain: Tensor::ones(shared / heads, vb.dtype(), vb.device())?,
            feed_norm: Norm::new(&vb.pp("feed").pp("norm"), block)?,
            feed: FeedForward::drawn_by_fan_in(&vb.pp("feed"), &inner, weight, zeros)?,
            average_dropout: dropout("average_drop", options.hidden_dropout),
            values_dropout: dropout("values_drop", options.hidden_dropout),
            dropout: dropout("drop", block.dropout),
            feed_dropout: dropout("feed_drop", block.dropout),
            attention_dropout: Dropout::new(&mixer.pp("attention_drop"), block.attention_dropout),
            widths: [dim, shared, values],
            heads,
            chunk: options.chunk,
            direction: options.direction,
            epsilon,
        })
    }

    /// Maps (B, L, D) to (B, L, D), with its residual.
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let normal = match &self.norm {
            Leading::Timestep(norm) => norm.forward(x, pass)?,
            Leading::Block(norm) => norm.forward(x, pass)?,
        };
        let average = self.average.forward(&normal, pass)?;
        let average = rms_norm(&average, &self.gain, self.epsilon)?;
        let gates = self
            .gates
            .forward(&self.average_dropout.forward(&average, pass)?)?;
        let [dim, shared, values] = self.widths;
        let (z, r) = (
            columns(&gates, 0, shared)?,
            columns(&gates, shared, values)?,
        );
        let gathered = self.attend(&z, &silu(&self.values.forward(&normal)?)?, pass)?;
        let gathered = self
            .values_dropout
            .forward(&(gathered * silu(&r)?)?, pass)?;
        let own = columns(&gates, shared + values, dim)?;
        let change = add(&own, &self.hidden.forward(&gathered)?)?;
        let y = add(x, &self.dropout.forward(&change, pass)?)?;
        let y = self.feed_norm.forward(&y, pass)?;
        let y = self.feed.forward(&y, FusedSublayer::default(), pass)?;
        add(x, &self.feed_dropout.forward(&y, pass)?)
    }

    /// Returns A V of z (B, L, s) and V (B, L, v).
    fn attend(&self, z: &Tensor, v: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (batch, length, shared) = z.dims3()?;
        let width = shared / self.heads;
        let z = z.reshape((batch, length, self.heads, width))?;
        let z = rms_norm(&z, &self.plain, self.epsilon)?;
        let z = z.reshape((batch, length, shared))?;
        let vector = |index| -> Result<Tensor> {
            let scale = self
                .scale
                .get(index)?
                .affine((width as f64).powf(-0.5), 0.0)?;
            let z = z
                .broadcast_mul(&scale)?
                .broadcast_add(&self.shift.get(index)?)?;
            rotary(&z, 0, shared, width)
        };
        let options = AttentionOptions {
            heads: self.heads,
            scale: Some(1.0),
            mask: pass.mask().map(Mask::valid).cloned(),
            dropout: self.attention_dropout.of_attention(batch, pass),
            block_masks: self.block_masks(length),
            ..AttentionOptions::default()
        };
        attention::attend(&vector(0)?, &vector(1)?, v, &options)
    }

    /// Returns the chunks, and in them the keys that are no later than their query; none where all
    /// positions see each other.
    fn block_masks(&self, length: usize) -> Option<BlockMasks> {
        let size = match self.chunk {
            0 => length,
            chunk => chunk.min(length),
        };
        let causal = self.direction == Direction::Forward;
        (causal || size < length).then(|| {
            let chunks = BlockLists::around(length, size, (0, 0), |i, j| !causal || j <= i);
            chunks.block_masks(length)
        })
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.gates, &self.values, &self.hidden];
        let linears: u64 = linears.map(|linear| linear.flops(length)).iter().sum();
        let [_, shared, values] = self.widths;
        let pairs = match self.block_masks(length) {
            Some(masks) => masks.pairs(1),
            None => length * length,
        };
        let attention = 2 * pairs as u64 * (shared + values) as u64;
        linears + attention + self.average.flops(length) + self.feed.flops(length)
    }
}
