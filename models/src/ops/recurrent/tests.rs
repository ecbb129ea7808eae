use candle_core::Device;

use super::*;
use crate::autograd::saved_without_graph;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, normal};

const CELLS: [Cell; 2] = [Cell::Lstm, Cell::Gru];

/// Returns (B, L): every second sequence begins and ends with padding.
fn mask(batch: usize, length: usize, dtype: DType) -> Tensor {
    let valid = |row: usize, t: usize| row.is_multiple_of(2) || (2..length - 1).contains(&t);
    let places = (0..batch).flat_map(|row| (0..length).map(move |t| (row, t)));
    let valid = places.map(|(row, t)| f64::from(u8::from(valid(row, t))));
    let valid = Tensor::from_iter(valid, &Device::Cpu).unwrap();
    let valid = valid.reshape((batch, length)).unwrap();
    valid.to_dtype(dtype).unwrap()
}

fn inputs(cell: Cell, sampler: &mut Sampler, shape: [usize; 3]) -> [Tensor; 3] {
    let [batch, length, width] = shape;
    let row = cell.gates() * width;
    [
        sampler.normal(&[batch, length, row], 1.0),
        sampler.normal(&[row, width], 0.7),
        sampler.normal(&[row], 0.5),
    ]
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(201);
    for cell in CELLS {
        for shape in [[1, 1, 1], [3, 33, 5], [2, 70, 17], [19, 6, 4], [3, 7, 3]] {
            let mut inputs = inputs(cell, &mut sampler, shape);
            if shape == [3, 7, 3] {
                // Two sequences with gates far from 0, where exponentials overflow.
                let far = Tensor::new(&[[[0f32]], [[-100.0]], [[100.0]]], &Device::Cpu).unwrap();
                inputs[0] = inputs[0].broadcast_add(&far).unwrap();
            }
            let fused = |x: &[Tensor]| Ok(recurrent(cell, &x[0], &x[1], &x[2], None)?);
            let steps = |x: &[Tensor]| Ok(composed(cell, [&x[0], &x[1], &x[2]], None)?);
            agree(&format!("{cell:?}"), &inputs, fused, steps);
        }
    }
}

#[test]
fn padding_leaves_states_as_they_were() {
    let mut sampler = Sampler::new(202);
    for cell in CELLS {
        // Sequences of the second shape are differentiated two by two.
        for [batch, length, width] in [[2, 37, 6], [19, 6, 4]] {
            let inputs = inputs(cell, &mut sampler, [batch, length, width]);
            let fused = |x: &[Tensor]| {
                let mask = mask(batch, length, x[0].dtype());
                Ok(recurrent(cell, &x[0], &x[1], &x[2], Some(&mask))?)
            };
            let steps = |x: &[Tensor]| {
                let mask = mask(batch, length, x[0].dtype());
                Ok(composed(cell, [&x[0], &x[1], &x[2]], Some(&mask))?)
            };
            agree(&format!("{cell:?} with padding"), &inputs, fused, steps);
        }
    }
}

#[test]
fn gradients_are_difference_quotients() {
    for cell in CELLS {
        let row = cell.gates() * 2;
        let shapes: [&[usize]; 3] = [&[2, 4, row], &[row, 2], &[row]];
        let mask = mask(2, 4, DType::F64);
        for mask in [None, Some(&mask)] {
            check_gradient("recurrence by steps", &shapes, |x| {
                composed(cell, [&x[0], &x[1], &x[2]], mask)
            });
            check_gradient("recurrence in f64", &shapes, |x| {
                recurrent(cell, &x[0], &x[1], &x[2], mask)
            });
        }
    }
}

#[test]
fn without_a_graph_no_state_is_kept() {
    let x = normal("x", &[2, 40, 8]);
    let (weight, bias) = (normal("w", &[8, 2]), normal("b", &[8]));
    let lstm = cpu::Recurrent { cell: Cell::Lstm };
    let operands = [Some(&x), Some(&weight), Some(&bias), None];
    let kept = saved_without_graph::<_, 4, f64>(&lstm, operands).unwrap();
    assert!(kept.is_empty());
}

#[test]
fn shapes_that_do_not_fit_are_errors_and_empty_sequences_are_not() {
    let (x, weight, bias) = (
        normal("x", &[2, 3, 8]),
        normal("w", &[8, 2]),
        normal("b", &[8]),
    );
    let message = recurrent(Cell::Gru, &x, &weight, &bias, None).unwrap_err();
    assert!(
        message.to_string().contains("Gru, x [2, 3, 8]"),
        "{message}"
    );
    let turned = mask(3, 2, DType::F64);
    let message = recurrent(Cell::Lstm, &x, &weight, &bias, Some(&turned)).unwrap_err();
    assert!(message.to_string().contains("mask"), "{message}");
    for dtype in [DType::F32, DType::F64] {
        let [x, weight, bias] = [&x, &weight, &bias].map(|x| x.to_dtype(dtype).unwrap());
        let x = x.narrow(1, 0, 0).unwrap();
        let y = recurrent(Cell::Lstm, &x, &weight, &bias, None).unwrap();
        assert_eq!(y.dims(), [2, 0, 2]);
    }
}
