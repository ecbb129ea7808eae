//! A diagonal state space, every channel with states of its own that stay in registers: h_t = a
//! h_{t-1} + x_t for each of N modes, y_t = Re Σ_n c_n h_t + skip x_t (S4D, arXiv 2206.11893;
//! Mega's moving average, arXiv 2209.10655). `exclusive` reads h_{t-1} instead of h_t. Several
//! walks over the same x, with modes of their own and forward or backward, add up: y_t = skip x_t +
//! Σ over walks.
//!
//! A sequence is walked in tiles of [`TILE`] rows, all modes of a group of channels within a tile
//! before the next tile. The states at the start of each tile are kept for the backward pass, which
//! computes those within a tile again. With r_t the gradient of h_t as a whole: r_t = ā r_{t+1} +
//! c̄ dy_t, dx_t = Re r_t + skip dy_t, da = Σ r_t h̄_{t-1} and dc = Σ dy_t h̄_t; gradients are
//! those of the real plus i times those of the imaginary part.

mod backward;
mod forward;
mod task;

use std::sync::Arc;

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{Shared, split_mut, sum_partials, unspecified};
use lra_cpu::isa::Isa;
use rayon::prelude::*;

use self::backward::Backward;
use self::forward::Forward;
use self::task::Task;
use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "state-space";
/// Rows between two states that are kept.
const TILE: usize = 64;
/// Channels of one task: a cache line of each row.
const CHANNELS: usize = 16;
/// Options of [`state_space`].
#[derive(Clone, Debug)]
pub(crate) struct StateSpace {
    /// N.
    pub(crate) modes: usize,
    /// True if a and c are complex.
    pub(crate) complex: bool,
    /// Walks along the sequence, at least one.
    pub(crate) walks: Vec<ScanDirection>,
    /// Layout of the examples in x.
    pub(crate) rows: Rows,
}

/// Layout of the examples in x.
#[derive(Clone, Debug)]
pub(crate) enum Rows {
    /// (B, L, D), all of it.
    Full,
    /// (B, L, D) with a mask (B, L) of the rows that are valid, 1 or 0. The others count as zeros of
    /// x with any contents, and get no gradient. Their outputs are those of any row of zeros.
    Padded(Vec<f32>),
    /// (1, T, D), and the row where each of the B examples begins and the last one ends.
    Packed(Arc<[usize]>),
}

/// One walk along the sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanDirection {
    /// True for a walk from the last row to the first.
    pub(crate) reverse: bool,
    /// The output of a row does not see the row itself.
    pub(crate) exclusive: bool,
}

/// Maps x (B, L, D) to y (B, L, D). Rows of `parameters` are, for each walk, the real parts of a
/// (N, D), their imaginary parts if complex, c likewise; and skip (D).
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn state_space(x: &Tensor, parameters: &Tensor, options: StateSpace) -> Result<Tensor> {
    let (batch, length, _) = x.dims3()?;
    let fits = match &options.rows {
        Rows::Full => true,
        Rows::Padded(valid) => valid.len() == batch * length,
        Rows::Packed(offsets) => {
            let ends = (offsets.first(), offsets.last());
            batch == 1 && ends == (Some(&0), Some(&length)) && offsets.is_sorted()
        }
    };
    if !fits || options.walks.is_empty() {
        bail!("{NAME}: the rows of x {:?} lie elsewhere", x.shape());
    }
    apply(options, [x, parameters])
}

#[derive(Clone, Copy)]
struct Sizes {
    /// B.
    batch: usize,
    /// Rows of the longest example.
    length: usize,
    width: usize,
    groups: usize,
    /// Kept numbers of one walk of a task.
    kept: usize,
}

impl StateSpace {
    fn sizes(&self, x: &Shape, parameters: &Shape) -> Result<Sizes> {
        let (batch, length, width) = x.dims3()?;
        let (batch, length) = match &self.rows {
            Rows::Packed(offsets) => {
                let lengths = offsets.windows(2).map(|pair| pair[1] - pair[0]);
                (offsets.len() - 1, lengths.max().unwrap_or(0))
            }
            Rows::Full | Rows::Padded(_) => (batch, length),
        };
        let modes = self.modes;
        let rows = self.walks.len() * 2 * self.parts() * modes + 1;
        if parameters.dims() != [rows, width] || modes == 0 {
            bail!("{NAME}: x {x:?} and parameters {parameters:?} do not fit {modes} modes");
        }
        Ok(Sizes {
            batch,
            length,
            width,
            groups: width.div_ceil(CHANNELS),
            kept: length.div_ceil(TILE) * modes * self.parts() * CHANNELS,
        })
    }

    /// Numbers in an element of a or c.
    fn parts(&self) -> usize {
        1 + usize::from(self.complex)
    }
}

impl CustomOp<2> for StateSpace {
    const NAME: &'static str = NAME;
    /// States (B, groups, walks, tiles, N, 1 or 2, CHANNELS) before the first row of each tile.
    type Saved = Vec<f32>;

    fn forward(
        &self,
        [x, parameters]: [View; 2],
        keeps: bool,
    ) -> Result<(Vec<f32>, Shape, Vec<f32>)> {
        let sizes = self.sizes(&x.shape, &parameters.shape)?;
        let (shape, x, parameters) = (x.shape, x.data, parameters.data);
        let isa = Isa::current();
        let tasks = sizes.batch * sizes.groups;
        let mut y = unspecified(x.len());
        let out = Shared::new(&mut y);
        let per_task = self.walks.len() * sizes.kept;
        let mut states = unspecified(if keeps { tasks * per_task } else { 0 });
        let kept = split_mut(&mut states, per_task, tasks);
        kept.into_par_iter()
            .enumerate()
            .for_each(|(index, states)| {
                let y = &out;
                let kept = states.len() / self.walks.len();
                for walk in 0..self.walks.len() {
                    let states = &mut states[walk * kept..][..kept];
                    let task = Task::new(self, walk, sizes, index, parameters);
                    match self.complex {
                        true => isa.run(Forward::<true> { task, x, y, states }),
                        false => isa.run(Forward::<false> { task, x, y, states }),
                    }
                }
            });
        Ok((y, shape, states))
    }

    fn backward(
        &self,
        [x, parameters]: [View; 2],
        pass: BackwardPass<Vec<f32>, 2>,
    ) -> Result<[Gradient; 2]> {
        let sizes = self.sizes(&x.shape, &parameters.shape)?;
        let (x, parameters, dy, states) = (x.data, parameters.data, pass.dy, pass.saved);
        let isa = Isa::current();
        let mut dx = unspecified(x.len());
        let mut partials = vec![0.0; sizes.batch * parameters.len()];
        let (dx_out, partials_out) = (Shared::new(&mut dx), Shared::new(&mut partials));
        let tasks = 0..sizes.batch * sizes.groups;
        tasks.into_par_iter().for_each(|index| {
            for walk in 0..self.walks.len() {
                let task = Task::new(self, walk, sizes, index, parameters);
                let first = (index * self.walks.len() + walk) * sizes.kept;
                let states = &states[first..][..sizes.kept];
                let (dx, gradients) = (&dx_out, &partials_out);
                match self.complex {
                    true => isa.run(Backward::<true> {
                        task,
                        x,
                        dy,
                        states,
                        dx,
                        gradients,
                    }),
                    false => isa.run(Backward::<false> {
                        task,
                        x,
                        dy,
                        states,
                        dx,
                        gradients,
                    }),
                }
            }
        });
        let gradient = sum_partials(&partials, parameters.len());
        Ok([dx.into(), gradient.into()])
    }
}
