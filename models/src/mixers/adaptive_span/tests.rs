use candle_core::Device;

use super::*;
use crate::{
    Mask, Parameters, RngKey,
    mask::zero_padding,
    ops::attention::AttentionOptions,
    options::BlockOptions,
    reference,
    testing::{DenseReference, check_layer, close, normal, parameters},
};

fn mixer(
    parameters: &Parameters,
    span: Kind,
    (ramp, start, longest): (f64, f64, usize),
) -> AdaptiveSpan {
    let block = BlockOptions {
        layers: 1,
        dim: 4,
        qkv_dim: 6,
        heads: 2,
        ..BlockOptions::default()
    };
    let layer = LayerContext::new(parameters.builder(), &block, longest);
    let options = Options { span, ramp, start };
    AdaptiveSpan::new(&layer, &options).unwrap()
}

/// Returns attention under spans z (H, 1) of queries, keys and values (B, L, H E).
fn attend(
    mixer: &AdaptiveSpan,
    z: &Tensor,
    [q, k, v]: [&Tensor; 3],
    mask: Option<Tensor>,
) -> Result<Tensor> {
    let length = q.dim(1)?;
    let reaches = mixer.reaches(z, length)?;
    let reach = reaches.iter().copied().max().unwrap();
    let options = AttentionOptions {
        heads: 2,
        mask,
        block_masks: blocks_within(&reaches, length),
        relative: Some(RelativeScores {
            reach,
            keys: 0..length,
            of_heads: Some(mixer.scores(z, reach)?),
            of_queries: None,
            of_keys: None,
        }),
        ..AttentionOptions::default()
    };
    attention::attend(q, k, v, &options)
}

#[test]
fn spans_beyond_the_sequence_are_softmax_attention() {
    let mixer = mixer(&parameters(), Kind::Adaptive, (2.0, 0.5, 10));
    let z = mixer.lengths(&normal("x", &[1, 1, 4])).unwrap().unwrap();
    let apart = DenseReference::new(reference::softmax, 1.0).compare(|q, k, v, mask| {
        let flat = [q, k, v].map(|x| x.flatten_from(2).unwrap());
        let mask = mask.map(|mask| mask.valid().clone());
        let y = attend(&mixer, &z, [&flat[0], &flat[1], &flat[2]], mask)?;
        Ok(y.reshape(q.dims())?)
    });
    assert!(apart.output < 1e-7 && apart.gradient < 1e-7, "{apart:?}");
}

/// Values that name their keys: with equal scores a query's output is the share of each key, m over
/// its sum. With a steep ramp m is 0 or 1, a sliding window. In f32 by kernels.
#[test]
fn keys_weigh_what_their_distance_leaves() {
    for (ramp, spans, length) in [
        (4.0, [0.3, 2.5], 11),
        (1e-4, [3.5, 0.5], 11),
        (7.5, [0.2, 90.4], 330),
        (1e-4, [64.5, 10.5], 330),
    ] {
        let mixer = mixer(&parameters(), Kind::Adaptive, (ramp, 0.5, length));
        for dtype in [DType::F32, DType::F64] {
            let eye = Tensor::eye(length, dtype, &Device::Cpu).unwrap();
            let v = Tensor::cat(&[&eye, &eye], 1).unwrap().unsqueeze(0).unwrap();
            let zeros = v.zeros_like().unwrap();
            let z = Tensor::new(&spans, &Device::Cpu).unwrap();
            let z = z.to_dtype(dtype).unwrap().unsqueeze(1).unwrap();
            let y = attend(&mixer, &z, [&zeros, &zeros, &v], None).unwrap();
            let mut expected = Vec::new();
            for i in 0..length {
                for span in spans {
                    let m =
                        |j: usize| ((ramp + span - i.abs_diff(j) as f64) / ramp).clamp(0.0, 1.0);
                    let sum: f64 = (0..length).map(m).sum();
                    expected.extend((0..length).map(|j| m(j) / sum));
                }
            }
            let expected = Tensor::from_vec(expected, v.shape(), &Device::Cpu).unwrap();
            let expected = expected.to_dtype(dtype).unwrap();
            close(&y, &expected, 1e-6, &format!("{ramp} {spans:?} {dtype:?}"));
        }
    }
}

#[test]
fn windows_grow_with_heads_and_layers() {
    let mixer = mixer(&parameters(), Kind::Fixed, (1.0, 0.5, 100));
    assert!(matches!(&mixer.spans, Spans::Fixed(windows) if windows[..] == [10, 100]));
}

#[test]
fn gradients_agree_with_differences() {
    let valid = [[1.0; 5], [1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 5]];
    let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
    for span in [Kind::Adaptive, Kind::Dynamic, Kind::Fixed] {
        let parameters = parameters();
        let mixer = mixer(&parameters, span, (1.7, 0.3, 6));
        check_layer("adaptive span", &parameters, &[3, 5, 4], |x| {
            let pass = Pass::new(false, RngKey::new(1, 0, 0));
            let y = mixer.forward(x, &pass.with_mask(Some(&mask)))?;
            zero_padding(&y, Some(&mask))
        });
    }
}
