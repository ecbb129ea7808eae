//! Fourier transforms along a sequence, and what they make fast: long convolutions, and mixing of tokens.
//!
//! For f32 and f64 on the CPU these are fast transforms of any length, O(L log L) (a length with small prime factors is
//! fastest); elsewhere products with matrices of cosines and sines, O(L²), exact and slow.

use std::f64::consts::TAU;

use candle_core::{DType, Device, Tensor};

use super::{Complex, check};
use crate::{Result, kernels};

pub use crate::kernels::Lags;

/// The spectrum of real sequences: X_k = Σ_t x_t e^{-2πikt/n} for k = 0 ... n/2, (B, n/2 + 1, D), of x (B, L, D).
///
/// A sequence is cut to n positions or followed by zeros, as in NumPy's `rfft(x, n, axis=1)`; bins beyond n/2 are
/// conjugates of these.
///
/// # Errors
/// If x has not three axes, or n is 0.
pub fn rfft(x: &Tensor, n: usize) -> Result<Complex> {
    x.dims3()?;
    check(n > 0, "rfft", || "a transform of length 0".to_owned())?;
    if !transforms(x) {
        return composed::rfft(x, n);
    }
    let planes = kernels::spectrum(x, n)?;
    Ok(Complex::new(planes.get(0)?, planes.get(1)?))
}

/// Real sequences (B, n, D) of their spectra (B, n/2 + 1, D); NumPy's `irfft(x, n, axis=1)`, the inverse of [`rfft`].
///
/// The imaginary part of the first bin, and for an even n of the last, is left out; it has no gradient.
///
/// # Errors
/// If the spectra have not n/2 + 1 bins, or n is 0.
pub fn irfft(x: &Complex, n: usize) -> Result<Tensor> {
    let fits = n > 0 && x.re.dims3()?.1 == n / 2 + 1 && x.re.dims() == x.im.dims();
    check(fits, "irfft", || {
        let (re, im) = (x.re.shape(), x.im.shape());
        format!("real parts {re:?} and imaginary parts {im:?} are not spectra of length {n}")
    })?;
    match transforms(&x.re) {
        true => Ok(kernels::sequence(&x.re, &x.im, n)?),
        false => composed::irfft(x, n),
    }
}

/// The convolution of every channel with a kernel of its own: y (B, L, D) of x (B, L, D) and `kernel` (D, K).
///
/// [`Lags`] says which positions the taps meet; what is not `Circular` is zero beyond the sequence. As a product of
/// spectra: O(B D L log L) time, whatever K. Keeps nothing but its operands.
///
/// # Errors
/// If shapes do not fit, K is odd with `Bidirectional`, or larger than L with `Circular`.
pub fn fft_conv(x: &Tensor, kernel: &Tensor, lags: Lags) -> Result<Tensor> {
    let ((_, length, width), (channels, taps)) = (x.dims3()?, kernel.dims2()?);
    let fits = match lags {
        Lags::Causal => true,
        Lags::Bidirectional => taps % 2 == 0,
        Lags::Circular => taps <= length,
    };
    check(fits && channels == width && taps > 0, "convolution", || {
        let (x, kernel) = (x.shape(), kernel.shape());
        format!("x {x:?} and kernel {kernel:?} do not fit with {lags:?} lags")
    })?;
    match transforms(x) {
        true => Ok(kernels::long_convolution(x, kernel, lags)?),
        false => composed::fft_conv(x, kernel, lags),
    }
}

/// The real part of the two-dimensional transform: y = s Re(DFT_L(DFT_D(x))) of x (B, L, D) and `scale` s.
///
/// How FNet mixes tokens (arXiv 2105.03824): NumPy's `s * fft2(x).real`. Values grow by s √(L D). O(B L D log(L D)) time,
/// and its own backward pass.
///
/// # Errors
/// If x has not three axes.
pub fn fft2_real(x: &Tensor, scale: f64) -> Result<Tensor> {
    x.dims3()?;
    match transforms(x) {
        true => Ok(kernels::mix_tokens(x, scale)?),
        false => composed::fft2_real(x, scale),
    }
}

/// Whether there are fast transforms for this tensor.
fn transforms(x: &Tensor) -> bool {
    x.device().is_cpu() && matches!(x.dtype(), DType::F32 | DType::F64)
}

/// The same by products with matrices.
mod composed {
    use super::{Complex, Device, Lags, Result, TAU, Tensor};

    /// `f(2π r c / n)` for `rows` r and `columns` c.
    fn waves(
        like: &Tensor,
        n: usize,
        (rows, columns): (usize, usize),
        f: impl Fn(usize, usize, f64) -> f64,
    ) -> Result<Tensor> {
        let element = |r: usize, c: usize| f(r, c, TAU * (r * c % n) as f64 / n as f64);
        let all = (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c)));
        let all: Vec<f64> = all.map(|(r, c)| element(r, c)).collect();
        let waves = Tensor::from_vec(all, (rows, columns), &Device::Cpu)?;
        Ok(waves.to_dtype(like.dtype())?.to_device(like.device())?)
    }

    pub(super) fn rfft(x: &Tensor, n: usize) -> Result<Complex> {
        let used = x.dim(1)?.min(n);
        let x = x.narrow(1, 0, used)?.contiguous()?;
        let shape = (n / 2 + 1, used);
        let re = waves(&x, n, shape, |_, _, angle| angle.cos())?.broadcast_matmul(&x)?;
        let im = waves(&x, n, shape, |_, _, angle| -angle.sin())?.broadcast_matmul(&x)?;
        Ok(Complex::new(re, im))
    }

    pub(super) fn irfft(x: &Complex, n: usize) -> Result<Tensor> {
        let shape = (n, n / 2 + 1);
        let real = |bin: usize| bin == 0 || 2 * bin == n;
        let weight = |bin: usize| if real(bin) { 1.0 } else { 2.0 } / n as f64;
        let cosines = waves(&x.re, n, shape, |_, bin, angle| weight(bin) * angle.cos())?;
        let sines = waves(&x.im, n, shape, |_, bin, angle| match real(bin) {
            true => 0.0,
            false => -weight(bin) * angle.sin(),
        })?;
        let re = cosines.broadcast_matmul(&x.re.contiguous()?)?;
        Ok((re + sines.broadcast_matmul(&x.im.contiguous()?)?)?)
    }

    pub(super) fn fft_conv(x: &Tensor, kernel: &Tensor, lags: Lags) -> Result<Tensor> {
        let ((_, length, width), taps) = (x.dims3()?, kernel.dim(1)?);
        // Taps of one turn: those that look back, zeros, those that look ahead with the nearest last.
        let (n, turn) = match lags {
            Lags::Circular => (length, kernel.pad_with_zeros(1, 0, length - taps)?),
            Lags::Causal => {
                let used = taps.min(length);
                let back = kernel.narrow(1, 0, used)?;
                (length + used, back.pad_with_zeros(1, 0, length)?)
            }
            Lags::Bidirectional => {
                let (half, used) = (taps / 2, (taps / 2).min(length));
                let back = kernel.narrow(1, 0, used)?.pad_with_zeros(1, 0, length)?;
                let ahead: Vec<u32> = (half..half + used.min(length - 1))
                    .map(|i| i as u32)
                    .collect();
                let nearest_last: Vec<u32> = ahead.into_iter().rev().collect();
                let turn = match nearest_last.len() {
                    0 => back,
                    count => {
                        let indices = Tensor::from_vec(nearest_last, count, kernel.device())?;
                        let ahead = kernel.contiguous()?.index_select(&indices, 1)?;
                        let zeros = back.dim(1)? - count;
                        Tensor::cat(&[&back.narrow(1, 0, zeros)?, &ahead], 1)?
                    }
                };
                (length + used, turn)
            }
        };
        let turn = turn.t()?.reshape((1, n, width))?;
        let spectrum = rfft(x, n)?.mul(&rfft(&turn, n)?)?;
        Ok(irfft(&spectrum, n)?.narrow(1, 0, length)?)
    }

    pub(super) fn fft2_real(x: &Tensor, scale: f64) -> Result<Tensor> {
        let (_, length, width) = x.dims3()?;
        let square = |n: usize, f: fn(f64) -> f64| waves(x, n, (n, n), |_, _, angle| f(angle));
        let part = |f: fn(f64) -> f64| {
            let x = x.contiguous()?.broadcast_matmul(&square(width, f)?)?;
            Ok::<_, crate::Error>(square(length, f)?.broadcast_matmul(&x)?)
        };
        Ok((part(f64::cos)? - part(f64::sin)?)?.affine(scale, 0.0)?)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{D, Var};

    use super::*;
    use crate::kernels::reference::{Sampler, agree};
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
    fn spectra_and_sequences_are_what_the_definition_says() {
        for (length, n) in (1..38usize).flat_map(|n| [(n, n), (n + 3, n), (n.div_ceil(2), n)]) {
            let place = format!("length {length}, n {n}");
            let x = normal("x", &[2, length, 3]);
            let found = rfft(&x, n).unwrap();
            let rows = x.to_vec3::<f64>().unwrap();
            let sum = |b: usize, k: usize, d: usize, wave: fn(f64) -> f64| -> f64 {
                let term = |t: usize| rows[b][t][d] * wave(-TAU * (k * t) as f64 / n as f64);
                (0..length.min(n)).map(term).sum()
            };
            let wanted = |wave: fn(f64) -> f64| {
                let row = |b, k| (0..3).map(move |d| (b, k, d));
                let all = (0..2).flat_map(|b| (0..=n / 2).flat_map(move |k| row(b, k)));
                let all: Vec<f64> = all.map(|(b, k, d)| sum(b, k, d, wave)).collect();
                Tensor::from_vec(all, (2, n / 2 + 1, 3), &Device::Cpu).unwrap()
            };
            close(&found.re, &wanted(f64::cos), 1e-11, &place);
            close(&found.im, &wanted(f64::sin), 1e-11, &place);
            let back = irfft(&found, n).unwrap();
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
                let mut wanted = vec![vec![vec![0.0; 3]; length]; 2];
                for (b, t) in (0..2).flat_map(|b| (0..length).map(move |t| (b, t))) {
                    for (tap, k) in k.iter().enumerate() {
                        let from = match lags {
                            Lags::Causal => t.wrapping_sub(tap),
                            Lags::Bidirectional if tap < taps / 2 => t.wrapping_sub(tap),
                            Lags::Bidirectional => t + tap - taps / 2 + 1,
                            Lags::Circular => (t + length - tap) % length,
                        };
                        if let Some(row) = rows[b].get(from) {
                            (0..3).for_each(|d| wanted[b][t][d] += k[d] * row[d]);
                        }
                    }
                }
                let wanted = Tensor::new(wanted, &Device::Cpu).unwrap();
                let place = format!("{lags:?}, length {length}, taps {taps}");
                close(
                    &fft_conv(&x, &kernel, lags).unwrap(),
                    &wanted,
                    1e-11,
                    &place,
                );
                let composed = composed::fft_conv(&x, &kernel, lags).unwrap();
                close(&composed, &wanted, 1e-11, &format!("composed, {place}"));
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
}
