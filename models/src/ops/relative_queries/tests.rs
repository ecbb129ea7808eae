use candle_core::DType;

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, normal};

fn run(x: &[Tensor], start: usize) -> Result<Tensor> {
    relative_queries(&x[0], [&x[1], &x[2]], &x[3], start)
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(17);
    for (batch, length, heads, width, columns, start) in [
        (1, 1, 1, 1, 2, 0),
        (2, 5, 2, 3, 4, 7),
        (3, 130, 2, 8, 16, 0),
        (2, 300, 1, 64, 64, 1),
        (1, 70, 3, 5, 6, 0),
    ] {
        let shapes: [&[usize]; 4] = [
            &[batch, length, heads * width],
            &[heads, width],
            &[heads, width],
            &[heads, width, columns],
        ];
        let scales = [1.0, 0.5, 0.5, (width as f64).powf(-0.5)];
        let inputs = shapes.iter().zip(scales);
        let inputs: Vec<_> = inputs.map(|(s, scale)| sampler.normal(s, scale)).collect();
        let f = |x: &[Tensor]| Ok(run(x, start)?);
        agree("relative_queries", &inputs, f, f);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    check_gradient(
        "relative_queries",
        &[&[2, 3, 4], &[2, 2], &[2, 2], &[2, 2, 4]],
        |x| run(x, 1),
    );
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    for dtype in [DType::F32, DType::F64] {
        let normal = |shape: &[usize]| normal("x", shape).to_dtype(dtype).unwrap();
        let (q, pairs) = (normal(&[1, 3, 4]), normal(&[2, 2, 4]));
        for (content, position) in [([2, 2], [2, 3]), ([1, 2], [2, 2])] {
            let biases = [&normal(&content), &normal(&position)];
            assert!(relative_queries(&q, biases, &pairs, 0).is_err());
        }
        let biases = [&normal(&[2, 2]), &normal(&[2, 2])];
        assert!(relative_queries(&normal(&[1, 3, 5]), biases, &pairs, 0).is_err());
        let none = |x: Tensor, dim: usize| x.narrow(dim, 0, 0).unwrap();
        let biases = biases.map(|bias| none(bias.clone(), 1));
        let (q, pairs) = (none(q, 2), none(pairs, 1));
        assert!(relative_queries(&q, [&biases[0], &biases[1]], &pairs, 0).is_err());
    }
}
