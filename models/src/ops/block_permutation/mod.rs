//! Blocks of positions as weighted sums of blocks: y_bush = Σ_w P_bhuw x_bwsh for block u of
//! example b, place s within the block and head h. With P a permutation the blocks change places.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::{check, matmul};
use crate::Result;
use crate::ops::supports;

/// Returns weighted sums of blocks of positions: `y_bush = Σ_w P_bhuw x_bwsh` for example b, block
/// u, place s within the block and head h.
///
/// x is (B, W S, H E), in W blocks of `block` = S positions. `weights` are P (B, H, U, W), and y is
/// (B, U S, H E). If P is a permutation, the blocks change places.
///
/// # Errors
/// If shapes do not fit.
pub fn permute_blocks(weights: &Tensor, x: &Tensor, block: usize) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::permute_blocks(weights, x, block)?);
    }
    let ((batch, heads, outputs, blocks), row) = (weights.dims4()?, x.dim(2)?);
    let fits = x.dims() == [batch, blocks * block, row] && row.is_multiple_of(heads);
    check(fits, "permute_blocks", || {
        let (weights, x) = (weights.shape(), x.shape());
        format!("weights {weights:?} and x {x:?} in blocks of {block} do not fit")
    })?;
    let width = row / heads;
    let x = x.reshape((batch, blocks, block, heads, width))?;
    let x = x.permute((0, 3, 1, 2, 4))?; // (B, H, W, S, E)
    let x = x.reshape((batch, heads, blocks, block * width))?;
    let y = matmul(&weights.contiguous()?, &x)?;
    let y = y.reshape((batch, heads, outputs, block, width))?;
    let y = y.permute((0, 2, 3, 1, 4))?; // (B, U, S, H, E)
    Ok(y.reshape((batch, outputs * block, row))?)
}

/// Returns the result of [`permute_blocks`] and x itself behind it: (B, (U + W) S, H E), for
/// `weights` (B, H, U, W) and x (B, W S, H E) in blocks of `block` = S positions.
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn permute_blocks_beside(weights: &Tensor, x: &Tensor, block: usize) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::permute_blocks_packed(weights, x, block)?);
    }
    Ok(Tensor::cat(&[&permute_blocks(weights, x, block)?, x], 1)?)
}
