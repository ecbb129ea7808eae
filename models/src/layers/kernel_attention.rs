//! Attention by a kernel that is a product of features, in time linear in the length.
//!     y_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j) = φ(q_i) S / (φ(q_i)·z),  S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j)

use candle_core::Tensor;

pub use crate::kernels::FeatureMap;
use crate::{
    Mask, Result,
    kernels::{self, KernelAttentionOptions},
    layers::activation,
};

/// Added to the denominator, so that a sequence with no real key gives zeros.
const GUARD: f64 = 1e-6;

/// Queries and keys (B, L, H, M) and values (B, L, H, E) to (B, L, H, E); φ is `map`.
///
/// Features must not be negative. Padded keys are left out of both sums; their features must be finite.
///
/// # Errors
/// If a tensor operation fails.
pub fn attend(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    map: FeatureMap,
    mask: Option<&Mask>,
) -> Result<Tensor> {
    if kernels::supports(v) {
        let options = KernelAttentionOptions {
            heads: v.dim(2)?,
            map,
            guard: GUARD,
            mask: mask.map(|mask| mask.real().clone()),
        };
        let [q, k, flat] = [q, k, v].map(|x| x.flatten_from(2));
        let y = kernels::kernel_attention(&q?, &k?, &flat?, &options)?;
        return Ok(y.reshape(v.dims())?);
    }
    let heads = |x: &Tensor| x.transpose(1, 2)?.contiguous(); // (B, H, L, ..)
    let (q, k, v) = (heads(&apply(map, q)?)?, heads(&apply(map, k)?)?, heads(v)?);
    let (batch, heads, length, _) = v.dims4()?;
    // Sums over positions are products with a row of ones, which is much faster than candle's reductions.
    let (v, ones) = match mask {
        Some(mask) => {
            let real = mask.real();
            let column = real.reshape((batch, 1, length, 1))?;
            let row = real.reshape((batch, 1, 1, length))?;
            (v.broadcast_mul(&column)?, row)
        }
        None => {
            let ones = Tensor::ones((1, 1, 1, length), v.dtype(), v.device())?;
            (v, ones)
        }
    };
    let ones = ones.broadcast_as((batch, heads, 1, length))?.contiguous()?;
    let sums = k.t()?.matmul(&v)?; // S (B, H, M, E)
    let totals = ones.matmul(&k)?; // z (B, H, 1, M)
    let weights = q.matmul(&totals.t()?)?; // (B, H, L, 1)
    let scale = weights.affine(1.0, GUARD)?.recip()?;
    let y = q.matmul(&sums)?.broadcast_mul(&scale)?; // (B, H, L, E)
    Ok(y.transpose(1, 2)?.contiguous()?)
}

fn apply(map: FeatureMap, x: &Tensor) -> Result<Tensor> {
    match map {
        FeatureMap::Given => Ok(x.clone()),
        FeatureMap::EluPlusOne => activation::elu_plus_one(x),
        FeatureMap::Relu { floor } => activation::relu(x, floor),
    }
}

/// Operations of [`attend`] for one sequence, all heads together: `features` per head, values `width` wide.
#[must_use]
pub fn flops(length: usize, heads: usize, features: usize, width: usize) -> u64 {
    let products = 2 * width + 2; // S and its use, z and its use
    2 * (length * heads * features * products) as u64
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::layers::testing::check_gradient;

    #[test]
    fn gradients_agree_with_differences() {
        let real = [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0f64]];
        let mask = Mask::new(&Tensor::new(&real, &Device::Cpu).unwrap()).unwrap();
        for mask in [None, Some(&mask)] {
            // (B, L, H, ..)
            let shapes: [&[usize]; 3] = [&[2, 3, 2, 4], &[2, 3, 2, 4], &[2, 3, 2, 2]];
            check_gradient("kernel attention", &shapes, |inputs| {
                attend(
                    &inputs[0],
                    &inputs[1],
                    &inputs[2],
                    FeatureMap::EluPlusOne,
                    mask,
                )
            });
        }
    }
}
