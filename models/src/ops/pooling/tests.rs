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

#[test]
fn equal_largest_values_share_the_gradient() {
    let rows = [[3.0, 1.0, 3.0, 2.0, 3.0], [1.0, 4.0, 0.1, 4.0, 0.0f32]];
    for dtype in [DType::F32, DType::F64] {
        let x = Tensor::new(&rows, &Device::Cpu).unwrap();
        let x = Var::from_tensor(&x.to_dtype(dtype).unwrap()).unwrap();
        let most = max(&x, 1).unwrap();
        let gradients = most.backward().unwrap();
        let of_x = gradients.get(&x).unwrap().to_dtype(DType::F64).unwrap();
        let third = 1.0 / 3.0;
        for (gradient, expected) in of_x
            .to_vec2::<f64>()
            .unwrap()
            .iter()
            .zip([[third, 0.0, third, 0.0, third], [0.0, 0.5, 0.0, 0.5, 0.0]])
        {
            let apart = gradient.iter().zip(expected).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f64::max) < 1e-7, "{gradient:?}");
        }
        let most = most.to_dtype(DType::F64).unwrap();
        assert_eq!(most.to_vec1::<f64>().unwrap(), [3.0, 4.0]);
    }
}

/// A sequence with a number that is not finite must not get a score.
#[test]
fn a_value_that_is_no_number_is_not_passed_over() {
    for place in 0..3 {
        let mut row = [1.0, 2.0, 0.5f32];
        row[place] = f32::NAN;
        let x = Tensor::new(&[row, [1.0, 2.0, 0.5]], &Device::Cpu).unwrap();
        let most: Vec<f32> = max(&x, 1).unwrap().to_vec1().unwrap();
        assert!(most[0].is_nan() && most[1] == 2.0, "{place}: {most:?}");
    }
}
