use super::*;
use crate::ops::testing::{Sampler, agree};

#[test]
fn the_kernel_meets_the_composed_form() {
    let mut sampler = Sampler::new(29);
    for dims in [
        &[1, 1, 1][..],
        &[2, 5, 3],
        &[1, 16, 32],
        &[3, 33, 70],
        &[2, 7, 1],
        &[2, 7, 3, 1],
        &[2, 1, 3, 4],
        &[2, 19, 2, 5],
        &[2, 3, 41, 8],
    ] {
        let x = sampler.normal(dims, 1.0);
        agree(
            &format!("swap_axes {dims:?}"),
            &[x],
            |x| Ok(swap_axes(&x[0])?),
            |x| x[0].transpose(1, 2)?.contiguous(),
        );
    }
}

#[test]
fn heads_are_split_and_merged_as_by_reshaping() {
    let mut sampler = Sampler::new(30);
    for (batch, length, heads, width) in [(1, 1, 1, 1), (2, 5, 3, 4), (2, 70, 2, 1), (1, 9, 1, 8)] {
        let x = sampler.normal(&[batch, length, heads * width], 1.0);
        let split = |x: &Tensor| {
            x.reshape((batch, length, heads, width))?
                .transpose(1, 2)?
                .contiguous()
        };
        agree(
            "split_heads",
            &[x],
            |x| Ok(split_heads(&x[0], heads)?),
            |x| split(&x[0]),
        );
        let x = sampler.normal(&[batch, heads, length, width], 1.0);
        let merged = |x: &Tensor| x.transpose(1, 2)?.contiguous()?.flatten_from(2);
        agree(
            "merge_heads",
            &[x],
            |x| Ok(merge_heads(&x[0])?),
            |x| merged(&x[0]),
        );
    }
    assert!(split_heads(&sampler.normal(&[1, 2, 5], 1.0), 2).is_err());
}
