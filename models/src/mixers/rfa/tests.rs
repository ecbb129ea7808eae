use candle_core::DType;

use super::*;
use crate::{
    Mask, Parameters,
    mask::zero_padding,
    options::BlockOptions,
    testing::{DenseReference, check_layer, normal, parameters},
};

fn mixer(parameters: &Parameters, heads: usize, options: &Options) -> Rfa {
    let block = BlockOptions {
        dim: 4,
        qkv_dim: 3 * heads,
        heads,
        ..BlockOptions::default()
    };
    let layer = LayerContext::new(parameters.builder(), &block, 6);
    Rfa::new(&layer, options).unwrap()
}

fn pass(step: u64) -> Pass<'static> {
    Pass::new(false, RngKey::new(1, step, 0))
}

/// Returns exp(-|q̂ - k̂|² / 2) with x̂ = x / (|x| + 0.001).
fn gaussian(q: &[f64], k: &[f64]) -> f64 {
    let unit = |x: &[f64]| -> Vec<f64> {
        let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt() + 1e-3;
        x.iter().map(|x| x / norm).collect()
    };
    let pairs = unit(q).into_iter().zip(unit(k));
    (-pairs.map(|(q, k)| (q - k).powi(2)).sum::<f64>() / 2.0).exp()
}

/// Returns the root of the mean squared difference from attention with the Gaussian kernel, over
/// outputs and over gradients.
fn errors(count: usize) -> (f64, f64) {
    let twin = DenseReference::new(gaussian, 1.0);
    let options = Options {
        features: count,
        ..Options::default()
    };
    let mixer = mixer(&parameters(), 2, &options);
    let (mut output, mut gradient) = (0.0, 0.0);
    for step in 0..16 {
        let apart = twin.compare(|q, k, v, mask| {
            let pass = pass(step);
            mixer.attend([q, k, v].map(Tensor::clone), q, &pass.with_mask(mask))
        });
        output += apart.output.powi(2);
        gradient += apart.gradient.powi(2);
    }
    let root = |sum: f64| (sum / 16.0).sqrt();
    (root(output), root(gradient))
}

#[test]
fn outputs_and_gradients_approach_attention_with_the_gaussian_kernel() {
    let (few, many) = (errors(64), errors(4096));
    // Errors fall as one over the root of the features: 64 times as many, an eighth of the error.
    for (few, many) in [(few.0, many.0), (few.1, many.1)] {
        assert!((5.0..13.0).contains(&(few / many)), "{few} {many}");
    }
    assert!(many.0 < 0.05, "{many:?}");
}

#[test]
fn features_are_redrawn_every_so_many_steps() {
    let drawn = |redraw: u64, step: u64| -> Vec<f64> {
        let options = Options {
            redraw,
            ..Options::default()
        };
        let mixer = mixer(&parameters(), 2, &options);
        let x = normal("x", &[1, 2, 4]);
        let w = mixer.features.directions(&pass(step), &x).unwrap();
        assert_eq!(w.dims(), [2, 64, 3]);
        w.flatten_all().unwrap().to_vec1().unwrap()
    };
    assert_eq!(drawn(0, 0), drawn(0, 1000));
    assert_eq!(drawn(10, 10), drawn(10, 19));
    assert_ne!(drawn(10, 9), drawn(10, 10));
    assert_ne!(drawn(1, 1), drawn(1, 2));
}

#[test]
fn gradients_agree_with_differences() {
    let valid = [[1.0; 5], [1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 5]];
    let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
    for (kernel, gate, heads) in [
        (Kernel::Gaussian, Gate::None, 2),
        (Kernel::Arccos, Gate::None, 2),
        (Kernel::Gaussian, Gate::Both, 3),
        (Kernel::Arccos, Gate::Both, 1),
    ] {
        let parameters = parameters();
        let options = Options {
            features: 16,
            kernel,
            gate,
            ..Options::default()
        };
        let mixer = mixer(&parameters, heads, &options);
        let x = normal("x", &[3, 5, 4]);
        assert_eq!(x.dtype(), DType::F64);
        check_layer("rfa", &parameters, &[3, 5, 4], |x| {
            // Outputs at padded positions are not compared.
            let y = mixer.forward(x, &pass(0).with_mask(Some(&mask)))?;
            zero_padding(&y, Some(&mask))
        });
    }
}
