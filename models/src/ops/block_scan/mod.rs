//! Complex states of blocks of channels with steps of their own, as in block-biased Mamba (B₂S₆,
//! arXiv:2505.09022). A constant of each channel, β, writes to them as well.
//!
//! ```text
//! s_tp = e^(δ_tp a) s_(t-1)p + (e^(δ_tp a) - 1) / a (b_t + β_p) v_tp,  y_tp = c_t · Re(s_tp)
//! ```
//!
//! s_tp are the N complex states of channel p at position t. All channels share a (N), those of a
//! block b and c (N). The input's factor is that of a value held for the step (zero-order hold).
//! Complex numbers are two halves, first all real parts, then all imaginary parts. One position
//! follows the other.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::{Complex, ScanOptions, check, scan};
use crate::Result;
use crate::ops::supports;

/// Operands of [`block_scan`], for sequences of L positions in a batch of B. There are J blocks of
/// P channels, and each channel has N complex states. A row of 2 N numbers has the N real parts
/// first, and then the N imaginary parts.
#[derive(Clone, Copy)]
pub struct BlockScan<'a> {
    /// Values v (B, L, J, P), which are added to the states of the P channels of each of J blocks.
    pub values: &'a Tensor,
    /// Steps δ (B, L, J, P) of each channel. At 0, a position leaves the states as they were. A
    /// state that vanishes within a long step is 0, whatever its angle.
    pub steps: &'a Tensor,
    /// Selection (B, L, J, 3 N): the input coefficients b of each of J blocks, N complex numbers,
    /// and behind them the N real weights c of the states in the output.
    pub selection: &'a Tensor,
    /// Rates a (2 N): N complex numbers, whose real parts are not positive.
    pub rates: &'a Tensor,
    /// Constant input coefficients β (J, 2 N, P), which are added to b: N complex numbers for each
    /// of the P channels of each of J blocks.
    pub bias: &'a Tensor,
}

/// Returns y (B, L, J, P) of the recurrence `s_t = e^(δ_t a) s_(t-1) + (e^(δ_t a) - 1) / a (b_t + β)
/// v_t`, `y_t = c_t · Re(s_t)` in each channel. The operands are named in [`BlockScan`]. The N
/// complex states s of a channel are zeros at first, and no rate is 0.
///
/// It takes O(B L J N P) time. For f32 in main memory, a state is kept for every 32 positions, and
/// the others are computed again for the backward pass. Elsewhere all states are in memory, and some
/// dozens of tensors of their size.
///
/// # Errors
/// If shapes do not fit.
pub fn block_scan(operands: &BlockScan) -> Result<Tensor> {
    let BlockScan {
        values,
        steps,
        selection,
        rates,
        bias,
    } = operands;
    let ((batch, length, blocks, width), row) = (values.dims4()?, rates.dims1()?);
    let fits = row % 2 == 0
        && row > 0
        && blocks * width > 0
        && steps.dims() == values.dims()
        && selection.dims() == [batch, length, blocks, row / 2 * 3]
        && bias.dims() == [blocks, row, width];
    check(fits, "block scan", || {
        let shapes = [values, steps, selection, rates, bias].map(|x| x.shape());
        format!("{shapes:?} do not fit")
    })?;
    if supports(values) {
        return Ok(cpu::block_scan([values, steps, selection, rates, bias])?);
    }
    composed(operands)
}

/// Returns the floating-point operations of [`block_scan`] for one sequence of `length` positions.
/// These are a complex product with each state and its sum (8), one with its input (8), which is
/// added (4), and the real part that is read (2), without e^(δ a) and its division by a. There are
/// `blocks` blocks of `width` channels with `states` states each.
#[must_use]
pub fn flops(length: usize, blocks: usize, states: usize, width: usize) -> u64 {
    22 * (length * blocks * states * width) as u64
}

/// Computes [`block_scan`] with all states in memory.
fn composed(operands: &BlockScan) -> Result<Tensor> {
    let BlockScan { values, steps, .. } = operands;
    let ((batch, length, blocks, width), states) = (values.dims4()?, operands.rates.dim(0)? / 2);
    let all = (batch, length, blocks, states, width);
    let selection = |from: usize| operands.selection.narrow(3, from, states)?.unsqueeze(4);
    let rates = Complex::from_planes(operands.rates)?;
    let rates = Complex::new(rates.re.unsqueeze(1)?, rates.im.unsqueeze(1)?); // (N, 1)
    let one = Complex::new(rates.re.ones_like()?, rates.im.zeros_like()?);
    let inverse = one.div(&rates)?;
    let power = |rate: &Tensor| steps.unsqueeze(3)?.broadcast_mul(rate); // (B, L, J, N, P)
    let (grown, angle) = (exp_m1(&power(&rates.re)?)?, power(&rates.im)?);
    // e^(x + iy) - 1 = (e^x - 1) cos y - 2 sin²(y/2) + i e^x sin y.
    let size = (&grown + 1.0)?;
    // What vanishes has no angle, and that of a long step may be no number.
    let angle = size.gt(0.0)?.where_cond(&angle, &angle.zeros_like()?)?;
    let turned = ((angle.affine(0.5, 0.0)?.sin()?.sqr()? * 2.0)? - grown * angle.cos()?)?.neg()?;
    let risen = (size * angle.sin()?)?;
    let decay = Complex::new((&turned + 1.0)?, risen.clone());
    let held = Complex::new(turned, risen).mul(&inverse)?;
    let written =
        |from: usize| selection(from)?.broadcast_add(&operands.bias.narrow(1, from, states)?);
    let written = Complex::new(written(0)?, written(states)?).mul(&held)?;
    let values = values.unsqueeze(3)?;
    let flat = |x: Tensor| x.reshape((batch, length, blocks * states * width));
    let input = Complex::new(
        flat(written.re.broadcast_mul(&values)?)?,
        flat(written.im.broadcast_mul(&values)?)?,
    );
    let decay = Complex::new(flat(decay.re)?, flat(decay.im)?);
    let options = ScanOptions {
        complex: true,
        reverse: false,
    };
    let h = Complex::from_planes(&scan(&input.planes()?, &decay.planes()?, options)?)?;
    let read = h.re.reshape(all)?.broadcast_mul(&selection(2 * states)?)?;
    Ok(read.sum(3)?)
}

/// Returns `exp(x) - 1` of every element, which is not positive.
fn exp_m1(x: &Tensor) -> Result<Tensor> {
    let half = x.affine(0.5, 0.0)?.tanh()?;
    let rest = half.affine(-1.0, 1.0)?;
    Ok(((half * 2.0)? / rest)?)
}
