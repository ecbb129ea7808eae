//! Sinkhorn normalisation: exp(scores) with rows and columns divided by their sums in turn, nearly
//! a doubly stochastic matrix.
//!
//! Sinkhorn, 1964, Ann. Math. Statist. 35; in the log domain, as in Mena et al., 2018,
//! arXiv:1802.08665.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::check;
use crate::ops::supports;
use crate::{Result, mask::PADDED};

/// Returns matrices (B, H, N, N) whose rows and columns sum to about 1, from `scores` (B, H, N, N)
/// in each of H heads. The rows and then the columns of exp(scores) are divided by their sums,
/// `iterations` times.
///
/// Only rows and columns where `in_use` (B, N) is not 0 take part. All other entries become zeros.
///
/// # Errors
/// If shapes do not fit.
pub fn sinkhorn_normalize(scores: &Tensor, in_use: &Tensor, iterations: usize) -> Result<Tensor> {
    if supports(scores) {
        return Ok(cpu::sinkhorn_normalize(scores, in_use, iterations)?);
    }
    let (batch, _, side, columns) = scores.dims4()?;
    let fits = side == columns && in_use.dims() == [batch, side];
    check(fits, "sinkhorn_normalize", || {
        let (scores, in_use) = (scores.shape(), in_use.shape());
        format!("scores {scores:?} and places in use {in_use:?} do not fit")
    })?;
    let column = in_use.reshape((batch, 1, side, 1))?;
    let pairs = column.broadcast_mul(&column.t()?)?; // (B, 1, N, N)
    let hidden = pairs.affine(PADDED, -PADDED)?;
    let only =
        |x: &Tensor| -> Result<Tensor> { Ok(x.broadcast_mul(&pairs)?.broadcast_add(&hidden)?) };
    let mut log = only(scores)?;
    for _ in 0..iterations {
        for axis in [3, 2] {
            let max = log.detach().max_keepdim(axis)?;
            let sum = log.broadcast_sub(&max)?.exp()?.sum_keepdim(axis)?;
            log = only(&log.broadcast_sub(&(sum.log()? + max)?)?)?;
        }
    }
    Ok(log.exp()?)
}
