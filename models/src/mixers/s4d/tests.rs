use candle_core::{DType, Device, Tensor, Var};
use serde_json::json;

use super::*;
use crate::{
    Mask, Parameters, RngKey,
    options::{BlockOptions, NormKind, overlay},
    testing::{close, normal},
};

const DIM: usize = 5;
const LENGTH: usize = 70;

/// ω, and the real and imaginary part of B up to their signs, by state-spaces/s4 e757cef,
/// `nplr("legs", 8)` of src/models/hippo/hippo.py with `B_clip` = 2.0 in torch 2.2.2; without the
/// clip the last imaginary part is 5.1540.
const LEGS_8: [[f64; 3]; 4] = [
    [0.4275, 0.6076, 0.5195],
    [1.9578, 0.2907, 1.1384],
    [5.3542, 0.1714, 1.8359],
    [19.8574, 0.1298, 2.0],
];

#[test]
fn legs_begins_with_the_published_b() {
    let near = |actual: f64, expected: f64| {
        assert!((actual - expected).abs() < 1e-3, "{actual} {expected}");
    };
    let (clipped, whole) = (legs(8, 1.0, Some(hippo::LARGEST_B)), legs(8, 1.0, None));
    let faster = legs(8, 3.0, None);
    for (m, [omega, re, im]) in LEGS_8.into_iter().enumerate() {
        near(clipped.a_imag[m], omega);
        near(faster.a_imag[m], 3.0 * omega);
        near(clipped.b[m][0].abs(), re);
        near(clipped.b[m][1].abs(), im);
        let modulus = if m == 3 { 5.1556 } else { re.hypot(im) };
        near(whole.b[m][0].hypot(whole.b[m][1]), modulus);
    }
    let most = legs(64, 1.0, Some(hippo::LARGEST_B)).b;
    let most = most.iter().map(|b| b[0].hypot(b[1])).fold(0.0, f64::max);
    assert!(most < 2.07, "{most}");
}

/// Returns the results of two blocks with bidirectional filters of two modes, in this type of
/// number, and their gradients by path and of x: of three sequences, two padded.
fn trained(compute: &str, norm: NormKind, train: bool, dtype: DType) -> Vec<(String, Tensor)> {
    let block = BlockOptions {
        dim: DIM,
        norm,
        ffn: crate::options::ChannelKind::None,
        dropout: 0.0,
        ..BlockOptions::default()
    };
    let mut own = MODEL.defaults();
    overlay(&mut own, &json!({ "compute": compute }));
    let parameters = Parameters::new(4, &Device::Cpu, dtype);
    let context = ModelContext::new(parameters.builder(), &block, &MODEL, &own, LENGTH);
    let encoder = MODEL.build(&context).unwrap();
    let row = |length: usize| (0..LENGTH).map(move |l| f64::from(u8::from(l < length)));
    let valid: Vec<f64> = [LENGTH, 41, 3].into_iter().flat_map(row).collect();
    let valid = Tensor::from_vec(valid, (3, LENGTH), &Device::Cpu).unwrap();
    let valid = valid.to_dtype(dtype).unwrap();
    let mask = Mask::new(&valid).unwrap();
    let narrow = |name: &str| {
        let x = normal(name, &[3, LENGTH, DIM]);
        x.to_dtype(dtype).unwrap()
    };
    let x = Var::from_tensor(&narrow("x")).unwrap();
    let pass = Pass::new(train, RngKey::new(1, 0, 0));
    let y = encoder.forward(&x, &pass.with_mask(Some(&mask))).unwrap();
    let y = zero_padding(&y.hidden, Some(&mask)).unwrap();
    let loss = (&y * narrow("weights")).unwrap().sum_all().unwrap();
    let gradients = loss.backward().unwrap();
    let all = parameters.all().into_iter().chain([("x".to_owned(), x)]);
    let all = all.map(|(path, var)| (path, gradients.get(&var).unwrap().clone()));
    [("y".to_owned(), y)].into_iter().chain(all).collect()
}

/// A walk and a convolution are two ways to compute the same map, also where a norm counts padded
/// positions.
#[test]
fn scan_equals_fft_under_every_norm() {
    let norms = [
        NormKind::Layer,
        NormKind::Rms,
        NormKind::Scale,
        NormKind::Ada,
        NormKind::Power,
        NormKind::Batch,
        NormKind::BatchMasked,
        NormKind::None,
    ];
    for (dtype, tolerance) in [(DType::F32, 2e-4), (DType::F64, 1e-9)] {
        for (norm, train) in norms.into_iter().flat_map(|n| [(n, true), (n, false)]) {
            let scan = trained("scan", norm, train, dtype);
            let fft = trained("fft", norm, train, dtype);
            for ((path, actual), (_, expected)) in scan.iter().zip(&fft) {
                let wide = |x: &Tensor| x.to_dtype(DType::F64).unwrap();
                let (actual, expected) = (wide(actual), wide(expected));
                let largest = expected.abs().unwrap().max_all().unwrap();
                let scale = largest.to_scalar::<f64>().unwrap().max(1.0);
                let place = format!("{norm:?}, {train}, {dtype:?}: {path}");
                close(&actual, &expected, tolerance * scale, &place);
            }
        }
    }
}
