//! Vectors scaled to length 1: y = x / √(|x|² + ε).

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

use super::check;
use crate::Result;
use crate::ops::supports;

/// ε of [`l2_normalize`]: it is lost in the sum of squares of all but zeros.
const TINY: f64 = 1e-24;

/// Returns x (.., n `width`) with each run of `width` numbers scaled to length 1, in the same
/// shape: y = x / √(|x|² + 1e-24). Zeros stay zeros.
///
/// # Errors
/// If the last dimension is not a multiple of `width`.
pub fn l2_normalize(x: &Tensor, width: usize) -> Result<Tensor> {
    l2_normalize_above(x, width, TINY)
}

/// Returns x (.., n `width`) with each run of `width` numbers scaled to a length below 1: y = x /
/// √(|x|² + `epsilon`), for an `epsilon` above 0. Runs far shorter than its root stay short.
///
/// # Errors
/// If the last dimension is not a multiple of `width`.
pub(crate) fn l2_normalize_above(x: &Tensor, width: usize, epsilon: f64) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::l2_normalize(x, width, epsilon as f32)?);
    }
    let row = x.dims().last().copied().unwrap_or(1);
    check(
        width > 0 && row.is_multiple_of(width),
        "l2_normalize",
        || format!("runs of {width} in {:?}", x.shape()),
    )?;
    let vectors = x.reshape((x.elem_count() / width, width))?;
    let squares = vectors.sqr()?.sum_keepdim(D::Minus1)?;
    // A floor rather than a maximum: the gradient at zero must be finite.
    let length = squares.affine(1.0, epsilon)?.sqrt()?;
    Ok(vectors.broadcast_div(&length)?.reshape(x.shape())?)
}
