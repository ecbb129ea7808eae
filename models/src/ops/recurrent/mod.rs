//! Recurrences whose gates read the state: LSTM (Hochreiter & Schmidhuber, 1997, with the forget
//! gate of Gers et al., 2000) and GRU (Cho et al., 2014, arXiv:1406.1078), in PyTorch's order of
//! gates.
//!
//! ```text
//! LSTM: [i | f | g | o] = x + a,  c ← σ(f) c + σ(i) tanh(g),  h ← σ(o) tanh(c)
//! GRU:  r = σ(x_r + a_r),  z = σ(x_z + a_z),  n = tanh(x_n + r a_n),  h ← (1 - z) n + z h
//! ```
//!
//! a = W h + b for the state h of the position before, zeros at first. No scan computes them: one
//! position follows the other.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{DType, Tensor};

use super::activation::sigmoid;
use super::{check, exact_matmul, matmul};
use crate::Result;
use crate::ops::supports;

/// Kind of a recurrent layer, which decides its states and gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Long short-term memory, with input gate i, forget gate f, candidate g and output gate o.
    Lstm,
    /// Gated recurrent unit, with reset gate r, update gate z and candidate n.
    Gru,
}

impl Cell {
    /// Returns the number of gates: 4 for the LSTM, 3 for the GRU.
    #[must_use]
    pub fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }
}

/// Returns all states h (B, L, W) of an LSTM or GRU with W channels, as `cell` says. x (B, L, G W)
/// holds the inputs of its G gates. `weight` (G W, W) and `bias` (G W) map the state before to the
/// gates. The equations are in [the module](self). States are zeros at first. Where `mask` (B, L)
/// is 0, they stay as they were.
///
/// It takes O(B L G W²) time. In main memory, f32 and f64 take the same loops. These keep h, and of
/// the LSTM one c for every 32 positions, and compute gates again for the backward pass. Elsewhere
/// the graph has nodes for every position, and thousands of positions can make it deeper than the
/// stack allows. Products with the state are never rounded to bfloat16, because their errors would
/// add up.
///
/// # Errors
/// If shapes do not fit.
pub fn recurrent(
    cell: Cell,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    mask: Option<&Tensor>,
) -> Result<Tensor> {
    let ((batch, length, row), (rows, width)) = (x.dims3()?, weight.dims2()?);
    let fits = rows == cell.gates() * width
        && row == rows
        && bias.dims() == [rows]
        && mask.is_none_or(|mask| mask.dims() == [batch, length]);
    check(fits, "recurrence", || {
        let [x, weight, bias] = [x, weight, bias].map(Tensor::shape);
        let mask = mask.map(Tensor::shape);
        format!("{cell:?}, x {x:?}, weight {weight:?}, bias {bias:?}, mask {mask:?} do not fit")
    })?;
    if supports(x) {
        return Ok(cpu::recurrent::<f32>(cell, [x, weight, bias], mask)?);
    }
    if x.device().is_cpu() && x.dtype() == DType::F64 {
        matmul::count(2 * (batch * length * weight.elem_count()) as u64);
        return Ok(cpu::recurrent::<f64>(cell, [x, weight, bias], mask)?);
    }
    composed(cell, [x, weight, bias], mask)
}

fn composed(cell: Cell, [x, weight, bias]: [&Tensor; 3], mask: Option<&Tensor>) -> Result<Tensor> {
    let ((batch, length, _), width) = (x.dims3()?, weight.dim(1)?);
    let weight = weight.t()?;
    let mut h = Tensor::zeros((batch, width), x.dtype(), x.device())?;
    let mut c = h.clone();
    let mut states = vec![h.narrow(0, 0, batch)?.unsqueeze(1)?];
    for t in 0..length {
        let x = x.narrow(1, t, 1)?.squeeze(1)?;
        let a = exact_matmul(&h, &weight)?.broadcast_add(bias)?;
        let part = |all: &Tensor, gate: usize| all.narrow(1, gate * width, width);
        let (next_h, next_c) = match cell {
            Cell::Lstm => {
                let all = (x + a)?;
                let open = |gate| sigmoid(&part(&all, gate)?);
                let added = (open(0)? * part(&all, 2)?.tanh()?)?;
                let next = ((open(1)? * &c)? + added)?;
                ((open(3)? * next.tanh()?)?, next)
            }
            Cell::Gru => {
                let open = |gate| sigmoid(&(part(&x, gate)? + part(&a, gate)?)?);
                let n = (part(&x, 2)? + (open(0)? * part(&a, 2)?)?)?.tanh()?;
                ((&n + (open(1)? * (&h - &n)?)?)?, c.clone())
            }
        };
        let kept = |before: &Tensor, next: Tensor| -> Result<Tensor> {
            let Some(mask) = mask else { return Ok(next) };
            let change = (next - before)?.broadcast_mul(&mask.narrow(1, t, 1)?)?;
            Ok((before + change)?)
        };
        (h, c) = (kept(&h, next_h)?, kept(&c, next_c)?);
        states.push(h.unsqueeze(1)?);
    }
    Ok(Tensor::cat(&states, 1)?.narrow(1, 1, length)?)
}
