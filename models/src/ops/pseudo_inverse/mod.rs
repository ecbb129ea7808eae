//! Approximate pseudo-inverses by products alone. Razavi et al., 2014, as in Nyströmformer,
//! arXiv:2102.03902.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{DType, Tensor};

use super::matmul::{count, exact_matmul};
use crate::Result;

/// Returns approximate pseudo-inverses Z (B, H, M, M) of the M by M matrices A in `a` (B, H, M, M),
/// whose entries must not be negative. It repeats `Z ← ¼ Z (13 I - A Z (15 I - A Z (7 I - A Z)))`
/// `iterations` times, from Z = Aᵀ / (largest column sum of A). That is the iteration of
/// Nyströmformer (arXiv:2102.03902).
///
/// A matrix takes O(M³·iterations) time. Only A and Z are kept where A is f64 in main memory.
///
/// # Errors
/// If matrices are not square.
pub fn pseudo_inverse(a: &Tensor, iterations: usize) -> Result<Tensor> {
    match a.device().is_cpu() && a.dtype() == DType::F64 {
        true => {
            // Four products an iteration.
            let terms = a.dims().last().copied().unwrap_or(0);
            count((iterations * 8 * a.elem_count() * terms) as u64);
            Ok(cpu::pseudo_inverse(a, iterations)?)
        }
        false => composed(a, iterations),
    }
}

fn composed(a: &Tensor, iterations: usize) -> Result<Tensor> {
    let sums = a.sum_keepdim(2)?; // (B, H, 1, M)
    // Among equal sums the gradient goes to the first, as in PyTorch; candle's maximum hands it to
    // each of them.
    let largest = sums.gather(&sums.argmax_keepdim(3)?, 3)?; // (B, H, 1, 1)
    let mut z = a.t()?.contiguous()?.broadcast_div(&largest)?;
    let identity = Tensor::eye(a.dim(3)?, a.dtype(), a.device())?;
    let less = |factor: f64, x: &Tensor| -> Result<Tensor> {
        Ok(identity.affine(factor, 0.0)?.broadcast_sub(x)?)
    };
    for _ in 0..iterations {
        let az = exact_matmul(a, &z)?;
        let inner = less(15.0, &exact_matmul(&az, &less(7.0, &az)?)?)?;
        let outer = less(13.0, &exact_matmul(&az, &inner)?)?;
        z = exact_matmul(&z, &outer)?.affine(0.25, 0.0)?;
    }
    Ok(z)
}
