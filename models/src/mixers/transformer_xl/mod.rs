//! Transformer-XL. Dai et al., 2019, "Transformer-XL: Attentive Language Models beyond a
//! Fixed-Length Context", arXiv:1901.02860; in both directions within a segment as in XLNet, Yang
//! et al., 2019, arXiv:1906.08237.
//!     y_i = Σ_j softmax_j(((q_i + u)·k_j + (q_i + w)·W_R r_{i - j}) / √E) v_j over the keys j of i's segment and of the M positions before it
//! x, y (B, L, D) in segments of S positions, q = x W_Q; k, v of x within the segment and of SG(x)
//! before it, where SG passes no gradient; u, w (H, E) shared by all layers; W_R (D to H E) belongs
//! to each layer; r_δ = [sin ω_c δ ; cos ω_c δ], ω_c = 10000^{-2 c / D}. B batch, H heads, E width
//! of a head. The paper keeps the inputs of each layer from segment to segment. Here the whole
//! sequence is available, so a layer computes all segments at once. Time O(L·(S + M)·D) per head,
//! memory O(L·(E + D)). Information only moves forward in time, so a CLS token is moved behind the
//! last valid token of its row for the blocks, and back to the front after them. `head.pooling =
//! first` reads a position that has seen only its own segment. Post-norm blocks and no other
//! positions, as published. With pre-norm blocks, the gradient of a norm's own weights also stops
//! at the memory. Dropout on the weights.
//!
//! # Options
//!
//! `segment` S (0: ⌈N/4⌉, at most 256; N the longest length); `memory` M (0: S); `causal`: only
//! keys up to i, as published; `detach`: if false, gradients pass through the memory, which is our
//! addition; `untie`: each layer has its own u and w.
//!
//! # Padding
//!
//! Padding is hidden, in segments and in memory.
//!
//! # Departures
//!
//! Weights begin Xavier-uniform (±0.217 at D = 64, ±0.177 of a feed-forward network of a width of
//! 128, with biases N(0, 1e-6²)) and gains of norms as 1; in the published code weights begin N(0,
//! 0.02²), biases as 0 and gains N(1, 0.02²) (kimiyoung/transformer-xl@44781ed
//! pytorch/train.py:210-256). u and w begin N(0, 0.02²) there and here. The norms' ε is
//! `block.norm_epsilon` = 1e-6, in the published code 1e-5 (torch.nn.LayerNorm).

use std::ops::Range;

use crate::{
    layers::TransformerXl,
    ops::attention::{BlockMask, QueryRange},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "transformer_xl",
    title: "Transformer-XL",
    paper: "Transformer-XL: Attentive Language Models beyond a Fixed-Length Context",
    year: 2019,
    arxiv: "1901.02860",
    time: Cost::Linear("O(L·(S + M)·D)"),
    memory: Cost::Linear("O(L·D)"),
    reference: Reference::Package,
    family: Family::Xformer,
    settings: SETTINGS,
    variants: &[Variant::paper(build, include_str!("mod.rs"))],
    ..Model::with_options::<Options>()
};

/// Settings of all models with recurrence.
pub(super) const SETTINGS: &str =
    r#"{"block": {"norm_place": "post"}, "embed": {"positions": "none"}}"#;

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// S.
    #[option(range = int(0, LONGEST))]
    pub(super) segment: usize,
    /// M.
    #[option(range = int(0, LONGEST))]
    pub(super) memory: usize,
    pub(super) causal: bool,
    #[option(default = true)]
    pub(super) detach: bool,
    pub(super) untie: bool,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    let stack = encoder::blocks(context, |layer| {
        Ok(Box::new(Plain(Recurrence::new(layer, &options)?)))
    })?;
    encoder::with_cls_last(stack, context)
}

/// Attention whose memory holds positions alone.
struct Plain(Recurrence);

impl Mixer for Plain {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.0.attend(x, pass, None)
    }

    fn supports(&self) -> Supports {
        TAKES
    }

    fn is_causal(&self) -> bool {
        self.0.causal
    }

    fn stops_gradients(&self) -> Option<&'static str> {
        self.0
            .detach
            .then_some("the memory of earlier segments is a constant")
    }

    fn flops(&self, length: usize) -> u64 {
        self.0.flops(length, &[])
    }
}

pub(super) const TAKES: Supports =
    Supports::none("scores and memory are what make this model, and are part of it already");

/// Attention of segments on themselves and on the positions before them.
pub(super) struct Recurrence {
    pub(super) projections: Projections,
    pub(super) relative: TransformerXl,
    dropout: Dropout,
    /// S.
    pub(super) segment: usize,
    /// M.
    pub(super) memory: usize,
    pub(super) causal: bool,
    pub(super) detach: bool,
    pub(super) heads: usize,
    width: usize,
}

/// Rows that segments see beside positions: they form a sequence of their own.
pub(super) struct Older {
    /// (B, n, D).
    pub(super) rows: Tensor,
    /// (B, n), 1 for valid rows.
    pub(super) valid: Tensor,
    /// The rows that each segment sees; their distances are those of positions right before the
    /// segment's memory.
    pub(super) seen: Vec<Range<usize>>,
}

impl Recurrence {
    pub(super) fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (block, vb) = (layer.block, layer.vb.pp("bias"));
        let biases = match options.untie {
            true => vb.clone(),
            false => layer.shared.pp("bias"),
        };
        let segment = match options.segment {
            0 => layer.max_length.div_ceil(4).min(256),
            segment => segment.min(layer.max_length),
        };
        Ok(Self {
            projections: Projections::new(layer)?,
            relative: TransformerXl::new(&vb, &biases, block)?,
            dropout: Dropout::new(&layer.vb.pp("drop"), block.attention_dropout),
            segment,
            memory: match options.memory {
                0 => segment,
                memory => memory.min(layer.max_length),
            },
            causal: options.causal,
            detach: options.detach,
            heads: block.heads,
            width: block.head_dim(),
        })
    }

    /// Returns ⌈L/S⌉.
    pub(super) fn segments(&self, length: usize) -> usize {
        length.div_ceil(self.segment)
    }

    /// Returns x as the memory keeps it, without gradient if it is detached.
    pub(super) fn append_memory(&self, x: &Tensor) -> Tensor {
        match self.detach {
            true => x.detach(),
            false => x.clone(),
        }
    }

    /// Maps (B, L, D) to (B, L, D).
    pub(super) fn attend(&self, x: &Tensor, pass: &Pass, older: Option<&Older>) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let seen = older.map_or(&[][..], |older| &older.seen);
        let keys = self.keys(length, seen);
        let [q, k, v] = self.projections.unrotated(x)?; // (B, L, H E)
        let (mut k, mut v) = (vec![k], vec![v]);
        let mut valid = vec![match pass.mask() {
            Some(mask) => mask.valid().clone(),
            None => Tensor::ones((batch, length), x.dtype(), x.device())?,
        }];
        if keys.memory > 0 {
            let [more_k, more_v] = self.projections.keys_and_values(&self.append_memory(x))?;
            k.push(more_k);
            v.push(more_v);
            valid.push(valid[0].clone());
        }
        if let Some(older) = older {
            let rows = older.seen.iter().cloned().flatten();
            let rows: Vec<u32> = rows.map(|row| row as u32).collect();
            let rows = Tensor::new(rows, x.device())?.broadcast_left(batch)?;
            let rows = rows.contiguous()?;
            let [more_k, more_v] = self.projections.keys_and_values(&older.rows)?;
            k.push(take(&more_k, &rows)?);
            v.push(take(&more_v, &rows)?);
            valid.push(take(&older.valid.unsqueeze(2)?, &rows)?.squeeze(2)?);
        }
        let options = AttentionOptions {
            heads: self.heads,
            mask: match pass.mask().is_some() || older.is_some() {
                true => Some(Tensor::cat(&valid, 1)?),
                false => None,
            },
            dropout: self.dropout.of_attention(batch, pass),
            block_masks: Some(keys.block_masks),
            ..AttentionOptions::default()
        };
        let all = |parts: &[Tensor]| cat(&parts.iter().collect::<Vec<_>>(), 1);
        let (k, v) = (all(&k)?, all(&v)?);
        let places = keys.positions.iter().map(|position| Some(*position));
        let places = self.relative.places(places, x)?;
        let y = self
            .relative
            .attend(&attention::attend, [&q, &k, &v], options, &places)?;
        self.projections.merge(&y)
    }

    /// Returns the number of positions that have a second copy of their keys, which passes no
    /// gradient.
    fn copies(&self, length: usize) -> usize {
        match self.detach && length > self.segment {
            true => length,
            false => 0,
        }
    }

    /// Returns the keys of a sequence of `length`, its segments seeing `older` rows.
    fn keys(&self, length: usize, older: &[Range<usize>]) -> Keys {
        let memory = self.copies(length);
        let mut positions: Vec<i64> = (0..length as i64).collect();
        positions.extend_from_within(..memory);
        let mut block_mask = BlockMask::new(0.0);
        for segment in 0..self.segments(length) {
            let start = segment * self.segment;
            let end = (start + self.segment).min(length);
            let before = start.saturating_sub(self.memory) + memory..start + memory;
            let mut past = pieces(&mut block_mask, before);
            let own = pieces(&mut block_mask, start..end);
            if let Some(seen) = older.get(segment) {
                let first = positions.len();
                let last = start as i64 - self.memory as i64;
                positions.extend(last - seen.len() as i64..last);
                past.extend(pieces(&mut block_mask, first..positions.len()));
            }
            for queries in cut(start..end) {
                block_mask.query_block(queries.clone().map(|query| query as u32));
                for (keys, _) in &past {
                    block_mask.allow(*keys, None);
                }
                for (keys, places) in &own {
                    if !self.causal || places.end <= queries.start + 1 {
                        block_mask.allow(*keys, None);
                    } else if places.start < queries.end {
                        let later = |key: usize| key.saturating_sub(queries.start);
                        let ranges = places.clone().map(|key| {
                            QueryRange::new(later(key).min(queries.len())..queries.len(), None)
                        });
                        let ranges = block_mask.ranges(ranges);
                        block_mask.allow(*keys, Some(&ranges));
                    }
                }
            }
        }
        Keys {
            block_masks: BlockMasks::new(vec![block_mask]),
            positions,
            memory,
        }
    }

    /// Counts the operations for one sequence.
    pub(super) fn flops(&self, length: usize, older: &[Range<usize>]) -> u64 {
        let pairs = |segment: usize| {
            let start = segment * self.segment;
            let own = start..(start + self.segment).min(length);
            let seen = older.get(segment).map_or(0, Range::len);
            let past = own.len() * (start.min(self.memory) + seen);
            past + match self.causal {
                false => own.len().pow(2),
                // Tiles that the last query of a block does not see are left out.
                true => cut(own)
                    .map(|queries| queries.len() * (queries.end - start))
                    .sum(),
            }
        };
        let pairs: usize = (0..self.segments(length)).map(pairs).sum();
        let pairs = pairs * self.heads;
        let rows = older.last().map_or(0, |seen| seen.end);
        self.projections
            .flops_to(length, length + self.copies(length) + rows)
            + partial_softmax::flops(pairs, self.width)
            + self.relative.flops(length, pairs)
    }
}

/// Keys of tokens, of tokens as memory and of older rows, one after the other.
struct Keys {
    block_masks: BlockMasks,
    /// Positions of all keys.
    positions: Vec<i64>,
    /// Number of keys of tokens as memory.
    memory: usize,
}

/// Returns equal parts of `range`, of at most 64 positions.
fn cut(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let size = range.len().div_ceil(range.len().div_ceil(64).max(1)).max(1);
    let end = range.end;
    range
        .step_by(size)
        .map(move |start| start..(start + size).min(end))
}

/// Returns blocks of the keys of `range`: the number of each, and its keys.
fn pieces(block_mask: &mut BlockMask, range: Range<usize>) -> Vec<(usize, Range<usize>)> {
    cut(range)
        .map(|keys| {
            let block = block_mask.key_block(keys.clone().map(|key| key as u32));
            (block, keys)
        })
        .collect()
}

#[cfg(test)]
mod tests;
