//! Channels times one number each, alone or added to a residual stream.

use candle_core::Tensor;

use crate::{Result, kernels};

/// λ ⊙ x of x (.., D) and λ (D), or (1) for all channels.
///
/// # Errors
/// If shapes do not fit.
pub fn scale_channels(x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::scale_channels(None, x, scale)?);
    }
    Ok(x.broadcast_mul(scale)?)
}

/// r + λ ⊙ x of r and x (.., D) and λ (D), or (1) for all channels.
///
/// # Errors
/// If shapes do not fit.
pub fn add_scaled_channels(residual: &Tensor, x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::scale_channels(Some(residual), x, scale)?);
    }
    Ok((residual + x.broadcast_mul(scale)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::check_gradient;

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(47);
        for (shape, numbers) in [
            (&[1, 1][..], 1),
            (&[3, 5], 5),
            (&[3, 5], 1),
            (&[2, 70, 16], 16),
            (&[2, 70, 33], 1),
        ] {
            let [x, residual] = [(); 2].map(|()| sampler.normal(shape, 1.0));
            let inputs = [x, sampler.normal(&[numbers], 1.0), residual];
            let name = format!("scale_channels {shape:?} by {numbers}");
            let alone = |x: &[Tensor]| Ok(scale_channels(&x[0], &x[1])?);
            agree(&name, &inputs[..2], alone, alone);
            let added = |x: &[Tensor]| Ok(add_scaled_channels(&x[2], &x[0], &x[1])?);
            agree(&name, &inputs, added, added);
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        let shape: &[usize] = &[2, 3, 4];
        for numbers in [1, 4] {
            check_gradient("scale_channels", &[shape, &[numbers], shape], |x| {
                add_scaled_channels(&x[2], &x[0], &x[1])
            });
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        let mut sampler = Sampler::new(1);
        let (x, scale) = (sampler.normal(&[2, 3], 1.0), sampler.normal(&[2], 1.0));
        assert!(scale_channels(&x, &scale).is_err());
        let scale = sampler.normal(&[3], 1.0);
        assert!(add_scaled_channels(&scale, &x, &scale).is_err());
    }
}
