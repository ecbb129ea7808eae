//! Some columns of rows: `x[..., first:first + count]`.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

use super::check;
use crate::Result;
use crate::ops::supports;

/// Returns columns `first..first + count` of x (.., W) as (.., count), contiguous.
///
/// # Errors
/// If x has fewer columns, or `count` is 0.
pub fn columns(x: &Tensor, first: usize, count: usize) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::columns(x, first, count)?);
    }
    check(count > 0, "columns", || {
        format!("no columns of x {:?}", x.shape())
    })?;
    Ok(x.narrow(D::Minus1, first, count)?.contiguous()?)
}
