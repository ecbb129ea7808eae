use candle_core::{DType, Device};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

const PADDINGS: [Padding; 4] = [
    Padding::Same,
    Padding::Causal,
    Padding::Zeros { left: 0, right: 0 },
    Padding::Zeros { left: 1, right: 4 },
];

/// Computes the definition, for a weight (O, D, W).
fn loops(x: &Tensor, weight: &Tensor, bias: &Tensor, padding: Padding, stride: usize) -> Tensor {
    let (_, length, channels) = x.dims3().unwrap();
    let (outputs, _, width) = weight.dims3().unwrap();
    let (left, right) = match padding {
        Padding::Same => ((width - 1) / 2, width - 1 - (width - 1) / 2),
        Padding::Causal => (width - 1, 0),
        Padding::Zeros { left, right } => (left, right),
    };
    let (data, weight) = (
        x.to_vec3::<f64>().unwrap(),
        weight.to_vec3::<f64>().unwrap(),
    );
    let bias = bias.to_vec1::<f64>().unwrap();
    let at = |x: &Vec<Vec<f64>>, t: usize, o: usize| {
        let mut y = bias[o];
        for (d, j) in (0..channels).flat_map(|d| (0..width).map(move |j| (d, j))) {
            let position = (stride * t + j).wrapping_sub(left);
            y += weight[o][d][j] * x.get(position).map_or(0.0, |x| x[d]);
        }
        y
    };
    let starts = (0..=length + left + right - width).step_by(stride);
    let rows = 0..starts.count();
    let example = |x: &Vec<Vec<f64>>| -> Vec<Vec<f64>> {
        let row = |t| (0..outputs).map(|o| at(x, t, o)).collect();
        rows.clone().map(row).collect()
    };
    let y: Vec<Vec<Vec<f64>>> = data.iter().map(example).collect();
    Tensor::new(y, &Device::Cpu).unwrap()
}

#[test]
fn convolutions_are_what_the_definition_says() {
    for (length, padding) in (1..38).flat_map(|l| PADDINGS.map(|p| (l, p))) {
        for (width, stride) in [(1, 1), (2, 1), (5, 1), (3, 3), (4, 2), (2, 3)] {
            let x = normal("x", &[2, length, 3]);
            let [weight, bias] = [normal("weight", &[2, 3, width]), normal("bias", &[2])];
            let place = format!("{length} {padding:?} {width} {stride}");
            if Taps::new(length, width, padding, stride).is_none() {
                assert!(
                    conv1d(&x, &weight, None, padding, stride).is_err(),
                    "{place}"
                );
                continue;
            }
            let actual = conv1d(&x, &weight, Some(&bias), padding, stride).unwrap();
            close(
                &actual,
                &loops(&x, &weight, &bias, padding, stride),
                1e-12,
                &place,
            );

            let [own, bias] = [normal("own", &[3, width]), normal("bias", &[3])];
            let identity = Tensor::eye(3, DType::F64, &Device::Cpu).unwrap();
            let full = identity.unsqueeze(2).unwrap();
            let full = full.broadcast_mul(&own.unsqueeze(0).unwrap()).unwrap();
            let expected = loops(&x, &full, &bias, padding, stride);
            let actual = depthwise_conv1d(&x, &own, Some(&bias), padding, stride).unwrap();
            close(&actual, &expected, 1e-12, &format!("depthwise {place}"));
        }
    }
}

#[test]
fn kernels_meet_their_composed_form() {
    let mut sampler = Sampler::new(101);
    for ([batch, length, channels], width) in [
        ([1, 7, 1], 1),
        ([2, 37, 5], 4),
        ([3, 70, 35], 35),
        ([2, 300, 64], 9),
        ([1, 9, 16], 12),
    ] {
        for padding in PADDINGS {
            let Some(walk) = Taps::new(length, width, padding, 1) else {
                continue;
            };
            let inputs = [
                sampler.normal(&[batch, length, channels], 1.0),
                sampler.normal(&[channels, width], 0.5),
                sampler.normal(&[channels], 1.0),
            ];
            agree(
                &format!("depthwise {padding:?}"),
                &inputs,
                |x| Ok(depthwise_conv1d(&x[0], &x[1], Some(&x[2]), padding, 1)?),
                |x| Ok(depthwise_composed(&x[0], &x[1], Some(&x[2]), &walk)?),
            );
            agree(
                "depthwise without bias",
                &inputs[..2],
                |x| Ok(depthwise_conv1d(&x[0], &x[1], None, padding, 1)?),
                |x| Ok(depthwise_composed(&x[0], &x[1], None, &walk)?),
            );
        }
    }
    for (width, stride) in [(4, 4), (5, 2)] {
        let weight = sampler.normal(&[6, 3, width], 0.5);
        let inputs = [
            sampler.normal(&[2, 41, 3], 1.0),
            weight,
            sampler.normal(&[6], 1.0),
        ];
        let padding = Padding::Zeros { left: 0, right: 3 };
        let f = |x: &[Tensor]| Ok(conv1d(&x[0], &x[1], Some(&x[2]), padding, stride)?);
        agree("convolution", &inputs, f, f);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    for (width, stride) in [(3, 1), (2, 2), (3, 2)] {
        let padding = Padding::Zeros { left: 1, right: 2 };
        check_gradient("depthwise", &[&[2, 5, 3], &[3, width], &[3]], |x| {
            depthwise_conv1d(&x[0], &x[1], Some(&x[2]), padding, stride)
        });
        check_gradient("convolution", &[&[2, 5, 3], &[2, 3, width], &[2]], |x| {
            conv1d(&x[0], &x[1], Some(&x[2]), padding, stride)
        });
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let x = normal("x", &[2, 5, 3]);
    let valid = Padding::Zeros { left: 0, right: 0 };
    for (weight, bias, padding, stride) in [
        ([4, 2], 3, Padding::Same, 1),
        ([3, 2], 2, Padding::Same, 1),
        ([3, 0], 3, valid, 1),
        ([3, 0], 3, Padding::Same, 1),
        ([3, 6], 3, valid, 1),
        ([3, 2], 3, valid, 0),
    ] {
        let (weight, bias) = (normal("weight", &weight), normal("bias", &[bias]));
        let message = depthwise_conv1d(&x, &weight, Some(&bias), padding, stride);
        let message = message.unwrap_err().to_string();
        assert!(message.contains("do not fit"), "{message}");
    }
}
