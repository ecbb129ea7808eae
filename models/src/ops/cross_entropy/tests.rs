use candle_core::{DType, Device, Var};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::check_gradient;

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(95);
    for (batch, classes, scale) in [
        (1, 1, 1.0),
        (3, 2, 5.0),
        (32, 10, 1.0),
        (5, 33, 40.0),
        (150, 7, 1.0),
    ] {
        let x = [sampler.normal(&[batch, classes], scale)];
        let labels: Vec<u32> = (0..batch).map(|b| (7 * b % classes) as u32).collect();
        let labels = Tensor::new(labels, &Device::Cpu).unwrap();
        let mean = |x: &[Tensor]| Ok(cross_entropy(&x[0], &labels)?);
        agree("cross-entropy", &x, mean, mean);
        let rows = |x: &[Tensor]| Ok(cross_entropies(&x[0], &labels)?);
        agree("cross-entropies", &x, rows, rows);
    }
}

#[test]
fn small_losses_keep_their_share_of_the_mean_beside_a_large_one() {
    let rows = 301;
    let mut logits = vec![0f32; 2 * rows];
    logits[0] = -16_777_216.0;
    let logits = Tensor::from_vec(logits, (rows, 2), &Device::Cpu).unwrap();
    let labels = Tensor::zeros(rows, DType::U32, &Device::Cpu).unwrap();
    let loss = cross_entropy(&logits, &labels).unwrap();
    let loss = f64::from(loss.to_scalar::<f32>().unwrap());
    let expected = (16_777_216.0 + 300.0 * 2f64.ln()) / 301.0;
    assert!((loss / expected - 1.0).abs() < 1e-6, "{loss} {expected}");
}

#[test]
fn what_is_not_a_number_stays_visible() {
    for dtype in [DType::F32, DType::F64] {
        let logits = Tensor::new(&[[f32::NAN, 0.0]], &Device::Cpu).unwrap();
        let labels = Tensor::new(&[1u32], &Device::Cpu).unwrap();
        let loss = cross_entropy(&logits.to_dtype(dtype).unwrap(), &labels).unwrap();
        let loss = loss.to_dtype(DType::F64).unwrap();
        assert!(loss.to_scalar::<f64>().unwrap().is_nan());
    }
}

#[test]
fn labels_that_do_not_fit_are_errors() {
    for dtype in [DType::F32, DType::F64] {
        let logits = Tensor::zeros((2, 3), dtype, &Device::Cpu).unwrap();
        for labels in [vec![0u32], vec![0, 1, 2], vec![0, 3]] {
            let labels = Tensor::new(labels, &Device::Cpu).unwrap();
            assert!(cross_entropy(&logits, &labels).is_err());
        }
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let labels = Tensor::new(&[2u32, 0], &Device::Cpu).unwrap();
    check_gradient("cross-entropy", &[&[2, 3]], |x| {
        cross_entropy(&x[0], &labels)
    });
    check_gradient("cross-entropies", &[&[2, 3]], |x| {
        cross_entropies(&x[0], &labels)
    });
}

#[test]
fn value_and_gradient_are_those_of_the_formula() {
    // Rows far from zero: without the shift, exp would overflow even in f64.
    let rows = [[1000.0, 1001.0, 998.0], [-3.0, 0.5, 2.0f64]];
    let labels = [2u32, 0];
    let logits = Var::new(&rows, &Device::Cpu).unwrap();
    let loss = cross_entropy(&logits, &Tensor::new(&labels, &Device::Cpu).unwrap()).unwrap();
    let gradient = loss
        .backward()
        .unwrap()
        .get(&logits)
        .unwrap()
        .to_vec2()
        .unwrap();
    let mut loss_by_hand = 0.0;
    for (row, (values, label)) in rows.iter().zip(labels).enumerate() {
        let max = values.iter().fold(f64::MIN, |a, &b| a.max(b));
        let sum: f64 = values.iter().map(|x| (x - max).exp()).sum();
        loss_by_hand += (sum.ln() + max - values[label as usize]) / 2.0;
        for (class, x) in values.iter().enumerate() {
            let one = f64::from(class == label as usize);
            let expected: f64 = ((x - max).exp() / sum - one) / 2.0;
            let actual: f64 = gradient[row][class];
            assert!((expected - actual).abs() < 1e-12, "{expected} {actual}");
        }
    }
    assert!((loss.to_scalar::<f64>().unwrap() - loss_by_hand).abs() < 1e-12);
}
