//! The real part of the two-dimensional transform over length and width, by which FNet mixes tokens (arXiv 2105.03824):
//! y = Re(DFT_L(DFT_D(x))). The transform is symmetric, so its backward pass is itself.
//!
//! Rows are real, so half of their spectra is enough: with Z the two-dimensional transform, Re Z_{l,d} = Re Z_{-l,-d}.

use std::sync::PoisonError;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use realfft::num_complex::Complex;

use super::{NAME, Real, Transform, elements, number, typed};

/// Rows or columns of one task.
const TOGETHER: usize = 8;

/// x (B, L, D) to y (B, L, D).
///
/// # Errors
/// If x has not three axes, or the type is neither f32 nor f64.
pub(crate) fn mix_tokens(x: &Tensor) -> Result<Tensor> {
    x.contiguous()?.apply_op1(Mixing)
}

struct Mixing;

impl CustomOp1 for Mixing {
    fn name(&self) -> &'static str {
        "fourier mixing"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let y = typed!(x.dtype(), mix(x, layout))?;
        Ok((y, layout.shape().clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        Ok(Some(dy.contiguous()?.apply_op1_no_bwd(&Mixing)?))
    }
}

fn mix<T: Real>(x: &CpuStorage, layout: &Layout) -> Result<CpuStorage> {
    let (_, length, width) = layout.shape().dims3()?;
    let x = elements::<T>(x, layout)?;
    let mut y = vec![number::<T>(0.0); x.len()];
    if x.is_empty() {
        return Ok(T::to_cpu_storage_owned(y));
    }
    let along_width = Transform::<T>::new(width);
    let along_length = {
        // BlockMasks are whole, whatever thread has panicked beside them.
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
                    row[d] = column[l].re;
                }
            }
        });
        Ok::<_, candle_core::Error>(())
    })?;
    Ok(T::to_cpu_storage_owned(y))
}
