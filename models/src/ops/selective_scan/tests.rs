use candle_core::{DType, Device};

use super::*;
use crate::ops::activation::softplus;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

/// Applies the scan to x, the arguments of softplus that give the steps, those of -exp that give a,
/// projections and skip.
fn apply(x: &[Tensor]) -> Result<Tensor> {
    let delta = softplus(&x[1])?;
    let a = x[2].exp()?.neg()?;
    selective_scan(&x[0], &delta, &a, &x[3], &x[4])
}

fn shapes([batch, length, width]: [usize; 3], modes: usize) -> [Vec<usize>; 5] {
    [
        vec![batch, length, width],
        vec![batch, length, width],
        vec![width, modes],
        vec![batch, length, 2 * modes],
        vec![width],
    ]
}

#[test]
fn the_composed_form_is_the_recurrence_step_by_step() {
    for length in [1, 2, 5, 64, 65, 130] {
        let shapes = shapes([2, length, 3], 2);
        let draw = |(i, shape): (usize, &Vec<usize>)| normal(&format!("{i}"), shape);
        let inputs: Vec<Tensor> = shapes.iter().enumerate().map(draw).collect();
        let numbers = |i: usize| inputs[i].to_vec3::<f64>().unwrap();
        let (x, steps, projections) = (numbers(0), numbers(1), numbers(3));
        let a: Vec<Vec<f64>> = inputs[2].to_vec2().unwrap();
        let skip: Vec<f64> = inputs[4].to_vec1().unwrap();
        let mut expected = x.clone();
        for (b, d) in (0..2).flat_map(|b| (0..3).map(move |d| (b, d))) {
            let mut h = [0.0; 2];
            for t in 0..length {
                let delta = (steps[b][t][d].exp() + 1.0).ln();
                expected[b][t][d] = skip[d] * x[b][t][d];
                for n in 0..2 {
                    let decay = (-delta * a[d][n].exp()).exp();
                    h[n] = decay * h[n] + delta * projections[b][t][n] * x[b][t][d];
                    expected[b][t][d] += projections[b][t][2 + n] * h[n];
                }
            }
        }
        let expected = Tensor::new(expected, &Device::Cpu).unwrap();
        let place = format!("length {length}");
        close(&apply(&inputs).unwrap(), &expected, 1e-11, &place);
    }
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(141);
    for (shape, modes) in [
        ([1, 1, 1], 1),
        ([2, 37, 5], 3),
        ([3, 32, 16], 16),
        ([2, 70, 35], 4),
    ] {
        let inputs: Vec<_> = shapes(shape, modes)
            .iter()
            .map(|shape| sampler.normal(shape, 0.7))
            .collect();
        let f = |x: &[Tensor]| Ok(apply(x)?);
        agree("selective scan", &inputs, f, f);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let shapes = shapes([2, 5, 2], 3);
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    check_gradient("selective scan", &shapes, apply);
}

#[test]
fn shapes_that_do_not_fit_are_errors_and_empty_sequences_are_not() {
    let shapes = shapes([2, 5, 3], 2);
    let good: Vec<Tensor> = shapes.iter().map(|shape| normal("x", shape)).collect();
    for (index, shape) in [
        (1, vec![2, 5, 2]),
        (2, vec![2, 2]),
        (3, vec![2, 5, 3]),
        (4, vec![2]),
    ] {
        let mut x = good.clone();
        x[index] = normal("x", &shape);
        let message = selective_scan(&x[0], &x[1], &x[2], &x[3], &x[4]);
        let message = message.unwrap_err().to_string();
        assert!(message.contains("do not fit"), "{message}");
    }
    for dtype in [DType::F32, DType::F64] {
        let of_type = |index: usize| good[index].to_dtype(dtype).unwrap();
        let empty = |index: usize| of_type(index).narrow(1, 0, 0).unwrap();
        let y = selective_scan(&empty(0), &empty(1), &of_type(2), &empty(3), &of_type(4));
        assert_eq!(y.unwrap().dims(), [2, 0, 3]);
    }
}
