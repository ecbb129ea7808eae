//! The gated linear unit. Dauphin et al., 2017, arXiv:1612.08083; PyTorch's `F.glu`.
//!     y = a ⊙ σ(g), [a, g] = x

use candle_core::{D, Tensor};

use super::{activation::sigmoid, check};
use crate::{Result, kernels};

/// y (.., D) of x (.., 2 D), whose first half is a and second half g.
///
/// # Errors
/// If the last dimension is odd.
pub fn glu(x: &Tensor) -> Result<Tensor> {
    let width = x.dim(D::Minus1)?;
    check(width > 0 && width % 2 == 0, "glu", || {
        format!("{:?} does not end in two halves", x.shape())
    })?;
    if kernels::supports(x) {
        return Ok(kernels::glu(x)?);
    }
    let half = |from| x.narrow(D::Minus1, from, width / 2);
    Ok((half(0)? * sigmoid(&half(width / 2)?)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::{check_gradient, normal};

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(61);
        for shape in [vec![1, 2], vec![3, 5, 6], vec![2, 70, 74]] {
            let inputs = [sampler.normal(&shape, 3.0)];
            let f = |x: &[Tensor]| Ok(glu(&x[0])?);
            agree("glu", &inputs, f, f);
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        check_gradient("glu", &[&[2, 3, 8]], |x| glu(&x[0]));
    }

    #[test]
    fn an_odd_width_is_an_error() {
        assert!(glu(&normal("x", &[2, 3])).is_err());
    }
}
