//! Mega. Ma et al., 2022, "Mega: Moving Average Equipped Gated Attention", arXiv:2209.10655.
//!     m = SiLU(K→ * x̂ + K← * x̂ + ω ⊙ x̂),  K_l = h^-½ Σ_n p β γ q^l,  p = σ(δ), q = 1 - p σ(α), both kernels with their tap 0 at the position itself
//!     [u | z | r | c] = [σ | SiLU | SiLU | 1](m W_m + b_m),  V = SiLU(x̂ W_v + b_v),  Q = g₀ ⊙ z + b₀, K = g₁ ⊙ z + b₁
//!     H = SiLU(c + (r ⊙ (A V)) W_h + b_h),  A = softmax(Q Kᵀ / √s + w_(j-i)),  y = x + u ⊙ (H - x),  then a feed-forward network
//! In pre-norm blocks x̂ is norm(x) and y is not normalised; in post-norm blocks x̂ is x and y is
//! normalised. B batch, L length, D width, h modes, s width of z, v width of V and r, C chunk, N
//! longest length; x, m, u, c, H (B, L, D), K (D, L), δ, α, β, γ (2 D, h), ω (D), w (2 N - 1), or
//! (2 C - 1). Time O(L²·(s + v)), with chunks O(L·C·(s + v)), and O(L·D·h) for m; memory O(L·(D +
//! v)), and with laplace or relu2 O(L²) or O(L·C). Weights start as N(0, 0.02²), biases as 0; δ, α
//! ~ N(0, 0.2²), β = 1, -1, 1, .. + N(0, 0.02²) by mode, γ, ω ~ N(0, 1). Published norms, all with
//! ε = 1e-5: LayerNorm for ListOps, ScaleNorm (g x/√(mean x² + ε), g = 1 at first,
//! `block.scale_norm = rms`) for texts, both post-norm, BatchNorm and pre-norm for images. Pixels
//! there start with `embed.scalar_init = normal`.
//!
//! # Options
//!
//! `attention`: softmax, `laplace` ½ (1 + erf((z - √½) √2π)) or `relu2` max(z, 0)², both of z = Q
//! Kᵀ / n + w, with n the number of valid keys and no other normalisation; `shared` s (0: D / 2);
//! `values` v (0: `block.mlp_dim`); `modes` h; `taps`, the length of both kernels (0: unlimited);
//! `chunk` C (0: all positions see each other): positions attend within their chunk of C, and m
//! crosses chunks; `hidden_dropout` on V and in the feed-forward network.
//!
//! # Padding
//!
//! At padding x̂ is zero in both kernels of m, though not in ω ⊙ x̂, and padding is never a key, but
//! in chunks of padding alone under softmax. Outputs at padding are counted by BatchNorm. All of
//! this is as published (fairseq/modules/exponential_moving_average.py:175-214,
//! moving_average_gated_attention.py:176-179).
//!
//! # Departures
//!
//! Embedding and head are those of this benchmark. The rotary form of w (`rel_pos_bias` = rotary,
//! facebookresearch/mega@aeaa4b4 fairseq/modules/relative_positional_bias.py:49) is left out.
//! Initial values and the norms' ε, 1e-5, are those of that code
//! (fairseq/modules/moving_average_gated_attention.py, exponential_moving_average.py,
//! sequence_norm.py:15).

mod attention;
mod average;
pub mod chunk;
#[cfg(test)]
mod tests;

pub(super) use self::{
    attention::{SharedAttention, Weighing},
    average::MovingAverage,
};
use crate::{
    Encoded,
    block::norm::Norm,
    layers::{FeedForward, FusedSublayer},
    ops::{
        activation::{sigmoid, silu},
        columns,
    },
    options::{ChannelKind, NormKind, NormPlace},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "mega",
    title: "Mega",
    paper: "Mega: Moving Average Equipped Gated Attention",
    year: 2022,
    arxiv: "2209.10655",
    time: Cost::Quadratic("O(L²·E)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Package,
    family: Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"norm_place": "post", "activation": "silu", "scale_norm": "rms", "norm_epsilon": 1e-5}
    }"#,
    variants: &[Variant::paper(build, include_str!("mod.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = Weighing::Softmax)]
    attention: Weighing,
    #[option(range = int(0, WIDEST))]
    shared: usize,
    #[option(range = int(0, WIDEST))]
    values: usize,
    #[option(default = 16, range = int(1, 1024))]
    modes: usize,
    #[option(default = 1024, range = int(0, LONGEST))]
    taps: usize,
    #[option(range = int(0, LONGEST))]
    chunk: usize,
    #[option(range = probability)]
    hidden_dropout: f64,
}

/// Initial values of all weights.
const WEIGHT: Init = Init::Randn {
    mean: 0.0,
    stdev: 0.02,
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    const REASON: &str = "because the first half of a block is a gate of its own";
    let (options, block): (Options, _) = (context.options()?, context.block);
    require(
        matches!(block.ffn, ChannelKind::Dense | ChannelKind::None),
        "block.ffn",
        to_json(&block.ffn),
        "dense or none",
    )?;
    context.refuse_block_axes(REASON)?;
    let layer = |layer: usize| {
        let vb = context.vb.layer(layer, block.share);
        let gated = GatedAttention::new(&vb.pp("mixer"), block, &options, context.max_length)?;
        let feed = match block.ffn {
            ChannelKind::None => None,
            _ => Some(FeedForwardBranch::new(
                &vb.pp("feed"),
                block,
                options.hidden_dropout,
            )?),
        };
        Ok((gated, feed))
    };
    Ok(Box::new(Mega {
        layers: (0..block.layers).map(layer).collect::<Result<_>>()?,
        last_norm: encoder::last_norm(context)?,
        shared: block.share,
    }))
}

struct Mega {
    layers: Vec<(GatedAttention, Option<FeedForwardBranch>)>,
    last_norm: Option<Norm>,
    /// True if all layers have the same weights.
    shared: bool,
}

impl Encoder for Mega {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded> {
        let mut x = x.clone();
        for (index, (gated, feed)) in self.layers.iter().enumerate() {
            let pass = match self.shared {
                true => pass.of_repetition(index),
                false => *pass,
            };
            x = gated.forward(&x, &pass)?;
            if let Some(feed) = feed {
                x = feed.forward(&x, &pass)?;
            }
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

    fn flops(&self, length: usize) -> u64 {
        let layer = |(gated, feed): &(GatedAttention, Option<FeedForwardBranch>)| {
            let feed = feed.as_ref().map_or(0, |feed| feed.network.flops(length));
            gated.flops(length) + feed
        };
        self.layers.iter().map(layer).fold(0, u64::saturating_add)
    }
}

struct GatedAttention {
    norm: Norm,
    place: NormPlace,
    average: MovingAverage,
    /// True if the norm counts padding.
    counted: bool,
    /// W_v and b_v.
    values: Linear,
    /// W_m and b_m, which map to u, z, r and c.
    gates: Linear,
    /// W_h and b_h.
    hidden: Linear,
    attention: SharedAttention,
    dropout: Dropout,
    hidden_dropout: Dropout,
    values_dropout: Dropout,
    /// D, s and v.
    widths: [usize; 3],
}

impl GatedAttention {
    fn new(
        vb: &VarBuilder,
        block: &BlockOptions,
        options: &Options,
        longest: usize,
    ) -> Result<Self> {
        let or = |size: usize, usual: usize| if size == 0 { usual } else { size };
        let dim = block.dim;
        let (shared, values) = (
            or(options.shared, dim.div_ceil(2)),
            or(options.values, block.mlp_dim),
        );
        let linear = |name, inputs, outputs| {
            let bias = Some(Init::Const(0.0));
            Linear::new(&vb.pp(name), inputs, outputs, WEIGHT, bias)
        };
        let taps = (options.taps > 0).then_some(options.taps);
        let dropout = |name, rate| Dropout::new(&vb.pp(name), rate).tied(block.dropout_tied);
        Ok(Self {
            norm: Norm::new(&vb.pp("norm"), block)?,
            place: block.norm_place,
            counted: matches!(block.norm, NormKind::Batch),
            average: MovingAverage::new(&vb.pp("average"), dim, options.modes, taps)?,
            values: linear("values", dim, values)?,
            gates: linear("gates", dim, 2 * dim + shared + values)?,
            hidden: linear("hidden", values, dim)?,
            attention: SharedAttention::new(
                &vb.pp("attention"),
                shared,
                or(options.chunk, longest),
                options.attention,
                block.attention_dropout,
            )?,
            dropout: dropout("average_drop", block.dropout),
            hidden_dropout: dropout("hidden_drop", block.dropout),
            values_dropout: dropout("values_drop", options.hidden_dropout),
            widths: [dim, shared, values],
        })
    }

    /// Maps (B, L, D) to (B, L, D), with its residual.
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let normal = match self.place {
            NormPlace::Pre => self.norm.forward(x, pass)?,
            NormPlace::Post => x.clone(),
        };
        let average = self.average.forward(&normal, pass.mask(), self.counted)?;
        let gates = self.gates.forward(&self.dropout.forward(&average, pass)?)?;
        let [dim, shared, values] = self.widths;
        let part = |start, width| columns(&gates, start, width);
        let update = sigmoid(&part(0, dim)?)?;
        let z = silu(&part(dim, shared)?)?;
        let reset = silu(&part(dim + shared, values)?)?;
        let current = part(dim + shared + values, dim)?;
        let v = silu(&self.values.forward(&normal)?)?;
        let v = self.values_dropout.forward(&v, pass)?;
        let gathered = self.attention.forward(&z, &v, pass)?;
        let hidden = self.hidden.forward(&(reset * gathered)?)?;
        let hidden = silu(&add(&current, &hidden)?)?;
        let hidden = self.hidden_dropout.forward(&hidden, pass)?;
        let y = add(x, &(update * (hidden - x)?)?)?;
        match self.place {
            NormPlace::Pre => Ok(y),
            NormPlace::Post => self.norm.forward(&y, pass),
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.values, &self.gates, &self.hidden];
        let linears: u64 = linears.iter().map(|linear| linear.flops(length)).sum();
        linears + self.attention.flops(length, self.widths[2])
    }
}

/// The second half of a block.
struct FeedForwardBranch {
    norm: Norm,
    place: NormPlace,
    network: FeedForward,
    dropout: Dropout,
}

impl FeedForwardBranch {
    fn new(vb: &VarBuilder, block: &BlockOptions, hidden_dropout: f64) -> Result<Self> {
        let within = BlockOptions {
            dropout: hidden_dropout,
            ..block.clone()
        };
        Ok(Self {
            norm: Norm::new(&vb.pp("norm"), block)?,
            place: block.norm_place,
            network: FeedForward::drawn(vb, &within, WEIGHT, Init::Const(0.0))?,
            dropout: Dropout::new(&vb.pp("outer_drop"), block.dropout).tied(block.dropout_tied),
        })
    }

    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let dropout = Some(&self.dropout);
        let around = |norm, residual| FusedSublayer {
            norm,
            dropout,
            residual,
        };
        match (self.place, &self.norm) {
            (NormPlace::Pre, Norm::Layer(norm)) => {
                self.network.forward(x, around(Some(norm), true), pass)
            }
            (NormPlace::Pre, norm) => {
                let normal = norm.forward(x, pass)?;
                add(
                    x,
                    &self.network.forward(&normal, around(None, false), pass)?,
                )
            }
            (NormPlace::Post, norm) => {
                norm.forward(&self.network.forward(x, around(None, true), pass)?, pass)
            }
        }
    }
}
