use candle_core::Device;

use super::*;
use crate::{
    RngKey,
    options::BlockOptions,
    reference,
    testing::{DenseReference, check_layer, close, normal, parameters},
};

fn mixer(heads: usize, landmarks: usize, iterations: usize, segments: Segments) -> Nystromformer {
    let block = BlockOptions {
        dim: 6,
        qkv_dim: 6,
        heads,
        ..BlockOptions::default()
    };
    let parameters = parameters();
    layer(&block, &parameters, (landmarks, iterations, 3), segments)
}

fn layer(
    block: &BlockOptions,
    parameters: &crate::Parameters,
    (landmarks, iterations, conv): (usize, usize, usize),
    segments: Segments,
) -> Nystromformer {
    let layer = LayerContext::new(parameters.builder(), block, 8);
    let options = Options {
        landmarks,
        iterations,
        conv,
    };
    Nystromformer::new(&layer, &options, segments).unwrap()
}

/// Returns F Z G V without projections, of (B, L, H, E).
fn attend(
    mixer: &Nystromformer,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Mask>,
) -> Result<Tensor> {
    let flat = |x: &Tensor| x.flatten_from(2);
    let y = mixer.attend((&flat(q)?, &flat(k)?, &flat(v)?), mask)?;
    Ok(y.reshape(q.dims())?)
}

#[test]
fn with_a_landmark_per_token_it_is_softmax_attention() {
    let twin = DenseReference::new(reference::softmax, 1.0);
    let mixer = mixer(2, 5, 30, Segments::OfValid);
    let apart = twin.compare(|q, k, v, mask| attend(&mixer, q, k, v, mask));
    assert!(apart.output < 1e-7 && apart.gradient < 1e-6, "{apart:?}");
}

#[test]
fn published_segments_of_one_position_are_softmax_attention() {
    let twin = DenseReference::new(reference::softmax, 1.0);
    let mixer = mixer(2, 5, 6, Segments::OfPositions(5));
    let apart = twin.compare(|q, k, v, mask| attend(&mixer, q, k, v, mask));
    assert!(apart.output < 1e-7 && apart.gradient < 1e-6, "{apart:?}");
}

/// Landmarks that are nearly equal make a matrix that is nearly singular.
#[test]
fn the_inverse_is_of_f64_for_landmarks_of_any_type() {
    let mixer = mixer(2, 4, 6, Segments::OfValid);
    let inverse = |dtype| {
        let near = |name: &str| {
            let x = normal(name, &[1, 4, 6]).affine(0.01, 1.0).unwrap();
            x.to_dtype(DType::F32).unwrap().to_dtype(dtype).unwrap()
        };
        let landmarks = Landmarks {
            queries: near("queries"),
            keys: near("keys"),
            valid: None,
        };
        mixer.inverse(&landmarks).unwrap()
    };
    let (single, double) = (inverse(DType::F32), inverse(DType::F64));
    close(&single, &double, 1e-12, "inverse");
}

#[test]
fn segments_are_as_equal_as_can_be_and_skip_padding() {
    let valid = [
        [1.0, 1.0, 1.0, 1.0, 1.0],
        [1.0, 0.0, 1.0, 1.0, 0.0],
        [0.0, 1.0, 0.0, 0.0, 0.0],
        [0.0; 5],
    ];
    let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
    let x: Vec<f64> = (0..20).map(f64::from).collect();
    let x = Tensor::from_vec(x, (4, 5, 1), &Device::Cpu).unwrap();
    let actual = Segments::OfValid
        .landmarks((&x, &x), Some(&mask), 2)
        .unwrap();
    let means: Vec<f64> = actual.queries.flatten_all().unwrap().to_vec1().unwrap();
    assert_eq!(means, [1.0, 3.5, 6.0, 8.0, 11.0, 0.0, 0.0, 0.0]);
    let valid = actual.valid.unwrap().to_vec2::<f64>().unwrap();
    assert_eq!(valid, [[1.0, 1.0], [1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]);

    let actual = Segments::OfPositions(8)
        .landmarks((&x, &x), Some(&mask), 3)
        .unwrap();
    // Segments 0, 0, 0, 1, 1, 1, 2, 2 of eight positions, three of which are not there.
    let first: Vec<f64> = actual
        .keys
        .get(0)
        .unwrap()
        .flatten_all()
        .unwrap()
        .to_vec1()
        .unwrap();
    assert_eq!(first, [1.0, 7.0 / 3.0, 0.0]);
    assert!(actual.valid.is_none());
}

#[test]
fn gradients_agree_with_differences() {
    let valid = [[1.0; 5], [1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 5]];
    let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
    for segments in [Segments::OfValid, Segments::OfPositions(8)] {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 4,
            qkv_dim: 4,
            heads: 2,
            ..BlockOptions::default()
        };
        let mixer = layer(&block, &parameters, (3, 3, 3), segments);
        check_layer("nystromformer", &parameters, &[3, 5, 4], |x| {
            let pass = Pass::new(false, RngKey::new(1, 0, 0));
            // Outputs at padded positions are not compared.
            zero_padding(
                &mixer.forward(x, &pass.with_mask(Some(&mask)))?,
                Some(&mask),
            )
        });
    }
}
