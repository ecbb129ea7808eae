//! Discrete Fourier transforms along a sequence and what is made of them, for f32 and f64: spectra of real sequences
//! and back, long convolutions, and the two-dimensional transform that mixes tokens.
//!
//! Transforms are `realfft`'s and `rustfft`'s: of any length, planned once for each length, with vector instructions
//! that they choose themselves. Sequences (B, L, D) are copied to channels of consecutive numbers and back, some
//! channels at a time.

mod convolution;
mod mixing;

use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use candle_core::backend::BackendStorage;
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Storage, Tensor, WithDType, bail,
};
use rayon::prelude::*;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, FftNum, RealFftPlanner, RealToComplex};
use rustfft::FftPlanner;

use super::buffers::Shared;

pub use convolution::Lags;
pub(crate) use convolution::long_convolution;
pub(crate) use mixing::mix_tokens;

const NAME: &str = "fourier";
/// Channels of one task: a cache line of f32 in each row.
const CHANNELS: usize = 16;

/// Real planes first, imaginary planes second: (2, B, n/2 + 1, D), the transform of length n of x (B, L, D) along L,
/// which is cut to n or followed by zeros.
///
/// # Errors
/// If x has not three axes, n is 0, or the type is neither f32 nor f64.
pub(crate) fn spectrum(x: &Tensor, n: usize) -> Result<Tensor> {
    let (inner, ends) = (1.0, 1.0);
    x.contiguous()?.apply_op1(Analysis { n, inner, ends })
}

/// The inverse of [`spectrum`]: (B, n, D) from real and imaginary planes (B, n/2 + 1, D).
///
/// # Errors
/// If shapes do not fit, or the type is neither f32 nor f64.
pub(crate) fn sequence(re: &Tensor, im: &Tensor, n: usize) -> Result<Tensor> {
    let op = Synthesis {
        n,
        rows: n,
        inner: 1.0 / n as f64,
        ends: 1.0 / n as f64,
    };
    re.contiguous()?.apply_op2(&im.contiguous()?, op)
}

/// Numbers that can be transformed.
trait Real: FftNum + WithDType + Default {
    /// BlockMasks of transforms of real sequences.
    fn real() -> &'static Mutex<RealFftPlanner<Self>>;
    /// BlockMasks of transforms of complex sequences.
    fn complex() -> &'static Mutex<FftPlanner<Self>>;
}

macro_rules! real {
    ($float:ty) => {
        impl Real for $float {
            fn real() -> &'static Mutex<RealFftPlanner<Self>> {
                static PLANNER: LazyLock<Mutex<RealFftPlanner<$float>>> =
                    LazyLock::new(|| Mutex::new(RealFftPlanner::new()));
                &PLANNER
            }

            fn complex() -> &'static Mutex<FftPlanner<Self>> {
                static PLANNER: LazyLock<Mutex<FftPlanner<$float>>> =
                    LazyLock::new(|| Mutex::new(FftPlanner::new()));
                &PLANNER
            }
        }
    };
}

real!(f32);
real!(f64);

/// A real number of this type.
fn number<T: Real>(x: f64) -> T {
    <T as WithDType>::from_f64(x)
}

/// `$function::<f32 or f64>($arguments)`, whatever the type of its operands.
macro_rules! typed {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            candle_core::DType::F32 => $function::<f32>($($argument),*),
            candle_core::DType::F64 => $function::<f64>($($argument),*),
            other => candle_core::bail!("{NAME}: operand is {other:?}, not f32 or f64"),
        }
    };
}
use typed;

/// The elements of a contiguous operand.
fn elements<'a, T: Real>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [T]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!(
            "{NAME}: operand of shape {:?} is not contiguous",
            layout.shape()
        );
    };
    match T::cpu_storage_as_slice(storage)?.get(start..end) {
        Some(data) => Ok(data),
        None => bail!(
            "{NAME}: operand of shape {:?} is larger than its storage",
            layout.shape()
        ),
    }
}

/// Hands the elements of a contiguous tensor in main memory to `work`.
fn reading<T: Real, R>(tensor: &Tensor, work: impl FnOnce(&[T]) -> Result<R>) -> Result<R> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => work(elements(storage, layout)?),
        _ => bail!("{NAME}: operand is not in main memory"),
    }
}

/// Transforms of real sequences of one length, and the room that they need.
struct Transform<T: Real> {
    forward: Arc<dyn RealToComplex<T>>,
    inverse: Arc<dyn ComplexToReal<T>>,
}

/// Buffers of one thread for [`Transform`].
struct Room<T: Real> {
    sequence: Vec<T>,
    spectrum: Vec<Complex<T>>,
    scratch: Vec<Complex<T>>,
}

impl<T: Real> Transform<T> {
    fn new(n: usize) -> Self {
        // BlockMasks are whole, whatever thread has panicked beside them.
        let mut planner = T::real().lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            forward: planner.plan_fft_forward(n),
            inverse: planner.plan_fft_inverse(n),
        }
    }

    /// n/2 + 1.
    fn bins(&self) -> usize {
        self.forward.complex_len()
    }

    fn room(&self) -> Room<T> {
        let scratch = self.forward.get_scratch_len();
        let scratch = scratch.max(self.inverse.get_scratch_len());
        Room {
            sequence: self.forward.make_input_vec(),
            spectrum: self.forward.make_output_vec(),
            scratch: vec![Complex::default(); scratch],
        }
    }

    /// From `room.sequence`, whose contents are lost, to `room.spectrum`.
    fn forward(&self, room: &mut Room<T>) -> Result<()> {
        let Room {
            sequence,
            spectrum,
            scratch,
        } = room;
        let done = self
            .forward
            .process_with_scratch(sequence, spectrum, scratch);
        done.map_err(candle_core::Error::wrap)
    }

    /// From `room.spectrum`, whose contents are lost, to `room.sequence`, n times the inverse. Imaginary parts where a
    /// real sequence has none are left out.
    fn inverse(&self, room: &mut Room<T>) -> Result<()> {
        let Room {
            sequence,
            spectrum,
            scratch,
        } = room;
        for end in ends(self.inverse.len()) {
            spectrum[end].im = number(0.0);
        }
        let done = self
            .inverse
            .process_with_scratch(spectrum, sequence, scratch);
        done.map_err(candle_core::Error::wrap)
    }
}

/// Bins of real sequences of length n that are real: the first, and for an even n the last.
fn ends(n: usize) -> impl Iterator<Item = usize> {
    let last = n.is_multiple_of(2).then_some(n / 2);
    std::iter::once(0).chain(last)
}

/// Where the columns of one task lie in a tensor (B, rows, D).
#[derive(Clone, Copy)]
struct Columns {
    first: usize,
    count: usize,
    /// D.
    width: usize,
}

impl Columns {
    /// Tasks of an example.
    fn groups(width: usize) -> usize {
        width.div_ceil(CHANNELS)
    }

    fn group(width: usize, group: usize) -> Self {
        let first = group * CHANNELS;
        Self {
            first,
            count: CHANNELS.min(width - first),
            width,
        }
    }

    /// Copies rows of an example (rows, D) to one run of numbers for each column, `stride` apart.
    fn load<T: Copy>(self, example: &[T], rows: usize, to: &mut [T], stride: usize) {
        let Self {
            first,
            count,
            width,
        } = self;
        for (t, row) in example.chunks_exact(width).take(rows).enumerate() {
            for (column, x) in row[first..first + count].iter().enumerate() {
                to[column * stride + t] = *x;
            }
        }
    }

    /// Copies the runs back to `rows`, the first of which is at `start`.
    ///
    /// # Safety
    /// No other task may use the same columns of these rows at the same time.
    unsafe fn store<T: Copy>(
        self,
        out: &Shared<T>,
        start: usize,
        rows: Range<usize>,
        from: impl Fn(usize, usize) -> T,
    ) {
        for t in rows {
            // SAFETY: by the caller's promise.
            let row = unsafe { out.slice(start + t * self.width + self.first, self.count) };
            for (column, y) in row.iter_mut().enumerate() {
                *y = from(column, t);
            }
        }
    }
}

/// Room between the runs of numbers of two columns, so that columns of a power of two do not share places of the cache.
const APART: usize = 16;

/// x (B, L, D) to (2, B, n/2 + 1, D): `inner` times the spectrum, and `ends` times where it is real.
#[derive(Clone, Copy)]
struct Analysis {
    n: usize,
    inner: f64,
    ends: f64,
}

/// Spectra (B, n/2 + 1, D) to (B, rows, D): Σ_k weight_k Re(X_k e^{2πikt/n}) over a whole transpose, as if the missing half
/// of the spectrum mirrored the other; weights `inner`, and `ends` where the spectrum is real. Zeros beyond n rows.
///
/// [`Analysis`] transposed, but for weights: of its inner bins, each occurs twice here.
#[derive(Clone, Copy)]
struct Synthesis {
    n: usize,
    rows: usize,
    inner: f64,
    ends: f64,
}

impl CustomOp1 for Analysis {
    fn name(&self) -> &'static str {
        "rfft"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (batch, _, width) = layout.shape().dims3()?;
        if self.n == 0 {
            bail!("{NAME}: a transform of length 0");
        }
        let op = *self;
        let y = typed!(x.dtype(), analyse(op, x, layout))?;
        Ok((y, (2, batch, self.n / 2 + 1, width).into()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let op = Synthesis {
            n: self.n,
            rows: x.dim(1)?,
            inner: self.inner / 2.0,
            ends: self.ends,
        };
        let dy = dy.contiguous()?;
        Ok(Some(dy.get(0)?.apply_op2_no_bwd(&dy.get(1)?, &op)?))
    }
}

impl CustomOp2 for Synthesis {
    fn name(&self) -> &'static str {
        "irfft"
    }

    fn cpu_fwd(
        &self,
        re: &CpuStorage,
        re_layout: &Layout,
        im: &CpuStorage,
        im_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (batch, bins, width) = re_layout.shape().dims3()?;
        if self.n == 0 || bins != self.n / 2 + 1 || re_layout.shape() != im_layout.shape() {
            let (re, im) = (re_layout.shape(), im_layout.shape());
            bail!(
                "{NAME}: spectra {re:?} and {im:?} are not of length {}",
                self.n
            );
        }
        let op = *self;
        let y = typed!(re.dtype(), synthesise(op, (re, re_layout), (im, im_layout)))?;
        Ok((y, (batch, self.rows, width).into()))
    }

    fn bwd(
        &self,
        _: &Tensor,
        _: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let op = Analysis {
            n: self.n,
            inner: self.inner * 2.0,
            ends: self.ends,
        };
        let gradient = dy.contiguous()?.apply_op1_no_bwd(&op)?;
        Ok((Some(gradient.get(0)?), Some(gradient.get(1)?)))
    }
}

fn analyse<T: Real>(op: Analysis, x: &CpuStorage, layout: &Layout) -> Result<CpuStorage> {
    let (batch, length, width) = layout.shape().dims3()?;
    let x = elements::<T>(x, layout)?;
    let transform = Transform::<T>::new(op.n);
    let (bins, groups) = (transform.bins(), Columns::groups(width));
    let (used, stride) = (length.min(op.n), length.min(op.n) + APART);
    let mut y = vec![number::<T>(0.0); 2 * batch * bins * width];
    let out = Shared::new(&mut y);
    let room = || {
        let columns = vec![number::<T>(0.0); CHANNELS * stride];
        let spectra = vec![Complex::default(); CHANNELS * (bins + APART)];
        (transform.room(), columns, spectra)
    };
    let tasks = (0..batch * groups).into_par_iter();
    tasks.try_for_each_init(room, |(room, columns, spectra), task| {
        let (example, place) = (task / groups, Columns::group(width, task % groups));
        place.load(&x[example * length * width..], used, columns, stride);
        let runs = columns.chunks(stride).zip(spectra.chunks_mut(bins + APART));
        for (column, to) in runs.take(place.count) {
            room.sequence[..used].copy_from_slice(&column[..used]);
            room.sequence[used..].fill(number(0.0));
            transform.forward(room)?;
            to[..bins].copy_from_slice(&room.spectrum);
        }
        for part in 0..2 {
            let start = (part * batch + example) * bins * width;
            let value = |column: usize, k: usize| {
                let x = spectra[column * (bins + APART) + k];
                let ends = k == 0 || 2 * k == op.n;
                let weight = number::<T>(if ends { op.ends } else { op.inner });
                weight * if part == 0 { x.re } else { x.im }
            };
            // SAFETY: the columns of an example belong to one task.
            unsafe { place.store(&out, start, 0..bins, value) };
        }
        Ok::<_, candle_core::Error>(())
    })?;
    Ok(T::to_cpu_storage_owned(y))
}

fn synthesise<T: Real>(
    op: Synthesis,
    (re, re_layout): (&CpuStorage, &Layout),
    (im, im_layout): (&CpuStorage, &Layout),
) -> Result<CpuStorage> {
    let (batch, bins, width) = re_layout.shape().dims3()?;
    let (re, im) = (elements::<T>(re, re_layout)?, elements::<T>(im, im_layout)?);
    let transform = Transform::<T>::new(op.n);
    let (groups, used) = (Columns::groups(width), op.rows.min(op.n));
    let stride = bins + APART;
    let mut y = vec![number::<T>(0.0); batch * op.rows * width];
    let out = Shared::new(&mut y);
    let room = || {
        let planes = vec![number::<T>(0.0); 2 * CHANNELS * stride];
        let columns = vec![number::<T>(0.0); CHANNELS * (used + APART)];
        (transform.room(), planes, columns)
    };
    let tasks = (0..batch * groups).into_par_iter();
    tasks.try_for_each_init(room, |(room, planes, columns), task| {
        let (example, place) = (task / groups, Columns::group(width, task % groups));
        let (re_plane, im_plane) = planes.split_at_mut(CHANNELS * stride);
        place.load(&re[example * bins * width..], bins, re_plane, stride);
        place.load(&im[example * bins * width..], bins, im_plane, stride);
        for (column, to) in columns
            .chunks_mut(used + APART)
            .take(place.count)
            .enumerate()
        {
            let inner = number::<T>(op.inner);
            for (k, x) in room.spectrum.iter_mut().enumerate() {
                let at = column * stride + k;
                *x = Complex::new(re_plane[at], im_plane[at]) * inner;
            }
            for end in ends(op.n) {
                room.spectrum[end].re = re_plane[column * stride + end] * number::<T>(op.ends);
            }
            transform.inverse(room)?;
            to[..used].copy_from_slice(&room.sequence[..used]);
        }
        let value = |column: usize, t: usize| columns[column * (used + APART) + t];
        // SAFETY: the columns of an example belong to one task.
        unsafe { place.store(&out, example * op.rows * width, 0..used, value) };
        Ok::<_, candle_core::Error>(())
    })?;
    Ok(T::to_cpu_storage_owned(y))
}
