use candle_core::DType;

use super::*;
use crate::ops::testing::{Sampler, agree};

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(53);
    for (shape, first, count) in [
        (&[1, 1][..], 0, 1),
        (&[3, 5], 1, 3),
        (&[2, 70, 16], 8, 8),
        (&[2, 300, 2, 33], 0, 32),
    ] {
        let name = format!("columns {first}, {count} of {shape:?}");
        let f = |x: &[Tensor]| Ok(columns(&x[0], first, count)?);
        agree(&name, &[sampler.normal(shape, 1.0)], f, f);
    }
    let x = sampler.normal(&[2, 3], 1.0);
    for x in [x.to_dtype(DType::F64).unwrap(), x] {
        assert!(columns(&x, 2, 2).is_err() && columns(&x, 0, 0).is_err());
    }
}
