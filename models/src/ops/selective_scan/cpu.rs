//! A diagonal state space whose steps and projections are each position's own, every channel with N
//! real states: h_tn = e^(δ_t a_n) h_(t-1)n + δ_t b_tn x_t, y_t = Σ_n c_tn h_tn + skip x_t (Mamba,
//! arXiv 2312.00752).
//!
//! x, δ and y are (B, L, D), b and c (B, L, N), which all channels share, a (N, D). A sequence is
//! walked row by row, N states of a group of channels in registers. States at the start of each
//! tile of [`TILE`] rows are kept for the backward pass, which computes those within a tile again.
//! With g_t = c_t dy_t + e^(δ_(t+1) a) g_(t+1) the gradient of h_t as a whole and w_t = g_t h_(t-1)
//! e^(δ_t a): dx_t = δ_t Σ_n g b + skip dy, dδ_t = x_t Σ_n g b + Σ_n w a, da = Σ_t δ_t w, db_t =
//! Σ_d g δ x, dc_t = Σ_d h dy.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{Shared, split_mut, sum_partials, unspecified};
use lra_cpu::isa::Isa;
use lra_cpu::math::exp;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "selective scan";
/// Rows between two states that are kept.
const TILE: usize = 32;
/// Channels of one task: a cache line of each row.
const CHANNELS: usize = 16;

/// Returns y (B, L, D) of x and δ (B, L, D), b and c side by side (B, L, 2 N), and a (N, D) with
/// the row skip (D) below it.
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn selective_scan(
    x: &Tensor,
    delta: &Tensor,
    projections: &Tensor,
    parameters: &Tensor,
) -> Result<Tensor> {
    apply(SelectiveScan, [x, delta, projections, parameters])
}

struct SelectiveScan;

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    length: usize,
    width: usize,
    modes: usize,
    groups: usize,
    /// Kept numbers of one task.
    kept: usize,
}

impl Sizes {
    fn new(operands: &[View; 4]) -> Result<Self> {
        let [x, delta, projections, parameters] = operands.each_ref().map(|view| &view.shape);
        let (batch, length, width) = x.dims3()?;
        let modes = parameters.dims2()?.0.saturating_sub(1);
        let fits = modes > 0
            && delta.dims() == x.dims()
            && projections.dims() == [batch, length, 2 * modes]
            && parameters.dims() == [modes + 1, width];
        if !fits {
            bail!("{NAME}: {x:?}, {delta:?}, {projections:?} and {parameters:?} do not fit");
        }
        Ok(Self {
            batch,
            length,
            width,
            modes,
            groups: width.div_ceil(CHANNELS),
            kept: length.div_ceil(TILE) * modes * CHANNELS,
        })
    }

    fn tasks(self) -> usize {
        match self.length {
            0 => 0,
            _ => self.batch * self.groups,
        }
    }
}

/// Some channels of one example.
#[derive(Clone, Copy)]
struct Task<'a> {
    sizes: Sizes,
    example: usize,
    /// Number of the group of channels.
    group: usize,
    x: &'a [f32],
    delta: &'a [f32],
    projections: &'a [f32],
    parameters: &'a [f32],
}

impl<'a> Task<'a> {
    fn new(sizes: Sizes, index: usize, operands: &'a [View; 4]) -> Self {
        let [x, delta, projections, parameters] = operands.each_ref().map(|view| view.data);
        Self {
            sizes,
            example: index / sizes.groups,
            group: index % sizes.groups,
            x,
            delta,
            projections,
            parameters,
        }
    }

    /// Registers of at most `lanes` channels: the first, and how many they are.
    fn registers(&self, lanes: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let first = self.group * CHANNELS;
        let end = (first + CHANNELS).min(self.sizes.width);
        let starts = (first..end).step_by(lanes);
        starts.map(move |start| (start, lanes.min(end - start)))
    }

    /// Returns the start of row `t` in x.
    #[inline(always)]
    fn row(&self, t: usize) -> usize {
        (self.example * self.sizes.length + t) * self.sizes.width
    }

    /// Returns b and c of row `t`.
    #[inline(always)]
    fn projections(&self, t: usize) -> (&'a [f32], &'a [f32]) {
        let modes = self.sizes.modes;
        let start = (self.example * self.sizes.length + t) * 2 * modes;
        self.projections[start..start + 2 * modes].split_at(modes)
    }

    #[inline(always)]
    fn parameter<S: Lanes>(&self, s: S, row: usize, first: usize, count: usize) -> S::f32s {
        s.load(&self.parameters[row * self.sizes.width + first..][..count])
    }

    /// Returns the place of the kept state of a mode, within a task's.
    #[inline(always)]
    fn kept(&self, tile: usize, mode: usize, first: usize) -> usize {
        (tile * self.sizes.modes + mode) * CHANNELS + first - self.group * CHANNELS
    }
}

struct Forward<'a> {
    task: Task<'a>,
    y: &'a Shared<'a>,
    /// Kept states; empty if none are kept.
    states: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (task, zero) = (self.task, s.splat_f32s(0.0));
        let Sizes { length, modes, .. } = task.sizes;
        let mut scratch = Scratch::unspecified(2 * modes * S::F32_LANES);
        let (h, a) = scratch.registers::<S>().split_at_mut(modes);
        for (first, count) in task.registers(S::F32_LANES) {
            h.fill(zero);
            for (mode, a) in a.iter_mut().enumerate() {
                *a = task.parameter(s, mode, first, count);
            }
            let skip = task.parameter(s, modes, first, count);
            for t in 0..length {
                if t % TILE == 0 && !self.states.is_empty() {
                    for (mode, h) in h.iter().enumerate() {
                        let at = task.kept(t / TILE, mode, first);
                        s.store(&mut self.states[at..at + count], *h);
                    }
                }
                let at = task.row(t) + first;
                let x = s.load(&task.x[at..at + count]);
                let delta = s.load(&task.delta[at..at + count]);
                let input = s.mul_f32s(delta, x);
                let mut y = s.mul_f32s(skip, x);
                let (b, c) = task.projections(t);
                for (((h, a), b), c) in h.iter_mut().zip(&*a).zip(b).zip(c) {
                    let decay = exp(s, s.mul_f32s(delta, *a));
                    *h = s.fma(decay, *h, s.mul_f32s(input, s.splat_f32s(*b)));
                    y = s.fma(s.splat_f32s(*c), *h, y);
                }
                // SAFETY: the channels of an example belong to one task.
                s.store(unsafe { self.y.slice(at, count) }, y);
            }
        }
    }
}

struct Backward<'a> {
    task: Task<'a>,
    dy: &'a [f32],
    states: &'a [f32],
    dx: &'a Shared<'a>,
    ddelta: &'a Shared<'a>,
    /// (groups, B, L, 2 N), zeros.
    dprojections: &'a Shared<'a>,
    /// (B, N + 1, D).
    dparameters: &'a Shared<'a>,
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (task, zero) = (self.task, s.splat_f32s(0.0));
        let Sizes {
            batch,
            length,
            width,
            modes,
            ..
        } = task.sizes;
        let numbers = length * 2 * modes;
        let place = (task.group * batch + task.example) * numbers;
        // SAFETY: a group's numbers of an example belong to one task.
        let dprojections = unsafe { self.dprojections.slice(place, numbers) };
        let mut scratch = Scratch::unspecified((3 + TILE + 1 + TILE) * modes * S::F32_LANES);
        let (a, rest) = scratch.registers::<S>().split_at_mut(modes);
        let (g, rest) = rest.split_at_mut(modes);
        let (da, rest) = rest.split_at_mut(modes);
        // States before each row of a tile and behind the last, and each row's factors of decay.
        let (states, decays) = rest.split_at_mut((TILE + 1) * modes);
        for (first, count) in task.registers(S::F32_LANES) {
            for (mode, a) in a.iter_mut().enumerate() {
                *a = task.parameter(s, mode, first, count);
            }
            let skip = task.parameter(s, modes, first, count);
            g.fill(zero);
            da.fill(zero);
            let mut dskip = zero;
            for (tile, start) in (0..length).step_by(TILE).enumerate().rev() {
                let rows = TILE.min(length - start);
                for (mode, state) in states[..modes].iter_mut().enumerate() {
                    let at = task.kept(tile, mode, first);
                    *state = s.load(&self.states[at..at + count]);
                }
                for step in 0..rows {
                    let at = task.row(start + step) + first;
                    let x = s.load(&task.x[at..at + count]);
                    let delta = s.load(&task.delta[at..at + count]);
                    let input = s.mul_f32s(delta, x);
                    let (b, _) = task.projections(start + step);
                    let (before, after) = states[step * modes..].split_at_mut(modes);
                    let decays = &mut decays[step * modes..][..modes];
                    for mode in 0..modes {
                        decays[mode] = exp(s, s.mul_f32s(delta, a[mode]));
                        let input = s.mul_f32s(input, s.splat_f32s(b[mode]));
                        after[mode] = s.fma(decays[mode], before[mode], input);
                    }
                }
                for step in (0..rows).rev() {
                    let at = task.row(start + step) + first;
                    let x = s.load(&task.x[at..at + count]);
                    let delta = s.load(&task.delta[at..at + count]);
                    let dy = s.load(&self.dy[at..at + count]);
                    let input = s.mul_f32s(delta, x);
                    let (b, c) = task.projections(start + step);
                    let dprojections = &mut dprojections[(start + step) * 2 * modes..][..2 * modes];
                    let (db, dc) = dprojections.split_at_mut(modes);
                    let (before, after) = states[step * modes..].split_at(modes);
                    let decays = &decays[step * modes..][..modes];
                    dskip = s.fma(dy, x, dskip);
                    // Σ g b and Σ w a.
                    let (mut through_input, mut through_decay) = (zero, zero);
                    for mode in 0..modes {
                        dc[mode] += s.reduce_sum_f32s(s.mul_f32s(dy, after[mode]));
                        let gradient = s.fma(s.splat_f32s(c[mode]), dy, g[mode]);
                        db[mode] += s.reduce_sum_f32s(s.mul_f32s(gradient, input));
                        through_input = s.fma(gradient, s.splat_f32s(b[mode]), through_input);
                        let kept = s.mul_f32s(gradient, decays[mode]);
                        let w = s.mul_f32s(kept, before[mode]);
                        through_decay = s.fma(w, a[mode], through_decay);
                        da[mode] = s.fma(delta, w, da[mode]);
                        g[mode] = kept;
                    }
                    let dx = s.fma(delta, through_input, s.mul_f32s(skip, dy));
                    let ddelta = s.fma(x, through_input, through_decay);
                    // SAFETY: the channels of an example belong to one task.
                    s.store(unsafe { self.dx.slice(at, count) }, dx);
                    // SAFETY: as above.
                    s.store(unsafe { self.ddelta.slice(at, count) }, ddelta);
                }
            }
            for (row, gradient) in da.iter().chain([&dskip]).enumerate() {
                let at = (task.example * (modes + 1) + row) * width + first;
                // SAFETY: as above.
                s.store(unsafe { self.dparameters.slice(at, count) }, *gradient);
            }
        }
    }
}

impl CustomOp<4> for SelectiveScan {
    const NAME: &'static str = NAME;
    /// States (B, groups, tiles, N, CHANNELS) before the first row of each tile.
    type Saved = Vec<f32>;

    fn forward(&self, operands: [View; 4], keeps: bool) -> Result<(Vec<f32>, Shape, Vec<f32>)> {
        let sizes = Sizes::new(&operands)?;
        let isa = Isa::current();
        let mut y = unspecified(operands[0].data.len());
        let out = Shared::new(&mut y);
        let mut states = unspecified(if keeps { sizes.tasks() * sizes.kept } else { 0 });
        let kept = split_mut(&mut states, sizes.kept, sizes.tasks());
        let workspaces = Workspaces::new(sizes.tasks(), || ());
        kept.into_par_iter()
            .enumerate()
            .for_each(|(index, states)| {
                let task = Task::new(sizes, index, &operands);
                let y = &out;
                workspaces.lend(|()| isa.run(Forward { task, y, states }));
            });
        let [x, ..] = operands;
        Ok((y, x.shape, states))
    }

    fn backward(
        &self,
        operands: [View; 4],
        pass: BackwardPass<Vec<f32>, 4>,
    ) -> Result<[Gradient; 4]> {
        let sizes = Sizes::new(&operands)?;
        let [x, _, projections, parameters] = operands.each_ref().map(|view| view.data.len());
        let isa = Isa::current();
        let (mut dx, mut ddelta) = (unspecified(x), unspecified(x));
        let mut dprojections = vec![0.0; sizes.groups * projections];
        let mut dparameters = vec![0.0; sizes.batch * parameters];
        let (dx_out, ddelta_out) = (Shared::new(&mut dx), Shared::new(&mut ddelta));
        let projections_out = Shared::new(&mut dprojections);
        let parameters_out = Shared::new(&mut dparameters);
        let workspaces = Workspaces::new(sizes.tasks(), || ());
        (0..sizes.tasks()).into_par_iter().for_each(|index| {
            let task = Backward {
                task: Task::new(sizes, index, &operands),
                dy: pass.dy,
                states: &pass.saved[index * sizes.kept..][..sizes.kept],
                dx: &dx_out,
                ddelta: &ddelta_out,
                dprojections: &projections_out,
                dparameters: &parameters_out,
            };
            workspaces.lend(|()| isa.run(task));
        });
        Ok([
            dx.into(),
            ddelta.into(),
            sum_partials(&dprojections, projections).into(),
            sum_partials(&dparameters, parameters).into(),
        ])
    }
}
