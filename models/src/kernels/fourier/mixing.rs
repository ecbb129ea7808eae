//! The real part of the two-dimensional transform over length and width, by which FNet mixes tokens (arXiv 2105.03824):
//! y = s Re(DFT_L(DFT_D(x))). The transform is symmetric, so its backward pass is itself.
//!
//! Rows are real, so half of their spectra is enough: with Z the two-dimensional transform, Re Z_{l,d} = Re Z_{-l,-d}.

use std::sync::PoisonError;

use candle_core::{Result, Shape, Tensor};
use rayon::prelude::*;
use realfft::num_complex::Complex;

use super::transform::Transform;
use super::{Real, apply, number};
use crate::kernels::custom_op::{BackwardPass, CustomOp, Gradient, View};

/// Rows or columns of one task.
const TOGETHER: usize = 8;

/// x (B, L, D) to y (B, L, D), times `scale` s.
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

fn mix<T: Real>(x: &[T], (_, length, width): (usize, usize, usize), scale: T) -> Result<Vec<T>> {
    let mut y = vec![number::<T>(0.0); x.len()];
    if x.is_empty() {
        return Ok(y);
    }
    let along_width = Transform::<T>::new(width);
    let along_length = {
        // Plans are whole, whatever thread has panicked beside them.
        let planner = T::complex().lock();
        planner
            .unwrap_or_else(PoisonError::into_inner)
            .plan_fft_forward(length)
    };
    let bins = along_width.bins();
    let room = || {
        let scratch = along_length.get_inplace_scratch_len();
        vec![Complex::<T>::default(); scratch]
    };
    let examples = y
        .par_chunks_mut(length * width)
        .zip(x.par_chunks(length * width));
    examples.try_for_each(|(y, x)| {
        // (L, bins): spectra of the rows.
        let mut rows = vec![Complex::<T>::default(); length * bins];
        let tasks = rows.par_chunks_mut(bins).zip(x.par_chunks(width));
        tasks.with_min_len(TOGETHER).try_for_each_init(
            || along_width.room(),
            |room, (spectrum, row)| {
                room.sequence.copy_from_slice(row);
                along_width.forward(room)?;
                spectrum.copy_from_slice(&room.spectrum);
                Ok::<_, candle_core::Error>(())
            },
        )?;
        // (bins, L): spectra of their columns.
        let mut columns = vec![Complex::<T>::default(); length * bins];
        let tasks = columns.par_chunks_mut(TOGETHER * length).enumerate();
        tasks.for_each_init(room, |scratch, (task, columns)| {
            let (first, count) = (task * TOGETHER, columns.len() / length);
            for (l, row) in rows.chunks_exact(bins).enumerate() {
                for (column, z) in row[first..first + count].iter().enumerate() {
                    columns[column * length + l] = *z;
                }
            }
            for column in columns.chunks_exact_mut(length) {
                along_length.process_with_scratch(column, scratch);
            }
        });
        let tasks = y.par_chunks_mut(TOGETHER * width).enumerate();
        tasks.for_each(|(task, y)| {
            let first = task * TOGETHER;
            for d in 0..width {
                let mirrored = d >= bins;
                let column = if mirrored { width - d } else { d };
                let column = &columns[column * length..][..length];
                for (l, row) in (first..).zip(y.chunks_exact_mut(width)) {
                    let l = if mirrored { (length - l) % length } else { l };
                    row[d] = column[l].re * scale;
                }
            }
        });
        Ok::<_, candle_core::Error>(())
    })?;
    Ok(y)
}
