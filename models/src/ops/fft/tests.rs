use candle_core::{D, Var};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{self, check_gradient, close, normal};

const LAGS: [Lags; 3] = [Lags::Causal, Lags::Bidirectional, Lags::Circular];

fn planes(x: Complex) -> Result<Tensor> {
    Ok(Tensor::cat(&[&x.re, &x.im], D::Minus1)?)
}

/// Halves of the last axis.
fn halves(x: &Tensor) -> Result<Complex> {
    Complex::from_planes(x)
}

/// Runs both forms on f64 variables, with outputs and gradients within 1e-11 of each other.
fn same(
    place: &str,
    inputs: &[Tensor],
    fast: impl Fn(&[Tensor]) -> Result<Tensor>,
    slow: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let vars: Vec<Var> = inputs
        .iter()
        .map(|x| Var::from_tensor(x).unwrap())
        .collect();
    let tensors: Vec<Tensor> = vars.iter().map(|x| x.as_tensor().clone()).collect();
    let (fast, slow) = (fast(&tensors).unwrap(), slow(&tensors).unwrap());
    testing::agree(&fast, &slow, &vars, 1e-11, place);
}

#[test]
fn matrices_beyond_a_gpu_are_refused_by_their_length() {
    composed::fits_a_gpu(32_768, (32_768, 32_768)).unwrap();
    let error = composed::fits_a_gpu(131_074, (65_538, 65_537)).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("a length of 131074"), "{error}");
    assert!(error.contains("65538 x 65537"), "{error}");
}

#[test]
fn spectra_and_sequences_are_what_the_definition_says() {
    for (length, n) in (1..38usize).flat_map(|n| [(n, n), (n + 3, n), (n.div_ceil(2), n)]) {
        let place = format!("length {length}, n {n}");
        let x = normal("x", &[2, length, 3]);
        let actual = rfft(&x, n).unwrap();
        let rows = x.to_vec3::<f64>().unwrap();
        let sum = |b: usize, k: usize, d: usize, wave: fn(f64) -> f64| -> f64 {
            let term = |t: usize| rows[b][t][d] * wave(-TAU * (k * t) as f64 / n as f64);
            (0..length.min(n)).map(term).sum()
        };
        let expected = |wave: fn(f64) -> f64| {
            let row = |b, k| (0..3).map(move |d| (b, k, d));
            let all = (0..2).flat_map(|b| (0..=n / 2).flat_map(move |k| row(b, k)));
            let all: Vec<f64> = all.map(|(b, k, d)| sum(b, k, d, wave)).collect();
            Tensor::from_vec(all, (2, n / 2 + 1, 3), &Device::Cpu).unwrap()
        };
        close(&actual.re, &expected(f64::cos), 1e-11, &place);
        close(&actual.im, &expected(f64::sin), 1e-11, &place);
        let back = irfft(&actual, n).unwrap();
        let used = x.narrow(1, 0, length.min(n)).unwrap();
        let used = used.pad_with_zeros(1, 0, n - length.min(n)).unwrap();
        close(&back, &used, 1e-12, &place);
    }
}

#[test]
fn fast_transforms_meet_products_with_matrices_in_both_types() {
    let mut sampler = Sampler::new(111);
    let sizes = [
        (1, 1usize, 1),
        (2, 37, 3),
        (3, 64, 17),
        (2, 97, 35),
        (1, 120, 16),
    ];
    for (batch, length, width) in sizes {
        for n in [length, length + 5, length.div_ceil(2)] {
            let place = format!("{batch} {length} {width}, n {n}");
            let x = [sampler.normal(&[batch, length, width], 1.0)];
            let fast = |x: &[Tensor]| planes(rfft(&x[0], n)?);
            let slow = |x: &[Tensor]| planes(composed::rfft(&x[0], n)?);
            agree(&place, &x, |x| Ok(fast(x)?), |x| Ok(slow(x)?));
            same(&place, &[normal("x", x[0].dims())], fast, slow);

            let x = [sampler.normal(&[batch, n / 2 + 1, 2 * width], 1.0)];
            let fast = |x: &[Tensor]| irfft(&halves(&x[0])?, n);
            let slow = |x: &[Tensor]| composed::irfft(&halves(&x[0])?, n);
            agree(&place, &x, |x| Ok(fast(x)?), |x| Ok(slow(x)?));
            same(&place, &[normal("x", x[0].dims())], fast, slow);
        }
        let place = format!("{batch} {length} {width}");
        let x = [sampler.normal(&[batch, length, width], 1.0)];
        let fast = |x: &[Tensor]| fft2_real(&x[0], 0.5);
        let slow = |x: &[Tensor]| composed::fft2_real(&x[0], 0.5);
        agree(&place, &x, |x| Ok(fast(x)?), |x| Ok(slow(x)?));
        same(&place, &[normal("x", x[0].dims())], fast, slow);
    }
}

#[test]
fn long_convolutions_are_what_the_definition_says() {
    for (length, lags) in (1..38).flat_map(|l| LAGS.map(|lags| (l, lags))) {
        for taps in [2, length - length % 2, 2 * length, 2 * length + 6] {
            let taps = match lags {
                Lags::Circular => taps.clamp(1, length),
                _ => taps.max(2),
            };
            let (x, kernel) = (normal("x", &[2, length, 3]), normal("k", &[3, taps]));
            let (rows, k) = (
                x.to_vec3::<f64>().unwrap(),
                kernel.t().unwrap().to_vec2::<f64>().unwrap(),
            );
            let mut expected = vec![vec![vec![0.0; 3]; length]; 2];
            for (b, t) in (0..2).flat_map(|b| (0..length).map(move |t| (b, t))) {
                for (tap, k) in k.iter().enumerate() {
                    let from = match lags {
                        Lags::Causal => t.wrapping_sub(tap),
                        Lags::Bidirectional if tap < taps / 2 => t.wrapping_sub(tap),
                        Lags::Bidirectional => t + tap - taps / 2 + 1,
                        Lags::Circular => (t + length - tap) % length,
                    };
                    if let Some(row) = rows[b].get(from) {
                        (0..3).for_each(|d| expected[b][t][d] += k[d] * row[d]);
                    }
                }
            }
            let expected = Tensor::new(expected, &Device::Cpu).unwrap();
            let place = format!("{lags:?}, length {length}, taps {taps}");
            close(
                &fft_conv(&x, &kernel, lags).unwrap(),
                &expected,
                1e-11,
                &place,
            );
            let composed = composed::fft_conv(&x, &kernel, lags).unwrap();
            close(&composed, &expected, 1e-11, &format!("composed, {place}"));
        }
    }
}

#[test]
fn long_convolutions_meet_their_composed_form_in_both_types() {
    let mut sampler = Sampler::new(112);
    for (batch, length, width, taps) in [
        (1, 1, 1, 2),
        (2, 37, 3, 20),
        (3, 64, 17, 128),
        (5, 50, 35, 40),
        (20, 16, 2, 8),
    ] {
        for lags in LAGS {
            let taps = if lags == Lags::Circular {
                taps.min(length)
            } else {
                taps
            };
            let place = format!("{lags:?} {batch} {length} {width} {taps}");
            let shapes: [&[usize]; 2] = [&[batch, length, width], &[width, taps]];
            let x = shapes.map(|shape| sampler.normal(shape, 0.5));
            let fast = |x: &[Tensor]| fft_conv(&x[0], &x[1], lags);
            let slow = |x: &[Tensor]| composed::fft_conv(&x[0], &x[1], lags);
            agree(&place, &x, |x| Ok(fast(x)?), |x| Ok(slow(x)?));
            same(&place, &shapes.map(|shape| normal("x", shape)), fast, slow);
        }
    }
}

#[test]
fn gradients_are_difference_quotients() {
    for n in [4, 5] {
        check_gradient("rfft", &[&[2, 5, 2]], |x| planes(rfft(&x[0], n)?));
        check_gradient("irfft", &[&[2, n / 2 + 1, 4]], |x| {
            irfft(&halves(&x[0])?, n)
        });
        for lags in LAGS {
            let shapes: [&[usize]; 2] = [&[2, n, 3], &[3, 4]];
            check_gradient("convolution", &shapes, |x| fft_conv(&x[0], &x[1], lags));
        }
        check_gradient("mixing", &[&[2, n, 3]], |x| fft2_real(&x[0], 0.5));
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let message = |result: Result<Tensor>| result.unwrap_err().to_string();
    let (x, kernel) = (normal("x", &[2, 3, 4]), normal("kernel", &[4, 5]));
    for lags in [Lags::Bidirectional, Lags::Circular] {
        assert!(
            message(fft_conv(&x, &kernel, lags)).contains("[4, 5]"),
            "{lags:?}"
        );
    }
    assert!(fft_conv(&x, &kernel.t().unwrap(), Lags::Causal).is_err());
    assert!(rfft(&x, 0).is_err());
    let spectrum = rfft(&x, 6).unwrap();
    assert!(message(irfft(&spectrum, 8)).contains("length 8"));
    assert_eq!(irfft(&spectrum, 7).unwrap().dims(), [2, 7, 4]);
}
