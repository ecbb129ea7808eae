use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, normal};

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
    for (rows, width) in [
        (vec![1], 1),
        (vec![3], 5),
        (vec![2, 7], 16),
        (vec![300], 33),
        (vec![4, 70], 64),
    ] {
        let x = (sampler.normal(&[rows.as_slice(), &[width]].concat(), 2.0) + 3.0).unwrap();
        let mut vector = || sampler.normal(&[width], 1.0);
        let inputs = [x, vector(), vector()];
        let f = |x: &[Tensor]| Ok(norm(x, 1e-2)?);
        agree("layer-norm", &inputs, f, f);
    }
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
    let (x, weight) = (sampler.normal(&[2, 3], 1.0), sampler.normal(&[4], 1.0));
    assert!(norm(&[x, weight.clone(), weight], 1e-6).is_err());
}
