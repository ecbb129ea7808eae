use candle_core::{DType, Device};

use super::*;
use crate::Mask;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

/// Against the recurrence, state by state.
#[test]
fn shared_states_are_those_of_the_recurrence() {
    let (batch, length, width, states) = (2, 7, 3, 4);
    let of = |name: &str, shape: &[usize]| {
        Complex::new(normal(name, shape), normal(&format!("i {name}"), shape))
    };
    let lambda = of("lambda", &[states]).affine(0.4, 0.0).unwrap();
    let (b, c) = (of("b", &[states, width]), of("c", &[width, 2 * states]));
    let x = normal("x", &[batch, length, width]);
    let d = normal("d", &[width]);
    let with = SharedStates {
        lambda: &lambda,
        b: &b,
        c: &c,
        d: &d,
    };
    let actual = shared_state_space(&x, &with, None).unwrap();
    let one = |z: &Complex| -> Vec<(f64, f64)> {
        let flat = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        flat(&z.re).into_iter().zip(flat(&z.im)).collect()
    };
    let mul = |a: (f64, f64), b: (f64, f64)| (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0);
    let data: Vec<Vec<Vec<f64>>> = x.to_vec3().unwrap();
    let (lambda, b, c) = (one(&lambda), one(&b), one(&c));
    let skip: Vec<f64> = d.to_vec1().unwrap();
    let mut expected = vec![vec![vec![0.0; width]; length]; batch];
    for (row, x) in data.iter().enumerate() {
        for direction in 0..2 {
            let mut h = vec![(0.0, 0.0); states];
            for step in 0..length {
                let t = if direction == 0 {
                    step
                } else {
                    length - 1 - step
                };
                for (p, h) in h.iter_mut().enumerate() {
                    let before = mul(lambda[p], *h);
                    let enters = (0..width).fold((0.0, 0.0), |sum, d| {
                        let b = b[p * width + d];
                        (sum.0 + b.0 * x[t][d], sum.1 + b.1 * x[t][d])
                    });
                    *h = (before.0 + enters.0, before.1 + enters.1);
                }
                for d in 0..width {
                    let c = &c[(2 * d + direction) * states..][..states];
                    let read = c.iter().zip(&h).map(|(c, h)| mul(*c, *h).0);
                    expected[row][t][d] += read.sum::<f64>();
                }
            }
        }
        for (y, x) in expected[row].iter_mut().zip(x) {
            let skipped = y.iter_mut().zip(&skip).zip(x);
            skipped.for_each(|((y, d), x)| *y += d * x);
        }
    }
    close(
        &actual,
        &Tensor::new(expected, &Device::Cpu).unwrap(),
        1e-11,
        "shared states",
    );
}

/// Returns x and the seven tensors of a state space: λ, B and C in parts, d.
fn inputs(shape: [usize; 3], states: usize, directions: usize) -> Vec<Tensor> {
    let mut sampler = Sampler::new(91);
    let width = shape[2];
    let mut inputs = vec![sampler.normal(&shape, 1.0)];
    for shape in [
        vec![states],
        vec![states, width],
        vec![width, directions * states],
    ] {
        inputs.extend([(); 2].map(|()| sampler.normal(&shape, 0.3)));
    }
    inputs.push(sampler.normal(&[width], 1.0));
    inputs
}

fn run(x: &[Tensor], packing: Option<&Packing>) -> Result<Tensor> {
    let of = |at: usize| Complex::new(x[at].clone(), x[at + 1].clone());
    let with = SharedStates {
        lambda: &of(1),
        b: &of(3),
        c: &of(5),
        d: &x[7],
    };
    shared_state_space(&x[0], &with, packing)
}

const SIZES: [([usize; 3], usize, usize); 4] = [
    ([1, 1, 1], 1, 1),
    ([2, 37, 6], 3, 2),
    ([3, 90, 34], 5, 1),
    // Weights too large for partial sums.
    ([2, 70, 520], 64, 2),
];

#[test]
fn the_kernel_meets_its_composed_form() {
    for (shape, states, directions) in SIZES {
        let f = |x: &[Tensor]| Ok(run(x, None)?);
        let inputs = inputs(shape, states, directions);
        agree(&format!("{shape:?}"), &inputs, f, f);
    }
}

#[test]
fn packed_sequences_have_states_of_their_own() {
    let row = |length: usize| (0..40).map(move |l| f64::from(u8::from(l < length)));
    let valid: Vec<f64> = [40, 0, 7, 1].into_iter().flat_map(row).collect();
    let mask = Tensor::from_vec(valid, (4, 40), &Device::Cpu).unwrap();
    let packing = Packing::new(&Mask::new(&mask).unwrap()).unwrap().unwrap();
    let inputs = inputs([1, packing.rows(), 6], 3, 2);
    let apart = |x: &[Tensor]| {
        let mut padded = x.to_vec();
        padded[0] = packing.unpack(&x[0])?;
        Ok(packing.pack(&run(&padded, None)?)?)
    };
    let packed = |x: &[Tensor]| Ok(run(x, Some(&packing))?);
    agree("packed", &inputs, packed, apart);
}

#[test]
fn gradients_are_difference_quotients() {
    for directions in [1, 2] {
        let c = [4, 3 * directions];
        let shapes: [&[usize]; 8] = [&[2, 5, 4], &[3], &[3], &[3, 4], &[3, 4], &c, &c, &[4]];
        check_gradient("shared states", &shapes, |x| {
            let mut x = x.to_vec();
            for part in &mut x[1..3] {
                *part = (&*part * 0.5)?;
            }
            run(&x, None)
        });
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let of = |at: usize, shape: &[usize]| {
        let mut inputs = inputs([2, 3, 4], 3, 1);
        inputs[at] = normal("x", shape).to_dtype(DType::F32).unwrap();
        run(&inputs, None).is_err()
    };
    assert!(of(0, &[2, 3, 5]) && of(1, &[4]) && of(3, &[3, 5]) && of(7, &[3]));
}
