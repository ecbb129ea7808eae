//! The real part of the two-dimensional transform over length and width, by which FNet mixes tokens
//! (arXiv 2105.03824): y = s Re(DFT_L(DFT_D(x))). The transform is symmetric, so its backward pass
//! is itself.
//!
//! Rows are real, so half of their spectra is enough: with Z the two-dimensional transform, Re
//! Z_{l,d} = Re Z_{-l,-d}.

use candle_core::{Result, Shape, Tensor};
use lra_cpu::buffers::Shared;
use lra_cpu::fft::Complex;
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use super::transform::Transform;
use super::{Real, apply, number};
use crate::autograd::{BackwardPass, CustomOp, Gradient, View};

/// Columns of a task.
const ROWS: usize = 8;
/// Rows of a task.
const ROWS_OF_TASK: usize = 64;

/// Maps x (B, L, D) to y (B, L, D), times `scale` s.
///
/// # Errors
/// If x has not three axes, or the type is neither f32 nor f64.
pub(crate) fn mix_tokens(x: &Tensor, scale: f64) -> Result<Tensor> {
    apply(Mixing { scale }, [x])
}

struct Mixing {
    scale: f64,
}

impl<T: Real> CustomOp<1, T> for Mixing {
    const NAME: &'static str = "fourier mixing";
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [x]: [View<T>; 1], _: bool) -> Result<(Vec<T>, Shape, ())> {
        let y = mix(x.data, x.shape.dims3()?, number(self.scale))?;
        Ok((y, x.shape, ()))
    }

    fn backward(
        &self,
        [x]: [View<T>; 1],
        pass: BackwardPass<(), 1, T>,
    ) -> Result<[Gradient<T>; 1]> {
        Ok([mix(pass.dy, x.shape.dims3()?, number(self.scale))?.into()])
    }
}

fn mix<T: Real>(
    x: &[T],
    (batch, length, width): (usize, usize, usize),
    scale: T,
) -> Result<Vec<T>> {
    let mut y = vec![number::<T>(0.0); x.len()];
    if x.is_empty() {
        return Ok(y);
    }
    let along_width = Transform::<T>::new(width);
    let along_length = T::plan_fft(length);
    let bins = along_width.bins();
    let room = || {
        let scratch = along_length.get_inplace_scratch_len();
        [ROWS * length, scratch].map(|len| vec![Complex::<T>::default(); len])
    };
    // As many examples at once as there are threads.
    let at_once = batch.min(rayon::current_num_threads());
    // (examples, L, bins): spectra of the rows.
    let mut spectra = vec![Complex::<T>::default(); at_once * length * bins];
    let blocks = bins.div_ceil(ROWS);
    let group = at_once * length * width;
    for (y, x) in y.chunks_mut(group).zip(x.chunks(group)) {
        let examples = x.len() / (length * width);
        let spectra = &mut spectra[..examples * length * bins];
        let tasks = spectra.par_chunks_mut(ROWS_OF_TASK * bins);
        let tasks = tasks.zip(x.par_chunks(ROWS_OF_TASK * width));
        let rooms = Workspaces::new(tasks.len(), || along_width.room());
        tasks.try_for_each(|(spectra, x)| {
            rooms.lend(|room| {
                for (spectrum, row) in spectra.chunks_exact_mut(bins).zip(x.chunks_exact(width)) {
                    room.sequence.copy_from_slice(row);
                    along_width.forward(room)?;
                    spectrum.copy_from_slice(&room.spectrum);
                }
                Ok::<_, candle_core::Error>(())
            })
        })?;
        drop(rooms);
        // Spectra of their columns, (columns, L), of which only the wanted ones are kept.
        let y = Shared::new(y);
        let run = |[columns, scratch]: &mut [Vec<Complex<T>>; 2], task: usize| {
            let (example, first) = (task / blocks, task % blocks * ROWS);
            let rows = &spectra[example * length * bins..][..length * bins];
            let start = example * length * width;
            let count = ROWS.min(bins - first);
            // Some rows at a time, so that lines of the cache are read and written whole.
            for (block, rows) in rows.chunks(ROWS * bins).enumerate() {
                let columns = columns.chunks_exact_mut(length).take(count);
                for (column, to) in (first..).zip(columns) {
                    let to = &mut to[block * ROWS..];
                    for (to, row) in to.iter_mut().zip(rows.chunks_exact(bins)) {
                        *to = row[column];
                    }
                }
            }
            for column in columns.chunks_exact_mut(length).take(count) {
                along_length.process_with_scratch(column, scratch);
            }
            // Columns d and D - d, for d from 1 up to the column that is its own mirror image.
            let mirrored = first.max(1)..(first + count).min(width - bins + 1);
            for l in 0..length {
                // SAFETY: this task alone has these columns, and those that mirror them.
                let to = unsafe { y.slice(start + l * width + first, count) };
                for (column, y) in to.iter_mut().enumerate() {
                    *y = columns[column * length + l].re * scale;
                }
                if mirrored.is_empty() {
                    continue;
                }
                let from = (length - l) % length;
                let start = start + l * width + width + 1 - mirrored.end;
                // SAFETY: as above.
                let to = unsafe { y.slice(start, mirrored.len()) };
                for (d, y) in mirrored.clone().rev().zip(to) {
                    *y = columns[(d - first) * length + from].re * scale;
                }
            }
        };
        let tasks = (0..examples * blocks).into_par_iter();
        let rooms = Workspaces::new(tasks.len(), room);
        tasks.for_each(|task| rooms.lend(|room| run(room, task)));
    }
    Ok(y)
}
