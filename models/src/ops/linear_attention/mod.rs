//! Attention by a kernel that is a product of features, in time linear in the length
//! (arXiv:2006.16236).
//!
//! ```text
//! y_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j) = φ(q_i) S / (φ(q_i)·z)
//! S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j)
//! ```

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

pub use self::cpu::FeatureMap;
use super::{activation, check, exact_matmul, linear, matmul};
use crate::ops::supports;
use crate::{Mask, Result};

/// Epsilon for denominators that have none in the paper: it only turns 0 / 0 into 0.
/// Its square is a normal f32, because the gradient of a reciprocal divides by the square.
pub(crate) const EPS: f64 = 1e-18;

/// Returns attention y (B, Lq, H, E) by products of features:
/// `y_i = Σ_j φ(q_i)·φ(k_j) v_j / (Σ_j φ(q_i)·φ(k_j) + eps)` over the valid keys j.
///
/// The Lq queries q are (B, Lq, H, M), the L keys k (B, L, H, M) and the values v (B, L, H, E). M
/// is the width that `map` φ takes. Features must not be negative. Keys that `mask` (B, L) says are
/// padding are left out of both sums, and their features must be finite. With an `eps` above 0, a
/// sequence without a valid key gives zeros.
///
/// # Errors
/// If a tensor operation fails.
pub fn attend(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    map: FeatureMap,
    eps: f64,
    mask: Option<&Mask>,
) -> Result<Tensor> {
    if supports(v) {
        let options = cpu::LinearAttentionOptions {
            heads: v.dim(2)?,
            map,
            eps,
            mask: mask.map(|mask| mask.valid().clone()),
        };
        let (batch, queries, heads, width) = (q.dim(0)?, q.dim(1)?, v.dim(2)?, v.dim(3)?);
        let [q, k, v] = [q, k, v].map(|x| x.flatten_from(2));
        let y = cpu::linear_attention(&q?, &k?, &v?, &options)?;
        return Ok(y.reshape((batch, queries, heads, width))?);
    }
    composed([q, k, v], &map, eps, mask)
}

fn composed(
    [q, k, v]: [&Tensor; 3],
    map: &FeatureMap,
    eps: f64,
    mask: Option<&Mask>,
) -> Result<Tensor> {
    let heads = |x: &Tensor| x.transpose(1, 2)?.contiguous(); // (B, H, L, ..)
    let [q, k] = features(map, q, k, mask)?;
    let (q, k, v) = (heads(&q)?, heads(&k)?, heads(v)?);
    let (batch, heads, length, _) = v.dims4()?;
    // Sums over positions are products with a row of ones, which is much faster than candle's
    // reductions.
    let (v, ones) = match mask {
        Some(mask) => {
            let valid = mask.valid();
            let column = valid.reshape((batch, 1, length, 1))?;
            let row = valid.reshape((batch, 1, 1, length))?;
            (v.broadcast_mul(&column)?, row)
        }
        None => {
            let ones = Tensor::ones((1, 1, 1, length), v.dtype(), v.device())?;
            (v, ones)
        }
    };
    let ones = ones.broadcast_as((batch, heads, 1, length))?.contiguous()?;
    let sums = matmul(&k.t()?, &v)?; // S (B, H, M, E)
    let totals = exact_matmul(&ones, &k)?; // z (B, H, 1, M)
    let weights = exact_matmul(&q, &totals.t()?)?; // (B, H, L, 1)
    let scale = weights.affine(1.0, eps)?.recip()?;
    let y = matmul(&q, &sums)?.broadcast_mul(&scale)?; // (B, H, L, E)
    Ok(y.transpose(1, 2)?.contiguous()?)
}

/// Returns linear self-attention (B, L, H E) in `heads` H, as [`attend`] computes it. `qkv`
/// (B, L, 3 H E) has all queries first, then keys, then values. `map`, `eps` and `mask` (B, L) are
/// those of [`attend`].
///
/// # Errors
/// If a tensor operation fails.
pub fn attend_packed(
    qkv: &Tensor,
    heads: usize,
    map: FeatureMap,
    eps: f64,
    mask: Option<&Mask>,
) -> Result<Tensor> {
    // The kernel for packed projections leaves padded queries out.
    let counted = mask.is_some_and(Mask::is_counted);
    if supports(qkv) && !counted {
        let options = cpu::LinearAttentionOptions {
            heads,
            map,
            eps,
            mask: mask.map(|mask| mask.valid().clone()),
        };
        return Ok(cpu::linear_attention_packed(qkv, &options)?);
    }
    let (batch, length, row) = qkv.dims3()?;
    check(row.is_multiple_of(3), "kernel attention", || {
        format!("width {row} is not three times that of the heads")
    })?;
    let part = |index: usize| -> Result<Tensor> {
        let part = qkv.narrow(2, index * (row / 3), row / 3)?.contiguous()?;
        Ok(part.reshape((batch, length, heads, ()))?)
    };
    let y = attend(&part(0)?, &part(1)?, &part(2)?, map, eps, mask)?;
    Ok(y.flatten_from(2)?)
}

/// Returns the features of queries and of keys, (B, L, H, M) each.
fn features(map: &FeatureMap, q: &Tensor, k: &Tensor, mask: Option<&Mask>) -> Result<[Tensor; 2]> {
    Ok(match map {
        FeatureMap::Given => [q.clone(), k.clone()],
        FeatureMap::EluPlusOne => [activation::elu_plus_one(q)?, activation::elu_plus_one(k)?],
        FeatureMap::Relu { floor } => [activation::relu(q, *floor)?, activation::relu(k, *floor)?],
        FeatureMap::Favor {
            directions,
            epsilon,
        } => {
            let directions = directions.detach();
            let project = |x: &Tensor| linear(x, &directions, None);
            let (q_projected, mut k_projected) = (project(q)?, project(k)?);
            let mut k = k.clone();
            // Shifts are constants (they cancel but for ε), so no gradient has to pass through the
            // maxima.
            let q_shift = q_projected.detach().max_keepdim(D::Minus1)?; // (B, L, H, 1)
            let k_largest = k_projected.detach().max_keepdim(D::Minus1)?; // (B, L, H, 1)
            let k_shift = match mask {
                Some(mask) => {
                    let (batch, length, _, _) = k.dims4()?;
                    let column = |x: &Tensor| x.reshape((batch, length, 1, 1));
                    let valid = column(mask.valid())?;
                    let any = mask.has_valid().reshape((batch, 1, 1, 1))?;
                    let shift = k_largest.broadcast_add(&column(mask.additive())?)?;
                    let shift = shift.max_keepdim(1)?.broadcast_mul(&any)?; // (B, 1, H, 1)
                    // A padded key becomes a zero that projects to the shift, so that its features
                    // are always 1 + ε.
                    k = k.broadcast_mul(&valid)?;
                    let padded = valid.affine(-1.0, 1.0)?.broadcast_mul(&shift)?; // (B, L, H, 1)
                    k_projected = k_projected.broadcast_mul(&valid)?.broadcast_add(&padded)?;
                    shift
                }
                None => k_largest.max_keepdim(1)?,
            };
            let epsilon = f64::from(*epsilon);
            [
                (exponential(&q_projected, q, &q_shift)? + epsilon)?,
                (exponential(&k_projected, &k, &k_shift)? + epsilon)?,
            ]
        }
    })
}

/// Returns exp(w·x' - |x'|²/2 - shift) with x' = x / E^¼, (B, L, H, M).
pub(crate) fn exponential(projected: &Tensor, x: &Tensor, shift: &Tensor) -> Result<Tensor> {
    let scale = (x.dim(D::Minus1)? as f64).powf(-0.5) / 2.0;
    let half = x.sqr()?.sum_keepdim(D::Minus1)?.affine(scale, 0.0)?; // (B, L, H, 1)
    let exponent = projected.broadcast_sub(&half.broadcast_add(shift)?)?;
    Ok(exponent.exp()?)
}

/// Returns the floating-point operations of [`attend`] for one sequence of `length` and all
/// `heads`. A head has `features` features, and values that are `width` wide.
#[must_use]
pub fn flops(length: usize, heads: usize, features: usize, width: usize) -> u64 {
    let products = width + 1; // of S and z with features of queries
    2 * (length * heads * features * products) as u64
        + flops_of_keys(length, heads, features, width)
}

/// Returns the floating-point operations for S and z over `count` keys.
#[must_use]
pub(crate) fn flops_of_keys(count: usize, heads: usize, features: usize, width: usize) -> u64 {
    2 * (count * heads * features * (width + 1)) as u64
}
