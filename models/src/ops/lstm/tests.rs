use candle_core::Device;

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

fn mask() -> Mask {
    let real = [
        [1.0; 5],
        [1.0, 1.0, 1.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 1.0, 1.0],
    ];
    Mask::new(&Tensor::new(&real, &Device::Cpu).unwrap()).unwrap()
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(171);
    for (batch, length, width) in [(1, 1, 1), (2, 9, 3), (11, 5, 20), (3, 17, 32)] {
        let inputs = [
            sampler.normal(&[batch, length, 4 * width], 1.0),
            sampler.normal(&[4 * width, width], (width as f64).powf(-0.5)),
        ];
        for reverse in [false, true] {
            let f = |x: &[Tensor]| Ok(lstm(&x[0], &x[1], reverse, None)?);
            agree("lstm", &inputs, f, f);
        }
    }
    let inputs = [
        sampler.normal(&[3, 5, 8], 1.0),
        sampler.normal(&[8, 2], 0.7),
    ];
    for reverse in [false, true] {
        let f = |x: &[Tensor]| {
            let real = mask().valid().to_dtype(x[0].dtype())?;
            Ok(lstm(&x[0], &x[1], reverse, Some(&Mask::new(&real)?))?)
        };
        agree("lstm with padding", &inputs, f, f);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let mask = mask();
    for (reverse, mask) in [
        (false, None),
        (true, None),
        (false, Some(&mask)),
        (true, Some(&mask)),
    ] {
        check_gradient("lstm", &[&[3, 5, 8], &[8, 2]], |x| {
            lstm(&x[0], &x[1], reverse, mask)
        });
    }
}

#[test]
fn padding_leaves_the_state_as_it_was() {
    let (x, weight) = (normal("x", &[3, 5, 8]), normal("w", &[8, 2]));
    let mask = mask();
    let y = lstm(&x, &weight, false, Some(&mask)).unwrap();
    let places = Tensor::new(&[1u32, 3, 4], &Device::Cpu).unwrap();
    let real = |x: &Tensor| x.narrow(0, 2, 1).unwrap().index_select(&places, 1).unwrap();
    let alone = lstm(&real(&x), &weight, false, None).unwrap();
    close(&real(&y), &alone, 1e-12, "padding within");
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    for (x, weight) in [
        ([2, 3, 8], [8, 3]),
        ([2, 3, 7], [8, 2]),
        ([2, 3, 8], [4, 1]),
    ] {
        let message = lstm(&normal("x", &x), &normal("w", &weight), false, None);
        let message = message.unwrap_err().to_string();
        assert!(message.contains("do not fit"), "{message}");
    }
}
