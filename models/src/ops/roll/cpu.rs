//! Tracks of channels rolled along rings of positions, added to a residual: `y_tc = r_tc + x_sc`, s
//! so many places after t in its ring as c's track says. dr = dy, and dx is dy rolled back.

use std::sync::Arc;

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{chunk_rows, unspecified};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Chunks of the rows of a result, and the fewest rows of one.
const CHUNKS: usize = 64;
const LEAST_ROWS: usize = 64;

/// Run of neighbouring channels whose values move along a ring of positions by the same number of
/// places (see [`Rings`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    /// Index of the first channel, from 0.
    pub start: usize,
    /// Number of channels.
    pub width: usize,
    /// Number of places in the ring from a position to the later one that it reads.
    pub shift: usize,
}

/// Rings of positions along which channels are rolled, one for each sequence of a batch. In a ring
/// the first position follows the last one. A position in no ring keeps its channels.
#[derive(Debug)]
pub struct Rings {
    pub(crate) batch: usize,
    pub(crate) length: usize,
    /// (B, L): the positions of a row's ring, followed by numbers that are never read.
    order: Vec<u32>,
    /// (B, L): a position's place in its ring; [`ALONE`] if it is in none.
    places: Vec<u32>,
    /// (B): positions in the ring.
    sizes: Vec<usize>,
}

const ALONE: u32 = u32::MAX;

impl Rings {
    /// Builds rings of the positions where `valid` (B L numbers, row by row) is not 0; of all
    /// positions if it is none.
    pub(crate) fn of(batch: usize, length: usize, valid: Option<&[f32]>) -> Self {
        let mut rings = Self {
            batch,
            length,
            order: vec![0; batch * length],
            places: vec![ALONE; batch * length],
            sizes: vec![0; batch],
        };
        for (row, size) in rings.sizes.iter_mut().enumerate() {
            let row = row * length..(row + 1) * length;
            let (order, places) = (
                &mut rings.order[row.clone()],
                &mut rings.places[row.clone()],
            );
            for (position, place) in places.iter_mut().enumerate() {
                if valid.is_none_or(|valid| valid[row.start + position] != 0.0) {
                    order[*size] = position as u32;
                    *place = *size as u32;
                    *size += 1;
                }
            }
        }
        rings
    }

    /// Returns the number of steps of a track of `shift` in the ring of `row`, in the opposite
    /// direction if `back`.
    pub(crate) fn steps(&self, row: usize, shift: usize, back: bool) -> usize {
        match self.sizes[row] {
            0 => 0,
            size if back => (size - shift % size) % size,
            size => shift % size,
        }
    }

    /// Returns the position `steps` places after `position` in the ring of `row`; itself if it is
    /// in none.
    #[inline(always)]
    pub(crate) fn ahead(&self, row: usize, position: usize, steps: usize) -> usize {
        let start = row * self.length;
        match self.places[start + position] {
            ALONE => position,
            place => {
                let (place, size) = (place as usize + steps, self.sizes[row]);
                let place = if place < size { place } else { place - size };
                self.order[start + place] as usize
            }
        }
    }
}

/// Returns `residual` plus x, both (B, L, D), with each of `tracks` rolled; they cover all
/// channels.
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn add_rolled(
    residual: &Tensor,
    x: &Tensor,
    tracks: &Arc<[Track]>,
    rings: &Arc<Rings>,
) -> Result<Tensor> {
    let (tracks, rings) = (tracks.clone(), rings.clone());
    apply(AddRolled { tracks, rings }, [residual, x])
}

struct AddRolled {
    tracks: Arc<[Track]>,
    rings: Arc<Rings>,
}

impl AddRolled {
    /// Returns x (B, L, D) rolled, plus `residual` if there is one.
    fn roll(&self, x: &[f32], residual: Option<&[f32]>, width: usize, back: bool) -> Vec<f32> {
        let mut y = unspecified(x.len());
        let Rings { batch, length, .. } = *self.rings;
        if y.is_empty() {
            return y;
        }
        let rows = chunk_rows(batch * length, LEAST_ROWS, CHUNKS);
        let chunks = y.par_chunks_mut(rows * width).enumerate();
        let workspaces = Workspaces::new(chunks.len(), || vec![0; self.tracks.len()]);
        let run = |steps: &mut Vec<usize>, chunk: usize, y: &mut [f32]| {
            for (i, y) in y.chunks_exact_mut(width).enumerate() {
                let (row, position) = ((chunk * rows + i) / length, (chunk * rows + i) % length);
                if i == 0 || position == 0 {
                    for (steps, track) in steps.iter_mut().zip(self.tracks.iter()) {
                        *steps = self.rings.steps(row, track.shift, back);
                    }
                }
                for (
                    Track {
                        start,
                        width: count,
                        ..
                    },
                    steps,
                ) in self.tracks.iter().zip(&*steps)
                {
                    let from = row * length + self.rings.ahead(row, position, *steps);
                    let x = &x[from * width + start..][..*count];
                    let y = &mut y[*start..][..*count];
                    match residual {
                        Some(residual) => {
                            let at = (row * length + position) * width + start;
                            let pairs = x.iter().zip(&residual[at..][..*count]);
                            y.iter_mut().zip(pairs).for_each(|(y, (x, r))| *y = x + r);
                        }
                        None => y.copy_from_slice(x),
                    }
                }
            }
        };
        chunks.for_each(|(chunk, y)| workspaces.lend(|steps| run(steps, chunk, y)));
        y
    }
}

impl CustomOp<2> for AddRolled {
    const NAME: &'static str = "add-rolled";
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [residual, x]: [View; 2], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let Rings { batch, length, .. } = *self.rings;
        let width: usize = self.tracks.iter().map(|track| track.width).sum();
        if x.shape.dims() != [batch, length, width] || residual.shape.dims() != x.shape.dims() {
            let (name, residual, x) = (Self::NAME, residual.shape, x.shape);
            bail!("{name}: {residual:?} and {x:?} are not ({batch}, {length}, {width})");
        }
        let y = self.roll(x.data, Some(residual.data), width, false);
        Ok((y, x.shape, ()))
    }

    fn backward(&self, [_, x]: [View; 2], pass: BackwardPass<(), 2>) -> Result<[Gradient; 2]> {
        let width = x.shape.dims3()?.2;
        let dx = self.roll(pass.dy, None, width, true);
        Ok([Gradient::PassThrough, dx.into()])
    }
}
