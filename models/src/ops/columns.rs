//! Some columns of rows: `x[..., first:first + count]`.

use candle_core::{D, Tensor};

use crate::{Result, kernels};

/// Columns `first..first + count` of x (.., W), (.., count), contiguous.
///
/// # Errors
/// If there are fewer columns, or none is asked for.
pub fn columns(x: &Tensor, first: usize, count: usize) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::columns(x, first, count)?);
    }
    Ok(x.narrow(D::Minus1, first, count)?.contiguous()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::{Sampler, agree};

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(53);
        for (shape, first, count) in [
            (&[1, 1][..], 0, 1),
            (&[3, 5], 1, 3),
            (&[2, 70, 16], 8, 8),
            (&[2, 300, 2, 33], 0, 32),
        ] {
            let name = format!("columns {first}, {count} of {shape:?}");
            let f = |x: &[Tensor]| Ok(columns(&x[0], first, count)?);
            agree(&name, &[sampler.normal(shape, 1.0)], f, f);
        }
        let x = sampler.normal(&[2, 3], 1.0);
        assert!(columns(&x, 2, 2).is_err());
    }
}
