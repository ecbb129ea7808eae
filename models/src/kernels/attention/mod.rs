//! Softmax attention that never holds the L x L weights: y_i = Σ_j softmax_j(scale q_i·k_j) v_j per head.
//!
//! Tiles of 64 keys by 64 queries go through the first-level cache; what the backward pass needs is one number
//! per query and head, the logarithm of its sum of weights (Dao et al., 2022, arXiv 2205.14135). Keys are
//! masked per example, weights can be dropped out, and blocks of 64 keys without a real one cost nothing.
//!
//! Work is shared out by heads, then by queries (forward) or keys (backward), in parts that depend on the shape
//! alone. A query's sums run over key blocks in order in any case; its gradient is summed over the parts in order.

mod backward;
mod bias;
mod dropout;
mod forward;
mod key_mask;
mod problem;
mod relative;
mod sparse;

use std::sync::OnceLock;

use candle_core::{Result, Tensor, bail};

pub use self::bias::attention_biased;
pub use self::dropout::AttentionDropout;
use self::key_mask::KeyMask;
use self::problem::Problem;
pub use self::relative::RelativeScores;
pub use self::sparse::{BlockMask, BlockMasks, QueryRange, QueryRanges};
pub(crate) use self::sparse::{BlockView, TileView, first_weight};
use super::buffers::{StridedRowsMut, uninit};
use super::tile::{Operand, SIDE};
use super::triple::{QkvOp, Sizes, Triple};

const NAME: &str = "attention";

/// What attention needs besides queries, keys and values.
#[derive(Clone, Debug, Default)]
pub struct AttentionOptions {
    /// Number of heads H; head h owns columns h E to (h + 1) E.
    pub heads: usize,
    /// Factor on the scores; 1 / sqrt E if absent.
    pub scale: Option<f64>,
    /// (B, keys), 1 for a real key and 0 for padding. A query without a real key yields zeros.
    pub mask: Option<Tensor>,
    /// Dropout of the weights, in training.
    pub dropout: Option<AttentionDropout>,
    /// Which keys each query sees; all if absent.
    pub block_masks: Option<BlockMasks>,
    /// What is added to the scores by distance.
    pub relative: Option<RelativeScores>,
}

impl AttentionOptions {
    /// Refuses what does not fit `batch` examples with rows of `width` numbers for each of `queries` and `keys`.
    pub(crate) fn check(
        &self,
        batch: usize,
        (queries, keys): (usize, usize),
        width: usize,
    ) -> Result<()> {
        let heads = self.heads;
        if heads == 0 || width == 0 || !width.is_multiple_of(heads) {
            bail!("{NAME}: width {width} cannot be split into {heads} heads");
        }
        if self.dropout.as_ref().is_some_and(|d| d.batch() != batch) {
            bail!("{NAME}: dropout needs one counter for each of {batch} examples");
        }
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

/// Attention within a sequence from packed projections (B, L, 3 H E), queries first, then keys, then values; yields (B, L, H E).
/// Blocks of 64 queries that are all padding (blocks of a block mask, where there are block masks) yield zeros.
pub fn attention_packed(qkv: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    let (batch, length, width) = qkv.dims3()?;
    let op = Attention::new(options, batch, (length, length), width / 3)?.within();
    if width % 3 != 0 {
        bail!("{NAME}: width {width} is not three times that of the heads");
    }
    if let Some(relative) = &options.relative {
        return relative::attend(qkv, &[], op, relative);
    }
    qkv.contiguous()?.apply_op1(Triple(op))
}

/// Attention of queries (B, Lq, H E) on keys and values (B, Lk, H E); yields (B, Lq, H E).
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    let ((batch, queries, width), keys) = (q.dims3()?, k.dim(1)?);
    if k.dims() != [batch, keys, width] || v.dims() != k.dims() {
        bail!(
            "{NAME}: queries {:?}, keys {:?}, values {:?}",
            q.shape(),
            k.shape(),
            v.shape()
        );
    }
    let op = Attention::new(options, batch, (queries, keys), width)?;
    if let Some(relative) = &options.relative {
        return relative::attend(q, &[k, v], op, relative);
    }
    q.contiguous()?
        .apply_op3(&k.contiguous()?, &v.contiguous()?, Triple(op))
}

struct Attention {
    heads: usize,
    scale: f32,
    real: KeyMask,
    /// Whether queries and keys are those of one sequence, so that `real` tells of both.
    within: bool,
    dropout: Option<AttentionDropout>,
    block_masks: Option<BlockMasks>,
    /// Base-2 logarithm of the sum of weights of each query, (B, H, Lq).
    sums: OnceLock<Vec<f32>>,
}

impl Attention {
    fn new(
        options: &AttentionOptions,
        batch: usize,
        (queries, keys): (usize, usize),
        width: usize,
    ) -> Result<Self> {
        options.check(batch, (queries, keys), width)?;
        let heads = options.heads;
        Ok(Attention {
            heads,
            scale: options
                .scale
                .unwrap_or_else(|| ((width / heads) as f64).powf(-0.5)) as f32,
            real: KeyMask::new(batch, keys, options.mask.as_ref())?,
            within: false,
            dropout: options.dropout.clone(),
            block_masks: options.block_masks.clone(),
            sums: OnceLock::new(),
        })
    }

    /// The same, of a sequence on itself.
    fn within(self) -> Self {
        Attention {
            within: true,
            ..self
        }
    }

    fn problem<'a>(
        &'a self,
        [(batch, queries_len, width), (_, keys_len, _), _]: Sizes,
        operands: [Operand<'a>; 3],
    ) -> Problem<'a> {
        Problem {
            batch,
            heads: self.heads,
            queries_len,
            keys_len,
            width: width / self.heads,
            scale: self.scale,
            operands,
            real: &self.real,
            within: self.within,
            dropout: self.dropout.as_ref(),
            block_masks: self.block_masks.as_ref(),
            bias: None,
            relative: None,
        }
    }

    fn attend(&self, problem: &Problem) -> Vec<f32> {
        let (output, sums) = problem.forward();
        // The operation runs once: each call of attention makes its own.
        let _ = self.sums.set(sums);
        output
    }

    fn sums(&self) -> Result<&[f32]> {
        match self.sums.get() {
            Some(sums) => Ok(sums),
            None => bail!("{NAME}: backward before forward"),
        }
    }
}

impl QkvOp for Attention {
    const NAME: &'static str = NAME;

    fn forward(&self, sizes: Sizes, operands: [Operand; 3]) -> Result<Vec<f32>> {
        Ok(self.attend(&self.problem(sizes, operands)))
    }

    fn backward(
        &self,
        sizes: Sizes,
        operands: [Operand; 3],
        outputs: [&[f32]; 2],
        targets: [StridedRowsMut; 3],
    ) -> Result<()> {
        let problem = self.problem(sizes, operands);
        problem.backward(self.sums()?, outputs, targets, None);
        Ok(())
    }

    fn start(&self, len: usize) -> Vec<f32> {
        // Blocks of keys that are hidden, or that no block mask names, are not written.
        match self.block_masks.is_none() && self.real.all() {
            true => uninit(len),
            false => vec![0.0; len],
        }
    }
}

#[cfg(test)]
mod tests;
