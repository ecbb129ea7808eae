use candle_core::{DType, Device, Var};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, normal};

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(41);
    for (rows, groups, width) in [(1, 1, 1), (3, 2, 5), (70, 3, 16), (600, 2, 33)] {
        let x = [sampler.normal(&[rows, groups * width], 1.0)];
        let f = |x: &[Tensor]| Ok(l2_normalize(&x[0], width)?);
        agree("l2_normalize", &x, f, f);
        let f = |x: &[Tensor]| Ok(l2_normalize_above(&x[0], width, 0.3)?);
        agree("l2_normalize_above", &x, f, f);
    }
}

#[test]
fn vectors_come_out_with_length_one() {
    let y = l2_normalize(&normal("x", &[2, 6]), 3).unwrap();
    let lengths = y.sqr().unwrap().reshape((4, 3)).unwrap().sum(1).unwrap();
    let lengths: Vec<f64> = lengths.to_vec1().unwrap();
    assert!(
        lengths.iter().all(|x| (x - 1.0).abs() < 1e-12),
        "{lengths:?}"
    );
}

#[test]
fn short_vectors_stay_short() {
    let x = Tensor::new(&[[3e-3, 4e-3], [3.0, 4.0]], &Device::Cpu).unwrap();
    let y = l2_normalize_above(&x, 2, 1e-6).unwrap();
    let lengths = y.sqr().unwrap().sum(1).unwrap().to_vec1::<f64>().unwrap();
    assert!((lengths[0] - 25.0 / 26.0).abs() < 1e-12, "{lengths:?}");
    assert!((lengths[1] - 1.0).abs() < 1e-6, "{lengths:?}");
}

#[test]
fn gradients_are_difference_quotients() {
    check_gradient("l2_normalize", &[&[2, 6]], |x| l2_normalize(&x[0], 3));
    let above = |x: &[Tensor]| l2_normalize_above(&x[0], 3, 0.3);
    check_gradient("l2_normalize_above", &[&[2, 6]], above);
}

#[test]
fn zeros_stay_zeros_with_a_finite_gradient() {
    for dtype in [DType::F32, DType::F64] {
        let x = Var::zeros((2, 4), dtype, &Device::Cpu).unwrap();
        let y = l2_normalize(&x, 4).unwrap();
        let gradients = y.sum_all().unwrap().backward().unwrap();
        let values = |x: &Tensor| {
            let x = x.to_dtype(DType::F64).unwrap().flatten_all().unwrap();
            x.to_vec1::<f64>().unwrap()
        };
        assert_eq!(values(&y), [0.0; 8]);
        let gradient = values(gradients.get(&x).unwrap());
        assert!(gradient.iter().all(|x| x.is_finite()));
        assert!(l2_normalize(&x, 3).is_err());
    }
}
