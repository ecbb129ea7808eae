//! From a sequence of hidden states to one vector, padding left out.

use candle_core::Tensor;

use crate::{Mask, Result, kernels, options::Pooling};

/// (B, L, D) -> (B, D). A sequence with no real token gives zeros, except for CLS and first, which take position 0.
///
/// # Errors
/// If a tensor operation fails.
pub fn pool(pooling: Pooling, hidden: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    match pooling {
        Pooling::Cls | Pooling::First => Ok(hidden.narrow(1, 0, 1)?.squeeze(1)?),
        Pooling::Sum => weighted_sum(hidden, &real(hidden, mask)?),
        Pooling::Mean => {
            let real = real(hidden, mask)?; // (B, L)
            let count = real.sum_keepdim(1)?; // (B, 1)
            let count = count.maximum(&count.ones_like()?)?;
            weighted_sum(hidden, &real.broadcast_div(&count)?)
        }
        Pooling::PaddedMean => {
            let share = 1.0 / hidden.dim(1)? as f64;
            weighted_sum(hidden, &real(hidden, mask)?.affine(share, 0.0)?)
        }
        Pooling::Max => match mask {
            Some(mask) => {
                let additive = mask.additive().unsqueeze(2)?; // (B, L, 1)
                let most = hidden.broadcast_add(&additive)?.max(1)?; // (B, D)
                Ok(most.broadcast_mul(mask.has_valid())?)
            }
            None => Ok(hidden.max(1)?),
        },
    }
}

/// The mask (B, L), all ones if there is none.
fn real(hidden: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    if let Some(mask) = mask {
        return Ok(mask.valid().clone());
    }
    let (batch, length, _) = hidden.dims3()?;
    Ok(Tensor::ones(
        (batch, length),
        hidden.dtype(),
        hidden.device(),
    )?)
}

/// (B, L, D) summed over L with constant weights (B, L).
///
/// # Errors
/// If shapes do not fit.
pub fn weighted_sum(hidden: &Tensor, weights: &Tensor) -> Result<Tensor> {
    if kernels::supports(hidden) {
        return Ok(kernels::weighted_sum(hidden, weights)?);
    }
    Ok(weights.unsqueeze(1)?.matmul(hidden)?.squeeze(1)?)
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::{check_gradient, normal};

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(17);
        for (batch, length, dim) in [(1, 1, 1), (3, 7, 5), (2, 1100, 33)] {
            let x = [sampler.normal(&[batch, length, dim], 1.0)];
            let weights = sampler.normal(&[batch, length], 1.0).relu().unwrap();
            let f = |x: &[Tensor]| Ok(weighted_sum(&x[0], &weights.to_dtype(x[0].dtype())?)?);
            agree("weighted sum", &x, f, f);
        }
    }

    #[test]
    fn weights_of_another_shape_are_an_error() {
        for dtype in [DType::F32, DType::F64] {
            let [x, weights] = [&[2, 3, 4][..], &[2, 4]].map(|shape| normal("x", shape));
            let [x, weights] = [x, weights].map(|x| x.to_dtype(dtype).unwrap());
            assert!(weighted_sum(&x, &weights).is_err());
        }
    }

    const ALL: [Pooling; 6] = [
        Pooling::Cls,
        Pooling::First,
        Pooling::Mean,
        Pooling::PaddedMean,
        Pooling::Sum,
        Pooling::Max,
    ];

    fn mask() -> Mask {
        let real = [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0f64]];
        Mask::new(&Tensor::new(&real, &Device::Cpu).unwrap()).unwrap()
    }

    #[test]
    fn gradients_agree_with_differences() {
        let mask = mask();
        for pooling in ALL {
            for mask in [None, Some(&mask)] {
                let name = format!("{pooling:?}");
                check_gradient(&name, &[&[3, 3, 2]], |inputs| {
                    pool(pooling, &inputs[0], mask)
                });
            }
        }
    }

    #[test]
    fn values_are_those_over_real_positions() {
        let hidden = normal("hidden", &[3, 3, 2]);
        let h: Vec<Vec<Vec<f64>>> = hidden.to_vec3().unwrap();
        for pooling in ALL {
            let pooled = pool(pooling, &hidden, Some(&mask())).unwrap();
            let pooled: Vec<Vec<f64>> = pooled.to_vec2().unwrap();
            for channel in 0..2 {
                let (a, b) = (h[0][0][channel], h[0][1][channel]);
                let (two, none) = match pooling {
                    Pooling::Cls | Pooling::First => (a, h[2][0][channel]),
                    Pooling::Mean => ((a + b) / 2.0, 0.0),
                    Pooling::PaddedMean => ((a + b) / 3.0, 0.0),
                    Pooling::Sum => (a + b, 0.0),
                    Pooling::Max => (a.max(b), 0.0),
                };
                let one = match pooling {
                    Pooling::PaddedMean => h[1][0][channel] / 3.0,
                    _ => h[1][0][channel],
                };
                let wanted = [two, one, none];
                for (row, wanted) in wanted.iter().enumerate() {
                    // Adding the large number of the padding costs some of an f64's digits.
                    let apart = (pooled[row][channel] - wanted).abs();
                    assert!(apart < 1e-6, "{pooling:?} row {row}: {apart}");
                }
            }
        }
    }
}
