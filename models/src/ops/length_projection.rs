//! A sequence shortened by a matrix along its length: y_k = Σ_l M_lk x_l, for each head.

use candle_core::Tensor;

use super::{check, matmul};
use crate::{Result, kernels};

/// x (B, L, H E) along the length by the first L rows of `matrix` (1 or H, N, K), to (B, K, H E).
///
/// # Errors
/// If shapes do not fit.
pub fn project_length(x: &Tensor, matrix: &Tensor, heads: usize) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::project_length(x, matrix, heads)?);
    }
    let (batch, length, row) = x.dims3()?;
    let (copies, longest, rank) = matrix.dims3()?;
    let fits = (copies == 1 || copies == heads) && length <= longest && row.is_multiple_of(copies);
    check(fits, "project_length", || {
        let (x, matrix) = (x.shape(), matrix.shape());
        format!("x {x:?} and matrix {matrix:?} do not fit {heads} heads")
    })?;
    let matrix = matrix.narrow(1, 0, length)?.t()?.contiguous()?; // (1 or H, K, L)
    // The batch is moved beside the width: one product, and no copy of the matrix's gradient per example.
    let width = row / copies;
    let x = x
        .reshape((batch, length, copies, width))?
        .permute((2, 1, 0, 3))?;
    let y = matmul(&matrix, &x.reshape((copies, length, batch * width))?)?;
    let y = y
        .reshape((copies, rank, batch, width))?
        .permute((2, 1, 0, 3))?;
    Ok(y.reshape((batch, rank, row))?)
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::{check_gradient, close, normal};

    /// Head by head.
    fn by_heads(x: &Tensor, matrix: &Tensor, heads: usize) -> Result<Tensor> {
        let (batch, length, row) = x.dims3()?;
        let split = x.reshape((batch, length, heads, row / heads))?;
        let split = split.transpose(1, 2)?.contiguous()?;
        let matrix = matrix.narrow(1, 0, length)?.t()?.contiguous()?;
        let y = matrix.unsqueeze(0)?.broadcast_matmul(&split)?;
        Ok(y.transpose(1, 2)?.flatten_from(2)?)
    }

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(71);
        for (batch, length, longest, heads, copies, width, rank) in [
            (1, 1, 1, 1, 1, 1, 1),
            (2, 5, 9, 2, 1, 7, 3),
            (3, 130, 130, 2, 2, 5, 70),
            (2, 200, 260, 3, 3, 16, 16),
            (1, 700, 700, 2, 1, 8, 65),
        ] {
            let x = sampler.normal(&[batch, length, heads * width], 1.0);
            let matrix = sampler.normal(&[copies, longest, rank], 0.3);
            let f = |x: &[Tensor]| Ok(project_length(&x[0], &x[1], heads)?);
            agree("project_length", &[x, matrix], f, f);
        }
    }

    #[test]
    fn the_composed_form_is_a_product_for_each_head() {
        for copies in [1, 2] {
            let (x, matrix) = (normal("x", &[2, 3, 4]), normal("m", &[copies, 5, 2]));
            let found = project_length(&x, &matrix, 2).unwrap();
            let wanted = by_heads(&x, &matrix, 2).unwrap();
            close(&found, &wanted, 1e-12, "project_length");
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        for copies in [1, 2] {
            check_gradient("project_length", &[&[2, 3, 4], &[copies, 4, 3]], |x| {
                project_length(&x[0], &x[1], 2)
            });
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        for dtype in [DType::F32, DType::F64] {
            let normal = |shape: &[usize]| normal("x", shape).to_dtype(dtype).unwrap();
            let x = normal(&[1, 6, 8]);
            assert!(project_length(&x, &normal(&[1, 5, 2]), 2).is_err());
            assert!(project_length(&x, &normal(&[3, 6, 2]), 2).is_err());
        }
    }
}
