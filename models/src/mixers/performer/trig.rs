//! Trigonometric random features, which Performer's positive features replace (Rahimi & Recht,
//! 2007, "Random Features for Large-Scale Kernel Machines"; Choromanski et al., 2020, section 2.3).
//!     y_i = Σ_j φ(q_i)·φ(k_j) v_j / d_i,  d_i = Σ_j φ(q_i)·φ(k_j),  φ(x) = exp(|x'|²/2) [sin W x' ; cos W x'] / √M,  x' = x / E^¼
//! W (M, E). The factor of the query itself cancels and is left out; keys are divided by the
//! largest factor among the row's valid keys. As in the published code, 2ε is added to d_i where it
//! is within ε of 0.

use crate::{
    ops::{attention::partial_softmax::by_head, linear},
    prelude::*,
};

/// Maps queries, keys and values (B, L, H, E) by directions w (M, E), to (B, L, H, E); a row
/// without a valid key gives zeros.
pub(super) fn attend(
    [q, k, v]: [&Tensor; 3],
    w: &Tensor,
    epsilon: f64,
    mask: Option<&Mask>,
) -> Result<Tensor> {
    let (count, width) = w.dims2()?;
    let directions = w.affine((width as f64).powf(-0.25), 0.0)?.detach();
    let waves = |x: &Tensor| -> Result<Tensor> {
        let projected = linear(&by_head(x)?, &directions, None)?; // (B, H, L, M)
        let both = Tensor::cat(&[projected.sin()?, projected.cos()?], 3)?;
        Ok(both.affine((count as f64).powf(-0.5), 0.0)?)
    };
    let half = (width as f64).powf(-0.5) / 2.0;
    let squares = by_head(&k.sqr()?.sum_keepdim(D::Minus1)?)?.affine(half, 0.0)?; // (B, H, L, 1)
    let column = |x: &Tensor| x.unsqueeze(1)?.unsqueeze(3);
    let factors = match mask {
        Some(mask) => {
            let valid = column(mask.valid())?; // (B, 1, L, 1)
            let squares = squares.broadcast_mul(&valid)?;
            let largest = squares.detach().max_keepdim(2)?;
            squares
                .broadcast_sub(&largest)?
                .exp()?
                .broadcast_mul(&valid)?
        }
        None => squares
            .broadcast_sub(&squares.detach().max_keepdim(2)?)?
            .exp()?,
    };
    let (q, k) = (waves(q)?, waves(k)?.broadcast_mul(&factors)?);
    let v = by_head(v)?;
    // A column of ones: its sum is the denominator.
    let v = Tensor::cat(&[&v, &v.narrow(3, 0, 1)?.ones_like()?], 3)?;
    let sums = matmul(&q, &matmul(&k.t()?, &v)?)?; // (B, H, L, E + 1)
    let total = sums.narrow(3, width, 1)?;
    let tiny = total.abs()?.le(epsilon)?.to_dtype(v.dtype())?;
    let total = (total + tiny.affine(2.0 * epsilon, 0.0)?)?;
    by_head(&sums.narrow(3, 0, width)?.broadcast_div(&total)?)
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        reference,
        rng::{RngKey, StreamKey},
        testing::{DenseReference, check_gradient, normal},
    };

    #[test]
    fn gradients_agree_with_differences() {
        let valid = [[1.0; 4], [1.0, 1.0, 0.0, 0.0]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        let w = normal("w", &[5, 3]);
        let shape: &[usize] = &[2, 4, 2, 3];
        check_gradient("trig", &[shape, shape, shape], |x| {
            // Short vectors, whose denominators are far from 0.
            let [q, k] = [0, 1].map(|i: usize| x[i].affine(0.3, 0.0).unwrap());
            attend([&q, &k, &x[2]], &w, 1e-6, Some(&mask))
        });
    }

    #[test]
    fn outputs_approach_softmax_attention_as_features_grow() {
        let twin = DenseReference::new(reference::softmax, 0.3);
        let error = |count: usize| {
            let squares = (0..16).map(|seed| {
                let stream = RngKey::new(seed, 0, 0).shared(StreamKey::new("w"));
                let w = Tensor::from_vec(stream.normal(count, 3), (count, 3), &Device::Cpu);
                let w = w.unwrap().to_dtype(DType::F64).unwrap();
                let apart = twin.compare(|q, k, v, mask| attend([q, k, v], &w, 1e-6, mask));
                apart.output.powi(2)
            });
            (squares.sum::<f64>() / 16.0).sqrt()
        };
        let (few, many) = (error(64), error(4096));
        assert!(
            (5.0..13.0).contains(&(few / many)) && many < 0.05,
            "{few} {many}"
        );
    }
}
