//! Tests of the Lite Transformer.

use candle_core::{DType, Device, Var};

use super::*;
use crate::{
    Mask, Parameters, RngKey,
    testing::{check_layer, close, normal, parameters},
};

fn mixer(parameters: &Parameters, conv: Conv, kernel: usize) -> Lite {
    let block = BlockOptions {
        dim: 8,
        qkv_dim: 8,
        heads: 2,
        attention_dropout: 0.3,
        ..BlockOptions::default()
    };
    let layer = LayerContext::new(parameters.builder(), &block, 5);
    let options = Options {
        conv,
        kernel,
        groups: 2,
    };
    Lite::new(&layer, &options).unwrap()
}

fn pass() -> Pass<'static> {
    Pass::new(false, RngKey::new(1, 0, 0))
}

/// Returns every kernel's weights, (L, G, w), of a sequence.
fn weights(mixer: &Lite, g: &Tensor) -> Vec<Vec<Vec<f64>>> {
    let length = g.dim(1).unwrap();
    let scores = match &mixer.kernel {
        Kernel::Light(scores, ..) => scores.unsqueeze(0).unwrap().repeat((length, 1, 1)),
        Kernel::Dynamic(linear, _) => {
            let scores = linear.forward(&g.get(0).unwrap()).unwrap();
            scores.reshape((length, mixer.groups, mixer.taps))
        }
    };
    let weights = softmax::masked(&scores.unwrap(), None).unwrap();
    weights.to_vec3().unwrap()
}

#[test]
fn kernels_are_softmaxes_over_taps() {
    for (conv, taps) in [Conv::Light, Conv::Dynamic]
        .into_iter()
        .flat_map(|conv| [1, 2, 3, 5, 8, 31].map(|taps| (conv, taps)))
    {
        let mixer = mixer(&parameters(), conv, taps);
        let g = normal("g", &[1, 6, 4]);
        let actual = mixer.convolve(&g, &pass()).unwrap().get(0).unwrap();
        let actual: Vec<Vec<f64>> = actual.to_vec2().unwrap();
        let weights = weights(&mixer, &g);
        let g: Vec<Vec<f64>> = g.get(0).unwrap().to_vec2().unwrap();
        for (i, row) in actual.iter().enumerate() {
            for (channel, actual) in row.iter().enumerate() {
                let taps = weights[i][channel / 2].iter().enumerate();
                let near = |tap: usize| g.get((i + tap).wrapping_sub((mixer.taps - 1) / 2));
                let sum: f64 = taps
                    .map(|(tap, weight)| weight * near(tap).map_or(0.0, |g| g[channel]))
                    .sum();
                assert!(
                    (actual - sum).abs() < 1e-12,
                    "{taps}: {actual} {sum}",
                    taps = mixer.taps
                );
            }
        }
    }
}

#[test]
fn kernels_grow_with_the_layer_up_to_the_fourth() {
    let (parameters, block) = (parameters(), BlockOptions::default());
    for (index, taps) in [3, 7, 15, 31, 31, 31].into_iter().enumerate() {
        let layer = LayerContext {
            index,
            ..LayerContext::new(parameters.builder().pp(index), &block, 5)
        };
        let mixer = Lite::new(&layer, &Options::default()).unwrap();
        assert_eq!(mixer.taps, taps, "{index}");
    }
}

/// All weight on the middle tap: the convolution leaves things as they are.
#[test]
fn a_kernel_of_one_tap_is_the_identity() {
    let g = normal("g", &[2, 5, 4]);
    for conv in [Conv::Light, Conv::Dynamic] {
        let mixer = mixer(&parameters(), conv, 1);
        close(&mixer.convolve(&g, &pass()).unwrap(), &g, 1e-14, "one tap");
    }
    let mut mixer = mixer(&parameters(), Conv::Light, 3);
    let peak = Tensor::new(&[[0.0, 99.0, 0.0], [0.0, 99.0, 0.0]], &Device::Cpu).unwrap();
    mixer.kernel = Kernel::Light(peak, StreamKey::new("drop"), 0.0);
    close(&mixer.convolve(&g, &pass()).unwrap(), &g, 1e-12, "peak");
}

#[test]
fn the_kernel_and_the_composed_form_agree_in_training() {
    let g = normal("g", &[2, 70, 4]);
    for (conv, taps) in [(Conv::Light, 7), (Conv::Dynamic, 7), (Conv::Dynamic, 4)] {
        let actual = [DType::F32, DType::F64].map(|dtype| {
            let parameters = Parameters::new(3, &Device::Cpu, dtype);
            let mixer = mixer(&parameters, conv, taps);
            let g = Var::from_tensor(&g.to_dtype(dtype).unwrap()).unwrap();
            let pass = Pass::new(true, RngKey::new(1, 0, 0));
            let y = mixer.convolve(&g, &pass).unwrap();
            let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            let gradient = gradients.get(&g).unwrap();
            [y.detach(), gradient.clone()].map(|x| x.to_dtype(DType::F64).unwrap())
        });
        let [[y, gradient], [expected, wanted_gradient]] = &actual;
        close(y, expected, 1e-5, "training");
        close(gradient, wanted_gradient, 1e-4, "gradients in training");
    }
}

#[test]
fn gradients_agree_with_differences() {
    let valid = [[1.0; 5], [1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 5]];
    let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
    for (conv, kernel) in [(Conv::Light, 3), (Conv::Dynamic, 3), (Conv::Dynamic, 4)] {
        let parameters = parameters();
        let mixer = mixer(&parameters, conv, kernel);
        check_layer("lite", &parameters, &[3, 5, 8], |x| {
            mixer.forward(x, &pass().with_mask(Some(&mask)))
        });
    }
}
