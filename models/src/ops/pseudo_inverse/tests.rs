use candle_core::{Device, Var};

use super::*;
use crate::ops::softmax;
use crate::testing::{check_gradient, close, normal};

type Form = fn(&Tensor, usize) -> Result<Tensor>;

#[test]
fn the_kernel_meets_the_composed_form() {
    for (batch, side, iterations) in [(1, 1, 2), (2, 3, 0), (1, 8, 6), (2, 19, 6), (1, 40, 9)] {
        let scores = normal("scores", &[batch, 2, side, side]);
        let a = softmax::masked(&scores, None).unwrap();
        let seed = normal("seed", &[batch, 2, side, side]);
        let run = |form: Form| {
            let a = Var::from_tensor(&a).unwrap();
            let z = form(&a, iterations).unwrap();
            let loss = (&z * &seed).unwrap().sum_all().unwrap();
            let da = loss.backward().unwrap().get(&a).unwrap().clone();
            [z.detach(), da]
        };
        let [actual, expected] = [run(pseudo_inverse), run(composed)];
        for (actual, expected) in actual.iter().zip(&expected) {
            let largest = expected.abs().unwrap().max_all().unwrap();
            let largest = largest.to_scalar::<f64>().unwrap();
            close(actual, expected, 1e-11 * largest.max(1.0), "pseudo_inverse");
        }
    }
}

#[test]
fn gradients_are_difference_quotients() {
    check_gradient("pseudo_inverse", &[&[2, 1, 3, 3]], |inputs| {
        pseudo_inverse(&softmax::masked(&inputs[0], None)?, 4)
    });
}

#[test]
fn the_iteration_finds_the_inverse() {
    let a = softmax::masked(&normal("scores", &[1, 2, 4, 4]), None).unwrap();
    let identity = Tensor::eye(4, DType::F64, &Device::Cpu).unwrap();
    let identity = identity.broadcast_as((1, 2, 4, 4)).unwrap();
    for form in [pseudo_inverse as Form, composed] {
        let z = form(&a, 30).unwrap();
        close(&a.matmul(&z).unwrap(), &identity, 1e-9, "A Z");
    }
}

#[test]
fn matrices_that_are_not_square_are_errors() {
    for dtype in [DType::F32, DType::F64] {
        let a = normal("a", &[1, 1, 3, 4]).to_dtype(dtype).unwrap();
        assert!(pseudo_inverse(&a, 2).is_err());
    }
}
