//! The largest of all inputs so far, each moved by what came after it: the shift that keeps sums of
//! decayed exponentials finite (RWKV, arXiv:2305.13048; xLSTM, arXiv:2405.04517).
//!
//! ```text
//! m_t = max(m_(t-1) + s_t, x_t),  m_1 = x_1
//! ```

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{DType, Tensor};

use super::{cat, check};
use crate::Result;
use crate::ops::supports;

/// Returns the running maximum m (B, L, W) of x (B, L, W) in each of W columns:
/// `m_t = max(m_(t-1) + s_t, x_t)` from m_1 = x_1. `step` is s (B, L, W), or (W) if it is the same
/// at every position.
///
/// m is a constant: no gradient passes, and nothing is kept. It is for results that are shifted by
/// m and back, and so do not depend on it. For f32 and f64 in main memory it takes O(B L W) time in
/// one pass. Elsewhere it takes ⌈log₂ L⌉ passes of doubling reach.
///
/// # Errors
/// If shapes do not fit.
pub fn running_max(x: &Tensor, step: &Tensor) -> Result<Tensor> {
    let (x, step) = (x.detach(), step.detach());
    let (_, _, width) = x.dims3()?;
    let fits = step.dims() == x.dims() || step.dims() == [width];
    check(fits, "running maximum", || {
        format!("x {:?} and steps {:?} do not fit", x.shape(), step.shape())
    })?;
    if supports(&x) {
        return Ok(cpu::running_max::<f32>(&x, &step)?);
    }
    if x.device().is_cpu() && x.dtype() == DType::F64 {
        return Ok(cpu::running_max::<f64>(&x, &step)?);
    }
    composed(&x, &step)
}

/// Returns m by doubling: after a pass with `reach` r, m_t is that of the last 2r positions.
fn composed(x: &Tensor, step: &Tensor) -> Result<Tensor> {
    let (_, length, _) = x.dims3()?;
    let mut m = x.clone();
    let mut steps = step.broadcast_as(x.shape())?.contiguous()?;
    let mut reach = 1;
    while reach < length {
        let rest = length - reach;
        let before = |x: &Tensor| x.narrow(1, 0, rest);
        let here = |x: &Tensor| x.narrow(1, reach, rest);
        let behind = |x: &Tensor, rest: &Tensor| cat(&[&x.narrow(1, 0, reach)?, rest], 1);
        let later = here(&m)?.maximum(&(before(&m)? + here(&steps)?)?)?;
        let sums = (before(&steps)? + here(&steps)?)?;
        (m, steps) = (behind(&m, &later)?, behind(&steps, &sums)?);
        reach *= 2;
    }
    Ok(m)
}
