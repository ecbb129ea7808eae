//! Embedding of ids: rows of a table, with a row before them and rows added to them.

pub(in crate::ops) mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use crate::Result;
use crate::cuda::Gpu;
use crate::ops::supports;

/// Returns embedded sequences (B, S, D): the row of `table` (V, D) for each of `ids` (B, L). The
/// ids are below the size V of the vocabulary, and of type u32. S is L, or L + 1 if every sequence
/// begins with the vector `first` (1, D). `positions` has at least S rows of width D, and row s is
/// added to slot s.
///
/// # Errors
/// If shapes do not fit, or in main memory an id is not below V. A GPU does not refuse such an id.
pub fn embed(
    ids: &Tensor,
    table: &Tensor,
    first: Option<&Tensor>,
    positions: Option<&Tensor>,
) -> Result<Tensor> {
    if supports(table) {
        return Ok(cpu::embed(ids, table, first, positions)?);
    }
    let ((batch, length), (rows, dim)) = (ids.dims2()?, table.dims2()?);
    let x = match Gpu::of(table).filter(|_| cuda::takes(rows) && ids.elem_count() > 0) {
        Some(gpu) => cuda::rows(&gpu, ids, table)?,
        None => table.index_select(&ids.flatten_all()?, 0)?,
    };
    let x = x.reshape((batch, length, dim))?;
    let x = match first {
        Some(first) => Tensor::cat(&[&first.broadcast_as((batch, 1, dim))?, &x], 1)?,
        None => x,
    };
    Ok(match positions {
        Some(positions) => x.broadcast_add(&positions.narrow(0, 0, x.dim(1)?)?)?,
        None => x,
    })
}
