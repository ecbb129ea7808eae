//! Diagonal state spaces whose states all channels share: S5 (arXiv 2208.04933) and linear
//! recurrent units (arXiv 2303.06349).
//!
//! ```text
//! h_t = λ ⊙ h_{t-1} + B x_t,  y_t = Re(C h_t) + d ⊙ x_t
//! ```

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::{Complex, ScanOptions, check, linear, scan_packed};
use crate::ops::supports;
use crate::{Packing, Result};

/// Coefficients of [`shared_state_space`], for P complex states h that all D channels share.
pub struct SharedStates<'a> {
    /// Decays λ (P): the complex factor on each of the P states from one position to the next.
    pub lambda: &'a Complex,
    /// Complex input matrix B (P, D), which maps the D channels to the P states.
    pub b: &'a Complex,
    /// Complex output matrix C (D, P), which maps the P states to the D channels. For states in
    /// both directions it is (D, 2 P), and its second half reads those that run from the end of the
    /// sequence.
    pub c: &'a Complex,
    /// Weights d (D) of the input itself in the output, one for each of the D channels.
    pub d: &'a Tensor,
}

/// Returns y (B, L, D) of x (B, L, D) by P states that all D channels share:
/// `h_t = λ ⊙ h_{t-1} + B x_t`, `y_t = Re(C h_t) + d ⊙ x_t`. `with` has the coefficients.
///
/// If C is (D, 2 P), states run in both directions, and a position sees itself in each of them.
/// Sequences may be packed, as `packing` says, and x is then (1, T, D) with T valid positions in
/// all. It is two products with matrices and a [`super::scan()`], with O(B L P D) time and O(B L P)
/// memory.
///
/// # Errors
/// If shapes do not fit.
pub fn shared_state_space(
    x: &Tensor,
    with: &SharedStates,
    packing: Option<&Packing>,
) -> Result<Tensor> {
    let SharedStates { lambda, b, c, d } = with;
    let ((_, _, width), states) = (x.dims3()?, lambda.re.elem_count());
    let directions =
        c.re.dims()
            .get(1)
            .map_or(0, |columns| columns / states.max(1));
    let fits = states > 0
        && lambda.re.rank() == 1
        && b.re.dims() == [states, width]
        && c.re.dims() == [width, directions * states]
        && (1..=2).contains(&directions)
        && d.dims() == [width]
        && [lambda, b, c].iter().all(|z| z.re.dims() == z.im.dims());
    check(fits, "state space", || {
        let (b, c, d) = (b.re.shape(), c.re.shape(), d.shape());
        format!(
            "x {:?}, B {b:?}, C {c:?} and d {d:?} do not fit {states} states",
            x.shape()
        )
    })?;
    let b = Tensor::cat(&[&b.re, &b.im], 0)?; // (2 P, D)
    let lambda = lambda.planes()?;
    let weight = |direction: usize| -> Result<Tensor> {
        let part = |c: &Tensor| c.narrow(1, direction * states, states);
        Ok(Tensor::cat(&[part(&c.re)?, part(&c.im)?.neg()?], 1)?) // (D, 2 P)
    };
    let weights = (0..directions).map(weight).collect::<Result<Vec<_>>>()?;
    if supports(x) {
        let forwards = super::scan::cpu::Scan {
            complex: true,
            reverse: false,
            offsets: packing.map(|packing| packing.offsets().clone()),
        };
        let c = Tensor::cat(&weights, 0)?;
        return Ok(cpu::shared_state_space(x, &b, &lambda, &c, d, forwards)?);
    }
    let entering = linear(x, &b, None)?; // (B, L, 2 P)
    let mut y = x.broadcast_mul(d)?;
    for (direction, weight) in weights.iter().enumerate() {
        let options = ScanOptions {
            complex: true,
            reverse: direction == 1,
        };
        let h = scan_packed(&entering, &lambda, options, packing)?;
        y = (y + linear(&h, weight, None)?)?;
    }
    Ok(y)
}
