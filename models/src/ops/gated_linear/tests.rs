use candle_core::{DType, Device, Var};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::rng::{RngKey, StreamKey};
use crate::testing::check_gradient;
use crate::{Mask, Packing};

fn mask(rate: f64, tied: bool) -> DropoutMask<'static> {
    let stream = RngKey::new(1, 2, 3).per_example(StreamKey::new("drop"));
    DropoutMask {
        tied,
        ..DropoutMask::new(&stream, rate)
    }
}

const VALUES: [(GatedValue, usize); 3] = [
    (GatedValue::Linear, 2),
    (GatedValue::Activated, 1),
    (GatedValue::Input, 1),
];

fn run(
    x: &[Tensor],
    activation: Activation,
    mask: Option<&DropoutMask>,
    value: GatedValue,
) -> Result<Tensor> {
    gated_linear(&x[0], (&x[1], Some(&x[2])), activation, mask, value)
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(31);
    // The last has a weight too large for partial sums.
    let sizes = [(1, 1, 1), (3, 50, 5), (2, 300, 32), (2, 70, 192)];
    let cases = sizes
        .iter()
        .flat_map(|size| VALUES.map(|value| (*size, value)));
    for ((batch, length, d), (value, halves)) in cases {
        let shapes = [
            vec![batch, length, d],
            vec![halves * d, d],
            vec![halves * d],
        ];
        let scales = [1.0, (d as f64).powf(-0.5), 1.0];
        let inputs = shapes.iter().zip(scales);
        let inputs: Vec<_> = inputs.map(|(s, scale)| sampler.normal(s, scale)).collect();
        for (activation, tied) in [
            (Activation::Gelu, None),
            (Activation::GeluErf, Some(true)),
            (Activation::Silu, Some(false)),
        ] {
            let mask = tied.map(|tied| mask(0.3, tied));
            let f = |x: &[Tensor]| Ok(run(x, activation, mask.as_ref(), value)?);
            agree(
                &format!("{activation:?}, {value:?}, D = {d}"),
                &inputs,
                f,
                f,
            );
        }
    }
}

/// A chunk has one row more than fits into a tile.
#[test]
fn chunks_of_several_tiles_meet_the_composed_form() {
    let mut sampler = Sampler::new(34);
    let shapes: [&[usize]; 3] = [&[1, 4100, 3], &[6, 3], &[6]];
    let inputs = shapes.map(|shape| sampler.normal(shape, 0.6));
    let mask = mask(0.3, false);
    let f = |x: &[Tensor]| Ok(run(x, Activation::Silu, Some(&mask), GatedValue::Linear)?);
    agree("tiles", &inputs, f, f);
}

/// Two neighbouring rows have a gradient, in the first tile of a chunk and in its second.
#[test]
fn a_large_weight_gets_the_gradients_of_the_rows_that_have_one() {
    let d = 182;
    let mut sampler = Sampler::new(35);
    let inputs = [
        sampler.normal(&[1, 4097, d], 1.0),
        sampler.normal(&[2 * d, d], (d as f64).powf(-0.5)),
        sampler.normal(&[2 * d], 1.0),
    ];
    let inputs = inputs.map(|x| Var::from_tensor(&x.to_dtype(DType::F64).unwrap()).unwrap());
    let run = |x: [Tensor; 3]| run(&x, Activation::Gelu, None, GatedValue::Linear).unwrap();
    let rows = |x: &Tensor| x.narrow(1, 127, 2).unwrap();
    let y = run(inputs.each_ref().map(|x| x.to_dtype(DType::F32).unwrap()));
    let actual = rows(&y).to_dtype(DType::F64).unwrap();
    let [x, weight, bias] = inputs.each_ref().map(|x| x.as_tensor().clone());
    let expected = run([rows(&x), weight, bias]);
    crate::testing::agree(&actual, &expected, &inputs, 2e-5, "two rows");
}

#[test]
fn a_pass_without_a_graph_has_the_same_outputs() {
    let mut sampler = Sampler::new(36);
    let shapes: [&[usize]; 3] = [&[1, 300, 5], &[10, 5], &[10]];
    let constants = shapes.map(|shape| sampler.normal(shape, 0.6));
    let variables = constants.each_ref().map(|x| {
        let x = Var::from_tensor(x).unwrap();
        x.as_tensor().clone()
    });
    let mask = mask(0.3, false);
    let [alone, kept] = [constants, variables].map(|x| {
        let y = run(&x, Activation::Gelu, Some(&mask), GatedValue::Linear).unwrap();
        y.flatten_all().unwrap().to_vec1::<f32>().unwrap()
    });
    assert!(alone == kept);
}

#[test]
fn packed_sequences_drop_what_padded_ones_do() {
    let mut sampler = Sampler::new(32);
    let row = |length: usize| (0..150).map(move |l| f64::from(u8::from(l < length)));
    let valid: Vec<f64> = [150, 0, 1, 149].into_iter().flat_map(row).collect();
    let valid = Tensor::from_vec(valid, (4, 150), &Device::Cpu).unwrap();
    let packing = Packing::new(&Mask::new(&valid).unwrap()).unwrap().unwrap();
    let d = 8;
    let shapes = [vec![4, 150, d], vec![2 * d, d], vec![2 * d]];
    let inputs: Vec<_> = shapes.iter().map(|s| sampler.normal(s, 0.5)).collect();
    for tied in [false, true] {
        let padded = mask(0.3, tied);
        let packed = DropoutMask {
            packing: Some(&packing),
            ..padded
        };
        let of_packed = |x: &[Tensor]| {
            let x = [packing.pack(&x[0])?, x[1].clone(), x[2].clone()];
            Ok(run(
                &x,
                Activation::Gelu,
                Some(&packed),
                GatedValue::Linear,
            )?)
        };
        let of_padded = |x: &[Tensor]| {
            Ok(packing.pack(&run(
                x,
                Activation::Gelu,
                Some(&padded),
                GatedValue::Linear,
            )?)?)
        };
        agree("packed", &inputs, of_packed, of_padded);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let mask = mask(0.3, false);
    for (value, halves) in VALUES {
        let (weight, bias) = ([4 * halves, 4], [4 * halves]);
        check_gradient("gated linear", &[&[2, 3, 4], &weight, &bias], |x| {
            run(x, Activation::GeluErf, Some(&mask), value)
        });
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let mut sampler = Sampler::new(33);
    let shapes = [vec![2, 3, 4], vec![8, 5], vec![8]];
    let inputs: Vec<_> = shapes.iter().map(|s| sampler.normal(s, 1.0)).collect();
    for (value, _) in VALUES {
        assert!(run(&inputs, Activation::Gelu, None, value).is_err());
    }
}
