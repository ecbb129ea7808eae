use candle_core::{DType, Device};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, normal};

/// (batch, length, heads, width)
const SIZES: [(usize, usize, usize, usize); 5] = [
    (1, 1, 1, 1),
    (2, 5, 2, 3),
    (3, 130, 2, 16),
    (1, 65, 3, 7),
    (2, 300, 1, 33),
];

#[test]
fn the_kernels_meet_their_composed_forms() {
    let mut sampler = Sampler::new(73);
    for (batch, length, heads, width) in SIZES {
        let mut rows = || sampler.normal(&[batch, length, heads * width], 1.0);
        let (x, v) = ([rows(), rows()], rows());
        let f = |x: &[Tensor]| Ok(channel_cosines(&x[0], &x[1], heads)?);
        agree("channel_cosines", &x, f, f);
        let weights = sampler.normal(&[batch, heads, width, width], 0.3);
        let f = |x: &[Tensor]| Ok(mix_channels(&x[0], &x[1])?);
        agree("mix_channels", &[v, weights], f, f);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    check_gradient("channel_cosines", &[&[2, 3, 4], &[2, 3, 4]], |x| {
        channel_cosines(&x[0], &x[1], 2)
    });
    check_gradient("mix_channels", &[&[2, 3, 4], &[2, 2, 2, 2]], |x| {
        mix_channels(&x[0], &x[1])
    });
}

#[test]
fn cosines_of_a_column_with_itself_are_one_and_with_zeros_none() {
    for dtype in [DType::F32, DType::F64] {
        let x = normal("x", &[1, 5, 2]).to_dtype(dtype).unwrap();
        let zeros = Tensor::zeros((1, 5, 1), dtype, &Device::Cpu).unwrap();
        let x = Tensor::cat(&[&x, &zeros], 2).unwrap();
        let cosines = channel_cosines(&x, &x, 1).unwrap().to_dtype(DType::F64);
        let cosines = cosines.unwrap().flatten_all().unwrap();
        let cosines: Vec<f64> = cosines.to_vec1().unwrap();
        assert!((cosines[0] - 1.0).abs() < 1e-6 && (cosines[4] - 1.0).abs() < 1e-6);
        assert_eq!([cosines[2], cosines[6], cosines[8]], [0.0; 3]);
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    for dtype in [DType::F32, DType::F64] {
        let normal = |shape: &[usize]| normal("x", shape).to_dtype(dtype).unwrap();
        let x = normal(&[1, 6, 8]);
        assert!(channel_cosines(&x, &normal(&[1, 5, 8]), 2).is_err());
        assert!(channel_cosines(&x, &x, 3).is_err());
        assert!(mix_channels(&x, &normal(&[1, 3, 2, 2])).is_err());
        assert!(mix_channels(&x, &normal(&[2, 4, 2, 2])).is_err());
        let empty = Tensor::zeros((1, 0, 8), dtype, &Device::Cpu).unwrap();
        assert!(channel_cosines(&empty, &empty, 2).is_err());
        assert!(mix_channels(&empty, &normal(&[1, 4, 2, 2])).is_err());
    }
}
