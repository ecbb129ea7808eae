//! Rows of sequences by index: members of clusters taken out, sums and means over clusters, and
//! back.
//!
//! There is one list of indices per sequence, with any leading axes: (B, H, ...) for attention by
//! clusters. [`take`] picks the members of a cluster, or copies the result of its cluster to each
//! position; [`segment_sum`] and [`segment_mean`] add up the rows of the positions of each cluster.
//! [`take`] and [`segment_sum`] are each other's backward pass.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use candle_core::{D, DType, Tensor};

use super::check;
use crate::Result;
use crate::ops::supports;

/// Index that stands for no row: it reads as zeros, and additions to it are dropped. It is for
/// padded positions, and for clusters with fewer members than places.
pub const IGNORE_INDEX: u32 = u32::MAX;

/// Returns rows of x (.., L, E) by their index along L, (.., M, E):
/// `y[.., m, :] = x[.., indices[.., m], :]`.
///
/// `indices` are (.., M) of type u32, M for each sequence, with the leading axes of x. A row may be
/// taken any number of times, and [`IGNORE_INDEX`] gives zeros. This is NumPy's `take_along_axis`
/// with whole rows. The gradient of a row is the sum of the gradients of its copies, in order of m.
/// Indices are read and checked on the host. It takes O(M E) time and memory for each sequence.
///
/// # Errors
/// If shapes do not fit, or an index is neither below L nor [`IGNORE_INDEX`].
pub fn take(x: &Tensor, indices: &Tensor) -> Result<Tensor> {
    let rows = Rows::new("take", x, indices, None)?;
    if supports(x) {
        return Ok(cpu::take_rows(x, &rows.indices, rows.places)?);
    }
    rows.shape(composed::take(x, &rows)?, rows.places)
}

/// Returns rows `from` (M) of x (1, R, E), zeros for [`IGNORE_INDEX`], as (1, M, E), each taken
/// once at most: `back` (R) says where, so that the gradient is the same operation with the two
/// exchanged.
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn move_rows(x: &Tensor, from: &Arc<[u32]>, back: &Arc<[u32]>) -> Result<Tensor> {
    let fits = x.rank() == 3 && x.dims()[..2] == [1, back.len()];
    check(fits, "move rows", || {
        format!("x {:?} has not {} rows", x.shape(), back.len())
    })?;
    if supports(x) {
        return Ok(cpu::move_rows(x, from, back)?);
    }
    take(x, &Tensor::from_slice(from, (1, from.len()), x.device())?)
}

/// Returns sums of the rows of x (.., M, E) with the same segment, (.., `count`, E):
/// `y[.., c, :] = Σ x[.., m, :]` over `segments[.., m] = c`.
///
/// `segments` are (.., M) of type u32. A segment without rows gives zeros. Rows with the segment
/// [`IGNORE_INDEX`] are left out. This is JAX's `segment_sum`, for each sequence by itself. Sums
/// run in order of m and take O(M E) time.
///
/// # Errors
/// If shapes do not fit, or a segment is neither below `count` nor [`IGNORE_INDEX`].
pub fn segment_sum(x: &Tensor, segments: &Tensor, count: usize) -> Result<Tensor> {
    let rows = Rows::new("segment sum", x, segments, Some(count))?;
    if supports(x) {
        return Ok(cpu::add_rows(x, &rows.indices, count)?);
    }
    rows.shape(composed::segment_sum(x, &rows)?, count)
}

/// Returns means (.., `count`, E) of the rows of x (.., M, E) with the same segment, as
/// [`segment_sum`] returns sums. `segments` are (.., M) of type u32. A segment without rows gives
/// zeros.
///
/// # Errors
/// Errors of [`segment_sum`].
pub fn segment_mean(x: &Tensor, segments: &Tensor, count: usize) -> Result<Tensor> {
    let sizes = segment_sizes(segments, count)?.to_device(x.device())?;
    let sizes = sizes.to_dtype(x.dtype())?;
    let one = sizes.ones_like()?;
    let share = one.div(&sizes.maximum(&one)?)?;
    Ok(segment_sum(x, segments, count)?.broadcast_mul(&share.unsqueeze(D::Minus1)?)?)
}

/// Returns how many of `segments` (..., M) are 0, 1, ...: (..., `count`), f32, on the segments'
/// device, without gradient.
///
/// # Errors
/// If `segments` is not u32, or one is neither below `count` nor [`IGNORE_INDEX`].
pub(crate) fn segment_sizes(segments: &Tensor, count: usize) -> Result<Tensor> {
    let ones = Tensor::ones(segments.shape(), DType::F32, segments.device())?;
    let sizes = segment_sum(&ones.unsqueeze(D::Minus1)?, segments, count)?;
    Ok(sizes.squeeze(D::Minus1)?)
}

/// An operand with indices, its leading axes flattened to G sequences.
struct Rows {
    leading: Vec<usize>,
    /// (G, rows, E) of the operand.
    of_x: (usize, usize, usize),
    /// Indices of a sequence (M), of all sequences one after the other.
    places: usize,
    indices: Arc<[u32]>,
    /// Indices are below this.
    bound: usize,
}

impl Rows {
    /// Checks operands. `count` is the number of rows that indices name; None: the rows of x, of
    /// which there may be more than indices.
    fn new(operation: &str, x: &Tensor, indices: &Tensor, count: Option<usize>) -> Result<Self> {
        let (x_dims, dims) = (x.dims(), indices.dims());
        let axes = x_dims.len().wrapping_sub(2);
        let fits = axes.checked_add(1) == Some(dims.len())
            && x_dims[..axes] == dims[..axes]
            && (count.is_none() || x_dims[axes] == dims[axes])
            && indices.dtype() == DType::U32;
        check(fits, operation, || {
            let dtype = indices.dtype();
            format!("x {x_dims:?} and indices {dims:?} ({dtype:?}) do not fit")
        })?;
        let bound = count.unwrap_or(x_dims[axes]);
        let host = indices.flatten_all()?.to_vec1::<u32>()?;
        let stray = |i: &&u32| **i != IGNORE_INDEX && **i as usize >= bound;
        let stray = host.iter().find(stray);
        check(stray.is_none(), operation, || {
            format!("index {} is not below {bound}", stray.unwrap_or(&0))
        })?;
        Ok(Self {
            leading: dims[..axes].to_vec(),
            of_x: (
                dims[..axes].iter().product(),
                x_dims[axes],
                x_dims[axes + 1],
            ),
            places: dims[axes],
            indices: host.into(),
            bound,
        })
    }

    /// Returns (G, rows, E) with the leading axes of the operand.
    fn shape(&self, y: Tensor, rows: usize) -> Result<Tensor> {
        let shape = [self.leading.as_slice(), &[rows, self.of_x.2]].concat();
        Ok(y.reshape(shape)?)
    }
}

/// The operations composed of candle's: all sequences as one with a row of zeros behind each, which
/// `IGNORE_INDEX` selects.
mod composed {
    use super::{IGNORE_INDEX, Result, Rows, Tensor};

    pub(super) fn take(x: &Tensor, rows: &Rows) -> Result<Tensor> {
        let (groups, length, width) = rows.of_x;
        let x = x.reshape(rows.of_x)?.pad_with_zeros(1, 0, 1)?;
        let x = x.reshape((groups * (length + 1), width))?;
        let y = x.index_select(&indices(x.device(), rows)?, 0)?;
        Ok(y.reshape((groups, rows.places, width))?)
    }

    pub(super) fn segment_sum(x: &Tensor, rows: &Rows) -> Result<Tensor> {
        let (groups, places, width) = rows.of_x;
        let sums = (groups * (rows.bound + 1), width);
        let sums = Tensor::zeros(sums, x.dtype(), x.device())?;
        let x = x.reshape((groups * places, width))?;
        let y = sums.index_add(&indices(x.device(), rows)?, &x, 0)?;
        let y = y.reshape((groups, rows.bound + 1, width))?;
        Ok(y.narrow(1, 0, rows.bound)?)
    }

    fn indices(device: &candle_core::Device, rows: &Rows) -> Result<Tensor> {
        let row = |(place, index): (usize, &u32)| {
            let group = place / rows.places;
            let row = match *index {
                IGNORE_INDEX => rows.bound,
                index => index as usize,
            };
            (group * (rows.bound + 1) + row) as i64
        };
        let all: Vec<i64> = rows.indices.iter().enumerate().map(row).collect();
        Ok(Tensor::from_vec(all, rows.indices.len(), device)?)
    }
}
