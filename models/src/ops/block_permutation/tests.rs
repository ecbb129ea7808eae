use candle_core::{DType, Device, Var};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

const SHAPES: [&[usize]; 2] = [&[2, 3, 2, 4], &[2, 12, 6]];

#[test]
fn the_kernels_meet_their_composed_forms() {
    let mut sampler = Sampler::new(61);
    for (batch, heads, outputs, inputs, block, width) in [
        (1, 1, 1, 1, 1, 1),
        (2, 3, 5, 4, 3, 7),
        (2, 2, 2, 9, 16, 8),
        (1, 2, 17, 17, 8, 33),
    ] {
        let operands = [
            sampler.normal(&[batch, heads, outputs, inputs], 1.0),
            sampler.normal(&[batch, inputs * block, heads * width], 1.0),
        ];
        for form in [permute_blocks, permute_blocks_beside] {
            let f = |x: &[Tensor]| Ok(form(&x[0], &x[1], block)?);
            agree("block permutation", &operands, f, f);
        }
    }
}

#[test]
fn a_permutation_moves_whole_blocks() {
    // Blocks of two positions, the first and the last changed over.
    let swap = [[[[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0f64]]]];
    let swap = Tensor::new(&swap, &Device::Cpu).unwrap();
    let x = normal("x", &[1, 6, 3]);
    let blocks = [2, 1, 0].map(|block| x.narrow(1, 2 * block, 2).unwrap());
    let expected = Tensor::cat(&blocks, 1).unwrap();
    close(
        &permute_blocks(&swap, &x, 2).unwrap(),
        &expected,
        1e-12,
        "swap",
    );
    let beside = Tensor::cat(&[&expected, &x], 1).unwrap();
    close(
        &permute_blocks_beside(&swap, &x, 2).unwrap(),
        &beside,
        1e-12,
        "swap",
    );
}

#[test]
fn positions_without_numbers_give_none() {
    let [weights, x] = [&[1, 2, 3, 3][..], &[1, 6, 0]].map(|shape| {
        let ones = Tensor::ones(shape, DType::F32, &Device::Cpu).unwrap();
        Var::from_tensor(&ones).unwrap()
    });
    for (form, length) in [
        (permute_blocks as Form, 6),
        (permute_blocks_beside as Form, 12),
    ] {
        let y = form(&weights, &x, 2).unwrap();
        assert_eq!(y.dims(), [1, length, 0]);
        let gradients = y.backward().unwrap();
        assert_eq!(gradients.get(&x).unwrap().dims(), [1, 6, 0]);
        let gradient = gradients.get(&weights).unwrap().flatten_all().unwrap();
        assert_eq!(gradient.to_vec1::<f32>().unwrap(), [0.0; 18]);
    }
}

type Form = fn(&Tensor, &Tensor, usize) -> Result<Tensor>;

#[test]
fn shapes_that_do_not_fit_are_errors() {
    for dtype in [DType::F32, DType::F64] {
        let normal = |shape: &[usize]| normal("x", shape).to_dtype(dtype).unwrap();
        let weights = normal(&[1, 2, 3, 3]);
        assert!(permute_blocks(&weights, &normal(&[1, 8, 4]), 3).is_err());
        assert!(permute_blocks(&weights, &normal(&[1, 9, 3]), 3).is_err());
    }
}

#[test]
fn gradients_are_difference_quotients() {
    for form in [permute_blocks, permute_blocks_beside] {
        check_gradient("block permutation", &SHAPES, |inputs| {
            form(&inputs[0], &inputs[1], 3)
        });
    }
}
