use candle_core::DType;

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

fn norm(x: &[Tensor], epsilon: f64) -> Result<Tensor> {
    let norm = Normalised {
        weight: &x[1],
        bias: &x[2],
        epsilon,
    };
    layer_norm(&x[0], &norm)
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(5);
    // The last has 33 chunks of rows.
    for (rows, width) in [
        (vec![1], 1),
        (vec![3], 5),
        (vec![2, 7], 16),
        (vec![300], 33),
        (vec![4, 70], 64),
        (vec![2100], 5),
    ] {
        let x = (sampler.normal(&[rows.as_slice(), &[width]].concat(), 2.0) + 3.0).unwrap();
        let mut vector = || sampler.normal(&[width], 1.0);
        let inputs = [x, vector(), vector()];
        let f = |x: &[Tensor]| Ok(norm(x, 1e-2)?);
        agree("layer-norm", &inputs, f, f);
    }
}

#[test]
fn an_epsilon_below_a_tiny_variance_is_not_raised() {
    let mut sampler = Sampler::new(7);
    let x = sampler.normal(&[4, 6], 1e-4);
    let mut vector = || sampler.normal(&[6], 1.0);
    let inputs = [x, vector(), vector()];
    let f = |x: &[Tensor]| Ok(norm(x, 1e-9)?);
    agree("layer-norm of small numbers", &inputs, f, f);
}

#[test]
fn a_large_mean_leaves_the_variance_its_digits() {
    let x = (Sampler::new(8).normal(&[8, 16], 1.0) + 1000.0).unwrap();
    let [single, double] = [DType::F32, DType::F64].map(|dtype| {
        let x = x.to_dtype(dtype).unwrap();
        let weight = x.get(0).unwrap().ones_like().unwrap();
        let bias = weight.zeros_like().unwrap();
        let y = norm(&[x, weight, bias], 1e-6).unwrap();
        y.to_dtype(DType::F64).unwrap()
    });
    close(&single, &double, 1e-3, "layer norm");
}

#[test]
fn gradients_are_difference_quotients() {
    check_gradient("layer norm", &[&[2, 3, 5], &[5], &[5]], |x| norm(x, 1e-6));
}

#[test]
fn rows_come_out_with_mean_zero_and_biased_variance_one() {
    let x = normal("x", &[1, 4]);
    let (weight, bias) = (x.ones_like().unwrap(), x.zeros_like().unwrap());
    let y = norm(&[x, weight, bias], 1e-6).unwrap();
    let y: Vec<f64> = y.flatten_all().unwrap().to_vec1().unwrap();
    let mean = y.iter().sum::<f64>() / 4.0;
    let variance = y.iter().map(|y| y * y).sum::<f64>() / 4.0;
    assert!(
        mean.abs() < 1e-12 && (variance - 1.0).abs() < 1e-5,
        "{mean} {variance}"
    );
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let mut sampler = Sampler::new(6);
    let x = sampler.normal(&[2, 3], 1.0);
    for (weight, bias) in [(4, 4), (3, 4), (3, 2), (2, 3)] {
        let [weight, bias] = [weight, bias].map(|width| sampler.normal(&[width], 1.0));
        assert!(norm(&[x.clone(), weight, bias], 1e-6).is_err());
    }
}
