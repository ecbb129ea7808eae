//! RMSNorm. Zhang & Sennrich, 2019, arXiv:1910.07467.
//!
//! ```text
//! y = x / sqrt(mean x² + epsilon) * weight
//! ```
//!
//! The mean is that over the last dimension.

use candle_core::{D, Tensor};

use super::norm::cuda;
use crate::Result;
use crate::cuda::Gpu;

/// Returns the RMSNorm of x (.., D) over its last dimension, in the same shape:
/// `x / sqrt(mean x² + epsilon) * weight`. `weight` is (D), or (1) for one number for all channels.
///
/// # Errors
/// If shapes do not fit.
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Result<Tensor> {
    if let Some(gpu) = Gpu::of(x).filter(|_| cuda::takes(x)) {
        let weight = weight.broadcast_as(x.dim(D::Minus1)?)?;
        return Ok(cuda::norm(&gpu, x, &weight, None, epsilon)?);
    }
    let square = x.sqr()?.mean_keepdim(D::Minus1)?;
    let root = square.affine(1.0, epsilon)?.sqrt()?;
    Ok(x.broadcast_div(&root)?.broadcast_mul(weight)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check_gradient;

    #[test]
    fn gradients_are_difference_quotients() {
        for weight in [5, 1] {
            let shapes: [&[usize]; 2] = [&[2, 3, 5], &[weight]];
            check_gradient("rms norm", &shapes, |x| rms_norm(&x[0], &x[1], 0.1));
        }
    }
}
