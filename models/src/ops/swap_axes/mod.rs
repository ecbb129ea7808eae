//! Axes 1 and 2 swapped; heads before positions, and back.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use crate::Result;
use crate::ops::supports;

/// Returns x (B, M, N, ..) as (B, N, M, ..), contiguous. This is NumPy's `swapaxes(1, 2)`. It takes
/// O(elements) time, O(1) if M or N is 1, and keeps no operand.
///
/// # Errors
/// If x has fewer than three axes.
pub fn swap_axes(x: &Tensor) -> Result<Tensor> {
    if let [batch, rows, columns, ref others @ ..] = *x.dims()
        && (rows == 1 || columns == 1)
    {
        // The elements have the same order, so only the shape changes.
        return Ok(x.reshape([&[batch, columns, rows], others].concat())?);
    }
    if supports(x) && matches!(x.rank(), 3 | 4) {
        return Ok(cpu::swap_axes(x)?);
    }
    Ok(x.transpose(1, 2)?.contiguous()?)
}

/// Returns x (B, L, H E) as (B, H, L, E), contiguous, for `heads` H, each E wide. Reshaping x first
/// would cost a pass over the gradient, which this operation avoids.
///
/// # Errors
/// If x does not have three axes, or its last axis is not a multiple of H.
pub fn split_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::split_heads(x, heads)?);
    }
    let (batch, length, _) = x.dims3()?;
    swap_axes(&x.reshape((batch, length, heads, ()))?)
}

/// Returns x (B, H, L, E) as (B, L, H E), contiguous, for H heads, each E wide.
///
/// # Errors
/// If x does not have four axes.
pub fn merge_heads(x: &Tensor) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::merge_heads(x)?);
    }
    Ok(swap_axes(x)?.flatten_from(2)?)
}
