//! Convolution of every channel with a kernel as long as the sequence, as a product of spectra.
//!
//! With û, k̂ and d̂ the spectra of x, kernel and dy: y = û k̂, dx = d̂ conj(k̂), and dk = Σ
//! conj(û) d̂ over examples, summed as spectra and in order. Only x and kernel are kept.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::Shared;
use lra_cpu::fft::Complex;
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use super::transform::{APART, CHANNELS, Columns, Room, Transform};
use super::{NAME, Real, apply, number};
use crate::autograd::{BackwardPass, CustomOp, Gradient, View};

/// Tasks that the backward pass is split into at least, if there are as many examples.
const LEAST_TASKS: usize = 16;

/// Positions that the taps k_j of a kernel (D, K) meet on a sequence x of length L.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lags {
    /// Tap j meets the position j before: y_t = Σ_{j <= t} k_j x_{t-j}. Taps beyond the sequence
    /// have no effect.
    Causal,
    /// The first K/2 taps look back, as those of `Causal`. Tap j of the other K/2, with j from 0,
    /// meets the position `j + 1` ahead, so that a position meets itself once. These are the two
    /// kernels of S4, one after the other. K is even.
    Bidirectional,
    /// Tap j meets the position j before, counted round the sequence: position -1 is the last one.
    /// K is at most L.
    Circular,
}

/// Maps x (B, L, D) and kernel (D, K) to y (B, L, D), `y_t = Σ_j k_j x_{t - lag(j)}`.
///
/// # Errors
/// If shapes do not fit, or the type is neither f32 nor f64.
pub(crate) fn long_convolution(x: &Tensor, kernel: &Tensor, lags: Lags) -> Result<Tensor> {
    apply(Convolution(lags), [x, kernel])
}

struct Convolution(Lags);

/// Sizes of operands and of the transform.
#[derive(Clone, Copy)]
struct Sizes {
    lags: Lags,
    batch: usize,
    length: usize,
    width: usize,
    taps: usize,
    /// Length of the transform.
    n: usize,
}

impl Sizes {
    fn new(lags: Lags, x: &Shape, kernel: &Shape) -> Result<Self> {
        let ((batch, length, width), (channels, taps)) = (x.dims3()?, kernel.dims2()?);
        let fits = match lags {
            Lags::Causal => true,
            Lags::Bidirectional => taps % 2 == 0,
            Lags::Circular => taps <= length,
        };
        if channels != width || !fits {
            bail!("{NAME}: x {x:?} and kernel {kernel:?} ({lags:?}) do not fit");
        }
        let reach = match lags {
            Lags::Causal | Lags::Circular => taps,
            Lags::Bidirectional => taps / 2,
        };
        let n = match lags {
            Lags::Circular => length,
            // Indices that wrap around meet zeros.
            _ => fast_length(length + reach.min(length)),
        };
        Ok(Self {
            lags,
            batch,
            length,
            width,
            taps,
            n,
        })
    }

    /// Returns the place of tap j in one turn of the transform, if it reaches any position.
    fn place(&self, tap: usize) -> Option<usize> {
        let half = self.taps / 2;
        match self.lags {
            Lags::Bidirectional if tap >= half => {
                let ahead = tap - half + 1;
                (ahead < self.length).then(|| self.n - ahead)
            }
            _ => (tap < self.length).then_some(tap),
        }
    }
}

/// Returns the smallest even number that is at least `least` and has no prime factors but 2, 3 and
/// 5.
fn fast_length(least: usize) -> usize {
    let smooth = |mut n: usize| {
        for factor in [2, 3, 5] {
            while n.is_multiple_of(factor) {
                n /= factor;
            }
        }
        n == 1
    };
    let least = least.next_multiple_of(2).max(2);
    let mut all = (least..).step_by(2);
    all.find(|n| smooth(*n)).unwrap_or(least)
}

impl<T: Real> CustomOp<2, T> for Convolution {
    const NAME: &'static str = "long convolution";
    type Saved = ();

    fn forward(&self, [x, kernel]: [View<T>; 2], _: bool) -> Result<(Vec<T>, Shape, ())> {
        let sizes = Sizes::new(self.0, &x.shape, &kernel.shape)?;
        let y = match x.data.is_empty() {
            true => Vec::new(),
            false => forward(sizes, x.data, kernel.data)?,
        };
        Ok((y, x.shape, ()))
    }

    fn backward(
        &self,
        [x, kernel]: [View<T>; 2],
        pass: BackwardPass<(), 2, T>,
    ) -> Result<[Gradient<T>; 2]> {
        let sizes = Sizes::new(self.0, &x.shape, &kernel.shape)?;
        let (dx, dkernel) = match x.data.is_empty() {
            true => (Vec::new(), vec![number(0.0); kernel.data.len()]),
            false => gradients(sizes, x.data, kernel.data, pass.dy)?,
        };
        Ok([dx.into(), dkernel.into()])
    }
}

/// Returns the spectra of all channels' kernels, (D, n/2 + 1), divided by n for the way back.
fn spectra<T: Real>(
    sizes: Sizes,
    transform: &Transform<T>,
    kernel: &[T],
) -> Result<Vec<Complex<T>>> {
    let mut spectra = vec![Complex::default(); sizes.width * transform.bins()];
    let share = number::<T>(1.0 / sizes.n as f64);
    let channels = spectra.par_chunks_mut(transform.bins()).enumerate();
    let rooms = Workspaces::new(sizes.width, || transform.room());
    channels.try_for_each(|(channel, spectrum)| {
        rooms.lend(|room| {
            room.sequence.fill(number(0.0));
            let taps = &kernel[channel * sizes.taps..][..sizes.taps];
            for (tap, x) in taps.iter().enumerate() {
                if let Some(place) = sizes.place(tap) {
                    room.sequence[place] = *x * share;
                }
            }
            transform.forward(room)?;
            spectrum.copy_from_slice(&room.spectrum);
            Ok::<_, candle_core::Error>(())
        })
    })?;
    Ok(spectra)
}

/// Transforms a run of numbers, zeros behind it.
fn transformed<T: Real>(transform: &Transform<T>, room: &mut Room<T>, run: &[T]) -> Result<()> {
    room.sequence[..run.len()].copy_from_slice(run);
    room.sequence[run.len()..].fill(number(0.0));
    transform.forward(room)
}

fn forward<T: Real>(sizes: Sizes, x: &[T], kernel: &[T]) -> Result<Vec<T>> {
    let Sizes {
        batch,
        length,
        width,
        ..
    } = sizes;
    let transform = Transform::<T>::new(sizes.n);
    let spectra = spectra(sizes, &transform, kernel)?;
    let (bins, groups, stride) = (transform.bins(), Columns::groups(width), length + APART);
    let mut y = vec![number::<T>(0.0); x.len()];
    let out = Shared::new(&mut y);
    let room = || (transform.room(), vec![number::<T>(0.0); CHANNELS * stride]);
    let rooms = Workspaces::new(batch * groups, room);
    let run = |(room, columns): &mut (Room<T>, Vec<T>), task: usize| {
        let (start, place) = (
            task / groups * length * width,
            Columns::group(width, task % groups),
        );
        place.load(&x[start..], length, columns, stride);
        let runs = columns.chunks_mut(stride).take(place.count);
        for (channel, run) in (place.first..).zip(runs) {
            transformed(&transform, room, &run[..length])?;
            let kernel = &spectra[channel * bins..][..bins];
            for (x, k) in room.spectrum.iter_mut().zip(kernel) {
                *x *= k;
            }
            transform.inverse(room)?;
            run[..length].copy_from_slice(&room.sequence[..length]);
        }
        // SAFETY: the columns of an example belong to one task.
        unsafe { place.store(&out, start, 0..length, |c, t| columns[c * stride + t]) };
        Ok::<_, candle_core::Error>(())
    };
    let tasks = (0..batch * groups).into_par_iter();
    tasks.try_for_each(|task| rooms.lend(|room| run(room, task)))?;
    Ok(y)
}

/// Room of one thread for transforms, for columns of x and dy, and for a spectrum of x.
type GradientRoom<T> = (Room<T>, Vec<T>, Vec<Complex<T>>);

/// Returns gradients of x and kernel.
fn gradients<T: Real>(sizes: Sizes, x: &[T], kernel: &[T], dy: &[T]) -> Result<(Vec<T>, Vec<T>)> {
    let Sizes {
        batch,
        length,
        width,
        ..
    } = sizes;
    let transform = Transform::<T>::new(sizes.n);
    let spectra = spectra(sizes, &transform, kernel)?;
    let (bins, groups, stride) = (transform.bins(), Columns::groups(width), length + APART);
    // Runs of examples, each with a sum of its own; their number depends on the shape alone.
    let runs = LEAST_TASKS.div_ceil(groups).min(batch);
    let per_run = batch.div_ceil(runs);
    let runs = batch.div_ceil(per_run);
    let mut dx = vec![number::<T>(0.0); x.len()];
    let out = Shared::new(&mut dx);
    // (groups, runs, CHANNELS, bins).
    let mut sums = vec![Complex::<T>::default(); groups * runs * CHANNELS * bins];
    let room = || {
        let columns = vec![number::<T>(0.0); 2 * CHANNELS * stride];
        (
            transform.room(),
            columns,
            transform.forward.make_output_vec(),
        )
    };
    let rooms = Workspaces::new(groups * runs, room);
    let run = |(room, columns, of_x): &mut GradientRoom<T>,
               task: usize,
               sums: &mut [Complex<T>]| {
        let (place, run) = (Columns::group(width, task / runs), task % runs);
        let (x_columns, dy_columns) = columns.split_at_mut(CHANNELS * stride);
        for example in run * per_run..((run + 1) * per_run).min(batch) {
            let start = example * length * width;
            place.load(&x[start..], length, x_columns, stride);
            place.load(&dy[start..], length, dy_columns, stride);
            for column in 0..place.count {
                let kernel = &spectra[(place.first + column) * bins..][..bins];
                transformed(&transform, room, &x_columns[column * stride..][..length])?;
                of_x.copy_from_slice(&room.spectrum);
                let dy = &mut dy_columns[column * stride..][..length];
                transformed(&transform, room, dy)?;
                let sums = &mut sums[column * bins..][..bins];
                for (((d, u), k), sum) in room.spectrum.iter_mut().zip(&*of_x).zip(kernel).zip(sums)
                {
                    *sum += u.conj() * *d;
                    *d *= k.conj();
                }
                transform.inverse(room)?;
                dy.copy_from_slice(&room.sequence[..length]);
            }
            // SAFETY: the columns of an example belong to one task.
            unsafe { place.store(&out, start, 0..length, |c, t| dy_columns[c * stride + t]) };
        }
        Ok::<_, candle_core::Error>(())
    };
    let tasks = sums.par_chunks_mut(CHANNELS * bins).enumerate();
    tasks.try_for_each(|(task, sums)| rooms.lend(|room| run(room, task, sums)))?;
    drop(rooms);

    let mut dkernel = vec![number::<T>(0.0); kernel.len()];
    let share = number::<T>(1.0 / sizes.n as f64);
    let channels = dkernel.par_chunks_mut(sizes.taps.max(1)).enumerate();
    let rooms = Workspaces::new(sizes.width, || transform.room());
    channels.try_for_each(|(channel, taps)| {
        rooms.lend(|room| {
            let (group, column) = (channel / CHANNELS, channel % CHANNELS);
            room.spectrum.fill(Complex::default());
            for run in 0..runs {
                let sums = &sums[((group * runs + run) * CHANNELS + column) * bins..][..bins];
                for (total, sum) in room.spectrum.iter_mut().zip(sums) {
                    *total += sum;
                }
            }
            transform.inverse(room)?;
            for (tap, gradient) in taps.iter_mut().enumerate() {
                let place = sizes.place(tap);
                *gradient = place.map_or(number(0.0), |place| room.sequence[place] * share);
            }
            Ok::<_, candle_core::Error>(())
        })
    })?;
    Ok((dx, dkernel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_lengths_are_even_and_smooth() {
        let lengths = [0, 1, 2, 7, 11, 14, 1023, 8191].map(fast_length);
        assert_eq!(lengths, [2, 2, 2, 8, 12, 16, 1024, 8192]);
    }
}
