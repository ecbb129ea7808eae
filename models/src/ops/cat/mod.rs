//! Concatenation of tensors along an axis.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use crate::Result;
use crate::ops::supports;

/// Returns `parts` one after the other along `axis`, contiguous. Their shapes differ in `axis`
/// alone, whose length in the result is the sum of theirs.
///
/// # Errors
/// If there is no part, or shapes do not fit.
pub fn cat(parts: &[&Tensor], axis: usize) -> Result<Tensor> {
    let known = |x: &&Tensor| supports(x) && x.elem_count() > 0;
    if parts.iter().all(known) {
        match *parts {
            [a, b] => return Ok(cpu::cat([a, b], axis)?),
            [a, b, c] => return Ok(cpu::cat([a, b, c], axis)?),
            _ => {}
        }
    }
    Ok(Tensor::cat(parts, axis)?.contiguous()?)
}
