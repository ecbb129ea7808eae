//! Linear recurrences of pairs of numbers, such as the position and the velocity of an oscillator
//! (LinOSS, arXiv:2410.03943).
//!
//! ```text
//! [p_t, q_t] = M [p_(t-1), q_(t-1)] + x_t
//! ```
//!
//! Each column has its own matrix M (2, 2). [`super::scan()`] computes the recurrence where M can
//! be diagonalised. It cannot where both eigenvalues of M are the same, as without a restoring
//! force.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

use super::scan::shift;
use super::{cat, check};
use crate::Result;
use crate::ops::supports;

/// Returns all pairs of the recurrence `[p_t, q_t] = M [p_(t-1), q_(t-1)] + x_t` in each of W
/// columns, from p = q = 0. The result is (B, L, 2 W), with p in the first half of the columns and
/// q in the second. x (B, L, 2 W) is laid out in the same way. `m` (4, W) has the entries of the
/// matrices M: its rows are m_pp, m_pq, m_qp and m_qq.
///
/// For f32 in main memory it takes O(B L W) time in one pass, and keeps only x and the pairs.
/// Elsewhere it takes ⌈log₂ L⌉ passes of doubling reach, which keep a tensor of that size each.
///
/// # Errors
/// If shapes do not fit.
pub fn pair_scan(x: &Tensor, m: &Tensor) -> Result<Tensor> {
    let (_, _, row) = x.dims3()?;
    let fits = row % 2 == 0 && m.dims() == [4, row / 2];
    check(fits, "scan of pairs", || {
        format!("x {:?} and matrices {:?} do not fit", x.shape(), m.shape())
    })?;
    if supports(x) {
        return Ok(cpu::pair_scan(x, m)?);
    }
    composed(x, m)
}

/// Returns the scan by doubling: after a pass with `reach` r, a pair is the sum over the last 2r
/// positions.
fn composed(x: &Tensor, m: &Tensor) -> Result<Tensor> {
    let mut matrices = [0, 1, 2, 3].map(|row| m.get(row));
    let (mut h, mut reach) = (x.clone(), 1);
    // One pass at least, so that m has a gradient, zeros, even for a single position.
    while reach < x.dim(1)?.max(2) {
        let [pp, pq, qp, qq] = matrices;
        let (pp, pq, qp, qq) = (pp?, pq?, qp?, qq?);
        let before = shift(&h, reach, false)?;
        let half = |from| before.narrow(D::Minus1, from, pp.elem_count());
        let (p, q) = (half(0)?, half(pp.elem_count())?);
        let of = |a: &Tensor, b: &Tensor| p.broadcast_mul(a)? + q.broadcast_mul(b)?;
        h = (&h + cat(&[&of(&pp, &pq)?, &of(&qp, &qq)?], 2)?)?;
        let entry = |a: &Tensor, b: &Tensor, c: &Tensor, d: &Tensor| (a * b)? + (c * d)?;
        matrices = [
            entry(&pp, &pp, &pq, &qp),
            entry(&pp, &pq, &pq, &qq),
            entry(&qp, &pp, &qq, &qp),
            entry(&qp, &pq, &qq, &qq),
        ];
        reach *= 2;
    }
    Ok(h)
}
