use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::check_gradient;

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(47);
    for (shape, numbers) in [
        (&[1, 1][..], 1),
        (&[3, 5], 5),
        (&[3, 5], 1),
        (&[2, 70, 16], 16),
        (&[2, 70, 33], 1),
    ] {
        let [x, residual] = [(); 2].map(|()| sampler.normal(shape, 1.0));
        let inputs = [x, sampler.normal(&[numbers], 1.0), residual];
        let name = format!("scale_channels {shape:?} by {numbers}");
        let alone = |x: &[Tensor]| Ok(scale_channels(&x[0], &x[1])?);
        agree(&name, &inputs[..2], alone, alone);
        let added = |x: &[Tensor]| Ok(add_scaled_channels(&x[2], &x[0], &x[1])?);
        agree(&name, &inputs, added, added);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let shape: &[usize] = &[2, 3, 4];
    for numbers in [1, 4] {
        check_gradient("scale_channels", &[shape, &[numbers], shape], |x| {
            add_scaled_channels(&x[2], &x[0], &x[1])
        });
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let mut sampler = Sampler::new(1);
    let (x, scale) = (sampler.normal(&[2, 3], 1.0), sampler.normal(&[2], 1.0));
    assert!(scale_channels(&x, &scale).is_err());
    let scale = sampler.normal(&[3], 1.0);
    assert!(add_scaled_channels(&scale, &x, &scale).is_err());
}
