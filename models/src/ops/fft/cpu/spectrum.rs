//! Spectra of real sequences, and back: each is the other's backward pass, but for weights.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::Shared;
use lra_cpu::fft::Complex;
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use super::transform::{APART, CHANNELS, Columns, Room, Transform, ends};
use super::{NAME, Real, apply, number};
use crate::autograd::{BackwardPass, CustomOp, Gradient, View};

/// Returns real planes first, imaginary planes second: (2, B, n/2 + 1, D), the transform of length
/// n of x (B, L, D) along L, which is cut to n or followed by zeros.
///
/// # Errors
/// If x has not three axes, n is 0, or the type is neither f32 nor f64.
pub(crate) fn spectrum(x: &Tensor, n: usize) -> Result<Tensor> {
    let (inner, ends) = (1.0, 1.0);
    apply(Analysis { n, inner, ends }, [x])
}

/// Returns the inverse of [`spectrum`]: (B, n, D) from real and imaginary planes (B, n/2 + 1, D).
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
    apply(op, [re, im])
}

/// x (B, L, D) to (2, B, n/2 + 1, D): `inner` times the spectrum, and `ends` times where it is
/// real.
#[derive(Clone, Copy)]
struct Analysis {
    n: usize,
    inner: f64,
    ends: f64,
}

/// Spectra (B, n/2 + 1, D) to (B, rows, D): Σ_k weight_k Re(X_k e^{2πikt/n}) over a whole
/// transpose, as if the missing half of the spectrum mirrored the other; weights `inner`, and
/// `ends` where the spectrum is real. Zeros beyond n rows.
///
/// [`Analysis`] transposed, but for weights: of its inner bins, each occurs twice here.
#[derive(Clone, Copy)]
struct Synthesis {
    n: usize,
    rows: usize,
    inner: f64,
    ends: f64,
}

impl<T: Real> CustomOp<1, T> for Analysis {
    const NAME: &'static str = "rfft";
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [x]: [View<T>; 1], _: bool) -> Result<(Vec<T>, Shape, ())> {
        let (batch, length, width) = x.shape.dims3()?;
        if self.n == 0 {
            bail!("{NAME}: a transform of length 0");
        }
        let y = analyse(*self, x.data, (batch, length, width))?;
        Ok((y, (2, batch, self.n / 2 + 1, width).into(), ()))
    }

    fn backward(
        &self,
        [x]: [View<T>; 1],
        pass: BackwardPass<(), 1, T>,
    ) -> Result<[Gradient<T>; 1]> {
        let (batch, rows, width) = x.shape.dims3()?;
        let op = Synthesis {
            n: self.n,
            rows,
            inner: self.inner / 2.0,
            ends: self.ends,
        };
        let (re, im) = pass.dy.split_at(pass.dy.len() / 2);
        let dx = synthesise(op, [re, im], (batch, self.n / 2 + 1, width))?;
        Ok([dx.into()])
    }
}

impl<T: Real> CustomOp<2, T> for Synthesis {
    const NAME: &'static str = "irfft";
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [re, im]: [View<T>; 2], _: bool) -> Result<(Vec<T>, Shape, ())> {
        let (batch, bins, width) = re.shape.dims3()?;
        let n = self.n;
        if n == 0 || bins != n / 2 + 1 || re.shape != im.shape {
            let (re, im) = (re.shape, im.shape);
            bail!("{NAME}: spectra {re:?} and {im:?} are not of length {n}");
        }
        let y = synthesise(*self, [re.data, im.data], (batch, bins, width))?;
        Ok((y, (batch, self.rows, width).into(), ()))
    }

    fn backward(
        &self,
        [re, _]: [View<T>; 2],
        pass: BackwardPass<(), 2, T>,
    ) -> Result<[Gradient<T>; 2]> {
        let (batch, _, width) = re.shape.dims3()?;
        let op = Analysis {
            n: self.n,
            inner: self.inner * 2.0,
            ends: self.ends,
        };
        let mut dre = analyse(op, pass.dy, (batch, self.rows, width))?;
        let dim = dre.split_off(dre.len() / 2);
        Ok([dre.into(), dim.into()])
    }
}

fn analyse<T: Real>(
    op: Analysis,
    x: &[T],
    (batch, length, width): (usize, usize, usize),
) -> Result<Vec<T>> {
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
    let rooms = Workspaces::new(batch * groups, room);
    let run = |(room, columns, spectra): &mut (Room<T>, Vec<T>, Vec<_>), task: usize| {
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
    };
    let tasks = (0..batch * groups).into_par_iter();
    tasks.try_for_each(|task| rooms.lend(|room| run(room, task)))?;
    Ok(y)
}

fn synthesise<T: Real>(
    op: Synthesis,
    [re, im]: [&[T]; 2],
    (batch, bins, width): (usize, usize, usize),
) -> Result<Vec<T>> {
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
    let rooms = Workspaces::new(batch * groups, room);
    let run = |(room, planes, columns): &mut (Room<T>, Vec<T>, Vec<T>), task: usize| {
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
    };
    let tasks = (0..batch * groups).into_par_iter();
    tasks.try_for_each(|task| rooms.lend(|room| run(room, task)))?;
    Ok(y)
}
