use candle_core::{DType, Device};
use serde_json::json;

use super::*;
use crate::{
    Mask, Parameters, RngKey,
    testing::{check_layer, close, normal, parameters},
};

fn encoder(
    parameters: &Parameters,
    block: &BlockOptions,
    options: serde_json::Value,
    longest: usize,
) -> Box<dyn Encoder> {
    let mut all = MODEL.defaults();
    crate::options::overlay(&mut all, &options);
    let context = ModelContext::new(parameters.builder(), block, &MODEL, &all, longest);
    MODEL.build(&context).unwrap()
}

fn block(dim: usize, mlp_dim: usize) -> BlockOptions {
    BlockOptions {
        layers: 1,
        dim,
        mlp_dim,
        activation: crate::options::Activation::Silu,
        ..BlockOptions::default()
    }
}

fn pass() -> Pass<'static> {
    Pass::new(false, RngKey::new(1, 0, 0))
}

fn mask() -> Mask {
    let valid = [[1.0; 5], [1.0, 1.0, 1.0, 0.0, 0.0]];
    Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
}

#[test]
fn the_average_is_a_convolution_with_its_kernels() {
    let (length, dim, modes) = (9, 2, 3);
    for (taps, padded, counted) in [
        (None, 0, false),
        (Some(1), 0, false),
        (Some(4), 0, false),
        (Some(9), 0, false),
        (None, 3, true),
        (Some(4), 3, true),
        (Some(4), 3, false),
    ] {
        let valid = |t: usize| if t < length - padded { 1.0 } else { 0.0 };
        let mask: Vec<f64> = (0..length).map(valid).collect();
        let mask = Mask::new(&Tensor::new(vec![mask], &Device::Cpu).unwrap()).unwrap();
        let parameters = parameters();
        let average = MovingAverage::new(&parameters.builder(), dim, modes, taps).unwrap();
        let x = normal("x", &[1, length, dim]);
        let rows: Vec<Vec<f64>> = x.get(0).unwrap().to_vec2().unwrap();
        let numbers = |x: &Tensor| x.to_vec2::<f64>().unwrap();
        let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
        let [delta, alpha, beta, gamma] = [
            &average.delta,
            &average.alpha,
            &average.beta,
            &average.gamma,
        ]
        .map(numbers);
        let omega = average.omega.to_vec1::<f64>().unwrap();
        let tap = |d: usize, lag: usize| -> f64 {
            let term = |n: usize| {
                let p = logistic(delta[d][n]);
                let q = 1.0 - p * logistic(alpha[d][n]);
                p * beta[d][n] * gamma[d][n] * q.powi(lag as i32)
            };
            match lag < taps.unwrap_or(length) {
                true => (0..modes).map(term).sum::<f64>() / (modes as f64).sqrt(),
                false => 0.0,
            }
        };
        let mut expected = vec![vec![0.0; dim]; length];
        for (t, d) in (0..length).flat_map(|t| (0..dim).map(move |d| (t, d))) {
            // Padding is zeros to other positions, and to its own unless a norm counts it.
            let before = (0..=t).map(|s| tap(d, t - s) * valid(s) * rows[s][d]);
            let after = (t..length).map(|s| tap(dim + d, s - t) * valid(s) * rows[s][d]);
            let own = if counted { 1.0 } else { valid(t) };
            let sum = before.chain(after).sum::<f64>() + omega[d] * own * rows[t][d];
            expected[t][d] = sum * logistic(sum);
        }
        let expected = Tensor::new(vec![expected], &Device::Cpu).unwrap();
        let mask = (padded > 0).then_some(&mask);
        let actual = average.forward(&x, mask, counted).unwrap();
        close(&actual, &expected, 1e-10, &format!("{taps:?} taps"));
    }
}

#[test]
fn the_average_knows_whether_the_norm_counts_padding() {
    for (norm, counted) in [
        (NormKind::Batch, true),
        (NormKind::BatchMasked, false),
        (NormKind::Layer, false),
    ] {
        let (parameters, block) = (
            parameters(),
            BlockOptions {
                norm,
                ..block(3, 4)
            },
        );
        let vb = parameters.builder();
        let layer = GatedAttention::new(&vb, &block, &Options::default(), 6).unwrap();
        assert_eq!(layer.counted, counted, "{norm:?}");
    }
}

#[test]
fn chunks_do_not_see_each_other() {
    for weighing in [Weighing::Softmax, Weighing::Laplace, Weighing::Relu2] {
        let parameters = parameters();
        let vb = parameters.builder();
        let chunked = SharedAttention::new(&vb, 3, 3, weighing, 0.0).unwrap();
        let (z, v) = (normal("z", &[2, 7, 3]), normal("v", &[2, 7, 5]));
        let part = |x: &Tensor, start, count| {
            let x = x.narrow(1, start, count).unwrap();
            x.contiguous().unwrap()
        };
        let y = chunked.forward(&z, &v, &pass()).unwrap();
        for (start, count) in [(0, 3), (3, 3), (6, 1)] {
            let (z, v) = (part(&z, start, count), part(&v, start, count));
            let alone = chunked.forward(&z, &v, &pass()).unwrap();
            close(&part(&y, start, count), &alone, 1e-12, "chunk");
        }
    }
}

#[test]
fn gradients_agree_with_differences() {
    let mask = mask();
    for (attention, chunk, norm_place) in [
        ("softmax", 0, NormPlace::Post),
        ("softmax", 2, NormPlace::Pre),
        ("laplace", 2, NormPlace::Post),
        ("relu2", 0, NormPlace::Pre),
    ] {
        let parameters = parameters();
        let block = BlockOptions {
            norm_place,
            dropout: 0.2,
            ..block(3, 4)
        };
        let options = json!({"attention": attention, "chunk": chunk, "modes": 2, "taps": 3, "hidden_dropout": 0.2});
        let encoder = encoder(&parameters, &block, options, 6);
        let pass = Pass::new(true, RngKey::new(1, 0, 0));
        check_layer(attention, &parameters, &[2, 5, 3], |x| {
            Ok(encoder.forward(x, &pass.with_mask(Some(&mask)))?.hidden)
        });
    }
}

/// Published: ListOps .58, Text .93, Retrieval 1.4, Image 2.8, Pathfinder 1.4 and Path-X .25
/// million with embedding and head, which are counted here by their published shapes: ids by D (D
/// and D for a pixel), D to v with biases, v to classes without. In chunks of 128.
#[test]
fn weights_are_as_many_as_in_the_published_configurations() {
    for (layers, dim, values, shared, tokens, classes, norm_place, expected) in [
        (6, 80, 160, 64, 20, 10, NormPlace::Post, 0.58),
        (4, 128, 256, 64, 260, 2, NormPlace::Post, 0.93),
        (6, 128, 256, 64, 102, 2, NormPlace::Post, 1.4),
        (8, 160, 320, 96, 2, 10, NormPlace::Pre, 2.8),
        (6, 128, 256, 64, 2, 2, NormPlace::Pre, 1.4),
        (4, 64, 128, 32, 2, 2, NormPlace::Pre, 0.25),
    ] {
        let parameters = Parameters::meta(&Device::Cpu, DType::F32);
        let block = BlockOptions {
            layers,
            norm_place,
            ..block(dim, values)
        };
        let options = json!({"shared": shared, "chunk": 128});
        encoder(&parameters, &block, options, 4096);
        let average = 2 * dim * 16 * 4 + dim;
        let gates = (dim + 1) * (2 * dim + shared + values);
        let others = (dim + 1) * values + (values + 1) * dim + 4 * shared + 2 * 128 - 1;
        let feed = 2 * dim * values + values + dim;
        let last = usize::from(norm_place == NormPlace::Pre);
        let norms = 2 * dim * (2 * layers + last);
        let own = layers * (average + gates + others + feed) + norms;
        assert_eq!(parameters.elements(), own, "{expected}");
        let around = tokens * dim + (dim + 1) * values + values * classes;
        let millions = (own + around) as f64 / 1e6;
        let share = millions / expected;
        assert!((share - 1.0).abs() < 0.04, "{millions} {expected}");
    }
}
