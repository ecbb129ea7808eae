//! BatchNorm. Ioffe and Szegedy, 2015, arXiv:1502.03167.
//!
//! ```text
//! y = (x - mean) / sqrt(variance + epsilon) * weight + bias
//! ```
//!
//! Mean and variance of a channel are those over all rows of a batch. The variance is divided by
//! the number of rows, as PyTorch's is in training.

pub(in crate::ops) mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

use super::{Normalised, check};
use crate::Result;
use crate::cuda::Gpu;
use crate::ops::supports;

/// Means and variances of D channels. They carry no gradient.
#[derive(Clone)]
pub struct Moments(Tensor);

impl Moments {
    /// Returns moments with the given `mean` (D) and `variance` (D).
    ///
    /// # Errors
    /// If shapes differ.
    pub(crate) fn new(mean: &Tensor, variance: &Tensor) -> Result<Self> {
        Ok(Self(Tensor::stack(&[mean, variance], 0)?.detach()))
    }

    /// Returns the moments of the channels of x (B, L, D) over the rows where `valid` (B, L) is 1.
    /// It is 0 for all other rows. Without `valid`, all rows count.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn of(x: &Tensor, valid: Option<&Tensor>) -> Result<Self> {
        let x = x.detach();
        fits(&x, valid)?;
        if supports(&x) {
            return Ok(Self(cpu::channel_moments(&x, valid)?));
        }
        match Gpu::of(&x).filter(|_| cuda::takes(&x)) {
            Some(gpu) => Ok(Self(cuda::statistics(&gpu, &x, valid)?.moments)),
            None => Ok(Self(composed_moments(&x, valid)?)),
        }
    }

    /// Returns the means (D) of the channels.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(crate) fn mean(&self) -> Result<Tensor> {
        Ok(self.0.get(0)?)
    }

    /// Returns the variances (D) of the channels.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(crate) fn variance(&self) -> Result<Tensor> {
        Ok(self.0.get(1)?)
    }
}

fn fits(x: &Tensor, valid: Option<&Tensor>) -> Result<()> {
    let (batch, length, _) = x.dims3()?;
    let fits = valid.is_none_or(|valid| valid.dims() == [batch, length]);
    check(fits, "batch norm", || {
        format!(
            "x {:?} and rows {:?} do not fit",
            x.shape(),
            valid.map(Tensor::shape)
        )
    })
}

fn composed_moments(x: &Tensor, valid: Option<&Tensor>) -> Result<Tensor> {
    let (batch, length, width) = x.dims3()?;
    let rows = x.reshape((batch * length, width))?;
    let weights = match valid {
        Some(valid) => valid.reshape((batch * length, 1))?,
        None => rows.ones_like()?.narrow(D::Minus1, 0, 1)?,
    };
    let weights = weights.broadcast_div(&weights.sum_all()?.maximum(1.0)?)?;
    let mean = rows.broadcast_mul(&weights)?.sum_keepdim(0)?;
    let centred = rows.broadcast_sub(&mean)?;
    let variance = centred.sqr()?.broadcast_mul(&weights)?.sum_keepdim(0)?;
    Ok(Tensor::cat(&[mean, variance], 0)?)
}

/// Normalises x (B, L, D) by the moments of those of its rows that `valid` (B, L) selects, as in
/// [`Moments::of`]. Returns y (B, L, D), whose gradient goes through the moments, and the moments.
/// `norm` has weight (D) and bias (D).
///
/// # Errors
/// If shapes do not fit.
pub fn batch_norm(
    x: &Tensor,
    norm: &Normalised,
    valid: Option<&Tensor>,
) -> Result<(Tensor, Moments)> {
    fits(x, valid)?;
    if supports(x) {
        let moments = Moments::of(x, valid)?;
        let affine = [norm.weight, norm.bias];
        let y = cpu::channel_norm(x, affine, &moments.0, norm.epsilon, Some(valid))?;
        return Ok((y, moments));
    }
    if let Some(gpu) = Gpu::of(x).filter(|_| cuda::takes(x)) {
        let of_x = cuda::statistics(&gpu, &x.detach(), valid)?;
        let moments = of_x.moments.clone();
        let y = cuda::norm(&gpu, x, norm, &moments, Some(of_x))?;
        return Ok((y, Moments(moments)));
    }
    let moments = composed_moments(x, valid)?;
    Ok((affine(x, norm, &moments)?, Moments(moments.detach())))
}

/// Normalises x (B, L, D) by the given `moments`, which are constants. Returns y (B, L, D). `norm`
/// has weight (D) and bias (D).
///
/// # Errors
/// If shapes do not fit.
pub fn batch_norm_by(x: &Tensor, norm: &Normalised, moments: &Moments) -> Result<Tensor> {
    if supports(x) {
        let affine = [norm.weight, norm.bias];
        return Ok(cpu::channel_norm(
            x,
            affine,
            &moments.0,
            norm.epsilon,
            None,
        )?);
    }
    if let Some(gpu) = Gpu::of(x).filter(|_| cuda::takes(x)) {
        return Ok(cuda::norm(&gpu, x, norm, &moments.0, None)?);
    }
    affine(x, norm, &moments.0)
}

fn affine(x: &Tensor, norm: &Normalised, moments: &Tensor) -> Result<Tensor> {
    let deviation = moments.get(1)?.affine(1.0, norm.epsilon)?.sqrt()?;
    let y = x
        .broadcast_sub(&moments.get(0)?)?
        .broadcast_div(&deviation)?;
    Ok(y.broadcast_mul(norm.weight)?.broadcast_add(norm.bias)?)
}
