//! The recurrence of an LSTM (Hochreiter & Schmidhuber, 1997; with a forget gate, Gers et al., 2000).
//!     [i | f | g | o] = x_t + W h_(t-1),  c_t = σ(f) ⊙ c_(t-1) + σ(i) ⊙ tanh(g),  h_t = σ(o) ⊙ tanh(c_t)

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::activation::sigmoid;
use super::{check, matmul};
use crate::ops::supports;
use crate::{Mask, Result};

/// Returns all h (B, L, H) of x (B, L, 4 H), the gates' inputs in PyTorch's order i, f, g, o, and W
/// (4 H, H), from h = c = 0; from the last position to the first if `reverse`. A padded position
/// leaves h and c as they were.
///
/// One position after the other: O(B L H²) time, with 6 B L H numbers kept.
/// # Errors
/// If shapes do not fit.
pub fn lstm(x: &Tensor, weight: &Tensor, reverse: bool, mask: Option<&Mask>) -> Result<Tensor> {
    let ((batch, length, row), width) = (x.dims3()?, weight.dim(1)?);
    let fits = width > 0
        && weight.dims() == [4 * width, width]
        && row == 4 * width
        && mask.is_none_or(|mask| mask.valid().dims() == [batch, length]);
    check(fits, "lstm", || {
        format!(
            "x {:?} and weight {:?} do not fit",
            x.shape(),
            weight.shape()
        )
    })?;
    match supports(x) {
        true => Ok(cpu::lstm(x, weight, reverse, mask.map(Mask::valid))?),
        false => composed(x, weight, reverse, mask),
    }
}

/// Computes [`lstm`] with a node of the graph for each position.
fn composed(x: &Tensor, weight: &Tensor, reverse: bool, mask: Option<&Mask>) -> Result<Tensor> {
    let ((batch, length, _), width) = (x.dims3()?, weight.dim(1)?);
    let weight = weight.t()?.contiguous()?;
    let mut h = Tensor::zeros((batch, width), x.dtype(), x.device())?;
    let mut c = h.clone();
    let mut all = vec![h.clone(); length];
    for step in 0..length {
        let t = if reverse { length - 1 - step } else { step };
        let z = (x.narrow(1, t, 1)?.squeeze(1)? + matmul(&h, &weight)?)?;
        let gate = |index: usize| z.narrow(1, index * width, width)?.contiguous();
        let (i, f, o) = (
            sigmoid(&gate(0)?)?,
            sigmoid(&gate(1)?)?,
            sigmoid(&gate(3)?)?,
        );
        let new = ((f * &c)? + (i * gate(2)?.tanh()?)?)?;
        let out = (o * new.tanh()?)?;
        (h, c) = match mask {
            Some(mask) => {
                let real = mask.valid().narrow(1, t, 1)?;
                let keep = |old: &Tensor, new: &Tensor| -> Result<Tensor> {
                    Ok((old + (new - old)?.broadcast_mul(&real)?)?)
                };
                (keep(&h, &out)?, keep(&c, &new)?)
            }
            None => (out, new),
        };
        all[t] = h.clone();
    }
    Ok(Tensor::stack(&all, 1)?)
}

/// Returns the floating-point operations for one sequence.
#[must_use]
pub fn flops(length: usize, width: usize) -> u64 {
    8 * (length * width * width) as u64
}
