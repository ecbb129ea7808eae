//! The recurrence with scalar memory of xLSTM (sLSTM, arXiv:2405.04517), whose input gate is an
//! exponential and whose gates read the state of their head.
//!
//! ```text
//! [i | f | z | o] = x_t + R h_(t-1),  h_t = σ(o) c_t / n_t
//! c_t = σ(f) c_(t-1) + e^i tanh(z),   n_t = σ(f) n_(t-1) + e^i
//! ```
//!
//! h, c, n (H, E), R (H, 4 E, E). c and n are kept divided by e^m for m_t = max(m_(t-1) + ln σ(f),
//! i), which cancels in h, so that no exponential is larger than 1. No scan computes it: one
//! position follows the other.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{DType, Tensor};

use super::activation::{sigmoid, softplus};
use super::{check, exact_matmul, matmul};
use crate::Result;
use crate::ops::supports;

/// Returns all states h (B, L, H, E) of the sLSTM of xLSTM (arXiv:2405.04517), for heads E wide. x
/// (B, L, H, 4 E) holds the inputs of its four gates. `weight` R (H, 4 E, E) maps the state before
/// to the gates. The equations are in [the module](self). States are zeros at first. Where `mask`
/// (B, L) is 0, they stay as they were.
///
/// It takes O(B L H E²) time. In main memory, f32 and f64 take the same loops. These keep h, and
/// for every 32 positions c, n and m, and compute gates again for the backward pass. Elsewhere the
/// graph has nodes for every position, and thousands of positions can make it deeper than the stack
/// allows. Products with the state are never rounded to bfloat16, because their errors would add
/// up.
///
/// # Errors
/// If shapes do not fit.
pub fn slstm(x: &Tensor, weight: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let ((batch, length, heads, row), (of, rows, width)) = (x.dims4()?, weight.dims3()?);
    let fits = of == heads
        && row == rows
        && rows == 4 * width
        && mask.is_none_or(|mask| mask.dims() == [batch, length]);
    check(fits, "sLSTM", || {
        let [x, weight] = [x, weight].map(Tensor::shape);
        let mask = mask.map(Tensor::shape);
        format!("x {x:?}, weight {weight:?} and mask {mask:?} do not fit")
    })?;
    if supports(x) {
        return Ok(cpu::slstm::<f32>(x, weight, mask)?);
    }
    if x.device().is_cpu() && x.dtype() == DType::F64 {
        matmul::count(2 * (batch * length * weight.elem_count()) as u64);
        return Ok(cpu::slstm::<f64>(x, weight, mask)?);
    }
    composed(x, weight, mask)
}

fn composed(x: &Tensor, weight: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let ((batch, length, heads, _), width) = (x.dims4()?, weight.dim(2)?);
    let weight = weight.transpose(1, 2)?.contiguous()?; // (H, E, 4 E)
    let zeros = Tensor::zeros((heads, batch, width), x.dtype(), x.device())?;
    let (mut h, mut c, mut n) = (zeros.clone(), zeros.clone(), zeros.clone());
    // Far below any gate: the first position has no memory.
    let mut m = zeros.affine(1.0, -1e30)?;
    let mut states = Vec::new();
    for t in 0..length {
        let x = x.narrow(1, t, 1)?.squeeze(1)?.transpose(0, 1)?; // (H, B, 4 E)
        let all = (x + exact_matmul(&h, &weight)?)?;
        let part = |gate: usize| all.narrow(2, gate * width, width);
        let log_forget = softplus(&part(1)?.neg()?)?.neg()?;
        let open = (&m + &log_forget)?.maximum(&part(0)?)?.detach();
        let (i, f) = (
            (part(0)? - &open)?.exp()?,
            ((&m + log_forget)? - &open)?.exp()?,
        );
        let next_c = ((&f * &c)? + (&i * part(2)?.tanh()?)?)?;
        let next_n = ((f * &n)? + i)?;
        let next_h = (sigmoid(&part(3)?)? * next_c.div(&next_n)?)?;
        let kept = |before: &Tensor, next: Tensor| -> Result<Tensor> {
            let Some(mask) = mask else { return Ok(next) };
            let valid = mask.narrow(1, t, 1)?.unsqueeze(0)?; // (1, B, 1)
            let valid = valid.broadcast_as(next.shape())?.ne(0.0)?;
            Ok(valid.where_cond(&next, before)?)
        };
        (h, c) = (kept(&h, next_h)?, kept(&c, next_c)?);
        (n, m) = (kept(&n, next_n)?, kept(&m, open)?);
        states.push(h.transpose(0, 1)?.unsqueeze(1)?);
    }
    match states.is_empty() {
        true => Ok(x.narrow(3, 0, width)?),
        false => Ok(Tensor::cat(&states, 1)?),
    }
}
