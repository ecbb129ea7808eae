//! Initial values. Of candle's initialisers, `Const`, `Uniform` and `Randn` mean what they say.
//! `Kaiming` with `Normal` means LeCun's truncated normal (gain² / fan variance, cut at two
//! standard deviations, widened so that the variance is right after the cut), and with `Uniform`
//! the uniform distribution of the same variance.

use std::f64::consts::LN_10;

use candle_core::Shape;
use candle_nn::{
    Init,
    init::{FanInOut, NonLinearity, NormalOrUniform},
};

use crate::rng::Stream;

/// Returns the initial values of a parameter at `path`.
pub(super) fn values(seed: u64, path: &str, shape: &Shape, init: Init) -> Vec<f64> {
    let count = shape.elem_count();
    let stream = Stream::of_parameter(seed, path);
    let scaled = |values: Vec<f64>, scale: f64, shift: f64| -> Vec<f64> {
        values.into_iter().map(|x| x * scale + shift).collect()
    };
    match init {
        Init::Const(value) => vec![value; count],
        Init::Uniform { lo, up } => scaled(stream.uniform(1, count), up - lo, lo),
        Init::Randn { mean, stdev } => scaled(stream.normal(1, count), stdev, mean),
        Init::Kaiming {
            dist,
            fan,
            non_linearity,
        } => {
            let deviation = non_linearity.gain() / (fan.for_shape(shape) as f64).sqrt();
            match dist {
                NormalOrUniform::Normal => {
                    scaled(stream.truncated_normal(1, count), deviation, 0.0)
                }
                NormalOrUniform::Uniform => {
                    let bound = 3f64.sqrt() * deviation;
                    scaled(stream.uniform(1, count), 2.0 * bound, -bound)
                }
            }
        }
    }
}

/// Returns `rows` orthonormal vectors of `width` numbers, one after the other. `rows` is at most
/// `width`. Normal numbers are made orthogonal row by row, so that no direction is preferred.
#[must_use]
pub(crate) fn orthonormal(stream: &Stream, rows: usize, width: usize) -> Vec<f64> {
    let mut values = stream.normal(1, rows * width);
    for row in 0..rows {
        let (before, rest) = values.split_at_mut(row * width);
        let own = &mut rest[..width];
        for other in before.chunks(width) {
            let product: f64 = own.iter().zip(other).map(|(a, b)| a * b).sum();
            own.iter_mut()
                .zip(other)
                .for_each(|(a, b)| *a -= product * b);
        }
        let length = own.iter().map(|x| x * x).sum::<f64>().sqrt();
        own.iter_mut().for_each(|x| *x /= length);
    }
    values
}

/// Returns the initialiser that is uniform from -`fan_in`^-½ to `fan_in`^-½, as that of PyTorch's
/// linear layers and convolutions. `fan_in` is the number of inputs of an output.
#[must_use]
pub(crate) fn fan_in_uniform(fan_in: usize) -> Init {
    uniform_within((fan_in as f64).powf(-0.5))
}

/// Returns the uniform initialiser from `-bound` to `bound`.
#[must_use]
pub(crate) fn uniform_within(bound: f64) -> Init {
    Init::Uniform {
        lo: -bound,
        up: bound,
    }
}

/// Returns `count` numbers whose softplus is between 0.001 and 0.1, even in the logarithm: biases
/// of the steps of selective state spaces (Mamba, arXiv:2312.00752).
#[must_use]
pub(crate) fn inverse_softplus_of_steps(stream: &Stream, count: usize) -> Vec<f64> {
    let steps = stream.uniform(1, count).into_iter();
    let steps = steps.map(|share| ((2.0 * share - 3.0) * LN_10).exp());
    steps.map(inverse_softplus).collect()
}

/// Returns the number whose softplus, ln(1 + e^x), is `y` > 0.
#[must_use]
pub(crate) fn inverse_softplus(y: f64) -> f64 {
    // From here on the difference is below half of the last digit of e^y.
    const LARGE: f64 = 40.0;
    match y < LARGE {
        true => y.exp_m1().ln(),
        false => y,
    }
}

/// Returns the uniform initialiser of Xavier (Glorot), with mean 0 and variance
/// `2 / (fan_in + fan_out)`, for a layer of `fan_in` inputs and `fan_out` outputs.
#[must_use]
pub fn xavier_uniform(fan_in: usize, fan_out: usize) -> Init {
    xavier_uniform_with_gain(fan_in, fan_out, 1.0)
}

/// Returns the Xavier (Glorot) uniform initialiser times `gain`: variance `2 gain² / (fan_in +
/// fan_out)`.
#[must_use]
pub(crate) fn xavier_uniform_with_gain(fan_in: usize, fan_out: usize, gain: f64) -> Init {
    let bound = gain * (6.0 / (fan_in + fan_out) as f64).sqrt();
    Init::Uniform {
        lo: -bound,
        up: bound,
    }
}

/// LeCun's normal initialiser for weights of shape (out, in), with mean 0 and variance `1 / in`. It
/// is cut at two standard deviations.
pub const LECUN_NORMAL: Init = Init::Kaiming {
    dist: NormalOrUniform::Normal,
    fan: FanInOut::FanIn,
    non_linearity: NonLinearity::Linear,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softplus_of_its_inverse_is_the_number() {
        for y in [1e-9, 1e-3, 0.5, 1.0, 39.9, 40.1, 700.0, 710.0, 1e6] {
            let x = inverse_softplus(y);
            let softplus = x.max(0.0) + (-x.abs()).exp().ln_1p();
            assert!((softplus - y).abs() <= 1e-12 * y, "{y}: {softplus}");
        }
    }
}
