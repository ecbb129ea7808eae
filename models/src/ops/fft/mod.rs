//! Fourier transforms along a sequence, and the operations that they make fast: long convolutions,
//! and mixing of tokens.
//!
//! For f32 and f64 on the CPU these are fast transforms of any length, O(L log L) (a length with
//! small prime factors is fastest). So are long convolutions in f32 on a GPU, and inverse
//! transforms to a power of 2 there, both up to a length; elsewhere products with matrices of
//! cosines and sines, O(L²), exact and slow. A GPU has none of more than 2³⁰ numbers.

pub(in crate::ops) mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use std::f64::consts::TAU;

use candle_core::{DType, Device, Tensor};

use super::{Complex, check};
use crate::Result;
use crate::cuda::Gpu;

pub use self::cpu::Lags;

/// Returns the spectrum (B, ⌊n/2⌋ + 1, D) of real sequences x (B, L, D):
/// `X_k = Σ_t x_t e^{-2πikt/n}` for k from 0 to ⌊n/2⌋.
///
/// A sequence is cut to n positions or followed by zeros, as in NumPy's `rfft(x, n, axis=1)`. Bins
/// beyond n/2 are conjugates of these.
///
/// # Errors
/// If x does not have three axes, or n is 0.
pub fn rfft(x: &Tensor, n: usize) -> Result<Complex> {
    x.dims3()?;
    check(n > 0, "rfft", || "a transform of length 0".to_owned())?;
    if !transforms(x) {
        return composed::rfft(x, n);
    }
    let planes = cpu::spectrum(x, n)?;
    Ok(Complex::new(planes.get(0)?, planes.get(1)?))
}

/// Returns the real sequences (B, n, D) with the spectra x (B, ⌊n/2⌋ + 1, D), as NumPy's
/// `irfft(x, n, axis=1)`. It is the inverse of [`rfft`].
///
/// The imaginary part of the first bin, and for an even n of the last, is left out; it has no
/// gradient.
///
/// # Errors
/// If the spectra do not have ⌊n/2⌋ + 1 bins, or n is 0.
pub fn irfft(x: &Complex, n: usize) -> Result<Tensor> {
    let fits = n > 0 && x.re.dims3()?.1 == n / 2 + 1 && x.re.dims() == x.im.dims();
    check(fits, "irfft", || {
        let (re, im) = (x.re.shape(), x.im.shape());
        format!("real parts {re:?} and imaginary parts {im:?} are not spectra of length {n}")
    })?;
    if transforms(&x.re) {
        return Ok(cpu::sequence(&x.re, &x.im, n)?);
    }
    match Gpu::of(&x.re).filter(|_| cuda::inverts(&x.re, n)) {
        Some(gpu) => Ok(cuda::irfft(&gpu, x, n)?),
        None => composed::irfft(x, n),
    }
}

/// Returns the convolution y (B, L, D) of every channel of x (B, L, D) with its own row of `kernel`
/// (D, K).
///
/// [`Lags`] says which positions the taps meet. Except with `Circular`, x is zero beyond the
/// sequence. It is a product of spectra, takes O(B D L log L) time for every K, and keeps only its
/// operands.
///
/// # Errors
/// If shapes do not fit, K is odd with `Bidirectional`, or larger than L with `Circular`.
pub fn fft_conv(x: &Tensor, kernel: &Tensor, lags: Lags) -> Result<Tensor> {
    let (sizes, (channels, taps)) = (x.dims3()?, kernel.dims2()?);
    let (_, length, width) = sizes;
    let fits = match lags {
        Lags::Causal => true,
        Lags::Bidirectional => taps % 2 == 0,
        Lags::Circular => taps <= length,
    };
    check(fits && channels == width && taps > 0, "convolution", || {
        let (x, kernel) = (x.shape(), kernel.shape());
        format!("x {x:?} and kernel {kernel:?} do not fit with {lags:?} lags")
    })?;
    if transforms(x) {
        return Ok(cpu::long_convolution(x, kernel, lags)?);
    }
    match (Gpu::of(x), cuda::transform_length(sizes, taps, lags)) {
        (Some(gpu), Some(n)) => Ok(cuda::fft_conv(&gpu, x, kernel, lags, n)?),
        _ => composed::fft_conv(x, kernel, lags),
    }
}

/// Returns the real part of the two-dimensional Fourier transform of x (B, L, D), times `scale` s:
/// `s Re(DFT_L(DFT_D(x)))`, (B, L, D).
///
/// FNet mixes tokens by it (arXiv 2105.03824), as NumPy's `s * fft2(x).real`. Values grow by s
/// √(L D). It takes O(B L D log(L D)) time, and is its own backward pass.
///
/// # Errors
/// If x does not have three axes.
pub fn fft2_real(x: &Tensor, scale: f64) -> Result<Tensor> {
    x.dims3()?;
    match transforms(x) {
        true => Ok(cpu::mix_tokens(x, scale)?),
        false => composed::fft2_real(x, scale),
    }
}

/// Returns whether there are fast transforms for this tensor.
fn transforms(x: &Tensor) -> bool {
    x.device().is_cpu() && matches!(x.dtype(), DType::F32 | DType::F64)
}

/// The transforms as products with matrices.
mod composed {
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex, PoisonError};

    use super::{Complex, DType, Device, Lags, Result, TAU, Tensor, check};
    use crate::cuda::{Gpu, GpuId};

    /// Most numbers of a matrix on a GPU: 4 GiB of f32.
    const MOST_NUMBERS: usize = 1 << 30;

    /// The element of a matrix at row r and column c, with a = 2π r c / n.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum Wave {
        /// cos a.
        Cosine,
        /// sin a.
        Sine,
        /// Weights of the real part of bin c in position r.
        Real,
        /// Weights of its imaginary part.
        Imaginary,
    }

    impl Wave {
        fn at(self, bin: usize, angle: f64, n: usize) -> f64 {
            let real = bin == 0 || 2 * bin == n;
            let weight = if real { 1.0 } else { 2.0 } / n as f64;
            match self {
                Self::Cosine => angle.cos(),
                Self::Sine => angle.sin(),
                Self::Real => weight * angle.cos(),
                Self::Imaginary if real => 0.0,
                Self::Imaginary => -weight * angle.sin(),
            }
        }
    }

    /// A matrix: its numbers, n, its shape, its type and its GPU.
    type Key = (Wave, usize, (usize, usize), DType, GpuId);

    /// Matrices on GPUs, each made once.
    static WAVES: LazyLock<Mutex<HashMap<Key, Tensor>>> = LazyLock::new(Mutex::default);

    /// Returns a matrix of n, of `rows` and `columns`.
    fn waves(
        like: &Tensor,
        n: usize,
        (rows, columns): (usize, usize),
        wave: Wave,
    ) -> Result<Tensor> {
        let (dtype, device) = (like.dtype(), like.device());
        let make = || -> Result<Tensor> {
            let element = |r: usize, c: usize| {
                let angle = TAU * (r * c % n) as f64 / n as f64;
                wave.at(c, angle, n)
            };
            let all = (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c)));
            let all: Vec<f64> = all.map(|(r, c)| element(r, c)).collect();
            let waves = Tensor::from_vec(all, (rows, columns), &Device::Cpu)?;
            Ok(waves.to_dtype(dtype)?.to_device(device)?)
        };
        let Some(gpu) = Gpu::on(device) else {
            return make();
        };
        fits_a_gpu(n, (rows, columns))?;
        let mut known = WAVES.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (wave, n, (rows, columns), dtype, gpu.id());
        if let Some(waves) = known.get(&key) {
            return Ok(waves.clone());
        }
        let waves = make()?;
        known.insert(key, waves.clone());
        Ok(waves)
    }

    /// Refuses a matrix that is too large for a GPU.
    pub(super) fn fits_a_gpu(n: usize, (rows, columns): (usize, usize)) -> Result<()> {
        let numbers = rows.saturating_mul(columns);
        check(numbers <= MOST_NUMBERS, "transform on a GPU", || {
            format!(
                "a length of {n} needs a matrix of {rows} x {columns} numbers, and the limit is \
                 {MOST_NUMBERS}; kernels convolve up to 65,536 positions and invert to powers of 2 \
                 up to 131,072, and the CPU (--device cpu) transforms any length"
            )
        })
    }

    /// Returns `matrix` (n, L) times each x (B, L, D): (B, n, D), by one product.
    fn by_matrix(matrix: &Tensor, x: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        let x = x.transpose(0, 1)?.reshape((length, batch * width))?;
        let y = matrix.matmul(&x)?;
        let y = y.reshape((matrix.dim(0)?, batch, width))?;
        Ok(y.transpose(0, 1)?.contiguous()?)
    }

    pub(super) fn rfft(x: &Tensor, n: usize) -> Result<Complex> {
        let used = x.dim(1)?.min(n);
        let x = x.narrow(1, 0, used)?.contiguous()?;
        let shape = (n / 2 + 1, used);
        let re = by_matrix(&waves(&x, n, shape, Wave::Cosine)?, &x)?;
        let im = by_matrix(&waves(&x, n, shape, Wave::Sine)?, &x)?;
        Ok(Complex::new(re, im.neg()?))
    }

    pub(super) fn irfft(x: &Complex, n: usize) -> Result<Tensor> {
        let shape = (n, n / 2 + 1);
        let cosines = waves(&x.re, n, shape, Wave::Real)?;
        let sines = waves(&x.im, n, shape, Wave::Imaginary)?;
        Ok((by_matrix(&cosines, &x.re)? + by_matrix(&sines, &x.im)?)?)
    }

    pub(super) fn fft_conv(x: &Tensor, kernel: &Tensor, lags: Lags) -> Result<Tensor> {
        let ((_, length, width), taps) = (x.dims3()?, kernel.dim(1)?);
        // Taps of one turn: those that look back, zeros, those that look ahead with the nearest
        // last.
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
        let square = |n: usize, wave| waves(x, n, (n, n), wave);
        let part = |wave| {
            let x = x.contiguous()?.broadcast_matmul(&square(width, wave)?)?;
            by_matrix(&square(length, wave)?, &x)
        };
        let (cosines, sines) = (part(Wave::Cosine)?, part(Wave::Sine)?);
        Ok((cosines - sines)?.affine(scale, 0.0)?)
    }
}
