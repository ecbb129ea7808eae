//! Complex states of blocks of channels, whose decays depend on the position, as in block-biased
//! Mamba (B₂S₆, arXiv:2505.09022). A constant of each channel, β, writes to them as well.
//!
//! ```text
//! S_t = diag(a_t) S_(t-1) + (b_t 1ᵀ + β) diag(v_t),  y_t = Re(S_tᵀ c_t)
//! ```
//!
//! S (N, P) are N states of each of the P channels of a block, which share a, b and c (N). Complex
//! numbers are two halves, first all real parts, then all imaginary parts. One position follows the
//! other.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{DType, Tensor};

use super::{Complex, ScanOptions, check, matmul, scan};
use crate::Result;
use crate::ops::supports;

/// Operands of [`block_scan`], for sequences of L positions in a batch of B. There are J blocks of
/// P channels, and each channel has N complex states. A row of 2 N numbers has the N real parts
/// first, and then the N imaginary parts.
#[derive(Clone, Copy)]
pub struct BlockScan<'a> {
    /// Decays a (B, L, J, 2 N): the N complex factors on the states of each of J blocks at a
    /// position.
    pub decays: &'a Tensor,
    /// Input coefficients b (B, L, J, 2 N): the N complex weights with which a position's values
    /// are added to the states of each of J blocks.
    pub inputs: &'a Tensor,
    /// Constant input coefficients β (J, 2 N, P), which are added to b: N complex numbers for each
    /// of the P channels of each of J blocks.
    pub bias: &'a Tensor,
    /// Output coefficients c (B, L, J, 2 N): the N complex weights of the states in the output of
    /// each of J blocks.
    pub outputs: &'a Tensor,
    /// Values v (B, L, J, P), which are added to the states of the P channels of each of J blocks.
    pub values: &'a Tensor,
}

/// Returns y (B, L, J, P) of the recurrence `S_t = diag(a_t) S_(t-1) + (b_t 1ᵀ + β) diag(v_t)`,
/// `y_t = Re(S_tᵀ c_t)` in each of J blocks of P channels. The operands are named in [`BlockScan`].
/// The states S (N, P) are complex, and zeros at first.
///
/// A position with v = 0 and a = 1 leaves the states as they were. It takes O(B L J N P) time. In
/// main memory, f32 and f64 take the same loops. These keep a state for every 32 positions, and
/// compute the others again for the backward pass. Elsewhere all states are kept.
///
/// # Errors
/// If shapes do not fit.
pub fn block_scan(operands: &BlockScan) -> Result<Tensor> {
    let BlockScan {
        decays,
        inputs,
        bias,
        outputs,
        values,
    } = operands;
    let ((batch, length, blocks, row), width) = (decays.dims4()?, values.dims4()?.3);
    let fits = row % 2 == 0
        && row > 0
        && [inputs, outputs].iter().all(|x| x.dims() == decays.dims())
        && bias.dims() == [blocks, row, width]
        && values.dims()[..3] == [batch, length, blocks];
    check(fits, "block scan", || {
        let shapes = [decays, inputs, bias, outputs, values].map(|x| x.shape());
        format!("{shapes:?} do not fit")
    })?;
    let all = [*decays, *inputs, *bias, *outputs, *values];
    if supports(values) {
        return Ok(cpu::block_scan::<f32>(all)?);
    }
    if values.device().is_cpu() && values.dtype() == DType::F64 {
        matmul::count(flops(length, blocks, row / 2, width) * batch as u64);
        return Ok(cpu::block_scan::<f64>(all)?);
    }
    composed(all)
}

/// Returns the floating-point operations of [`block_scan`] for one sequence of `length` positions.
/// These are a complex product with each state, its input, and the real part that is read. There
/// are `blocks` blocks of `width` channels with `states` states each.
#[must_use]
pub fn flops(length: usize, blocks: usize, states: usize, width: usize) -> u64 {
    16 * (length * blocks * states * width) as u64
}

fn composed([a, b, bias, c, v]: [&Tensor; 5]) -> Result<Tensor> {
    let ((batch, length, blocks, row), width) = (a.dims4()?, v.dim(3)?);
    let states = row / 2;
    let flat = (batch, length, blocks * states * width);
    let half = |x: &Tensor, from: usize| -> Result<Tensor> {
        let x = x.narrow(3, from, states)?.unsqueeze(4)?; // (B, L, J, N, 1)
        Ok(x.broadcast_as((batch, length, blocks, states, width))?)
    };
    let values = v.unsqueeze(3)?;
    let written = |from: usize| -> Result<Tensor> {
        let all = half(b, from)?.broadcast_add(&bias.narrow(1, from, states)?)?;
        Ok(all.broadcast_mul(&values)?.reshape(flat)?)
    };
    let input = Complex::new(written(0)?, written(states)?).planes()?;
    let decay = Complex::new(half(a, 0)?.reshape(flat)?, half(a, states)?.reshape(flat)?);
    let options = ScanOptions {
        complex: true,
        reverse: false,
    };
    let h = Complex::from_planes(&scan(&input, &decay.planes()?, options)?)?;
    let read = |h: &Tensor, from: usize| -> Result<Tensor> {
        let h = h.reshape((batch, length, blocks, states, width))?;
        Ok((h * half(c, from)?)?.sum(3)?)
    };
    Ok((read(&h.re, 0)? - read(&h.im, states)?)?)
}
