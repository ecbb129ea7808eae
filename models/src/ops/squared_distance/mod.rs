//! Squared Euclidean distances of rows, SciPy's `sqeuclidean`: d = Σ_e (x_e - y_e)².

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

use super::check;
use crate::Result;
use crate::ops::supports;

/// Returns the squared Euclidean distances (..) between the rows of x and those of y, both (.., E):
/// `Σ_e (x_e - y_e)²`.
///
/// # Errors
/// If shapes differ.
pub fn squared_distance(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::squared_distance(x, y)?);
    }
    check(x.dims() == y.dims(), "squared_distance", || {
        format!("rows of {:?} and of {:?}", x.shape(), y.shape())
    })?;
    Ok((x - y)?.sqr()?.sum(D::Minus1)?)
}
