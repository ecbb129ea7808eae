use candle_core::Device;

use super::*;
use crate::autograd::saved_without_graph;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(463);
    for ([batch, length, heads, width], masked) in [
        ([1, 1, 1, 1], false),
        ([2, 33, 2, 5], true),
        ([17, 6, 2, 3], true),
        ([1, 70, 3, 9], false),
    ] {
        let inputs = vec![
            sampler.normal(&[batch, length, heads, 4 * width], 2.0),
            sampler.normal(&[heads, 4 * width, width], 0.4),
        ];
        let valid = |row: usize, t: usize| row.is_multiple_of(2) || t % 7 != 3 && t + 4 < length;
        let rows = (0..batch).flat_map(|row| (0..length).map(move |t| (row, t)));
        let mask: Vec<f64> = rows
            .map(|(row, t)| f64::from(u8::from(valid(row, t))))
            .collect();
        let mask = Tensor::from_vec(mask, (batch, length), &Device::Cpu).unwrap();
        let of_type = |x: &[Tensor]| mask.to_dtype(x[0].dtype());
        let given = |mask: &Tensor| masked.then(|| mask.clone());
        let fused = |x: &[Tensor]| {
            let mask = given(&of_type(x)?);
            Ok(slstm(&x[0], &x[1], mask.as_ref())?)
        };
        let steps = |x: &[Tensor]| {
            let mask = given(&of_type(x)?);
            Ok(composed(&x[0], &x[1], mask.as_ref())?)
        };
        agree("sLSTM", &inputs, fused, steps);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let shapes: [&[usize]; 2] = [&[2, 4, 2, 12], &[2, 12, 3]];
    check_gradient("sLSTM by steps", &shapes, |x| composed(&x[0], &x[1], None));
    check_gradient("sLSTM in f64", &shapes, |x| slstm(&x[0], &x[1], None));
}

/// A memory of inputs weighed by exponentials, which do not overflow.
#[test]
fn large_gates_overflow_nothing() {
    let x = normal("x", &[1, 9, 1, 8]);
    let weight = Tensor::zeros((1, 8, 2), DType::F64, &Device::Cpu).unwrap();
    let shifted = |by: f64| {
        let shift = Tensor::new(&[by, by, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], &Device::Cpu).unwrap();
        slstm(&x.broadcast_add(&shift).unwrap(), &weight, None).unwrap()
    };
    close(&shifted(4000.0), &shifted(0.0), 1e-10, "input gates");
    // The memory fades by e⁻²⁰⁰, and yet outweighs the second input, e⁻³⁰⁰ times as large.
    let gates = [[300.0, -200.0, 1.0, 200.0], [0.0, -200.0, -1.0, 200.0f64]];
    for dtype in [DType::F32, DType::F64] {
        let x = Tensor::new(&gates, &Device::Cpu).unwrap();
        let x = x.reshape((1, 2, 1, 4)).unwrap().to_dtype(dtype).unwrap();
        let weight = Tensor::zeros((1, 4, 1), dtype, &Device::Cpu).unwrap();
        let y = slstm(&x, &weight, None).unwrap();
        let y = y.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
        for h in y.to_vec1::<f64>().unwrap() {
            assert!((h - 1f64.tanh()).abs() < 1e-6, "{dtype:?}: {h}");
        }
    }
}

#[test]
fn without_a_graph_no_state_is_kept() {
    let (x, weight) = (normal("x", &[2, 40, 2, 12]), normal("w", &[2, 12, 3]));
    let operands = [Some(&x), Some(&weight), None];
    let kept = saved_without_graph::<_, 3, f64>(&cpu::Slstm, operands).unwrap();
    assert!(kept.is_empty());
}

#[test]
fn shapes_that_do_not_fit_are_errors_and_empty_sequences_are_not() {
    let (x, weight) = (normal("x", &[2, 3, 2, 12]), normal("w", &[2, 12, 4]));
    let error = slstm(&x, &weight, None).unwrap_err().to_string();
    assert!(error.contains("do not fit"), "{error}");
    let none = Tensor::zeros((2, 0, 2, 12), DType::F64, &Device::Cpu).unwrap();
    let weight = normal("w", &[2, 12, 3]);
    assert_eq!(slstm(&none, &weight, None).unwrap().dims(), [2, 0, 2, 3]);
}
