//! Tensors one after the other along an axis.

use candle_core::Tensor;

use crate::{Result, kernels};

/// `parts`, whose shapes differ in `axis` alone, one after the other; contiguous.
///
/// # Errors
/// If there is no part, or shapes do not fit.
pub fn cat(parts: &[&Tensor], axis: usize) -> Result<Tensor> {
    let known = |x: &&Tensor| kernels::supports(x) && x.elem_count() > 0;
    if parts.iter().all(known) {
        match *parts {
            [a, b] => return Ok(kernels::cat([a, b], axis)?),
            [a, b, c] => return Ok(kernels::cat([a, b, c], axis)?),
            _ => {}
        }
    }
    Ok(Tensor::cat(parts, axis)?.contiguous()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::{Sampler, agree};

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(59);
        for (shape, axis, sizes) in [
            (&[1][..], 0, &[1, 1][..]),
            (&[3, 5], 0, &[2, 4]),
            (&[3, 5], 1, &[5, 1, 3]),
            (&[2, 70, 16], 1, &[70, 300]),
            (&[2, 300, 2, 33], 3, &[33, 32]),
            (&[2, 3, 4, 5], 2, &[4, 1, 2]),
        ] {
            let part = |size: &usize| {
                let mut shape = shape.to_vec();
                shape[axis] = *size;
                sampler.normal(&shape, 1.0)
            };
            let parts: Vec<Tensor> = sizes.iter().map(part).collect();
            let name = format!("cat of {sizes:?} along axis {axis} of {shape:?}");
            let f = |x: &[Tensor]| Ok(cat(&x.iter().collect::<Vec<_>>(), axis)?);
            agree(&name, &parts, f, f);
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        let mut sampler = Sampler::new(1);
        let (a, b) = (sampler.normal(&[2, 3], 1.0), sampler.normal(&[2, 4], 1.0));
        assert!(cat(&[&a, &b], 0).is_err());
        assert!(cat(&[&a, &b], 2).is_err());
        assert!(cat(&[], 0).is_err());
    }
}
