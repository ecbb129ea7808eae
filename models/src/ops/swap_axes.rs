//! Axes 1 and 2 swapped; heads before positions, and back.

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

/// x (B, L, H E) as (B, H, L, E), contiguous. Reshaping first would be a pass over its gradient.
///
/// # Errors
/// If x has not three axes, or columns of so many heads.
pub fn split_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::split_heads(x, heads)?);
    }
    let (batch, length, _) = x.dims3()?;
    swap_axes(&x.reshape((batch, length, heads, ()))?)
}

/// x (B, H, L, E) as (B, L, H E), contiguous.
///
/// # Errors
/// If x has not four axes.
pub fn merge_heads(x: &Tensor) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::merge_heads(x)?);
    }
    Ok(swap_axes(x)?.flatten_from(2)?)
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

    #[test]
    fn heads_are_split_and_merged_as_by_reshaping() {
        let mut sampler = Sampler::new(30);
        for (batch, length, heads, width) in
            [(1, 1, 1, 1), (2, 5, 3, 4), (2, 70, 2, 1), (1, 9, 1, 8)]
        {
            let x = sampler.normal(&[batch, length, heads * width], 1.0);
            let split = |x: &Tensor| {
                x.reshape((batch, length, heads, width))?
                    .transpose(1, 2)?
                    .contiguous()
            };
            agree(
                "split_heads",
                &[x],
                |x| Ok(split_heads(&x[0], heads)?),
                |x| split(&x[0]),
            );
            let x = sampler.normal(&[batch, heads, length, width], 1.0);
            let merged = |x: &Tensor| x.transpose(1, 2)?.contiguous()?.flatten_from(2);
            agree(
                "merge_heads",
                &[x],
                |x| Ok(merge_heads(&x[0])?),
                |x| merged(&x[0]),
            );
        }
        assert!(split_heads(&sampler.normal(&[1, 2, 5], 1.0), 2).is_err());
    }
}
