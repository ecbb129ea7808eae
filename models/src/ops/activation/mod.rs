//! Elementwise non-linearities.

pub(in crate::ops) mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::choice::Choices;
use crate::cuda::Gpu;
use crate::ops::supports;

/// Non-linearity of a feed-forward network, applied to each element x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choices, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// GELU, tanh form.
    ///
    /// It is x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))), the default of JAX and of the benchmark's
    /// code of 2021.
    Gelu,
    /// GELU, exact.
    ///
    /// It is x/2 (1 + erf(x / √2)), with the error function erf, and PyTorch's default.
    GeluErf,
    /// max(x, 0).
    Relu,
    /// x σ(x), Swish.
    ///
    /// σ(x) is 1 / (1 + exp(-x)).
    Silu,
    /// σ(x).
    ///
    /// That is 1 / (1 + exp(-x)).
    Sigmoid,
    /// max(x, 0)².
    ReluSquared,
    /// x.
    ///
    /// The hidden layer has no non-linearity of its own.
    Identity,
}

impl Activation {
    /// Returns the activation as fused operations name it, if they have it.
    pub(crate) fn fused(self) -> Option<cpu::Activation> {
        match self {
            Self::Gelu => Some(cpu::Activation::GeluTanh),
            Self::GeluErf => Some(cpu::Activation::GeluErf),
            Self::Relu => Some(cpu::Activation::Relu { floor: 0.0 }),
            Self::Silu => Some(cpu::Activation::Silu),
            Self::Sigmoid => Some(cpu::Activation::Sigmoid),
            Self::ReluSquared | Self::Identity => None,
        }
    }
}

/// Applies `activation` to every element of x, of any shape. The result has the shape of x.
///
/// # Errors
/// If a tensor operation fails.
pub fn apply(activation: Activation, x: &Tensor) -> Result<Tensor> {
    match activation {
        Activation::Gelu => gelu(x),
        Activation::GeluErf => gelu_erf(x),
        Activation::Relu => relu(x, 0.0),
        Activation::Silu => silu(x),
        Activation::Sigmoid => sigmoid(x),
        Activation::ReluSquared => Ok(relu(x, 0.0)?.sqr()?),
        Activation::Identity => Ok(x.clone()),
    }
}

/// Returns the activation of every element of x by a kernel, if there is one for such a tensor.
fn by_kernel(x: &Tensor, activation: cpu::Activation) -> Result<Option<Tensor>> {
    if supports(x) {
        return Ok(Some(cpu::activate(x, activation)?));
    }
    let gpu = Gpu::of(x);
    let y = gpu.map(|gpu| cuda::activate(&gpu, x, activation));
    Ok(y.transpose()?)
}

/// Returns `1 / (1 + exp(-x))` of every element of x, in the shape of x. Small values have as many
/// digits as others.
///
/// It is composed as `exp(min(x, 0)) / (1 + exp(-|x|))`, which overflows nowhere.
///
/// # Errors
/// If a tensor operation fails.
pub fn sigmoid(x: &Tensor) -> Result<Tensor> {
    if let Some(y) = by_kernel(x, cpu::Activation::Sigmoid)? {
        return Ok(y);
    }
    // One condition for both parts, so that the slope is right at 0.
    let positive = x.ge(0.0)?;
    let small = positive.where_cond(&x.neg()?, x)?.exp()?;
    let share = positive.where_cond(&small.ones_like()?, &small)?;
    Ok((share * small.affine(1.0, 1.0)?.recip()?)?)
}

/// Returns `x / (1 + exp(-x))` of every element of x, in the shape of x. The function is also
/// called Swish.
///
/// # Errors
/// If a tensor operation fails.
pub fn silu(x: &Tensor) -> Result<Tensor> {
    if let Some(y) = by_kernel(x, cpu::Activation::Silu)? {
        return Ok(y);
    }
    Ok((x * sigmoid(x)?)?)
}

/// Returns `ln(1 + exp(x))` of every element of x, in the shape of x. It is positive, and 0 only
/// where `exp(x)` is below the normal numbers.
///
/// # Errors
/// If a tensor operation fails.
pub fn softplus(x: &Tensor) -> Result<Tensor> {
    if let Some(y) = by_kernel(x, cpu::Activation::Softplus)? {
        return Ok(y);
    }
    Ok((x.relu()? + ln_1p(&x.abs()?.neg()?.exp()?)?)?)
}

/// Returns `ln(1 + x)` of every element of x, which is from 0 to 1.
fn ln_1p(x: &Tensor) -> Result<Tensor> {
    // 1 + x has few digits of a small x: the series has them all.
    let mut series = x.affine(1.0 / 5.0, -1.0 / 4.0)?;
    for term in [1.0 / 3.0, -1.0 / 2.0, 1.0, 0.0] {
        series = (series * x)?.affine(1.0, term)?;
    }
    let log = x.affine(1.0, 1.0)?.log()?;
    Ok(x.lt(1e-3)?.where_cond(&series, &log)?)
}

/// Returns `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))` of every element of x, in the shape of x.
/// This is the tanh form of GELU (Hendrycks & Gimpel, 2016, arXiv:1606.08415).
///
/// candle's own `gelu` rounds the constants of its gradient to six digits.
///
/// # Errors
/// If a tensor operation fails.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    if let Some(y) = by_kernel(x, cpu::Activation::GeluTanh)? {
        return Ok(y);
    }
    let slope = (2.0 / std::f64::consts::PI).sqrt();
    // The square of a large number is infinite: from 100 on, tanh is -1 or 1.
    let far = x.detach().sign()?.affine(100.0, 0.0)?;
    let near = x.abs()?.gt(100.0)?.where_cond(&far, x)?;
    let inner = (near.sqr()?.affine(0.044_715 * slope, slope)? * near)?;
    Ok((inner.tanh()?.affine(0.5, 0.5)? * x)?)
}

/// Returns `x/2 (1 + erf(x / sqrt 2))` of every element of x, in the shape of x. This is the exact
/// GELU (Hendrycks & Gimpel, 2016, arXiv:1606.08415).
///
/// # Errors
/// If a tensor operation fails.
pub fn gelu_erf(x: &Tensor) -> Result<Tensor> {
    if let Some(y) = by_kernel(x, cpu::Activation::GeluErf)? {
        return Ok(y);
    }
    let inner = x.affine(std::f64::consts::FRAC_1_SQRT_2, 0.0)?;
    Ok((inner.erf()?.affine(0.5, 0.5)? * x)?)
}

/// Returns `max(x, 0) + floor` of every element of x, in the shape of x.
///
/// # Errors
/// If a tensor operation fails.
pub fn relu(x: &Tensor, floor: f32) -> Result<Tensor> {
    if let Some(y) = by_kernel(x, cpu::Activation::Relu { floor })? {
        return Ok(y);
    }
    // Not candle's `relu`, which swallows a NaN and has slope 1 at 0.
    let positive = x.le(0.0)?.where_cond(&x.zeros_like()?, x)?;
    Ok(positive.affine(1.0, f64::from(floor))?)
}

/// Returns `elu(x) + 1` of every element of x, in the shape of x: `x + 1` above zero, `exp(x)`
/// below. It is positive, and 0 only where `exp(x)` is below the normal numbers.
///
/// It is composed as `max(x, 0) + exp(min(x, 0))`, whose parts have one condition. Each part runs
/// in parallel, which candle's `elu` does not.
///
/// # Errors
/// If a tensor operation fails.
pub fn elu_plus_one(x: &Tensor) -> Result<Tensor> {
    if let Some(y) = by_kernel(x, cpu::Activation::EluPlusOne)? {
        return Ok(y);
    }
    // At 0 the slope is that of e^x alone, and infinity is no difference of two.
    let (above, zeros) = (x.gt(0.0)?, x.zeros_like()?);
    let positive = above.where_cond(x, &zeros)?;
    let negative = above.where_cond(&zeros, x)?;
    Ok((positive + negative.exp()?)?)
}
