//! Queries that score keys by contents and by distance: Transformer-XL's, Dai et al., 2019,
//! arXiv:1901.02860.
//!
//! ```text
//! y_l = [q_l + u ; R_l Pᵀ (q_l + w)]
//! ```
//!
//! for each head. R_l is the rotation of neighbouring columns 2c and 2c + 1, of C columns, by
//! l·10000^{-2 c / C}.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::{cat, check, checkpoint::checkpoint, matmul, rotary, rotary::rounded_turns};
use crate::Result;
use crate::ops::supports;

/// Returns queries (B, L, H (E + C)) that score keys by contents and by distance, as in
/// Transformer-XL (arXiv:1901.02860). In each head they are `[q_l + u ; R_l Pᵀ (q_l + w)]`, for q
/// (B, L, H E).
///
/// `content` is u (H, E), `position` is w (H, E) and `pairs` is P (H, E, C), for C further columns.
/// R_l rotates columns 2c and 2c + 1 by l·10000^{-2 c / C}. The first query is at position l =
/// `start`.
///
/// # Errors
/// If shapes do not fit.
pub fn relative_queries(
    q: &Tensor,
    [content, position]: [&Tensor; 2],
    pairs: &Tensor,
    start: usize,
) -> Result<Tensor> {
    let ((_, length, row), (heads, width, columns)) = (q.dims3()?, pairs.dims3()?);
    let fits = |bias: &Tensor| bias.dims() == [heads, width];
    check(
        row > 0 && row == heads * width && fits(content) && fits(position),
        "relative_queries",
        || {
            let shapes = [q, content, position, pairs].map(Tensor::shape);
            format!("queries, biases and matrices {shapes:?} do not fit")
        },
    )?;
    if supports(q) {
        let turns = rounded_turns(start, length, columns);
        return Ok(cpu::relative_queries(q, [content, position], pairs, turns)?);
    }
    // The intermediate results are several times as large as the wider heads themselves.
    let [content, position, pairs] = [content, position, pairs].map(Clone::clone);
    checkpoint(q, move |q| {
        composed(q, [&content, &position], &pairs, start)
    })
}

fn composed(
    q: &Tensor,
    [content, position]: [&Tensor; 2],
    pairs: &Tensor,
    start: usize,
) -> Result<Tensor> {
    let ((batch, length, _), (heads, width, columns)) = (q.dims3()?, pairs.dims3()?);
    let q = q.reshape((batch, length, heads, width))?;
    let shifted = q.broadcast_add(position)?;
    let shifted = shifted.reshape((batch * length, heads, width))?;
    let g = matmul(&shifted.transpose(0, 1)?.contiguous()?, pairs)?; // (H, B L, C)
    let g = g
        .transpose(0, 1)?
        .reshape((batch, length, heads * columns))?;
    let g = rotary(&g, start, heads * columns, columns)?;
    let g = g.reshape((batch, length, heads, columns))?;
    Ok(cat(&[&q.broadcast_add(content)?, &g], 3)?.flatten_from(2)?)
}
