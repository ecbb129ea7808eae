use candle_core::{Device, Tensor};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::check_gradient;

#[test]
fn the_kernels_meet_their_composed_forms() {
    let mut sampler = Sampler::new(1);
    // The last has more elements than one task.
    for shape in [vec![7], vec![3, 5], vec![2, 17, 31], vec![(1 << 14) + 77]] {
        let x = [sampler.normal(&shape, 2.0)];
        for (name, function) in FUSED {
            let f = |x: &[Tensor]| Ok(function(&x[0])?);
            agree(name, &x, f, f);
        }
    }
}

type Function = fn(&Tensor) -> Result<Tensor>;

const FUSED: [(&str, Function); 7] = [
    ("softplus", softplus),
    ("silu", silu),
    ("gelu", gelu),
    ("gelu_erf", gelu_erf),
    ("relu", |x| relu(x, 0.0)),
    ("relu, raised", |x| relu(x, 0.5)),
    ("elu_plus_one", elu_plus_one),
];

#[test]
fn what_is_not_a_number_stays_visible() {
    let x = Tensor::new(&[f32::NAN, 1.0], &Device::Cpu).unwrap();
    for (name, function) in FUSED {
        let y = function(&x).unwrap().to_vec1::<f32>().unwrap();
        assert!(y[0].is_nan(), "{name}");
    }
}

#[test]
fn gradients_agree_with_differences() {
    for (name, function) in [
        ("gelu", gelu as Function),
        ("gelu_erf", gelu_erf),
        ("elu_plus_one", elu_plus_one),
        ("relu", |x| relu(x, 0.25)),
        ("silu", |x| apply(Activation::Silu, x)),
        ("sigmoid", sigmoid),
        ("softplus", softplus),
        ("relu_squared", |x| apply(Activation::ReluSquared, x)),
    ] {
        check_gradient(name, &[&[3, 7]], |inputs| function(&inputs[0]));
    }
}

#[test]
fn values_are_those_of_the_definitions() {
    let points = [-30.0, -1.0, 0.0, 0.5, 30.0f64];
    let x = Tensor::new(&points, &Device::Cpu).unwrap();
    let near = |actual: Tensor, expected: [f64; 5]| {
        for (actual, expected) in actual.to_vec1::<f64>().unwrap().iter().zip(expected) {
            assert!((actual - expected).abs() < 1e-9, "{actual} {expected}");
        }
    };
    near(
        elu_plus_one(&x).unwrap(),
        points.map(|x| if x > 0.0 { x + 1.0 } else { x.exp() }),
    );
    near(
        apply(Activation::Silu, &x).unwrap(),
        points.map(|x| x / (1.0 + (-x).exp())),
    );
    near(
        softplus(&x).unwrap(),
        points.map(|x| if x > 20.0 { x } else { x.exp().ln_1p() }),
    );
    near(
        apply(Activation::ReluSquared, &x).unwrap(),
        [0.0, 0.0, 0.0, 0.25, 900.0],
    );
    // x Φ(x), with Φ(-1) and Φ(0.5) from a table of the normal distribution.
    near(
        gelu_erf(&x).unwrap(),
        [
            0.0,
            -0.158_655_253_931_457,
            0.0,
            0.345_731_230_637_008,
            30.0,
        ],
    );
    // 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    near(
        gelu(&x).unwrap(),
        [
            0.0,
            -0.158_808_009_391_722,
            0.0,
            0.345_714_008_833_034,
            30.0,
        ],
    );
}
