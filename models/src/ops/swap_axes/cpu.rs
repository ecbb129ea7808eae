//! Axes 1 and 2 of a tensor swapped, as a copy: channels before positions, heads before positions,
//! and back.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::unspecified;
use lra_cpu::tile::transpose;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Columns of a task, and rows that are copied together, so that lines of the cache are read and
/// written whole.
const COLUMNS: usize = 64;
const ROWS: usize = 16;

/// Returns x (B, M, N) or (B, M, N, E) as (B, N, M) or (B, N, M, E).
///
/// # Errors
/// For another number of axes.
pub(crate) fn swap_axes(x: &Tensor) -> Result<Tensor> {
    let sizes = match *x.dims() {
        [_, rows, columns] => (rows, columns, 1),
        [_, rows, columns, width] => (rows, columns, width),
        ref dims => bail!("{}: {} axes", SwapAxes::NAME, dims.len()),
    };
    let mut dims = x.dims().to_vec();
    dims.swap(1, 2);
    apply(SwapAxes { sizes, dims }, [x])
}

/// Returns x (B, L, H E) as (B, H, L, E).
///
/// # Errors
/// For another number of axes, or columns that are none of so many heads.
pub(crate) fn split_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (batch, length, row) = x.dims3()?;
    if heads == 0 || !row.is_multiple_of(heads) {
        bail!("{}: {row} columns of {heads} heads", SwapAxes::NAME);
    }
    let width = row / heads;
    let op = SwapAxes {
        sizes: (length, heads, width),
        dims: vec![batch, heads, length, width],
    };
    apply(op, [x])
}

/// Returns x (B, H, L, E) as (B, L, H E).
///
/// # Errors
/// For another number of axes.
pub(crate) fn merge_heads(x: &Tensor) -> Result<Tensor> {
    let (batch, heads, length, width) = x.dims4()?;
    let op = SwapAxes {
        sizes: (heads, length, width),
        dims: vec![batch, length, heads * width],
    };
    apply(op, [x])
}

struct SwapAxes {
    /// M, N and E of the operand, E 1 if there is none.
    sizes: (usize, usize, usize),
    /// Dimensions of the result.
    dims: Vec<usize>,
}

impl CustomOp<1> for SwapAxes {
    const NAME: &'static str = "swap_axes";
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [x]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let y = swapped(x.data, self.sizes);
        Ok((y, self.dims.as_slice().into(), ()))
    }

    fn backward(&self, _: [View; 1], pass: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
        let (rows, columns, width) = self.sizes;
        Ok([swapped(pass.dy, (columns, rows, width)).into()])
    }
}

/// Maps (B, M, N, E) to (B, N, M, E).
fn swapped(x: &[f32], (rows, columns, width): (usize, usize, usize)) -> Vec<f32> {
    let mut y = unspecified(x.len());
    let matrix = rows * columns * width;
    if matrix == 0 {
        return y;
    }
    let strip = COLUMNS * rows * width;
    let examples = y.par_chunks_mut(matrix).zip(x.par_chunks(matrix));
    examples.for_each(|(y, x)| {
        y.par_chunks_mut(strip).enumerate().for_each(|(task, y)| {
            let first = task * COLUMNS;
            let x = &x[first * width..];
            match width {
                1 => transpose_strip((x, columns), (y, rows)),
                _ => swap_strip((x, columns), (y, rows), width),
            }
        });
    });
    y
}

/// Transposes some columns of numbers to rows.
fn transpose_strip((x, columns): (&[f32], usize), (y, rows): (&mut [f32], usize)) {
    let count = y.len() / rows;
    let whole = rows / ROWS * ROWS;
    for first in (0..whole).step_by(ROWS) {
        let row = |r: usize| Some(&x[(first + r) * columns..][..count]);
        transpose::<ROWS>(std::array::from_fn(row), 1.0, (&mut y[first..], rows));
    }
    for row in whole..rows {
        let numbers = &x[row * columns..][..count];
        for (y, x) in y[row..].iter_mut().step_by(rows).zip(numbers) {
            *y = *x;
        }
    }
}

/// Transposes some columns of `width` numbers to rows of as many.
fn swap_strip((x, columns): (&[f32], usize), (y, rows): (&mut [f32], usize), width: usize) {
    for block in (0..rows).step_by(ROWS) {
        let block = block..(block + ROWS).min(rows);
        for (column, y) in y.chunks_exact_mut(rows * width).enumerate() {
            for row in block.clone() {
                let from = (row * columns + column) * width;
                y[row * width..][..width].copy_from_slice(&x[from..from + width]);
            }
        }
    }
}
