//! Products of rounded factors. In a file of its own, since the switch is one for the whole
//! process.

#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use candle_core::{DType, Device, Tensor};
use lra_models::{
    Classifier, Inputs, MODELS, Model, Options, Parameters, Pass, RngKey, Shape, Tokens, loss,
    ops::{
        exact_matmul,
        linear_attention::{self, FeatureMap},
        matmul, round_to_bfloat16,
    },
};

/// Returns the mean loss of a batch, and the largest gradient of every parameter. In f64 every
/// layer is composed, in f32 there are kernels.
fn step(model: &Model, dtype: DType) -> (f64, Vec<(String, f64)>) {
    let shape = Shape {
        vocabulary: 11,
        classes: 5,
        towers: 1,
        max_length: 40,
        padding: true,
        grid: None,
    };
    let mut options = Options::of(model);
    options.block.dim = 16;
    options.block.qkv_dim = 16;
    options.block.mlp_dim = 24;
    options.head.hidden = 12;
    let parameters = Parameters::new(3, &Device::Cpu, dtype);
    let classifier = Classifier::new(model, &shape, &options, &parameters).unwrap();
    let ids: Vec<u32> = (0..80).map(|i| 1 + (i * i * 3 + i) % 10).collect();
    let inputs = Inputs {
        towers: vec![Tokens {
            ids: Tensor::from_vec(ids, (2, 40), &Device::Cpu).unwrap(),
            mask: None,
        }],
    };
    let pass = Pass::new(true, RngKey::new(3, 0, 0));
    let aux = loss::AuxLosses::default();
    let logits = classifier.forward(&inputs, &pass.with_losses(&aux));
    let logits = logits.unwrap();
    assert_eq!(logits.dtype(), dtype, "{}", model.name);
    let labels = Tensor::new(&[1u32, 4], &Device::Cpu).unwrap();
    let loss = loss::cross_entropy(&logits, &labels).unwrap();
    let mut whole = loss.clone();
    for (_, mean) in aux.means().unwrap() {
        whole = (whole + mean).unwrap();
    }
    let gradients = whole.backward().unwrap();
    let largest = parameters.all().into_iter().map(|(path, parameter)| {
        let gradient = gradients.get(&parameter).unwrap();
        let largest = gradient.abs().unwrap().max_all().unwrap();
        (path, number(&largest))
    });
    (number(&loss), largest.collect())
}

fn number(x: &Tensor) -> f64 {
    x.to_dtype(DType::F64).unwrap().to_scalar().unwrap()
}

/// The switch is held by one test at a time.
static SWITCH: Mutex<()> = Mutex::new(());

/// Covers the multiplications of a user's own model.
#[test]
fn products_of_own_models_are_rounded_unless_they_ask_for_exact_ones() {
    let held = SWITCH.lock();
    let x = Tensor::new(&[[1.0f32 / 3.0, 0.7], [1.1, -0.3]], &Device::Cpu).unwrap();
    let products = |rounded: bool| {
        round_to_bfloat16(rounded);
        [matmul(&x, &x), exact_matmul(&x, &x)].map(|y| {
            let y = y.unwrap().flatten_all().unwrap();
            y.to_vec1::<f32>().unwrap()
        })
    };
    let ([exact, also], [rounded, kept]) = (products(false), products(true));
    round_to_bfloat16(false);
    assert_eq!((&also, &kept), (&exact, &exact));
    for (rounded, exact) in rounded.iter().zip(&exact) {
        assert!(rounded != exact && (rounded - exact).abs() < 0.01 * (1.0 + exact.abs()));
    }
    drop(held);
}

/// The keys are 1 and 1/3, and the latter is no bfloat16 number.
#[test]
fn linear_attention_rounds_the_features_of_sums_but_not_those_of_divisors() {
    let _held = SWITCH.lock();
    for dtype in [DType::F64, DType::F32] {
        let x = |numbers: &[f64]| {
            let x = Tensor::new(numbers, &Device::Cpu).unwrap();
            let x = x.reshape((1, numbers.len(), 1, 1)).unwrap();
            x.to_dtype(dtype).unwrap()
        };
        let (query, keys) = (x(&[1.0]), x(&[1.0, 1.0 / 3.0]));
        let attend = |values: &[f64]| {
            round_to_bfloat16(true);
            let map = FeatureMap::Given;
            let y = linear_attention::attend(&query, &keys, &x(values), map, 0.0, None);
            round_to_bfloat16(false);
            number(&y.unwrap().sum_all().unwrap())
        };
        let [first, second] = [attend(&[1.0, 0.0]), attend(&[0.0, 1.0])];
        assert!((first - 0.75).abs() < 1e-6, "{dtype:?}: {first}");
        assert!((second - 0.25).abs() > 1e-4, "{dtype:?}: {second}");
    }
}

#[test]
fn rounded_products_change_little_and_pass_every_gradient() {
    let _held = SWITCH.lock();
    for (model, dtype) in MODELS
        .iter()
        .flat_map(|model| [(model, DType::F64), (model, DType::F32)])
    {
        round_to_bfloat16(false);
        let (exact, gradients) = step(model, dtype);
        round_to_bfloat16(true);
        let (rounded, rounded_gradients) = step(model, dtype);
        let name = model.name;
        assert_ne!(exact, rounded, "{name} does not round in {dtype:?}");
        assert!(
            (exact - rounded).abs() < 0.02 * exact,
            "{name}: a loss of {rounded} instead of {exact} in {dtype:?}"
        );
        // In f32, numbers that should cancel leave a rest.
        let least = if dtype == DType::F64 { 1e-12 } else { 1e-5 };
        for ((path, exact), (_, rounded)) in gradients.into_iter().zip(rounded_gradients) {
            assert!(
                exact <= least || rounded > 1e-12,
                "{name}: {path} has a gradient of {rounded} instead of {exact} in {dtype:?}"
            );
            assert!(
                dtype == DType::F32 || exact > 1e-12 || rounded <= 1e-12,
                "{name}: {path} has a gradient of {rounded} instead of none"
            );
        }
    }
}
