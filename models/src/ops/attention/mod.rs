//! Softmax attention, for every mixer that has one.
//!
//! ```text
//! y_i = Σ_j a_ij v_j,  a_i = softmax_j(cap(scale q_i·k_j + additions of `relative` by distance))
//! ```
//!
//! The sum is over the keys j that the options' block masks let query i see. B batch, H heads, Lq
//! queries, Lk keys, E and Ev widths of a head; q (B, Lq, H E), k (B, Lk, H E), v (B, Lk, H Ev), y
//! (B, Lq, H Ev). Columns that depend on a key's position alone need not be in k: `key_columns`
//! (Lk, P) stand for P more columns, and queries have as many. The kernel and the tensor operations
//! give the same numbers up to rounding, and drop the same weights.

mod biased;
mod block_lists;
mod gather;
mod keys;
pub mod partial_softmax;
mod patterns;
mod relative;
mod score_functions;
mod score_mod;
mod sparse;
#[cfg(test)]
pub(crate) mod testing;

pub(in crate::ops) mod cpu;
mod cuda;

use candle_core::Tensor;

pub use self::cpu::{
    AttentionDropout, AttentionOptions, BlockMask, BlockMasks, QueryRange, QueryRanges,
    RelativeScores,
};
pub(crate) use self::patterns::StridedPositions;
pub use self::{
    biased::attend_biased, block_lists::BlockLists, partial_softmax::WeightDropout,
    score_functions::ScoreFunctions,
};
use self::{
    partial_softmax::by_head,
    score_mod::{Pairs, ScoreMod},
    sparse::Operands,
};
use super::{check, matmul, softmax};
use crate::cuda::Gpu;
use crate::ops::supports;
use crate::{Mask, Result};

/// Returns softmax attention y (B, Lq, H Ev) of queries q (B, Lq, H E) on keys k (B, Lk, H E) and
/// values v (B, Lk, H Ev). There are Lq queries and Lk keys. E and Ev are the widths of a head.
/// With [`AttentionOptions::key_columns`] (Lk, P), q is (B, Lq, H (E + P)).
///
/// # Errors
/// If shapes do not fit, or the block masks are for another number of heads or longer sequences.
pub fn attend(q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    if supports(q) {
        return Ok(cpu::attention(q, k, v, options)?);
    }
    on_gpu_or_composed(q, k, v, options)
}

/// Returns softmax self-attention (B, L, H E). `qkv` (B, L, 3 H E) has the queries first, then the
/// keys, then the values.
///
/// # Errors
/// Errors of [`attend`].
pub fn attend_packed(qkv: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    let width = qkv.dim(2)?;
    check(width.is_multiple_of(3), "attention", || {
        format!("width {width} is not three times that of the heads")
    })?;
    if supports(qkv) {
        return Ok(cpu::attention_packed(qkv, options)?);
    }
    let width = width / 3;
    let [q, k, v] = [0, 1, 2].map(|index: usize| qkv.narrow(2, index * width, width)?.contiguous());
    on_gpu_or_composed(&q?, &k?, &v?, options)
}

fn on_gpu_or_composed(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    options: &AttentionOptions,
) -> Result<Tensor> {
    let Some(gpu) = Gpu::of(q) else {
        return composed(q, k, v, options);
    };
    // The tables of block masks are made for the positions that there are.
    let ((batch, queries, row), keys) = (q.dims3()?, k.dim(1)?);
    options.check(batch, (queries, keys), [row, k.dim(2)?, v.dim(2)?])?;
    match cuda::Form::of([q, k, v], options) {
        Some(form) => cuda::attend(&gpu, [q, k, v], &form, options),
        None => composed(q, k, v, options),
    }
}

/// Computes [`attend`], with the same shapes, by candle's operations for any float type and device.
/// Without block masks all weights (B, H, Lq, Lk) are in memory at once.
///
/// # Errors
/// Errors of [`attend`].
pub fn composed(q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    let ((batch, queries, row), keys, heads) = (q.dims3()?, k.dim(1)?, options.heads);
    options.check(batch, (queries, keys), [row, k.dim(2)?, v.dim(2)?])?;
    let k = &with_columns(k, heads, options.key_columns.as_ref())?;
    let split = |x: &Tensor| by_head(&x.reshape((batch, x.dim(1)?, heads, x.dim(2)? / heads))?);
    let usual = || ((row / heads) as f64).powf(-0.5);
    let scale = options.scale.unwrap_or_else(usual);
    let (q, k, v) = (split(&q.affine(scale, 0.0)?)?, split(k)?, split(v)?); // (B, H, L, E)
    let mask = options.mask.as_ref().map(Mask::new).transpose()?;
    let dropout = options.dropout.as_ref();
    let steps = score_mod::of_options(options);
    let y = match &options.block_masks {
        None => {
            let scores = all_scores(&q, &k, &steps)?;
            weigh(&scores, &v, mask.as_ref(), dropout)?
        }
        Some(block_masks) => {
            let (q, k, v) = (&q, &k, &v);
            let operands = Operands {
                q,
                k,
                v,
                mask: mask.as_ref(),
                dropout,
                score_mods: &steps,
            };
            sparse::attend(&operands, block_masks.all())?
        }
    };
    Ok(by_head(&y)?.flatten_from(2)?)
}

/// Returns keys (B, Lk, H E) with `columns` (Lk, P) after those of each head: (B, Lk, H (E + P)).
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn with_columns(k: &Tensor, heads: usize, columns: Option<&Tensor>) -> Result<Tensor> {
    let Some(columns) = columns else {
        return Ok(k.clone());
    };
    let (batch, keys, row) = k.dims3()?;
    let (width, wider) = (row / heads, columns.dim(1)?);
    let columns = columns.reshape((1, keys, 1, wider))?;
    let columns = columns.broadcast_as((batch, keys, heads, wider))?;
    let k = k.reshape((batch, keys, heads, width))?;
    let k = Tensor::cat(&[&k, &columns.contiguous()?], 3)?;
    Ok(k.reshape((batch, keys, heads * (width + wider)))?)
}

/// Computes [`attend`] and keeps all weights in memory until the backward pass is over, as the
/// published code does.
///
/// # Errors
/// Errors of [`attend`].
pub(crate) fn attend_materialised(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    options: &AttentionOptions,
) -> Result<Tensor> {
    let empty = q.elem_count() == 0 || k.elem_count() == 0;
    if supports(q) && options.is_plain() && !empty {
        let (batch, queries, row) = q.dims3()?;
        let (keys, widths) = (k.dim(1)?, [row, k.dim(2)?, v.dim(2)?]);
        options.check(batch, (queries, keys), widths)?;
        let k = with_columns(k, options.heads, options.key_columns.as_ref())?;
        let options = AttentionOptions {
            key_columns: None,
            ..options.clone()
        };
        return Ok(cpu::attention_materialized(q, &k, v, &options)?);
    }
    composed(q, k, v, options)
}

/// Returns the weights (B, H, Lq, Lk) of [`attend`] before dropout, for queries q (B, Lq, H E) and
/// keys k (B, Lk, H E). They are for inspection, and block masks are ignored.
///
/// # Errors
/// If shapes do not fit.
pub fn weights(q: &Tensor, k: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    let ((batch, queries, row), keys, heads) = (q.dims3()?, k.dim(1)?, options.heads);
    options.check(batch, (queries, keys), [row, k.dim(2)?, row])?;
    let k = &with_columns(k, heads, options.key_columns.as_ref())?;
    let split = |x: &Tensor| by_head(&x.reshape((batch, x.dim(1)?, heads, row / heads))?);
    let scale = options.scale.unwrap_or(((row / heads) as f64).powf(-0.5));
    let scores = all_scores(
        &split(&q.affine(scale, 0.0)?)?,
        &split(k)?,
        &score_mod::of_options(options),
    )?;
    let mask = options.mask.as_ref().map(Mask::new).transpose()?;
    softmax::masked(&scores, mask.as_ref())
}

/// Returns scores (B, H, Lq, Lk) of every query (B, H, Lq, E), scaled, on every key (B, H, Lk, E).
fn all_scores(q: &Tensor, k: &Tensor, steps: &[Box<dyn ScoreMod + '_>]) -> Result<Tensor> {
    score_mod::apply(steps, matmul(q, &k.t()?)?, Pairs::All)
}

/// Returns the scores q_i·k_j / √E, (B, H, Lq, Lk), of queries q (B, Lq, H, E) and keys k
/// (B, Lk, H, E). They are for mixers that do more with scores than take their softmax.
///
/// # Errors
/// If shapes do not fit.
pub fn scores(q: &Tensor, k: &Tensor) -> Result<Tensor> {
    let scale = (q.dim(3)? as f64).powf(-0.5);
    matmul(&by_head(&q.affine(scale, 0.0)?)?, &by_head(k)?.t()?)
}

/// Returns sums (B, H, Lq, Ev) of values v (B, H, Lk, Ev), weighted by the softmax over keys of
/// `scores` (B, H, Lq, Lk). Keys that `mask` (B, Lk) says are padding get weight 0. `dropout` drops
/// weights.
///
/// # Errors
/// If shapes do not fit.
pub fn weigh(
    scores: &Tensor,
    v: &Tensor,
    mask: Option<&Mask>,
    dropout: Option<&AttentionDropout>,
) -> Result<Tensor> {
    let weights = softmax::masked(scores, mask)?;
    let weights = match dropout {
        Some(dropout) => {
            let (_, heads, queries, keys) = weights.dims4()?;
            let factors = dropout.factors(heads, queries, keys, weights.device())?;
            (&weights * factors.to_dtype(weights.dtype())?)?
        }
        None => weights,
    };
    matmul(&weights, v)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_relative;
