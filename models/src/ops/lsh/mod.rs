//! Locality-sensitive hashing by random rotations: the bucket of x in a round is argmax `[x R ; -x
//! R]` (Andoni et al., 2015, arXiv:1509.02897). Near vectors are likely to fall into one bucket.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{DType, Device, Tensor};

use crate::Result;

/// Returns the buckets of the vectors of x (B, L, H E) in T rounds of hashing: numbers below n, in
/// the order (B, H, T, L). `rotations` are R (E, T, n / 2). The bucket of a vector x in a round is
/// argmax `[x R ; -x R]` (Andoni et al., 2015, arXiv:1509.02897).
///
/// There is no gradient. Buckets are computed in main memory and in f32, for x on any device,
/// because callers sort positions by them there.
///
/// # Errors
/// If shapes do not fit.
pub fn lsh(x: &Tensor, rotations: &Tensor) -> Result<Vec<u32>> {
    let host = |x: &Tensor| x.detach().to_device(&Device::Cpu)?.to_dtype(DType::F32);
    Ok(cpu::lsh(&host(x)?, &host(rotations)?)?)
}
