//! Tests of the Synthesizer.

use candle_core::{DType, Device};

use super::{scores::factors, *};
use crate::{
    Parameters, RngKey,
    options::BlockOptions,
    reference,
    testing::{check_layer, close, normal, parameters},
};

const LENGTH: usize = 4;

fn block() -> BlockOptions {
    BlockOptions {
        dim: 3,
        qkv_dim: 4,
        heads: 2,
        ..BlockOptions::default()
    }
}

fn mixer(parameters: &Parameters, options: &Options) -> Synthesizer {
    let block = block();
    let layer = LayerContext::new(parameters.builder(), &block, LENGTH + 1);
    Synthesizer::new(&layer, options, &PAPER).unwrap()
}

fn pass() -> Pass<'static> {
    Pass::new(false, RngKey::new(1, 0, 0))
}

#[test]
fn gradients_agree_with_differences_for_every_kind_of_score() {
    for scores in [
        Scores::Random,
        Scores::FixedRandom,
        Scores::FactorisedRandom,
        Scores::Dense,
        Scores::FactorisedDense,
    ] {
        for dot_product in [false, true] {
            let options = Options {
                scores,
                dot_product,
                ..Options::default()
            };
            let parameters = parameters();
            let mixer = mixer(&parameters, &options);
            check_layer("synthesizer", &parameters, &[2, LENGTH, 3], |x| {
                mixer.forward(x, &pass())
            });
        }
    }
}

#[test]
fn a_mixture_that_is_all_dot_product_is_softmax_attention() {
    let parameters = parameters();
    let mixer = mixer(&parameters, &Options::default());
    let all = parameters.all();
    let (_, mixture) = all.iter().find(|(path, _)| path == "mixture").unwrap();
    let only_dot = Tensor::new(&[40.0, -40.0f64], &Device::Cpu).unwrap();
    mixture.set(&only_dot).unwrap();
    let x = normal("x", &[2, LENGTH, 3]);
    let dot = mixer.dot_product.as_ref().unwrap();
    let split = |linear: &Linear| {
        let y = linear.forward(&x).unwrap();
        y.reshape((2, LENGTH, 2, 2)).unwrap()
    };
    let (q, k, v) = (split(&dot.query), split(&dot.key), split(&mixer.value));
    let expected = reference::attention(&q, &k, &v, None, reference::softmax).unwrap();
    let expected = mixer
        .output
        .forward(&expected.flatten_from(2).unwrap())
        .unwrap();
    let actual = mixer.forward(&x, &pass()).unwrap();
    close(&actual, &expected, 1e-12, "only dot product");
}

#[test]
fn two_factors_cover_every_length() {
    for longest in 1..200 {
        let (slow, fast) = factors(longest);
        assert!(slow * fast >= longest && slow <= fast);
    }
    let parameters = Parameters::new(0, &Device::Cpu, DType::F32);
    let options = Options {
        scores: Scores::FactorisedDense,
        ..Options::default()
    };
    let mixer = mixer(&parameters, &options);
    for length in 1..=LENGTH + 1 {
        let x = Tensor::zeros((1, length, 3), DType::F32, &Device::Cpu).unwrap();
        let Synthesised::ByQuery(scores) = mixer.scores.forward(&x, &pass()).unwrap() else {
            panic!("scores of queries")
        };
        assert_eq!(scores.dims()[2..], [length, length]);
    }
}
