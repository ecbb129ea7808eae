//! Softmax attention, for every mixer that has one: the only place that asks whether the kernel can compute it.
//!     y_i = Σ_j a_ij v_j,  a_i = softmax_j(scale q_i·k_j + what `relative` adds by distance) over the keys j that the options' block masks let query i see
//! B batch, H heads, Lq queries, Lk keys, E width of a head; q, y (B, Lq, H E), k, v (B, Lk, H E).
//! The kernel and the tensor operations give the same numbers up to rounding, and drop the same weights.

mod gather;
mod keys;
mod relative;
mod sparse;

use candle_core::Tensor;

use self::sparse::Operands;
use crate::{
    Mask, Result,
    kernels::{self, AttentionDropout, AttentionOptions, RelativeScores},
    layers::{matmul::matmul, partial_softmax::by_head, softmax},
};

/// Attention of queries on keys and values.
///
/// # Errors
/// If shapes do not fit, or the block masks are for another number of heads or longer sequences.
pub fn attend(q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    if kernels::supports(q) {
        return Ok(kernels::attention(q, k, v, options)?);
    }
    composed(q, k, v, options)
}

/// Attention of a sequence on itself, of queries, keys and values side by side (B, L, 3 H E).
///
/// # Errors
/// Those of [`attend`].
pub fn attend_packed(qkv: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    if kernels::supports(qkv) {
        return Ok(kernels::attention_packed(qkv, options)?);
    }
    let width = qkv.dim(2)? / 3;
    let [q, k, v] = [0, 1, 2].map(|index: usize| qkv.narrow(2, index * width, width)?.contiguous());
    composed(&q?, &k?, &v?, options)
}

/// The same by tensor operations, for any type and device. Without block masks all weights are in memory at once.
///
/// # Errors
/// Those of [`attend`].
pub fn composed(q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    let ((batch, queries, row), keys, heads) = (q.dims3()?, k.dim(1)?, options.heads);
    options.check(batch, (queries, keys), row)?;
    let width = row / heads;
    let split = |x: &Tensor| by_head(&x.reshape((batch, x.dim(1)?, heads, width))?);
    let scale = options.scale.unwrap_or((width as f64).powf(-0.5));
    let (q, k, v) = (split(&q.affine(scale, 0.0)?)?, split(k)?, split(v)?); // (B, H, L, E)
    let mask = options.mask.as_ref().map(Mask::new).transpose()?;
    let dropout = options.dropout.as_ref();
    let relative = options.relative.as_ref();
    let y = match &options.block_masks {
        None => dense(&q, &k, &v, mask.as_ref(), (dropout, relative))?,
        Some(block_masks) => {
            let (q, k, v) = (&q, &k, &v);
            let operands = Operands {
                q,
                k,
                v,
                mask: mask.as_ref(),
                dropout,
                relative,
            };
            sparse::attend(&operands, block_masks.all())?
        }
    };
    Ok(by_head(&y)?.reshape((batch, queries, row))?)
}

/// Every query (B, H, Lq, E) on every key (B, H, Lk, E).
fn dense(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Mask>,
    (dropout, relative): (Option<&AttentionDropout>, Option<&RelativeScores>),
) -> Result<Tensor> {
    let (_, heads, queries, _) = q.dims4()?;
    let scores = matmul(q, &k.t()?)?; // (B, H, Lq, Lk)
    let scores = match relative {
        Some(relative) => relative::add(relative, &scores)?,
        None => scores,
    };
    let weights = softmax::masked(&scores, mask)?;
    let weights = match dropout {
        Some(dropout) => {
            let factors = dropout.factors(heads, queries, k.dim(2)?, q.device())?;
            (weights * factors.to_dtype(q.dtype())?)?
        }
        None => weights,
    };
    matmul(&weights, v)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_relative;
