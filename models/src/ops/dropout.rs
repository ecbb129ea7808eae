//! Dropout with a mask that is a function of (stream, row, element): y = m ⊙ x, m = 0 with probability `rate`, else 1 / (1 - rate).
//!
//! Srivastava et al., 2014, JMLR 15. Masks are drawn again for the backward pass and kept by nobody.

use candle_core::Tensor;

use crate::{Result, kernels, rng::Stream};

/// x (B, ..) with elements zeroed with probability `rate`, in [0, 1), and the others scaled by 1 / (1 - rate).
///
/// # Errors
/// If a tensor operation fails.
pub fn dropout(x: &Tensor, stream: &Stream, rate: f64) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::dropout(x, stream, rate)?);
    }
    let mask = stream.mask_tensor(x.shape(), rate, x.dtype(), x.device())?;
    Ok((x * mask)?)
}

/// `residual` plus the dropped-out x, of the same shape.
///
/// # Errors
/// If the shapes differ or a tensor operation fails.
pub fn add_dropped(residual: &Tensor, x: &Tensor, stream: &Stream, rate: f64) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::add_dropped(residual, x, stream, rate)?);
    }
    Ok((residual + dropout(x, stream, rate)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::rng::{RngKey, StreamKey};
    use crate::testing::{check_gradient, normal};

    fn stream() -> Stream {
        RngKey::new(1, 2, 3).per_example(StreamKey::new("drop"))
    }

    #[test]
    fn the_kernel_and_the_composed_form_drop_the_same_elements() {
        let mut sampler = Sampler::new(14);
        // The last has more elements in a row than the kernel draws at a time.
        for shape in [vec![3, 7], vec![2, 40, 65], vec![2, (1 << 14) + 100]] {
            let inputs = [sampler.normal(&shape, 1.0), sampler.normal(&shape, 1.0)];
            let f = |x: &[Tensor]| Ok(dropout(&x[0], &stream(), 0.3)?);
            agree("dropout", &inputs[..1], f, f);
            let f = |x: &[Tensor]| Ok(add_dropped(&x[0], &x[1], &stream(), 0.3)?);
            agree("dropout and residual", &inputs, f, f);
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        check_gradient("dropout", &[&[3, 5], &[3, 5]], |x| {
            add_dropped(&x[0], &x[1], &stream(), 0.4)
        });
    }

    #[test]
    fn elements_are_dropped_at_the_rate_and_others_scaled() {
        let x = normal("x", &[4, 1000]).ones_like().unwrap();
        let y = dropout(&x, &stream(), 0.25).unwrap().flatten_all().unwrap();
        let y: Vec<f64> = y.to_vec1().unwrap();
        let dropped = y.iter().filter(|y| **y == 0.0).count();
        // Of 4,000, with a deviation of 27.
        assert!((900..1100).contains(&dropped), "{dropped}");
        let kept = 1.0 / 0.75;
        assert!(y.iter().all(|y| *y == 0.0 || (y - kept).abs() < 1e-6));
    }
}
