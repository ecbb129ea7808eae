use candle_core::{D, DType, Device};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

/// Divides rows and columns as they are; entries that are not in use are zeros throughout.
fn divided(scores: &Tensor, in_use: &Tensor, iterations: usize) -> Result<Tensor> {
    let (batch, _, side, _) = scores.dims4()?;
    let row = in_use.reshape((batch, 1, 1, side))?;
    let column = in_use.reshape((batch, 1, side, 1))?;
    let mut weights = scores.exp()?.broadcast_mul(&column.broadcast_mul(&row)?)?;
    for _ in 0..iterations {
        for (axis, marks) in [(3, &column), (2, &row)] {
            // 0 / 1 in rows and columns that are not in use.
            let unused = marks.affine(-1.0, 1.0)?;
            let sums = weights.sum_keepdim(axis)?.broadcast_add(&unused)?;
            weights = weights.broadcast_div(&sums)?;
        }
    }
    Ok(weights)
}

/// Returns marks (B, N), all or only some of all examples but the first.
fn marks(batch: usize, side: usize, all: bool) -> Tensor {
    let mark = |i: usize| f32::from(all || (i / side > 0 && i % 3 != 1));
    let marks: Vec<f32> = (0..batch * side).map(mark).collect();
    Tensor::from_vec(marks, (batch, side), &Device::Cpu).unwrap()
}

const SHAPES: [(usize, usize, usize, usize); 5] = [
    (1, 1, 1, 3),
    (2, 3, 5, 7),
    (3, 2, 16, 7),
    (2, 1, 33, 4),
    (1, 2, 8, 0),
];

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(71);
    let near = SHAPES.map(|sizes| (sizes, false));
    let far = [((2, 1, 5, 2), true)];
    for ((batch, heads, side, iterations), far) in near.into_iter().chain(far) {
        let mut scores = [sampler.normal(&[batch, heads, side, side], 1.5)];
        if far {
            // Exponentials of most are infinite, and those of a column next to the others 0.
            let shifts = Tensor::new(&[100f32, 100.0, 100.0, 100.0, -20.0], &Device::Cpu).unwrap();
            scores = [scores[0].broadcast_add(&shifts).unwrap()];
        }
        for all in [true, false] {
            let marks = marks(batch, side, all);
            let f = |x: &[Tensor]| {
                let marks = marks.to_dtype(x[0].dtype())?;
                Ok(sinkhorn_normalize(&x[0], &marks, iterations)?)
            };
            agree("sinkhorn_normalize", &scores, f, f);
        }
    }
}

#[test]
fn the_composed_form_divides_rows_and_columns() {
    for (batch, heads, side, iterations) in SHAPES {
        let scores = normal("scores", &[batch, heads, side, side]);
        for all in [true, false] {
            let marks = marks(batch, side, all).to_dtype(DType::F64).unwrap();
            let actual = sinkhorn_normalize(&scores, &marks, iterations).unwrap();
            let expected = divided(&scores, &marks, iterations).unwrap();
            close(&actual, &expected, 1e-10, "sinkhorn_normalize");
        }
    }
}

#[test]
fn gradients_are_difference_quotients() {
    for all in [true, false] {
        let marks = marks(2, 4, all).to_dtype(DType::F64).unwrap();
        check_gradient("sinkhorn_normalize", &[&[2, 2, 4, 4]], |x| {
            sinkhorn_normalize(&x[0], &marks, 3)
        });
    }
}

#[test]
fn rows_and_columns_sum_to_one_over_places_in_use() {
    let scores = normal("scores", &[2, 1, 4, 4]).affine(3.0, 0.0).unwrap();
    let in_use = [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0f64]];
    let in_use = Tensor::new(&in_use, &Device::Cpu).unwrap();
    let order = sinkhorn_normalize(&scores, &in_use, 200).unwrap();
    for axis in [D::Minus1, D::Minus2] {
        let sums = order.sum(axis).unwrap().flatten_all().unwrap();
        let sums: Vec<f64> = sums.to_vec1().unwrap();
        for (sum, expected) in sums.iter().zip([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]) {
            assert!((sum - expected).abs() < 1e-6, "{sums:?}");
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    for dtype in [DType::F32, DType::F64] {
        let normal = |shape: &[usize]| normal("x", shape).to_dtype(dtype).unwrap();
        let (scores, marks) = (normal(&[2, 1, 3, 3]), normal(&[2, 4]));
        assert!(sinkhorn_normalize(&scores, &marks, 1).is_err());
        assert!(sinkhorn_normalize(&normal(&[2, 1, 3, 4]), &normal(&[2, 3]), 1).is_err());
    }
}
