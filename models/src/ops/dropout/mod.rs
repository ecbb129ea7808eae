//! Dropout with a mask that is a function of (stream, example, element): y = m ⊙ x, m = 0 with
//! probability `rate`, else 1 / (1 - rate).
//!
//! Srivastava et al., 2014, JMLR 15. Masks are not kept, but drawn again for the backward pass.

pub(in crate::ops) mod cpu;
pub(in crate::ops) mod cuda;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::check;
use crate::cuda::Gpu;
use crate::ops::supports;
use crate::{Packing, Result, rng::Stream};

/// Dropout mask of a tensor x (B, ..), whose rows are the B examples. It is a random stream with a
/// rate, from which the mask is drawn.
#[derive(Clone, Copy)]
pub struct DropoutMask<'a> {
    /// Random stream, with one row of numbers for each example.
    pub stream: Stream,
    /// Probability that an element is zeroed, in [0, 1).
    pub rate: f64,
    /// True if all positions of an example share one mask. x is then (B, L, D), and a channel is
    /// dropped at every position or at none (Gal and Ghahramani, 2015, arXiv:1512.05287).
    pub tied: bool,
    /// Packing of the examples, if x is (1, T, D) with their T valid positions in all. Each example
    /// drops the elements that it drops in the padded batch. `None` if x is not packed.
    pub packing: Option<&'a Packing>,
}

impl DropoutMask<'_> {
    /// Returns the mask of a padded batch, with one random number of `stream` for each element.
    /// Elements are dropped with probability `rate`, in [0, 1).
    #[must_use]
    pub fn new(stream: &Stream, rate: f64) -> Self {
        Self {
            stream: *stream,
            rate,
            tied: false,
            packing: None,
        }
    }

    pub(super) fn options(&self) -> cpu::DropoutOptions {
        cpu::DropoutOptions {
            stream: self.stream,
            rate: self.rate,
            tied: self.tied,
            offsets: self.packing.map(|packing| packing.offsets().clone()),
        }
    }

    /// Returns m, of a shape that broadcasts to that of x.
    fn composed(&self, x: &Tensor) -> Result<Tensor> {
        let (mut shape, width) = (x.dims().to_vec(), x.dim(candle_core::D::Minus1)?);
        if let Some(packing) = self.packing {
            let (batch, length) = packing.mask().valid().dims2()?;
            shape = vec![batch, length, width];
        }
        let all = shape.clone();
        if self.tied {
            let positions = 1..shape.len().saturating_sub(1);
            shape[positions].fill(1);
        }
        let mask = self
            .stream
            .mask_tensor(&shape.into(), self.rate, x.dtype(), x.device())?;
        match self.packing {
            Some(packing) => packing.pack(&mask.broadcast_as(all)?.contiguous()?),
            None => Ok(mask),
        }
    }
}

/// Returns the GPU that holds x, if its kernel draws the mask.
fn gpu_of(x: &Tensor, mask: &DropoutMask) -> Option<Gpu> {
    Gpu::of(x).filter(|_| mask.packing.is_none() && cuda::takes(x, mask))
}

/// Returns x after dropout, in the same shape. The elements that `mask` drops become zeros, and the
/// others are multiplied by 1 / (1 - rate). x is (B, ..) with an example in each row, or (1, T, D)
/// if it is packed, with T valid positions in all.
///
/// # Errors
/// If x is not packed as the mask says.
pub fn dropout(x: &Tensor, mask: &DropoutMask) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::dropout(x, mask.options())?);
    }
    if let Some(gpu) = gpu_of(x, mask) {
        return Ok(cuda::dropout(&gpu, x, None, mask)?);
    }
    Ok(x.broadcast_mul(&mask.composed(x)?)?)
}

/// Returns `residual` plus [`dropout`] of x, for two tensors of one shape. They are (B, ..) with an
/// example in each row, or (1, T, D) if they are packed, with T valid positions in all.
///
/// # Errors
/// If the shapes differ, or x is not packed as the mask says.
pub fn add_dropped(residual: &Tensor, x: &Tensor, mask: &DropoutMask) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::add_dropped(residual, x, mask.options())?);
    }
    check(residual.dims() == x.dims(), "dropout", || {
        let (residual, x) = (residual.shape(), x.shape());
        format!("x {x:?} is added to {residual:?}, of another shape")
    })?;
    if let Some(gpu) = gpu_of(x, mask) {
        return Ok(cuda::dropout(&gpu, x, Some(residual), mask)?);
    }
    Ok((residual + dropout(x, mask)?)?)
}
