//! The probability that random hyperplanes leave two unit vectors on the same side.

mod cpu;
#[cfg(test)]
mod tests;

use std::f64::consts::PI;

use candle_core::Tensor;

use crate::Result;
use crate::ops::supports;

/// The largest product of unit vectors: the slope has a pole at 1.
const MOST: f64 = 1.0 - 1e-6;

/// Coefficients of arccos x / √(1-x), 0 ≤ x ≤ 1, within 2e-8 (Abramowitz and Stegun, 1964, 4.4.46).
const SERIES: [f64; 8] = [
    1.570_796_305_0,
    -0.214_598_801_6,
    0.088_978_987_4,
    -0.050_174_304_6,
    0.030_891_881_0,
    -0.017_088_125_6,
    0.006_670_090_1,
    -0.001_262_491_1,
];

/// Returns (1 - arccos(x)/π)^`hashes` of every element of x, in the shape of x: the probability
/// that `hashes` random hyperplanes leave two unit vectors with the product x on the same side.
///
/// x is held within ±(1 - 1e-6). Its gradient is 0 beyond.
///
/// # Errors
/// If a tensor operation fails.
pub fn collision_probability(x: &Tensor, hashes: usize) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::collision_probability(x, hashes)?);
    }
    let angle = arccos(&x.clamp(-MOST, MOST)?)?;
    Ok(angle.affine(-1.0 / PI, 1.0)?.powf(hashes as f64)?)
}

/// Returns arccos of every element of x, which lie within ±1.
///
/// It is a polynomial and one step of Newton's method from there, which makes it exact in f64 and
/// has the derivative -1/√(1-x²).
fn arccos(x: &Tensor) -> Result<Tensor> {
    let constant = x.detach();
    let size = constant.abs()?;
    let mut series = size.affine(SERIES[7], SERIES[6])?;
    for coefficient in SERIES[..6].iter().rev() {
        series = (series * &size)?.affine(1.0, *coefficient)?;
    }
    let start = (series * size.affine(-1.0, 1.0)?.sqrt()?)?;
    // arccos(-x) = π - arccos x.
    let negative = constant.lt(0.0)?.to_dtype(x.dtype())?;
    let start = (start * negative.affine(-2.0, 1.0)?)? + negative.affine(PI, 0.0)?;
    let start = start?;
    let residue = (start.cos()? - x)?;
    Ok((&start + residue.div(&start.sin()?)?)?)
}
