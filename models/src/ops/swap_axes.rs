//! Axes 1 and 2 swapped.

use candle_core::Tensor;

use crate::{Result, kernels};

/// x (B, M, N, ..) as (B, N, M, ..), contiguous; NumPy's `swapaxes(1, 2)`. O(elements) time, nothing where one of them is
/// 1, and nothing is kept.
///
/// # Errors
/// If x has fewer than three axes.
pub fn swap_axes(x: &Tensor) -> Result<Tensor> {
    if let [batch, rows, columns, ref others @ ..] = *x.dims()
        && (rows == 1 || columns == 1)
    {
        // The same elements in the same order.
        return Ok(x.reshape([&[batch, columns, rows], others].concat())?);
    }
    if kernels::supports(x) && matches!(x.rank(), 3 | 4) {
        return Ok(kernels::swap_axes(x)?);
    }
    Ok(x.transpose(1, 2)?.contiguous()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::{Sampler, agree};

    #[test]
    fn the_kernel_meets_the_composed_form() {
        let mut sampler = Sampler::new(29);
        for dims in [
            &[1, 1, 1][..],
            &[2, 5, 3],
            &[1, 16, 32],
            &[3, 33, 70],
            &[2, 7, 1],
            &[2, 7, 3, 1],
            &[2, 1, 3, 4],
            &[2, 19, 2, 5],
            &[2, 3, 41, 8],
        ] {
            let x = sampler.normal(dims, 1.0);
            agree(
                &format!("swap_axes {dims:?}"),
                &[x],
                |x| Ok(swap_axes(&x[0])?),
                |x| x[0].transpose(1, 2)?.contiguous(),
            );
        }
    }
}
