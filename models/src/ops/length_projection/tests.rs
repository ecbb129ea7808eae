use candle_core::DType;

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

/// Projects head by head.
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
        let actual = project_length(&x, &matrix, 2).unwrap();
        let expected = by_heads(&x, &matrix, 2).unwrap();
        close(&actual, &expected, 1e-12, "project_length");
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
        assert!(project_length(&x, &normal(&[1, 6, 2]), 3).is_err());
        let empty = x.narrow(1, 0, 0).unwrap();
        assert!(project_length(&empty, &normal(&[1, 6, 2]), 2).is_err());
    }
}
