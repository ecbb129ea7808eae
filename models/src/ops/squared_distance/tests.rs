use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::check_gradient;

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(43);
    for shape in [&[1, 1][..], &[3, 5], &[2, 70, 16], &[2, 2, 300, 33]] {
        let inputs = [sampler.normal(shape, 1.0), sampler.normal(shape, 1.0)];
        let f = |x: &[Tensor]| Ok(squared_distance(&x[0], &x[1])?);
        agree(&format!("squared_distance {shape:?}"), &inputs, f, f);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let shape: &[usize] = &[2, 3, 4];
    check_gradient("squared_distance", &[shape, shape], |x| {
        squared_distance(&x[0], &x[1])
    });
}

#[test]
fn shapes_that_differ_are_errors() {
    let x = Sampler::new(1).normal(&[2, 3], 1.0);
    assert!(squared_distance(&x, &x.narrow(1, 0, 2).unwrap()).is_err());
}
