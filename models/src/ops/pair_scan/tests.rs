use candle_core::{DType, Device};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

/// Computes one position after the other.
fn steps(x: &Tensor, m: &Tensor) -> Tensor {
    let (mut all, m) = (x.to_vec3::<f64>().unwrap(), m.to_vec2::<f64>().unwrap());
    let width = m[0].len();
    for row in &mut all {
        for t in 1..row.len() {
            for j in 0..width {
                let (p, q) = (row[t - 1][j], row[t - 1][width + j]);
                row[t][j] += m[0][j] * p + m[1][j] * q;
                row[t][width + j] += m[2][j] * p + m[3][j] * q;
            }
        }
    }
    Tensor::new(all, &Device::Cpu).unwrap()
}

#[test]
fn the_composed_form_is_the_recurrence_step_by_step() {
    for length in [1, 2, 3, 8, 17, 37] {
        let x = normal("x", &[2, length, 6]);
        let m = normal("m", &[4, 3]).affine(0.5, 0.0).unwrap();
        let place = format!("{length} positions");
        close(&pair_scan(&x, &m).unwrap(), &steps(&x, &m), 1e-9, &place);
    }
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(211);
    for [batch, length, width] in [[1, 1, 1], [2, 37, 3], [3, 9, 33], [2, 60, 70]] {
        let inputs = [
            sampler.normal(&[batch, length, 2 * width], 1.0),
            sampler.normal(&[4, width], 0.3),
        ];
        let f = |x: &[Tensor]| Ok(pair_scan(&x[0], &x[1])?);
        agree("scan of pairs", &inputs, f, f);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    for length in [1, 5] {
        check_gradient("scan of pairs", &[&[2, length, 4], &[4, 2]], |x| {
            pair_scan(&x[0], &(&x[1] * 0.5)?)
        });
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors_and_empty_sequences_are_not() {
    let (x, m) = (normal("x", &[2, 3, 6]), normal("m", &[4, 3]));
    let message = pair_scan(&x, &normal("m", &[4, 2])).unwrap_err();
    assert!(message.to_string().contains("[2, 3, 6]"), "{message}");
    for dtype in [DType::F32, DType::F64] {
        let [x, m] = [&x.narrow(1, 0, 0).unwrap(), &m].map(|x| x.to_dtype(dtype).unwrap());
        assert_eq!(pair_scan(&x, &m).unwrap().dims(), [2, 0, 6]);
    }
}
