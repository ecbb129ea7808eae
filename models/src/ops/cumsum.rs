//! Cumulative sums along a dimension. candle multiplies by a triangle of ones instead, in time and
//! memory quadratic in the length.

use candle_core::{Tensor, shape::Dim};

use super::{ScanOptions, scan};
use crate::Result;

/// Returns the sums of x over the first 1, 2, .. entries of a dimension, in the shape of x, which
/// may have any rank.
///
/// It is the [`scan()`] with coefficients of 1, so sums are taken in the order of the entries.
///
/// # Errors
/// If x has no such dimension.
pub fn cumsum(x: &Tensor, dim: impl Dim) -> Result<Tensor> {
    let dim = dim.to_index(x.shape(), "cumsum")?;
    let (before, from) = x.dims().split_at(dim);
    let width = from[1..].iter().product::<usize>();
    let rows = x.reshape((before.iter().product::<usize>(), from[0], width))?;
    let ones = Tensor::ones(width, x.dtype(), x.device())?;
    Ok(scan(&rows, &ones, ScanOptions::default())?.reshape(x.shape())?)
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "candle's own sums are the reference"
)]
mod tests {
    use candle_core::D;

    use super::*;
    use crate::{
        ops::testing::{Sampler, agree},
        testing::{check_gradient, close, normal},
    };

    #[test]
    fn sums_along_any_dimension_are_those_of_candle() {
        let x = normal("x", &[2, 3, 4]);
        for dim in 0..3 {
            let actual = cumsum(&x, dim).unwrap();
            close(&actual, &x.cumsum(dim).unwrap(), 1e-12, "cumsum");
        }
        let many = normal("x", &[2, 3, 2, 5, 2]);
        let sums = cumsum(&many, 3).unwrap();
        let last = sums.narrow(3, 4, 1).unwrap();
        close(&last, &many.sum_keepdim(3).unwrap(), 1e-12, "rank 5");
        assert!(cumsum(&x, 3).is_err());
    }

    #[test]
    fn gradients_agree_with_differences() {
        let inputs = [Sampler::new(193).normal(&[3, 5, 8], 1.0)];
        let f = |x: &[Tensor]| Ok(cumsum(&x[0], 1)?);
        agree("cumsum", &inputs, f, |x| x[0].cumsum(1));
        check_gradient("cumsum", &[&[2, 3, 4]], |x| cumsum(&x[0], D::Minus1));
    }
}
