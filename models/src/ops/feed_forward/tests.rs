use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::rng::{RngKey, Stream, StreamKey};
use crate::testing::{check_gradient, normal};

fn stream(name: &str) -> Stream {
    RngKey::new(1, 2, 3).per_example(StreamKey::new(name))
}

/// Runs x, W₁, b₁, W₂, b₂, and weight and bias of the norm if they are there; V and c come after
/// those.
fn run(x: &[Tensor], activation: Activation, rate: f64, residual: bool) -> Result<Tensor> {
    let dropout = |name| (rate > 0.0).then(|| DropoutMask::new(&stream(name), rate));
    let options = FeedForwardOptions {
        norm: (x.len() > 5).then(|| Normalised {
            weight: &x[5],
            bias: &x[6],
            epsilon: 1e-2,
        }),
        activation,
        gate: (x.len() > 7).then(|| (&x[7], Some(&x[8]))),
        inner_dropout: dropout("inner"),
        outer_dropout: dropout("outer"),
        residual,
    };
    let (inner, outer) = ((&x[1], Some(&x[2])), (&x[3], Some(&x[4])));
    feed_forward(&x[0], inner, outer, &options)
}

#[test]
fn the_kernel_meets_its_composed_form() {
    use Activation::{Gelu, GeluErf, Relu, Sigmoid, Silu};
    let mut sampler = Sampler::new(31);
    let forms = [
        (vec![3, 5, 7], 9, true, true, Gelu),
        (vec![2, 131, 16], 24, true, true, GeluErf),
        (vec![2, 70, 12], 5, false, true, Relu),
        (vec![2, 40, 9], 7, true, true, Silu),
        (vec![2, 41, 9], 7, true, true, Sigmoid),
        (vec![1, 300, 33], 20, true, false, Gelu),
        (vec![9, 4], 6, false, false, GeluErf),
        // Whole tiles without gradient.
        (vec![2, 512, 6], 8, true, true, Gelu),
        // More rows than there are chunks of one tile.
        (vec![2, 2049, 4], 5, true, true, Gelu),
        // Large weights, whose gradients are not summed from partials.
        (vec![2, 3, 180], 400, false, true, Gelu),
        (vec![2, 256, 180], 400, true, false, Gelu),
    ];
    for (shape, inner, norm, residual, activation) in forms {
        let width = shape[shape.len() - 1];
        let scale = |count: usize| (count as f64).powf(-0.5);
        let inputs = [
            sampler.normal(&shape, 1.0),
            sampler.normal(&[inner, width], scale(width)),
            sampler.normal(&[inner], 0.3),
            sampler.normal(&[width, inner], scale(inner)),
            sampler.normal(&[width], 0.3),
            sampler.normal(&[width], 1.0),
            sampler.normal(&[width], 0.3),
        ];
        let inputs = if norm { &inputs[..] } else { &inputs[..5] };
        for rate in [0.0, 0.3] {
            let f = |x: &[Tensor]| Ok(run(x, activation, rate, residual)?);
            agree("feed-forward", inputs, f, f);
        }
    }
}

#[test]
fn gradients_are_difference_quotients() {
    use Activation::{Gelu, GeluErf, Relu, Sigmoid, Silu};
    let shapes: [&[usize]; 9] = [
        &[2, 2, 3],
        &[4, 3],
        &[4],
        &[3, 4],
        &[3],
        &[3],
        &[3],
        &[4, 3],
        &[4],
    ];
    for (activation, operands) in [
        (Gelu, 5),
        (Gelu, 7),
        (GeluErf, 7),
        (Relu, 7),
        (Gelu, 9),
        (Silu, 9),
        (Sigmoid, 9),
    ] {
        for residual in [false, true] {
            check_gradient("feed forward", &shapes[..operands], |x| {
                run(x, activation, 0.3, residual)
            });
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    for dtype in [candle_core::DType::F32, candle_core::DType::F64] {
        let shapes: [&[usize]; 5] = [&[2, 3], &[4, 3], &[4], &[3, 5], &[3]];
        let x = shapes.map(|shape| normal("x", shape).to_dtype(dtype).unwrap());
        assert!(run(&x, Activation::Gelu, 0.0, false).is_err());
    }
}
