use super::*;
use crate::ops::testing::{Sampler, agree};

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(60);
    for shape in [&[1][..], &[3, 5], &[2, 3, 4], &[3, 70, 111]] {
        let [a, b] = [(); 2].map(|()| sampler.normal(shape, 1.0));
        let f = |x: &[Tensor]| Ok(add(&x[0], &x[1])?);
        agree(&format!("sum of {shape:?}"), &[a.clone(), b], f, f);
        let f = |x: &[Tensor]| Ok(add(&x[0], &add(&x[0], &x[0])?)?);
        agree(&format!("thrice {shape:?}"), &[a], f, f);
    }
}

#[test]
fn shapes_that_differ_are_errors() {
    let mut sampler = Sampler::new(1);
    let (a, b) = (sampler.normal(&[2, 3], 1.0), sampler.normal(&[3, 2], 1.0));
    assert!(add(&a, &b).is_err());
    assert!(add(&a, &a.get(0).unwrap()).is_err());
}
