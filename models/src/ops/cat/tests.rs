use super::*;
use crate::ops::testing::{Sampler, agree};

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(59);
    for (shape, axis, sizes) in [
        (&[1][..], 0, &[1, 1][..]),
        (&[3, 5], 0, &[2, 4]),
        (&[3, 5], 1, &[5, 1, 3]),
        (&[2, 70, 16], 1, &[70, 300]),
        (&[2, 300, 2, 33], 3, &[33, 32]),
        (&[2, 3, 4, 5], 2, &[4, 1, 2]),
        (&[3, 5], 1, &[0, 4]),
        (&[3, 5], 1, &[2, 4, 0]),
    ] {
        let part = |size: &usize| {
            let mut shape = shape.to_vec();
            shape[axis] = *size;
            sampler.normal(&shape, 1.0)
        };
        let parts: Vec<Tensor> = sizes.iter().map(part).collect();
        let name = format!("cat of {sizes:?} along axis {axis} of {shape:?}");
        let f = |x: &[Tensor]| Ok(cat(&x.iter().collect::<Vec<_>>(), axis)?);
        agree(&name, &parts, f, f);
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let mut sampler = Sampler::new(1);
    let (a, b) = (sampler.normal(&[2, 3], 1.0), sampler.normal(&[2, 4], 1.0));
    assert!(cat(&[&a, &b], 0).is_err());
    assert!(cat(&[&a, &b], 2).is_err());
    assert!(cat(&[], 0).is_err());
}
