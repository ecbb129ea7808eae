use candle_core::{DType, Device, Tensor, Var};

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

const FUSED: [(&str, Function); 8] = [
    ("softplus", softplus),
    ("sigmoid", sigmoid),
    ("silu", silu),
    ("gelu", gelu),
    ("gelu_erf", gelu_erf),
    ("relu", |x| relu(x, 0.0)),
    ("relu, raised", |x| relu(x, 0.5)),
    ("elu_plus_one", elu_plus_one),
];

#[test]
fn what_is_not_a_number_stays_visible() {
    for (name, function) in FUSED {
        for dtype in [DType::F32, DType::F64] {
            let (y, _) = values_and_slopes(function, dtype, &[f64::NAN, 1.0]);
            assert!(y[0].is_nan() && y[1].is_finite(), "{name} {dtype:?}");
        }
    }
}

/// Returns f(x) and f'(x), computed in `dtype`: in f32 by the kernel, in f64 by the composed form.
fn values_and_slopes(function: Function, dtype: DType, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let x = Tensor::new(x, &Device::Cpu)
        .unwrap()
        .to_dtype(dtype)
        .unwrap();
    let x = Var::from_tensor(&x).unwrap();
    let y = function(&x).unwrap();
    let gradients = y.sum_all().unwrap().backward().unwrap();
    let numbers = |x: &Tensor| x.to_dtype(DType::F64).unwrap().to_vec1().unwrap();
    (numbers(&y), numbers(gradients.get(&x).unwrap()))
}

fn near(name: &str, actual: &[f64], expected: &[f64], tolerance: f64) {
    for (actual, expected) in actual.iter().zip(expected) {
        let error = (actual / expected - 1.0).abs();
        assert!(error < tolerance, "{name}: {actual:e} {expected:e}");
    }
}

#[test]
fn both_forms_have_one_slope_at_zero() {
    let slopes = [0.5, 0.25, 0.5, 0.5, 0.5, 0.0, 0.0, 1.0];
    for ((name, function), expected) in FUSED.into_iter().zip(slopes) {
        for dtype in [DType::F32, DType::F64] {
            let (_, slopes) = values_and_slopes(function, dtype, &[0.0, -0.0]);
            for slope in slopes {
                assert!((slope - expected).abs() < 1e-6, "{name} {dtype:?}: {slope}");
            }
        }
    }
}

#[test]
fn far_below_zero_the_digits_of_small_values_and_slopes_are_right() {
    let x = [-80.0, -50.0, -38.0, -20.0, -12.0, -7.0, -6.75, -1.0, 3.0];
    let small = x.map(f64::exp);
    let open = small.map(|small| small / (1.0 + small));
    for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::F64, 1e-12)] {
        let (values, slopes) = values_and_slopes(sigmoid, dtype, &x);
        near("sigmoid", &values, &open, tolerance);
        let expected = small.map(|small| small / (1.0 + small).powi(2));
        near("slope of sigmoid", &slopes, &expected, tolerance);
        let (values, slopes) = values_and_slopes(softplus, dtype, &x);
        near("softplus", &values, &small.map(f64::ln_1p), tolerance);
        near("slope of softplus", &slopes, &open, tolerance);
    }
    // Above zero, the slope is as small and has as many digits.
    let (_, slopes) = values_and_slopes(sigmoid, DType::F32, &x.map(|x| -x));
    let expected = small.map(|small| small / (1.0 + small).powi(2));
    near("slope of sigmoid", &slopes, &expected, 1e-6);
}

#[test]
fn elu_plus_one_is_infinite_at_infinity() {
    for dtype in [DType::F32, DType::F64] {
        let (values, _) =
            values_and_slopes(elu_plus_one, dtype, &[f64::INFINITY, f64::NEG_INFINITY]);
        assert_eq!(values, [f64::INFINITY, 0.0], "{dtype:?}");
    }
}

#[test]
fn gelu_has_slopes_where_squares_overflow() {
    for (dtype, large) in [(DType::F32, 1e30), (DType::F64, 1e200)] {
        let x = [large, 101.0, -101.0, -large];
        let (values, slopes) = values_and_slopes(gelu, dtype, &x);
        assert_eq!(slopes, [1.0, 1.0, 0.0, 0.0], "{dtype:?}");
        near("gelu", &values[..2], &x[..2], 1e-6);
        assert_eq!(values[2..], [0.0, 0.0], "{dtype:?}");
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
