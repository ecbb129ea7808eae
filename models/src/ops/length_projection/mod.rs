//! A sequence shortened by a matrix along its length: y_k = Σ_l M_lk x_l, for each head (Linformer,
//! arXiv:2006.04768).

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::{check, matmul};
use crate::Result;
use crate::ops::supports;

/// Returns x (B, L, H E) shortened to K positions, (B, K, H E): `y_k = Σ_l M_lk x_l` in each of the
/// `heads` H. `matrix` is M (H, N, K), or (1, N, K) for one matrix for all heads. N is the longest
/// length, and the first L rows of M are used.
///
/// # Errors
/// If shapes do not fit.
pub fn project_length(x: &Tensor, matrix: &Tensor, heads: usize) -> Result<Tensor> {
    let (batch, length, row) = x.dims3()?;
    let (copies, longest, rank) = matrix.dims3()?;
    let fits = heads > 0 && row.is_multiple_of(heads) && (copies == 1 || copies == heads);
    let fits = fits && length <= longest && row * rank * length > 0;
    check(fits, "project_length", || {
        let (x, matrix) = (x.shape(), matrix.shape());
        format!("x {x:?} and matrix {matrix:?} do not fit {heads} heads")
    })?;
    if supports(x) {
        return Ok(cpu::project_length(x, matrix, heads)?);
    }
    let matrix = matrix.narrow(1, 0, length)?.t()?.contiguous()?; // (1 or H, K, L)
    // The batch is moved beside the width: one product, and no copy of the matrix's gradient per
    // example.
    let width = row / copies;
    let x = x
        .reshape((batch, length, copies, width))?
        .permute((2, 1, 0, 3))?;
    let y = matmul(&matrix, &x.reshape((copies, length, batch * width))?)?;
    let y = y
        .reshape((copies, rank, batch, width))?
        .permute((2, 1, 0, 3))?;
    Ok(y.reshape((batch, rank, row))?)
}
