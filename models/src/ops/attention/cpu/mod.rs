//! Softmax attention that never holds the L x L weights: y_i = Σ_j softmax_j(scale q_i·k_j) v_j per
//! head.
//!
//! Tiles of 64 keys by 64 queries go through the first-level cache; the backward pass needs one
//! number per query and head, the logarithm of its sum of weights (Dao et al., 2022, arXiv
//! 2205.14135). Keys are masked per example, weights can be dropped out, and blocks of 64 keys
//! without a valid one are skipped.
//!
//! Work is divided by heads, then by queries (forward) or keys (backward), in parts that depend on
//! the shape alone. A query's sums run over key blocks in order in any case; its gradient is summed
//! over the parts in order.

mod args;
mod backward;
mod bias;
mod differentiate;
mod dropout;
mod forward;
mod key_mask;
mod materialized;
mod packed_kv;
mod relative;
mod score_mod;
mod sparse;
mod weighted_sums;

use std::ops::Range;

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::unspecified;
use lra_cpu::isa::Isa;
use lra_cpu::tile::{Rows, SIDE};

use self::args::{AttentionArgs, Widths};
pub use self::bias::attention_biased;
pub use self::dropout::AttentionDropout;
use self::key_mask::KeyMask;
pub use self::materialized::attention_materialized;
pub use self::relative::RelativeScores;
use self::relative::Tables;
use self::score_mod::{Term, TermGradients};
pub use self::sparse::{BlockMask, BlockMasks, QueryRange, QueryRanges};
pub(crate) use self::sparse::{BlockView, TileView, first_weight};
use super::score_functions::ScoreFunctions;
use crate::autograd::read;
use crate::autograd::{BackwardPass, CustomOp, Gradient, GradientRows, Input, View, apply};

const NAME: &str = "attention";
/// Columns of a head from which on f32 is cut into parts, and under block masks, whose tiles are
/// smaller.
const SPLIT_WIDTH: usize = 32;
const MASKED_SPLIT_WIDTH: usize = 64;

/// Options of attention: everything besides queries, keys and values.
#[derive(Clone, Debug, Default)]
pub struct AttentionOptions {
    /// Number of heads H. Head h owns columns h E to (h + 1) E of the keys, and its share of the
    /// columns of queries and values.
    pub heads: usize,
    /// Factor on the products of queries and keys. If absent it is 1 / √(E + P), for heads E wide
    /// with P further columns (see `key_columns`).
    pub scale: Option<f64>,
    /// Mask (B, Lk) of the Lk keys of each example: 1 for a valid key, 0 for padding. A query
    /// without a valid key gets zeros. `None` if all keys are valid.
    pub mask: Option<Tensor>,
    /// Dropout of the attention weights. `None` drops nothing, as in evaluation.
    pub dropout: Option<AttentionDropout>,
    /// Block masks that list the keys that each query sees. `None` if each sees all keys.
    pub block_masks: Option<BlockMasks>,
    /// Tables of numbers that are added to the scores by distance. `None` adds nothing.
    pub relative: Option<RelativeScores>,
    /// Functions of each score, after all additions.
    pub functions: ScoreFunctions,
    /// Columns (Lk, P) that each of the Lk keys has after its own E columns, in every head and
    /// example. Queries then have E + P columns in each head. Key columns get no gradient.
    pub key_columns: Option<Tensor>,
    /// True to compute padded queries as all others. If false, padded queries of self-attention may
    /// get zeros, which takes less time.
    pub padded_queries: bool,
}

impl AttentionOptions {
    /// Returns whether scores are the scaled products of all queries and keys, key columns
    /// included: no block masks, nothing added, no functions. Every option is named here, so that a
    /// new one cannot be forgotten.
    pub(super) fn is_plain(&self) -> bool {
        let AttentionOptions {
            heads: _,
            scale: _,
            mask: _,
            dropout: _,
            block_masks,
            relative,
            functions,
            key_columns: _,
            padded_queries: _,
        } = self;
        block_masks.is_none() && relative.is_none() && functions.is_identity()
    }

    /// Refuses options that do not fit `batch` examples of `queries` and `keys`, with rows of so
    /// many numbers for each query, key and value.
    pub(crate) fn check(
        &self,
        batch: usize,
        (queries, keys): (usize, usize),
        rows: [usize; 3],
    ) -> Result<()> {
        let heads = self.heads;
        let splits = |width: usize| heads > 0 && width > 0 && width.is_multiple_of(heads);
        if let Some(width) = rows.into_iter().find(|width| !splits(*width)) {
            bail!("{NAME}: width {width} cannot be split into {heads} heads");
        }
        if self.key_columns.as_ref().is_some_and(Tensor::track_op) {
            bail!("{NAME}: columns of all keys take no gradient, and are given one to pass");
        }
        let [of_queries, of_keys, _] = rows.map(|row| row / heads);
        match &self.key_columns {
            None if of_queries == of_keys => {}
            Some(columns)
                if columns.rank() == 2
                    && columns.dim(0)? == keys
                    && of_keys + columns.dim(1)? == of_queries => {}
            columns => {
                let columns = columns.as_ref().map(Tensor::shape);
                bail!(
                    "{NAME}: {keys} keys of width {of_keys} with {columns:?} more columns for queries of width {of_queries}"
                );
            }
        }
        if self.dropout.as_ref().is_some_and(|d| d.batch() != batch) {
            bail!("{NAME}: dropout needs one counter for each of {batch} examples");
        }
        self.functions.check(NAME)?;
        if let Some(relative) = &self.relative {
            relative.check((batch, heads), (queries, keys))?;
        }
        if let Some(block_masks) = &self.block_masks {
            block_masks.check((batch, heads), (queries, keys), self.dropout.is_some())?;
        } else if self.dropout.is_some()
            && heads * queries * keys.next_multiple_of(SIDE) / 4 > u32::MAX as usize
        {
            bail!("{NAME}: {heads} heads of {queries} x {keys} weights exceed a dropout stream");
        }
        Ok(())
    }
}

/// Returns attention within a sequence from packed projections (B, L, 3 H E), queries first, then
/// keys, then values; yields (B, L, H E). Blocks of 64 queries that are all padding (blocks of a
/// block mask, where there are block masks) yield zeros.
pub fn attention_packed(qkv: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    let (batch, length, width) = qkv.dims3()?;
    let op = Attention::new(options, batch, (length, length), [width / 3; 3])?.self_attention();
    attend(op, Input::side_by_side(qkv), options)
}

/// Returns attention of queries (B, Lq, H (E + P)) on keys (B, Lk, H E) and values (B, Lk, H Ev);
/// yields (B, Lq, H Ev).
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    let ((batch, queries, _), (_, keys, of_keys)) = (q.dims3()?, k.dims3()?);
    let rows = [q.dim(2)?, of_keys, v.dims3()?.2];
    if k.dims() != [batch, keys, of_keys] || v.dims() != [batch, keys, rows[2]] {
        bail!(
            "{NAME}: queries {:?}, keys {:?}, values {:?}",
            q.shape(),
            k.shape(),
            v.shape()
        );
    }
    let op = Attention::new(options, batch, (queries, keys), rows)?;
    attend(op, [q, k, v].map(Input::from), options)
}

fn attend(op: Attention, [q, k, v]: [Input; 3], options: &AttentionOptions) -> Result<Tensor> {
    let [of_heads, of_queries, of_keys] = match &options.relative {
        Some(relative) => relative.tables().map(Input::from),
        None => [Input::Absent; 3],
    };
    apply(op, [q, k, v, of_heads, of_queries, of_keys])
}

/// The operands are queries, keys, values and the three tables of scores by distance, which may be
/// absent.
struct Attention {
    heads: usize,
    scale: f32,
    valid: KeyMask,
    /// True if queries and keys are those of one sequence, so that `valid` tells of both and padded
    /// queries are left out.
    self_attention: bool,
    /// As in [`AttentionOptions`].
    padded_queries: bool,
    dropout: Option<AttentionDropout>,
    block_masks: Option<BlockMasks>,
    /// Numbers and width of the columns that all keys of a position have.
    key_columns: Option<(Vec<f32>, usize)>,
    /// The largest distance in the tables, and the keys that have a position.
    distances: Option<(usize, Range<usize>)>,
    functions: ScoreFunctions,
}

impl Attention {
    fn new(
        options: &AttentionOptions,
        batch: usize,
        (queries, keys): (usize, usize),
        rows: [usize; 3],
    ) -> Result<Self> {
        options.check(batch, (queries, keys), rows)?;
        let heads = options.heads;
        let relative = options.relative.as_ref();
        Ok(Attention {
            heads,
            scale: options
                .scale
                .unwrap_or_else(|| ((rows[0] / heads) as f64).powf(-0.5)) as f32,
            valid: KeyMask::new(batch, keys, options.mask.as_ref())?,
            self_attention: false,
            padded_queries: options.padded_queries,
            dropout: options.dropout.clone(),
            block_masks: options.block_masks.clone(),
            key_columns: match &options.key_columns {
                Some(columns) => Some((
                    read(NAME, &columns.contiguous()?)?.to_vec(),
                    columns.dim(1)?,
                )),
                None => None,
            },
            distances: relative.map(|relative| (relative.reach, relative.keys.clone())),
            functions: options.functions,
        })
    }

    /// Returns this attention of a sequence on itself.
    fn self_attention(self) -> Self {
        Attention {
            self_attention: !self.padded_queries,
            ..self
        }
    }

    /// Returns the arguments of this call on queries, keys and values, without a term of the
    /// scores.
    fn args<'a>(&'a self, [q, k, v]: [&View<'a>; 3]) -> Result<AttentionArgs<'a>> {
        let (batch, queries_len, _) = q.shape.dims3()?;
        let width = |x: &View| Ok::<_, candle_core::Error>(x.shape.dims3()?.2 / self.heads);
        let widths = Widths {
            queries: width(q)?,
            keys: width(k)?,
            values: width(v)?,
        };
        let least = match &self.block_masks {
            None => SPLIT_WIDTH,
            Some(_) => MASKED_SPLIT_WIDTH,
        };
        let format = Isa::current().format();
        Ok(AttentionArgs {
            batch,
            heads: self.heads,
            queries_len,
            keys_len: k.shape.dims3()?.1,
            widths,
            scale: self.scale,
            format: format.for_width(widths.queries.min(widths.values), least),
            operands: [q, k, v].map(View::rows),
            key_columns: self.key_columns.as_ref().map(|(data, width)| Rows {
                data,
                start: 0,
                stride: *width,
                width: *width,
            }),
            valid: &self.valid,
            self_attention: self.self_attention,
            dropout: self.dropout.as_ref(),
            block_masks: self.block_masks.as_ref(),
            score_mods: self.functions.into(),
        })
    }

    fn args_with_tables<'a>(
        &'a self,
        [q, k, v, of_heads, of_queries, of_keys]: &[View<'a>; 6],
    ) -> Result<AttentionArgs<'a>> {
        let mut args = self.args([q, k, v])?;
        let tables = |(reach, keys): &(usize, Range<usize>)| Tables {
            reach: *reach,
            keys: (keys.start, keys.len()),
            queries: args.queries_len,
            heads: self.heads,
            of_heads: of_heads.given(),
            of_queries: of_queries.given(),
            of_keys: of_keys.given(),
        };
        args.score_mods.term = self.distances.as_ref().map(tables).map(Term::ByDistance);
        Ok(args)
    }

    /// Returns gradients of `len` elements as they are before they are written.
    fn start(&self, len: usize) -> Vec<f32> {
        // Blocks of keys that are hidden, or that no block mask names, are not written.
        match self.block_masks.is_none() && self.valid.all() {
            true => unspecified(len),
            false => vec![0.0; len],
        }
    }
}

impl CustomOp<6> for Attention {
    const NAME: &'static str = NAME;
    /// Base-2 logarithm of the sum of weights of each query, (B, H, Lq).
    type Saved = Vec<f32>;
    const READS_OUTPUT: bool = true;

    fn forward(&self, operands: [View; 6], _: bool) -> Result<(Vec<f32>, Shape, Self::Saved)> {
        let args = self.args_with_tables(&operands)?;
        let (output, sums) = args.forward();
        Ok((output, args.output_shape(), sums))
    }

    fn backward(
        &self,
        operands: [View; 6],
        pass: BackwardPass<Self::Saved, 6>,
    ) -> Result<[Gradient; 6]> {
        let args = self.args_with_tables(&operands)?;
        let [q, k, v, tables @ ..] = operands;
        let mut gradients = GradientRows::new(&[q, k, v], |len| self.start(len));
        let [.., of_heads, of_queries, of_keys] = pass.expected;
        let mut of_tables = relative::Buffers::new(&args, [of_heads, of_queries, of_keys], &tables);
        gradients.write(|targets| {
            let outputs = [pass.y, pass.dy];
            let tables = of_tables.targets();
            let terms = tables.as_ref().map(TermGradients::ByDistance);
            args.backward(&pass.saved, outputs, targets, terms);
        });
        let [dq, dk, dv] = gradients.into_gradients();
        let [of_heads, of_queries, of_keys] = of_tables.into_gradients(&args);
        Ok([dq, dk, dv, of_heads, of_queries, of_keys])
    }
}

#[cfg(test)]
mod tests;
