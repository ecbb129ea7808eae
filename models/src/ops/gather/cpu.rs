//! Rows of sequences by index, zeros for an index past the last row, and rows added up by
//! index. Each is the other's backward pass. Sums of one row run in order of the rows added.

use std::sync::Arc;

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{chunk_rows, unspecified};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Chunks of the rows of a result, and the fewest rows of one.
const CHUNKS: usize = 64;
const LEAST_ROWS: usize = 64;

/// Returns x (.., L, E) of G sequences to y (.., M, E), `y_gm = x_g[i_gm]`, zeros where i is not
/// below L; `indices` are (G, M).
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn take_rows(x: &Tensor, indices: &Arc<[u32]>, places: usize) -> Result<Tensor> {
    let indices = indices.clone();
    apply(TakeRows { indices, places }, [x])
}

/// Returns x (.., M, E) of G sequences to y (.., L, E), `y_gl = Σ x_gm` over `i_gm = l`; rows whose
/// i is not below L are left out.
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn add_rows(x: &Tensor, indices: &Arc<[u32]>, length: usize) -> Result<Tensor> {
    let indices = indices.clone();
    apply(AddRows { indices, length }, [x])
}

/// Maps x (G, L, E) to y (1, M, E), rows `from` (M) of the G L rows of x, zeros for one that is not
/// below G L. Each row is taken once at most: `back` (G L) says where, not below M if nowhere.
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn move_rows(x: &Tensor, from: &Arc<[u32]>, back: &Arc<[u32]>) -> Result<Tensor> {
    let (from, back) = (from.clone(), back.clone());
    apply(MoveRows { from, back }, [x])
}

struct MoveRows {
    from: Arc<[u32]>,
    back: Arc<[u32]>,
}

struct TakeRows {
    indices: Arc<[u32]>,
    /// M.
    places: usize,
}

struct AddRows {
    indices: Arc<[u32]>,
    /// L.
    length: usize,
}

/// Returns the number of sequences, of rows in each, and of elements in a row.
fn sequences(name: &str, shape: &Shape) -> Result<(usize, usize, usize)> {
    match shape.dims() {
        [leading @ .., rows, width] => Ok((leading.iter().product(), *rows, *width)),
        dims => bail!("{name}: {dims:?} has no rows"),
    }
}

/// Returns the shape of sequences of so many rows.
fn with_rows(shape: &Shape, rows: usize) -> Shape {
    let mut dims = shape.dims().to_vec();
    if let [.., own, _] = dims.as_mut_slice() {
        *own = rows;
    }
    dims.into()
}

impl CustomOp<1> for TakeRows {
    const NAME: &'static str = "take-rows";
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [x]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let (groups, length, width) = sequences(Self::NAME, &x.shape)?;
        if groups * self.places != self.indices.len() {
            bail!("{}: x {:?} has other indices", Self::NAME, x.shape);
        }
        let y = taken(x.data, &self.indices, (length, self.places, width));
        Ok((y, with_rows(&x.shape, self.places), ()))
    }

    fn backward(&self, [x]: [View; 1], pass: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
        let (groups, length, width) = sequences(Self::NAME, &x.shape)?;
        let dx = added(pass.dy, &self.indices, groups, (length, self.places, width));
        Ok([dx.into()])
    }
}

impl CustomOp<1> for AddRows {
    const NAME: &'static str = "add-rows";
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [x]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let (groups, places, width) = sequences(Self::NAME, &x.shape)?;
        if groups * places != self.indices.len() {
            bail!("{}: x {:?} has other indices", Self::NAME, x.shape);
        }
        let y = added(x.data, &self.indices, groups, (self.length, places, width));
        Ok((y, with_rows(&x.shape, self.length), ()))
    }

    fn backward(&self, [x]: [View; 1], pass: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
        let (_, places, width) = sequences(Self::NAME, &x.shape)?;
        let dx = taken(pass.dy, &self.indices, (self.length, places, width));
        Ok([dx.into()])
    }
}

impl CustomOp<1> for MoveRows {
    const NAME: &'static str = "move-rows";
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [x]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let (groups, length, width) = x.shape.dims3()?;
        let (rows, places) = (self.back.len(), self.from.len());
        if groups * length != rows {
            bail!("{}: x {:?} has not {rows} rows", Self::NAME, x.shape);
        }
        let y = taken(x.data, &self.from, (rows, places, width));
        Ok((y, (1, places, width).into(), ()))
    }

    fn backward(&self, [x]: [View; 1], pass: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
        let (_, _, width) = x.shape.dims3()?;
        let (rows, places) = (self.back.len(), self.from.len());
        let dx = taken(pass.dy, &self.back, (places, rows, width));
        Ok([dx.into()])
    }
}

/// Returns rows of x (G, L, E) as (G, M, E).
fn taken(x: &[f32], indices: &[u32], (length, places, width): (usize, usize, usize)) -> Vec<f32> {
    let mut y = unspecified(indices.len() * width);
    if y.is_empty() {
        return y;
    }
    let rows = chunk_rows(indices.len(), LEAST_ROWS, CHUNKS);
    let chunks = y.par_chunks_mut(rows * width).enumerate();
    chunks.for_each(|(chunk, y)| {
        for (i, y) in y.chunks_exact_mut(width).enumerate() {
            let place = chunk * rows + i;
            let row = indices[place] as usize;
            if row < length {
                y.copy_from_slice(&x[(place / places * length + row) * width..][..width]);
            } else {
                y.fill(0.0);
            }
        }
    });
    y
}

/// Adds rows of x (G, M, E) up to (G, L, E), zeros where there are none.
fn added(
    x: &[f32],
    indices: &[u32],
    groups: usize,
    (length, places, width): (usize, usize, usize),
) -> Vec<f32> {
    let mut y = vec![0.0; groups * length * width];
    if y.is_empty() || places == 0 {
        return y;
    }
    let sequences = y.par_chunks_mut(length * width);
    let rows = indices.par_chunks(places).zip(x.par_chunks(places * width));
    sequences.zip(rows).for_each(|(y, (indices, x))| {
        for (row, x) in indices.iter().zip(x.chunks_exact(width)) {
            let row = *row as usize;
            if row < length {
                let y = &mut y[row * width..][..width];
                y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
            }
        }
    });
    y
}
