//! Locality-sensitive hashing by random rotations: the bucket of x in a round is argmax `[x R ; -x
//! R]` (Andoni et al., 2015, arXiv:1509.02897). Near vectors are likely to fall into one bucket.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{DType, Device, Tensor};

use crate::Result;

/// Returns the buckets (B, H, T, L), flattened, of the vectors of x (B, L, H E) for rotations R (E,
/// T, n / 2): numbers below n.
///
/// Callers sort positions by bucket, in main memory, and there is no gradient: buckets are computed
/// there and in f32, for x on any device. Therefore this operation has a single form.
///
/// # Errors
/// If shapes do not fit.
pub fn lsh(x: &Tensor, rotations: &Tensor) -> Result<Vec<u32>> {
    let host = |x: &Tensor| x.detach().to_device(&Device::Cpu)?.to_dtype(DType::F32);
    Ok(cpu::lsh(&host(x)?, &host(rotations)?)?)
}
