//! Attention of channels to channels, for each example and head: cosines of columns, and channels
//! mixed by weights.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::{check, matmul};
use crate::Result;
use crate::ops::supports;

/// Returns the cosines (B, H, E, E) between the columns of q and those of k, both (B, L, H E), over
/// the L positions. Element (i, j) of a head is that of column i of q and column j of k. A column
/// of zeros has cosine zero. XCiT attends by them (arXiv:2106.09681).
///
/// # Errors
/// If shapes do not fit.
pub fn channel_cosines(q: &Tensor, k: &Tensor, heads: usize) -> Result<Tensor> {
    let fits = q.dims() == k.dims() && heads > 0 && q.dims3()?.2.is_multiple_of(heads);
    check(fits && holds_numbers(q)?, "channel_cosines", || {
        let (q, k) = (q.shape(), k.shape());
        format!("q {q:?} and k {k:?} do not fit {heads} heads")
    })?;
    if supports(q) {
        return Ok(cpu::channel_cosines(q, k, heads)?);
    }
    let (q, k) = (unit_columns(q, heads)?, unit_columns(k, heads)?);
    matmul(&q.t()?, &k)
}

/// Returns y (B, L, H E), the channels of v (B, L, H E) mixed within each head:
/// `y_li = Σ_j A_ij v_lj` at position l. `weights` are A (B, H, E, E).
///
/// # Errors
/// If shapes do not fit.
pub fn mix_channels(v: &Tensor, weights: &Tensor) -> Result<Tensor> {
    let (shape, (examples, heads, width, columns)) = (v.dims3()?, weights.dims4()?);
    let fits = examples == shape.0 && width == columns && heads * width == shape.2;
    check(fits && holds_numbers(v)?, "mix_channels", || {
        let (v, weights) = (v.shape(), weights.shape());
        format!("v {v:?} and weights {weights:?} do not fit")
    })?;
    if supports(v) {
        return Ok(cpu::mix_channels(v, weights)?);
    }
    let y = matmul(&by_head(v, heads)?, &weights.t()?)?;
    Ok(y.transpose(1, 2)?.contiguous()?.reshape(shape)?)
}

/// Returns whether x (B, L, H E) has positions and channels.
fn holds_numbers(x: &Tensor) -> Result<bool> {
    let (_, length, row) = x.dims3()?;
    Ok(length * row > 0)
}

/// Maps (B, L, H E) to (B, H, L, E).
fn by_head(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (batch, length, row) = x.dims3()?;
    let x = x.reshape((batch, length, heads, row / heads))?;
    Ok(x.transpose(1, 2)?.contiguous()?)
}

/// Divides the columns of the heads (B, H, L, E) of x by their lengths.
fn unit_columns(x: &Tensor, heads: usize) -> Result<Tensor> {
    let x = by_head(x, heads)?;
    let squares = x.sqr()?.sum_keepdim(2)?; // (B, H, 1, E)
    Ok(x.broadcast_div(&squares.affine(1.0, 1e-24)?.sqrt()?)?)
}
