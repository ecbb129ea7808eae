use candle_core::{DType, Device};

use super::*;
use crate::Mask;
use crate::ops::testing::{Sampler, agree};
use crate::rng::{RngKey, StreamKey};
use crate::testing::{check_gradient, normal};

fn stream() -> Stream {
    RngKey::new(1, 2, 3).per_example(StreamKey::new("drop"))
}

#[test]
fn the_kernel_and_the_composed_form_drop_the_same_elements() {
    let mut sampler = Sampler::new(14);
    // The last has more elements in a row than the kernel draws at a time.
    for shape in [vec![3, 7], vec![2, 40, 65], vec![2, (1 << 14) + 100]] {
        let inputs = [sampler.normal(&shape, 1.0), sampler.normal(&shape, 1.0)];
        let f = |x: &[Tensor]| Ok(dropout(&x[0], &DropoutMask::new(&stream(), 0.3))?);
        agree("dropout", &inputs[..1], f, f);
        let f = |x: &[Tensor]| {
            Ok(add_dropped(
                &x[0],
                &x[1],
                &DropoutMask::new(&stream(), 0.3),
            )?)
        };
        agree("dropout and residual", &inputs, f, f);
    }
}

#[test]
fn packed_examples_drop_what_padded_ones_do() {
    let mut sampler = Sampler::new(15);
    let lengths = [70, 1, 40];
    let row = |length: usize| (0..70).map(move |l| f64::from(u8::from(l < length)));
    let valid: Vec<f64> = lengths.into_iter().flat_map(row).collect();
    let valid = Tensor::from_vec(valid, (3, 70), &Device::Cpu).unwrap();
    let packing = Packing::new(&Mask::new(&valid).unwrap()).unwrap().unwrap();
    let inputs = [sampler.normal(&[3, 70, 300], 1.0)];
    for tied in [false, true] {
        let padded = DropoutMask {
            tied,
            ..DropoutMask::new(&stream(), 0.3)
        };
        let packed = DropoutMask {
            packing: Some(&packing),
            ..padded
        };
        agree(
            "packed",
            &inputs,
            |x| Ok(dropout(&packing.pack(&x[0])?, &packed)?),
            |x| Ok(packing.pack(&dropout(&x[0], &padded)?)?),
        );
    }
}

#[test]
fn gradients_are_difference_quotients() {
    check_gradient("dropout", &[&[3, 5], &[3, 5]], |x| {
        add_dropped(&x[0], &x[1], &DropoutMask::new(&stream(), 0.4))
    });
}

#[test]
fn elements_are_dropped_at_the_rate_and_others_scaled() {
    let x = normal("x", &[4, 1000]).ones_like().unwrap();
    let y = dropout(&x, &DropoutMask::new(&stream(), 0.25)).unwrap();
    let y = y.flatten_all().unwrap();
    let y: Vec<f64> = y.to_vec1().unwrap();
    let dropped = y.iter().filter(|y| **y == 0.0).count();
    // 1,000 of 4,000 are expected, with a deviation of 27.
    assert!((900..1100).contains(&dropped), "{dropped}");
    let kept = 1.0 / 0.75;
    assert!(y.iter().all(|y| *y == 0.0 || (y - kept).abs() < 1e-6));
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let valid = Tensor::new(&[[1.0, 1.0, 0.0], [1.0, 0.0, 0.0f64]], &Device::Cpu).unwrap();
    let packing = Packing::new(&Mask::new(&valid).unwrap()).unwrap().unwrap();
    let mask = DropoutMask::new(&stream(), 0.3);
    let packed = DropoutMask {
        packing: Some(&packing),
        ..mask
    };
    for dtype in [DType::F32, DType::F64] {
        let x = |shape: &[usize]| normal("x", shape).to_dtype(dtype).unwrap();
        for residual in [&[2, 6][..], &[4, 4]] {
            assert!(add_dropped(&x(residual), &x(&[3, 4]), &mask).is_err());
        }
        assert!(dropout(&x(&[1, 3, 2]), &packed).is_ok());
        for rows in [2, 4] {
            assert!(dropout(&x(&[1, rows, 2]), &packed).is_err());
        }
    }
}
