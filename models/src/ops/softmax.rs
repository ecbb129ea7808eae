//! Softmax over the last dimension, with padded keys left out.

use candle_core::{D, Tensor};

use crate::{Mask, Result, kernels};

/// Softmax of `scores` (B, H, Q, K) over K, of any number of dimensions without a mask. Padded keys get weight 0; a sequence with
/// no real key gets zeros throughout.
///
/// # Errors
/// If a tensor operation fails.
pub fn masked(scores: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    if kernels::supports(scores) {
        return Ok(kernels::softmax(scores, mask.map(Mask::valid))?);
    }
    composed(scores, mask)
}

fn composed(scores: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    // The shift is a constant (it cancels), so no gradient has to pass through the maximum.
    let constant = scores.detach();
    let Some(mask) = mask else {
        let max = constant.max_keepdim(D::Minus1)?; // (B, H, Q, 1)
        let weights = scores.broadcast_sub(&max)?.exp()?;
        let total = weights.sum_keepdim(D::Minus1)?;
        return Ok(weights.broadcast_mul(&total.recip()?)?);
    };
    let additive = mask.additive().unsqueeze(1)?.unsqueeze(1)?; // (B, 1, 1, K)
    let max = constant.broadcast_add(&additive)?.max_keepdim(D::Minus1)?; // (B, H, Q, 1)
    let shift = additive.broadcast_sub(&max)?; // (B, H, Q, K)
    let weights = (scores + shift)?.exp()?;
    let total = weights.sum_keepdim(D::Minus1)?;
    let any = mask.has_valid().unsqueeze(1)?.unsqueeze(1)?; // (B, 1, 1, 1)
    Ok(weights.broadcast_mul(&any.broadcast_div(&total)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::{check_gradient, normal};
    use candle_core::Device;

    fn mask() -> Mask {
        let real = [[1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0f64]];
        Mask::new(&Tensor::new(&real, &Device::Cpu).unwrap()).unwrap()
    }

    #[test]
    fn gradients_agree_with_differences() {
        let mask = mask();
        for mask in [None, Some(&mask)] {
            check_gradient("softmax", &[&[2, 2, 3, 4]], |inputs| {
                masked(&inputs[0], mask)
            });
        }
    }

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(71);
        for (batch, heads, queries, keys) in
            [(1, 1, 1, 1), (2, 1, 3, 4), (3, 2, 5, 16), (2, 2, 70, 37)]
        {
            let x = [sampler.normal(&[batch, heads, queries, keys], 2.0)];
            let real = (0..batch * keys)
                .map(|place| f32::from(place % 3 != 1 && place < (batch - 1) * keys + 1));
            let real = Tensor::from_iter(real, &Device::Cpu).unwrap();
            let real = real.reshape((batch, keys)).unwrap();
            agree(
                "softmax",
                &x,
                |x| kernels::softmax(&x[0], None),
                |x| composed(&x[0], None).map_err(candle_core::Error::wrap),
            );
            let masked = |x: &[Tensor]| {
                let mask =
                    Mask::new(&real.to_dtype(x[0].dtype())?).map_err(candle_core::Error::wrap)?;
                composed(&x[0], Some(&mask)).map_err(candle_core::Error::wrap)
            };
            agree(
                "masked softmax",
                &x,
                |x| kernels::softmax(&x[0], Some(&real)),
                masked,
            );
        }
    }

    #[test]
    fn rows_far_apart_and_masks_that_do_not_fit() {
        let x = Tensor::new(
            &[[1e30f32, -1e30, 0.0], [-3e38, -3e38, -3e38]],
            &Device::Cpu,
        )
        .unwrap();
        let y: Vec<Vec<f32>> = kernels::softmax(&x, None).unwrap().to_vec2().unwrap();
        assert_eq!(y[0], [1.0, 0.0, 0.0]);
        assert!(y[1].iter().all(|y| (y - 1.0 / 3.0).abs() < 1e-6));
        let mask = Tensor::ones((2, 4), candle_core::DType::F32, &Device::Cpu).unwrap();
        assert!(kernels::softmax(&x, Some(&mask)).is_err());
    }

    #[test]
    fn padded_keys_weigh_nothing_and_a_row_without_keys_gives_zeros() {
        // Scores far apart: exp of them overflows without the shift.
        let scores = normal("scores", &[2, 1, 3, 4]).affine(1000.0, 0.0).unwrap();
        let weights = masked(&scores, Some(&mask())).unwrap();
        let weights: Vec<f64> = weights.flatten_all().unwrap().to_vec1().unwrap();
        let (first, second) = weights.split_at(12);
        for row in first.chunks(4) {
            assert!(row[1] == 0.0 && (row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
        assert!(second.iter().all(|&weight| weight == 0.0));
    }
}
