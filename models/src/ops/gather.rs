//! Rows of sequences by index: members of clusters taken out, sums and means over clusters, and back.
//!
//! One list of indices per sequence, whatever the leading axes are called: (B, H, ...) for attention by clusters.
//! [`take`] picks the members of a cluster, or hands each position what its cluster has computed; [`segment_sum`] and
//! [`segment_mean`] add up what positions hand to their cluster. Each of the two is the other's backward pass.

use std::sync::Arc;

use candle_core::{D, DType, Tensor};

use super::check;
use crate::{Result, kernels};

/// An index that stands for no row: it reads as zeros, and what is added there is left out. For padded positions, and
/// for clusters with fewer members than places.
pub const NOWHERE: u32 = u32::MAX;

/// Rows of x (..., L, E) by their index along L: `y[..., m, :] = x[..., indices[..., m], :]`.
///
/// `indices` is (..., M), u32, with the leading axes of x; a row may be taken any number of times, and [`NOWHERE`]
/// gives zeros. NumPy's `take_along_axis` with whole rows. The gradient of a row is the sum of what was taken from it, in
/// order of m. Indices are read on the host, where they are checked. O(M E) time and memory for each sequence.
///
/// # Errors
/// If shapes do not fit, or an index is neither below L nor [`NOWHERE`].
pub fn take(x: &Tensor, indices: &Tensor) -> Result<Tensor> {
    let rows = Rows::new("take", x, indices, None)?;
    if kernels::supports(x) {
        return Ok(kernels::take_rows(x, &rows.indices, rows.places)?);
    }
    rows.shape(composed::take(x, &rows)?, rows.places)
}

/// Rows `from` (M) of x (1, R, E), zeros for [`NOWHERE`], as (1, M, E), each taken once at most: `back` (R) says where, so that the gradient
/// is the same operation with the two exchanged.
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn move_rows(x: &Tensor, from: &Arc<[u32]>, back: &Arc<[u32]>) -> Result<Tensor> {
    let fits = x.rank() == 3 && x.dims()[..2] == [1, back.len()];
    check(fits, "move rows", || {
        format!("x {:?} has not {} rows", x.shape(), back.len())
    })?;
    if kernels::supports(x) {
        return Ok(kernels::move_rows(x, from, back)?);
    }
    take(x, &Tensor::from_slice(from, (1, from.len()), x.device())?)
}

/// Sums of the rows of x (..., M, E) with the same segment: `y[..., c, :] = Σ x[..., m, :]` over `segments[..., m] = c`.
///
/// `segments` is (..., M), u32, and y is (..., `count`, E), zeros for a segment without rows. Rows with the segment
/// [`NOWHERE`] are left out. JAX's `segment_sum`, for each sequence on its own. Summed in order of m; O(M E) time.
///
/// # Errors
/// If shapes do not fit, or a segment is neither below `count` nor [`NOWHERE`].
pub fn segment_sum(x: &Tensor, segments: &Tensor, count: usize) -> Result<Tensor> {
    let rows = Rows::new("segment sum", x, segments, Some(count))?;
    if kernels::supports(x) {
        return Ok(kernels::add_rows(x, &rows.indices, count)?);
    }
    rows.shape(composed::segment_sum(x, &rows)?, count)
}

/// Means instead of the sums of [`segment_sum`]; zeros for a segment without rows.
///
/// # Errors
/// As [`segment_sum`].
pub fn segment_mean(x: &Tensor, segments: &Tensor, count: usize) -> Result<Tensor> {
    let sizes = segment_sizes(segments, count)?.to_device(x.device())?;
    let sizes = sizes.to_dtype(x.dtype())?;
    let one = sizes.ones_like()?;
    let share = one.div(&sizes.maximum(&one)?)?;
    Ok(segment_sum(x, segments, count)?.broadcast_mul(&share.unsqueeze(D::Minus1)?)?)
}

/// How many of `segments` (..., M) are 0, 1, ...: (..., `count`), f32, on the segments' device. No gradient.
///
/// # Errors
/// If `segments` is not u32, or one is neither below `count` nor [`NOWHERE`].
pub fn segment_sizes(segments: &Tensor, count: usize) -> Result<Tensor> {
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
    /// `count` is the number of rows that indices name; None: the rows of x, of which there may be more than indices.
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
        let stray = |i: &&u32| **i != NOWHERE && **i as usize >= bound;
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

    /// (G, rows, E) with the leading axes of the operand.
    fn shape(&self, y: Tensor, rows: usize) -> Result<Tensor> {
        let shape = [self.leading.as_slice(), &[rows, self.of_x.2]].concat();
        Ok(y.reshape(shape)?)
    }
}

/// The same by candle's operations: all sequences as one with a row of zeros behind each, which NOWHERE names.
mod composed {
    use super::{NOWHERE, Result, Rows, Tensor};

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
                NOWHERE => rows.bound,
                index => index as usize,
            };
            (group * (rows.bound + 1) + row) as i64
        };
        let all: Vec<i64> = rows.indices.iter().enumerate().map(row).collect();
        Ok(Tensor::from_vec(all, rows.indices.len(), device)?)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::check_gradient;

    /// Indices below `bound`, one in eight NOWHERE.
    fn random(sampler: &mut Sampler, shape: &[usize], bound: usize) -> Tensor {
        let count = shape.iter().product();
        let one = |_| match sampler.bits() % 8 {
            0 => NOWHERE,
            _ => (sampler.bits() % bound as u64) as u32,
        };
        let all: Vec<u32> = (0..count).map(one).collect();
        Tensor::from_vec(all, shape, &Device::Cpu).unwrap()
    }

    #[test]
    fn rows_taken_and_added_are_those_of_plain_loops() {
        let mut sampler = Sampler::new(71);
        for length in 1..38 {
            let (places, width) = (2 * length % 13 + 1, length % 5 + 1);
            let x = sampler.normal(&[2, 3, length, width], 1.0);
            let indices = random(&mut sampler, &[2, 3, places], length);
            let back = random(&mut sampler, &[2, 3, length], places);
            let (taken, sums) = (
                take(&x, &indices).unwrap(),
                segment_sum(&x, &back, places).unwrap(),
            );
            let means = segment_mean(&x, &back, places).unwrap();
            let flat = |t: &Tensor| t.flatten(0, 1).unwrap().to_vec3::<f32>().unwrap();
            let lists = |t: &Tensor| t.flatten(0, 1).unwrap().to_vec2::<u32>().unwrap();
            let (x, taken, sums, means) = (flat(&x), flat(&taken), flat(&sums), flat(&means));
            let (indices, back) = (lists(&indices), lists(&back));
            for g in 0..6 {
                for (place, index) in indices[g].iter().enumerate() {
                    let wanted = match *index {
                        NOWHERE => vec![0.0; width],
                        index => x[g][index as usize].clone(),
                    };
                    assert_eq!(taken[g][place], wanted);
                }
                for segment in 0..places {
                    let mut wanted = vec![0.0; width];
                    let members = (0..length).filter(|m| back[g][*m] as usize == segment);
                    let count = members.clone().count().max(1) as f32;
                    for m in members {
                        wanted.iter_mut().zip(&x[g][m]).for_each(|(w, x)| *w += x);
                    }
                    assert_eq!(sums[g][segment], wanted);
                    for (mean, wanted) in means[g][segment].iter().zip(wanted) {
                        assert!((mean - wanted / count).abs() < 1e-6);
                    }
                }
            }
        }
    }

    #[test]
    fn kernels_meet_their_composed_form() {
        let mut sampler = Sampler::new(72);
        for (groups, length, places, width) in [(1, 1, 1, 1), (2, 37, 90, 3), (5, 300, 61, 33)] {
            let indices = random(&mut sampler, &[groups, places], length);
            let x = [sampler.normal(&[groups, length, width], 1.0)];
            let f = |x: &[Tensor]| Ok(take(&x[0], &indices)?);
            agree("take", &x, f, f);
            let segments = random(&mut sampler, &[groups, length], places);
            let f = |x: &[Tensor]| Ok(segment_sum(&x[0], &segments, places)?);
            agree("segment sum", &x, f, f);
            let f = |x: &[Tensor]| Ok(segment_mean(&x[0], &segments, places)?);
            agree("segment mean", &x, f, f);
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        let mut sampler = Sampler::new(73);
        let indices = random(&mut sampler, &[2, 2, 9], 5);
        check_gradient("take", &[&[2, 2, 5, 3]], |x| take(&x[0], &indices));
        check_gradient("segment mean", &[&[2, 2, 9, 3]], |x| {
            segment_mean(&x[0], &indices, 5)
        });
    }

    #[test]
    fn strided_operands_are_read_in_order() {
        let x = Sampler::new(74).normal(&[3, 7, 2], 1.0);
        let indices = Tensor::new(&[[6u32, 0], [1, 1], [NOWHERE, 3]], &Device::Cpu).unwrap();
        let strided = x.transpose(0, 1).unwrap().contiguous().unwrap();
        let strided = strided.transpose(0, 1).unwrap();
        let values = |x: &Tensor| take(x, &indices).unwrap().flatten_all().unwrap();
        let values = |x: &Tensor| values(x).to_vec1::<f32>().unwrap();
        assert_eq!(values(&x), values(&strided));
    }

    #[test]
    fn shapes_and_indices_that_do_not_fit_are_errors() {
        let x = Tensor::zeros((2, 3, 4), DType::F32, &Device::Cpu).unwrap();
        let message = |result: Result<Tensor>| result.unwrap_err().to_string();
        let stray = Tensor::new(&[[0u32, 1, 2], [0, 3, 0]], &Device::Cpu).unwrap();
        assert!(message(take(&x, &stray)).contains("index 3 is not below 3"));
        assert!(message(segment_sum(&x, &stray, 2)).contains("index 2 is not below 2"));
        assert!(message(take(&x, &stray.narrow(0, 0, 1).unwrap())).contains("do not fit"));
        assert!(segment_sum(&x, &stray.narrow(1, 0, 2).unwrap(), 9).is_err());
        assert!(take(&x, &stray.to_dtype(DType::F32).unwrap()).is_err());
    }
}
