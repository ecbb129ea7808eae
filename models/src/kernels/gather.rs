//! Rows of sequences by index, zeros for an index past the last row, and rows added up by
//! index. Each is the other's backward pass. Sums of one row run in order of the rows added.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::buffers::{chunk_rows, floats, read, tensor, uninit};

/// Chunks of the rows of a result, and the fewest rows of one.
const CHUNKS: usize = 64;
const LEAST_ROWS: usize = 64;

/// x (G, L, E) to y (G, M, E), `y_gm = x_g[i_gm]`, zeros where i is not below L; `indices` are (G, M).
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn take_rows(x: &Tensor, indices: &Arc<[u32]>, places: usize) -> Result<Tensor> {
    let indices = indices.clone();
    x.contiguous()?.apply_op1(TakeRows { indices, places })
}

/// x (G, M, E) to y (G, L, E), `y_gl = Σ x_gm` over `i_gm = l`; rows whose i is not below L are left out.
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn add_rows(x: &Tensor, indices: &Arc<[u32]>, length: usize) -> Result<Tensor> {
    let indices = indices.clone();
    x.contiguous()?.apply_op1(AddRows { indices, length })
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

impl CustomOp1 for TakeRows {
    fn name(&self) -> &'static str {
        "take-rows"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (groups, length, width) = layout.shape().dims3()?;
        if groups * self.places != self.indices.len() {
            bail!("take-rows: x {:?} has other indices", layout.shape());
        }
        let x = floats("take-rows", x, layout)?;
        let y = taken(x, &self.indices, (length, self.places, width));
        Ok((CpuStorage::F32(y), (groups, self.places, width).into()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let (_, length, width) = x.dims3()?;
        let dy = dy.contiguous()?;
        let dy = read("take-rows", &dy)?;
        let dx = added(&dy, &self.indices, (length, self.places, width));
        Ok(Some(tensor(dx, x.shape())?))
    }
}

impl CustomOp1 for AddRows {
    fn name(&self) -> &'static str {
        "add-rows"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (groups, places, width) = layout.shape().dims3()?;
        if groups * places != self.indices.len() {
            bail!("add-rows: x {:?} has other indices", layout.shape());
        }
        let x = floats("add-rows", x, layout)?;
        let y = added(x, &self.indices, (self.length, places, width));
        Ok((CpuStorage::F32(y), (groups, self.length, width).into()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let (_, places, width) = x.dims3()?;
        let dy = dy.contiguous()?;
        let dy = read("add-rows", &dy)?;
        let dx = taken(&dy, &self.indices, (self.length, places, width));
        Ok(Some(tensor(dx, x.shape())?))
    }
}

/// Rows of x (G, L, E) as (G, M, E).
fn taken(x: &[f32], indices: &[u32], (length, places, width): (usize, usize, usize)) -> Vec<f32> {
    let mut y = uninit(indices.len() * width);
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

/// Rows of x (G, M, E) added up to (G, L, E).
fn added(x: &[f32], indices: &[u32], (length, places, width): (usize, usize, usize)) -> Vec<f32> {
    let groups = indices.len() / places.max(1);
    let mut y = vec![0.0; groups * length * width];
    if y.is_empty() {
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
