//! A matrix of states with a decay of each row, a rank-1 change, and a sum of keys times values, as
//! in RWKV-7 (arXiv:2503.14456).
//!
//! ```text
//! S_t = diag(w_t) S_(t-1) + b_t (S_(t-1)ᵀ a_t)ᵀ + k_t v_tᵀ,  y_t = S_tᵀ r_t
//! ```
//!
//! The matrix between two states is diagonal plus one of rank 1. The names are those of
//! [`DplrScan`]. The delta rule of [`super::gated_linear_attention()`], with decays α, rates β and
//! keys κ, is the case w = α, a = α ⊙ κ, b = -β κ and k = β κ. One position follows the other.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{DType, Tensor};

use super::{check, matmul};
use crate::Result;
use crate::ops::supports;

/// Operands of [`dplr_scan`], for sequences of L positions in a batch of B. There are H heads, each
/// with a matrix of states (K, V) for keys of width K and values of width V.
#[derive(Clone, Copy)]
pub struct DplrScan<'a> {
    /// Queries r (B, L, H, K), which read the states: a vector of width K for each position and
    /// head.
    pub queries: &'a Tensor,
    /// Decays w (B, L, H, K): the factors on the K rows of the states. They are not logarithms.
    pub decays: &'a Tensor,
    /// Keys k (B, L, H, K), which choose the rows of the states to which a value is added.
    pub keys: &'a Tensor,
    /// Values v (B, L, H, V), of width V, which are added to the states.
    pub values: &'a Tensor,
    /// Vectors a (B, L, H, K), of width K, that read the states of the position before.
    pub reads: &'a Tensor,
    /// Vectors b (B, L, H, K), of width K, that add to the states what a has read.
    pub writes: &'a Tensor,
}

/// Returns y (B, L, H, V) of the recurrence
/// `S_t = diag(w_t) S_(t-1) + b_t (S_(t-1)ᵀ a_t)ᵀ + k_t v_tᵀ`, `y_t = S_tᵀ r_t` in each of H heads.
/// The operands are named in [`DplrScan`]. The states S (K, V) are zeros at first.
///
/// A position with k = b = 0 and w = 1 leaves the states as they were. It takes O(B L H K V) time.
/// In main memory, f32 and f64 take the same loops. These keep a state for every 32 positions, and
/// compute the others again for the backward pass. Elsewhere the graph has nodes for every
/// position, and thousands of positions can make it deeper than the stack allows.
///
/// # Errors
/// If shapes do not fit.
pub fn dplr_scan(operands: &DplrScan) -> Result<Tensor> {
    let DplrScan {
        queries,
        decays,
        keys,
        values,
        reads,
        writes,
    } = operands;
    let (batch, length, heads, width) = queries.dims4()?;
    let alike = [decays, keys, reads, writes];
    let alike = alike.iter().all(|x| x.dims() == queries.dims());
    let fits = alike && values.rank() == 4 && values.dims()[..3] == [batch, length, heads];
    check(fits, "rank-1 scan", || {
        let rows = [queries, decays, keys, reads, writes].map(|x| x.shape());
        format!("{rows:?} and values {:?} do not fit", values.shape())
    })?;
    let all = [*queries, *decays, *keys, *values, *reads, *writes];
    if supports(values) {
        return Ok(cpu::dplr_scan::<f32>(all)?);
    }
    if values.device().is_cpu() && values.dtype() == DType::F64 {
        matmul::count(flops(length, heads, width, values.dim(3)?) * batch as u64);
        return Ok(cpu::dplr_scan::<f64>(all)?);
    }
    composed(all)
}

/// Returns the floating-point operations of [`dplr_scan`] for one sequence of `length` positions
/// and all `heads`. These are four products with the states or of them, and a multiply-add is two
/// operations. A head has `keys` by `values` states.
#[must_use]
pub fn flops(length: usize, heads: usize, keys: usize, values: usize) -> u64 {
    8 * (length * heads * keys * values) as u64
}

fn composed([r, w, k, v, a, b]: [&Tensor; 6]) -> Result<Tensor> {
    let ((batch, length, heads, keys), values) = (r.dims4()?, v.dim(3)?);
    let mut state = Tensor::zeros((batch, heads, keys, values), v.dtype(), v.device())?;
    let mut all = Vec::new();
    for t in 0..length {
        // (B, H, K, 1), and values as (B, H, 1, V).
        let column = |x: &Tensor| x.narrow(1, t, 1)?.squeeze(1)?.unsqueeze(3);
        let [r, w, k, a, b] = [r, w, k, a, b].map(column);
        let v = v.narrow(1, t, 1)?.squeeze(1)?.unsqueeze(2)?;
        let read = state.broadcast_mul(&a?)?.sum_keepdim(2)?;
        let kept = state.broadcast_mul(&w?)?;
        let added = (b?.broadcast_mul(&read)? + k?.broadcast_mul(&v)?)?;
        state = (kept + added)?;
        all.push(state.broadcast_mul(&r?)?.sum(2)?.unsqueeze(1)?);
    }
    Ok(Tensor::cat(&all, 1)?)
}
