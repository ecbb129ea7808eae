use candle_core::{DType, Device, Var};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::normal;

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(17);
    for (batch, length, dim) in [(1, 1, 1), (3, 7, 5), (2, 1100, 33)] {
        let x = [sampler.normal(&[batch, length, dim], 1.0)];
        let weights = sampler.normal(&[batch, length], 1.0).relu().unwrap();
        let f = |x: &[Tensor]| Ok(weighted_sum(&x[0], &weights.to_dtype(x[0].dtype())?)?);
        agree("weighted sum", &x, f, f);
    }
}

/// There are enough positions for several tasks.
#[test]
fn rows_without_numbers_have_sums_without_numbers() {
    let [x, weights] = [&[2, 600, 0][..], &[2, 600]]
        .map(|shape| Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap());
    let x = Var::from_tensor(&x).unwrap();
    let y = weighted_sum(&x, &weights).unwrap();
    assert_eq!(y.dims(), [2, 0]);
    let gradients = y.backward().unwrap();
    assert_eq!(gradients.get(&x).unwrap().dims(), [2, 600, 0]);
}

#[test]
fn weights_are_constants() {
    for dtype in [DType::F32, DType::F64] {
        let variable = |name: &str, shape: &[usize]| {
            let x = normal(name, shape).to_dtype(dtype).unwrap();
            Var::from_tensor(&x).unwrap()
        };
        let (x, weights) = (variable("x", &[2, 3, 4]), variable("weights", &[2, 3]));
        let gradients = weighted_sum(&x, &weights).unwrap().backward().unwrap();
        assert!(gradients.get(&x).is_some(), "{dtype:?}");
        assert!(gradients.get(&weights).is_none(), "{dtype:?}");
    }
}

#[test]
fn weights_of_another_shape_are_an_error() {
    for dtype in [DType::F32, DType::F64] {
        for shape in [&[2, 4][..], &[1, 3]] {
            let [x, weights] = [&[2, 3, 4][..], shape].map(|shape| normal("x", shape));
            let [x, weights] = [x, weights].map(|x| x.to_dtype(dtype).unwrap());
            assert!(weighted_sum(&x, &weights).is_err(), "{shape:?}");
        }
    }
}
