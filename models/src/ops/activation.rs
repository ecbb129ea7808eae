//! Elementwise non-linearities.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    Result,
    kernels::{self, activate},
};

/// The feed-forward's non-linearity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// GELU in its tanh approximation (JAX's default, and the 2021 code's).
    Gelu,
    /// GELU by the error function (PyTorch's default).
    GeluErf,
    /// max(x, 0).
    Relu,
    /// x / (1 + exp(-x)), also called Swish.
    Silu,
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// max(x, 0)².
    ReluSquared,
    /// x.
    Identity,
}

impl Activation {
    /// The same in fused operations, where they have it.
    pub(crate) fn fused(self) -> Option<kernels::Activation> {
        match self {
            Self::Gelu => Some(kernels::Activation::GeluTanh),
            Self::GeluErf => Some(kernels::Activation::GeluErf),
            Self::Relu => Some(kernels::Activation::Relu { floor: 0.0 }),
            Self::Silu => Some(kernels::Activation::Silu),
            Self::Sigmoid | Self::ReluSquared | Self::Identity => None,
        }
    }
}

/// Applies `activation`.
///
/// # Errors
/// If a tensor operation fails.
pub fn apply(activation: Activation, x: &Tensor) -> Result<Tensor> {
    match activation {
        Activation::Gelu => gelu(x),
        Activation::GeluErf => gelu_erf(x),
        Activation::Relu => relu(x, 0.0),
        Activation::Silu => silu(x),
        Activation::Sigmoid => sigmoid(x),
        Activation::ReluSquared => Ok(relu(x, 0.0)?.sqr()?),
        Activation::Identity => Ok(x.clone()),
    }
}

/// `1 / (1 + exp(-x))`, as `(1 + tanh(x / 2)) / 2`, which overflows nowhere.
///
/// # Errors
/// If a tensor operation fails.
pub fn sigmoid(x: &Tensor) -> Result<Tensor> {
    Ok(x.affine(0.5, 0.0)?.tanh()?.affine(0.5, 0.5)?)
}

/// `x / (1 + exp(-x))`, also called Swish.
///
/// # Errors
/// If a tensor operation fails.
pub fn silu(x: &Tensor) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(activate(x, kernels::Activation::Silu)?);
    }
    Ok((x * sigmoid(x)?)?)
}

/// `ln(1 + exp(x))`, which is positive everywhere.
///
/// # Errors
/// If a tensor operation fails.
pub fn softplus(x: &Tensor) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(activate(x, kernels::Activation::Softplus)?);
    }
    let small = x.abs()?.neg()?.exp()?;
    Ok((x.relu()? + small.affine(1.0, 1.0)?.log()?)?)
}

/// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))`, the tanh form of GELU. Hendrycks & Gimpel, 2016, arXiv:1606.08415.
///
/// candle's own `gelu` rounds the constants of its gradient to six digits.
///
/// # Errors
/// If a tensor operation fails.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(activate(x, kernels::Activation::GeluTanh)?);
    }
    let slope = (2.0 / std::f64::consts::PI).sqrt();
    let inner = (x.sqr()?.affine(0.044_715 * slope, slope)? * x)?;
    Ok((inner.tanh()?.affine(0.5, 0.5)? * x)?)
}

/// `x/2 (1 + erf(x / sqrt 2))`, the exact GELU.
///
/// # Errors
/// If a tensor operation fails.
pub fn gelu_erf(x: &Tensor) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(activate(x, kernels::Activation::GeluErf)?);
    }
    let inner = x.affine(std::f64::consts::FRAC_1_SQRT_2, 0.0)?;
    Ok((inner.erf()?.affine(0.5, 0.5)? * x)?)
}

/// `max(x, 0) + floor`.
///
/// # Errors
/// If a tensor operation fails.
pub fn relu(x: &Tensor, floor: f32) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(activate(x, kernels::Activation::Relu { floor })?);
    }
    Ok(x.relu()?.affine(1.0, f64::from(floor))?)
}

/// `elu(x) + 1`: `x + 1` above zero, `exp(x)` below. Positive everywhere.
///
/// Composed as `max(x, 0) + exp(min(x, 0))`: each part runs in parallel, which candle's `elu` does not.
///
/// # Errors
/// If a tensor operation fails.
pub fn elu_plus_one(x: &Tensor) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(activate(x, kernels::Activation::EluPlusOne)?);
    }
    let positive = x.relu()?;
    let negative = (x - &positive)?;
    Ok((positive + negative.exp()?)?)
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::*;
    use crate::kernels::reference::{Sampler, agree};
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
        let near = |found: Tensor, wanted: [f64; 5]| {
            for (found, wanted) in found.to_vec1::<f64>().unwrap().iter().zip(wanted) {
                assert!((found - wanted).abs() < 1e-9, "{found} {wanted}");
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
}
