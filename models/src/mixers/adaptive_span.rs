//! Adaptive attention span. Sukhbaatar et al., 2019, "Adaptive Attention Span in Transformers",
//! arXiv:1905.07799.
//!     a_ij = m_z(|i - j|) exp(q_i·k_j / √E) / Σ_j' m_z(|i - j'|) exp(q_i·k_j' / √E),  m_z(x) = min(max((R + z - x) / R, 0), 1)
//! B batch, H heads, L length, D width, E width of a head, S longest length, R `ramp`, z spans; q,
//! k (B, H, L, E), a (B, H, L, L). Keys beyond the reach of every query of a head are not computed:
//! time O(L·(z + R)·E) per head, memory O(L·E), with dynamic spans O(L·(E + z + R)). No L x L
//! tensor. Post-norm, ReLU.
//!
//! # Options
//!
//! `span`: `adaptive`, z = S ẑ with a learned ẑ (H), which starts at `start` and is clamped to [0,
//! 1] after each update; `dynamic`, z (B, H, L) = S σ(x W + b) for each query, W (D, H), b = -4 at
//! first; `fixed`, |i - j| ≤ S^((l H + h) / (n H)) for head h of H in layer l of n, h from 1,
//! without R, so that windows widen with depth (Multi-Scale Transformer, Guo et al., 2020, AAAI).
//! Loss `span`, in training: the mean of z over heads and valid positions. log m is added to the
//! scores. `ramp` is R.
//!
//! # Padding
//!
//! Padded keys get weight zero.
//!
//! # Departures
//!
//! Attention goes both ways in time and includes the query's own position; S is the longest length;
//! positions are those of the embedding (the paper adds q_i·p_{i-j} to the scores). Projections
//! begin Xavier-uniform (±0.217 at D = 64), the feed-forward network Xavier-uniform (±0.177 for a
//! width of 128) with biases N(0, 1e-6²); the published code has PyTorch's linear layers, all
//! uniform within inputs^-½ (±0.125, and ±0.088 from a width of 128), biases of the network too
//! (facebookresearch/adaptive-span@27b815f models.py:123-126, 160-161). The norms' ε is
//! `block.norm_epsilon` = 1e-6, in the published code 1e-5 (torch.nn.LayerNorm). 1e-8 is added
//! there to the sums that weights are divided by (adaptive_span.py:100). That code has no `dynamic`
//! spans, whose W begins Xavier-uniform here, and no `fixed` ones. The code's ramp is one position
//! further: it gives the key before the query what the query's own position has here. Its clamp
//! passes a gradient also where m is exactly 0; here such a key is masked.

use crate::{
    mask::PADDED,
    ops::{
        activation::sigmoid,
        attention::{BlockLists, BlockMask, RelativeScores, StridedPositions},
    },
    params::Projection,
    prelude::*,
};

/// The mean of the spans.
const SPAN: Loss = Loss::new("span", 5e-7);

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "adaptive_span",
    title: "Adaptive Span",
    paper: "Adaptive Attention Span in Transformers",
    year: 2019,
    arxiv: "1905.07799",
    time: Cost::Linear("O(L·(z + R)·E)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    settings: r#"{"block": {"norm_place": "post", "activation": "relu"}}"#,
    variants: &[
        Variant::mixer::<AdaptiveSpan>(include_str!("adaptive_span.rs")).with_losses(&[SPAN]),
    ],
    ..Model::mixer::<AdaptiveSpan>()
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Adaptive,
    Dynamic,
    Fixed,
}

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = Kind::Adaptive)]
    span: Kind,
    /// R.
    #[option(default = 32.0, range = positive(65_537.0))]
    ramp: f64,
    /// ẑ at first.
    #[option(range = probability)]
    start: f64,
}

struct AdaptiveSpan {
    projections: Projections,
    dropout: Dropout,
    spans: Spans,
    /// R.
    ramp: f64,
    /// S.
    longest: f64,
    /// z at first.
    start: f64,
    heads: usize,
    width: usize,
}

/// Source of the heads' spans.
enum Spans {
    /// ẑ (H).
    OfHeads(Tensor),
    /// W and b.
    OfQueries(Linear),
    /// Windows.
    Fixed(Vec<usize>),
}

impl MixerModel for AdaptiveSpan {
    type Options = Options;

    fn check(options: &Options, context: &ModelContext) -> Result<()> {
        require(
            context.block.residual != Residual::Reversible || options.span == Kind::Fixed,
            "block.residual",
            "reversible",
            "plain, because the loss of spans needs every block's state",
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (block, vb) = (layer.block, &layer.vb);
        let (heads, longest) = (block.heads, layer.max_length as f64);
        Ok(Self {
            projections: Projections::new(layer)?,
            dropout: Dropout::new(&vb.pp("drop"), block.attention_dropout),
            spans: match options.span {
                Kind::Adaptive => {
                    let attributes = Attributes {
                        projection: Some(Projection::Clamp {
                            least: 0.0,
                            most: 1.0,
                        }),
                        ..Attributes::NO_DECAY
                    };
                    let start = Init::Const(options.start);
                    Spans::OfHeads(vb.get_with_attributes(heads, "span", start, attributes)?)
                }
                Kind::Dynamic => {
                    let (vb, weight) = (vb.pp("span"), xavier_uniform(block.dim, heads));
                    let bias = Some(Init::Const(-4.0));
                    Spans::OfQueries(Linear::new(&vb, block.dim, heads, weight, bias)?)
                }
                Kind::Fixed => {
                    let all = (block.layers * heads) as f64;
                    let share = |head| (layer.index * heads + head) as f64 / all;
                    // A whole number with a rounding error counts as that number.
                    let window = |head| (longest.powf(share(head)) + 1e-9) as usize;
                    Spans::Fixed((1..=heads).map(window).collect())
                }
            },
            ramp: options.ramp,
            longest,
            start: longest
                * match options.span {
                    Kind::Dynamic => 1.0 / (1.0 + 4f64.exp()),
                    _ => options.start,
                },
            heads,
            width: block.head_dim(),
        })
    }
}

impl AdaptiveSpan {
    /// Returns z (H, 1) or (B, H, L, 1).
    fn lengths(&self, x: &Tensor) -> Result<Option<Tensor>> {
        let shares = match &self.spans {
            Spans::OfHeads(shares) => shares.unsqueeze(1)?,
            Spans::OfQueries(linear) => {
                let shares = sigmoid(&linear.forward(x)?)?; // (B, L, H)
                swap_axes(&shares)?.unsqueeze(3)?
            }
            Spans::Fixed(_) => return Ok(None),
        };
        Ok(Some(shares.affine(self.longest, 0.0)?))
    }

    /// Returns log m of z (.., 1) at distances up to `reach` to either side, (.., 2 reach + 1).
    fn scores(&self, z: &Tensor, reach: usize) -> Result<Tensor> {
        let reach = reach as i64;
        let apart: Vec<f64> = (-reach..=reach).map(|apart| apart.abs() as f64).collect();
        let apart = Tensor::new(apart, z.device())?.to_dtype(z.dtype())?;
        let ramp = z.affine(1.0 / self.ramp, 1.0)?;
        let ramp = ramp.broadcast_sub(&apart.affine(1.0 / self.ramp, 0.0)?)?;
        let is = |choice: Tensor| choice.to_dtype(z.dtype());
        let seen = is(ramp.detach().gt(0.0)?)?;
        // At its upper end, too, m has a gradient, as by a clamp.
        let inside = (&seen * is(ramp.detach().le(1.0)?)?)?;
        // Off its ramp, m is replaced by 1 in the logarithm.
        let m = ((ramp * &inside)? + inside.affine(-1.0, 1.0)?)?;
        Ok((m.log()? + seen.affine(PADDED, -PADDED)?)?)
    }

    /// Returns the largest distance that each head reaches, for spans (H, 1) or (B, H, L, 1).
    fn reaches(&self, z: &Tensor, length: usize) -> Result<Vec<usize>> {
        let z = z.detach().to_dtype(DType::F64)?;
        let z = match z.rank() {
            4 => z.max(0)?.max(1)?,
            _ => z,
        };
        let reach = |z: &f64| ((z + self.ramp).ceil() as usize).min(length - 1);
        Ok(z.flatten_all()?.to_vec1()?.iter().map(reach).collect())
    }

    fn add_loss(&self, z: &Tensor, (batch, length): (usize, usize), pass: &Pass) -> Result<()> {
        let per_row = match z.rank() {
            4 => {
                let z = z.squeeze(3)?.mean(1)?; // (B, L)
                match pass.mask() {
                    Some(mask) => {
                        let valid = mask.valid().sum(1)?;
                        let sum = (z * mask.valid())?.sum(1)?;
                        (sum / valid.maximum(&valid.ones_like()?)?)?
                    }
                    None => (z.sum(1)? / length as f64)?,
                }
            }
            _ => z.mean_all()?.broadcast_as(batch)?,
        };
        pass.add_loss(&SPAN, &per_row)
    }
}

impl Mixer for AdaptiveSpan {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let mut options = self.projections.options(x, pass, &self.dropout)?;
        if let Spans::Fixed(windows) = &self.spans {
            options.block_masks = Some(windows_of(windows, length));
        }
        if let Some(z) = self.lengths(x)? {
            let reaches = self.reaches(&z, length)?;
            options.block_masks = blocks_within(&reaches, length);
            let reach = reaches.iter().copied().max().unwrap_or(0);
            let scores = self.scores(&z, reach)?;
            let (of_heads, of_queries) = match scores.rank() {
                4 => (None, Some(scores)),
                _ => (Some(scores), None),
            };
            options.relative = Some(RelativeScores {
                reach,
                keys: 0..length,
                of_heads,
                of_queries,
                of_keys: None,
            });
            if pass.train && pass.wants_losses() {
                self.add_loss(&z, (batch, length), pass)?;
            }
        }
        let score_mods = self.projections.score_mods();
        let y = match score_mods.is_empty() {
            true => attention::attend_packed(&self.projections.packed(x)?, &options)?,
            false => {
                let [q, k, v] = self.projections.qkv(x)?;
                score_mods.attend([&q, &k, &v], options, 0..length)?
            }
        };
        // A padded query may be further from every valid key than it sees.
        let y = match pass.mask().filter(|mask| mask.is_counted()) {
            Some(mask) => zero_padding(&y, Some(mask))?,
            None => y,
        };
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports {
            scores: Err("spans are what its scores have by distance"),
            ..Supports::ALL
        }
    }

    fn losses(&self) -> &'static [Loss] {
        match self.spans {
            Spans::Fixed(_) => &[],
            _ => &[SPAN],
        }
    }

    /// Returns the operations with the initial spans.
    fn flops(&self, length: usize) -> u64 {
        let block_masks = match &self.spans {
            Spans::Fixed(windows) => Some(windows_of(windows, length)),
            _ => {
                let reach = (self.start + self.ramp).ceil() as usize;
                blocks_within(&[reach.min(length - 1)], length)
            }
        };
        let pairs = match block_masks {
            Some(block_masks) => block_masks.pairs(self.heads),
            None => self.heads * length * length,
        };
        let spans = match &self.spans {
            Spans::OfQueries(linear) => linear.flops(length),
            _ => 0,
        };
        let score_mods = self.projections.score_mods().flops(length, pairs);
        let pairs = partial_softmax::flops(pairs, self.width);
        self.projections.flops(length) + score_mods + pairs + spans
    }
}

/// Length of the blocks of queries and keys that are computed or skipped together.
const BLOCK: usize = 64;

/// Returns blocks that hold all keys within reach of each head, none if these are all keys.
fn blocks_within(reaches: &[usize], length: usize) -> Option<BlockMasks> {
    let blocks = length.div_ceil(BLOCK);
    let mut neighbours: Vec<usize> = reaches
        .iter()
        .map(|reach| reach.div_ceil(BLOCK).min(blocks - 1))
        .collect();
    if neighbours.iter().all(|one| *one == neighbours[0]) {
        neighbours.truncate(1);
    }
    if neighbours == [blocks - 1] {
        return None;
    }
    Some(masks(&neighbours, length, |neighbours| {
        BlockLists::around(length, BLOCK, (neighbours, neighbours), |_, _| true)
    }))
}

/// Returns a sliding window for each head.
fn windows_of(windows: &[usize], length: usize) -> BlockMasks {
    masks(windows, length, |window| {
        BlockLists::window(length, window, window)
    })
}

/// Returns one mask for each of `sizes`.
fn masks(sizes: &[usize], length: usize, lists: impl Fn(usize) -> BlockLists) -> BlockMasks {
    let all = StridedPositions::all(length);
    let mask = |size: &usize| {
        let mut mask = BlockMask::new(0.0);
        lists(*size).add_to(&mut mask, 0, (all, all), |_, _| {});
        mask
    };
    BlockMasks::new(sizes.iter().map(mask).collect())
}

#[cfg(test)]
mod tests;
