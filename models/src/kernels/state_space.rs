//! A diagonal state space, every channel with states of its own that stay in registers:
//! h_t = a h_{t-1} + x_t for each of N modes, y_t = Re Σ_n c_n h_t + skip x_t (S4D, arXiv 2206.11893; Mega's moving
//! average, arXiv 2209.10655). `exclusive` reads h_{t-1} instead of h_t.
//!
//! A sequence is walked in tiles of [`TILE`] rows, all modes of a group of channels within a tile before the next tile.
//! The states at the start of each tile are kept for the backward pass, which computes those within a tile again.
//! With r_t the gradient of h_t as a whole: r_t = ā r_{t+1} + c̄ dy_t, dx_t = Re r_t + skip dy_t, da = Σ r_t h̄_{t-1}
//! and dc = Σ dy_t h̄_t; gradients are those of the real plus i times those of the imaginary part.

use candle_core::{Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::buffers::{Shared, split_mut, sum_partials, uninit};
use super::custom_op::{BackwardPass, CustomOp, Gradient, View, apply};
use super::isa::{Isa, Kernel, Lanes};

const NAME: &str = "state-space";
/// Rows between two states that are kept.
const TILE: usize = 64;
/// Channels of one task: a cache line of each row.
const CHANNELS: usize = 16;
/// Modes that are walked together, as many as registers hold.
const TOGETHER: usize = 2;

/// What [`state_space`] computes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateSpace {
    /// N.
    pub(crate) modes: usize,
    /// Whether a and c are complex.
    pub(crate) complex: bool,
    /// From the last row to the first.
    pub(crate) reverse: bool,
    /// The output of a row does not see the row itself.
    pub(crate) exclusive: bool,
}

/// x (B, L, D) to y (B, L, D). Rows of `parameters` are the real parts of a (N, D), their imaginary parts if complex,
/// c likewise, and skip (D).
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn state_space(x: &Tensor, parameters: &Tensor, options: StateSpace) -> Result<Tensor> {
    apply(options, [x, parameters])
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    length: usize,
    width: usize,
    groups: usize,
    /// Kept numbers of one task.
    kept: usize,
}

impl StateSpace {
    fn sizes(&self, x: &Shape, parameters: &Shape) -> Result<Sizes> {
        let (batch, length, width) = x.dims3()?;
        let modes = self.modes;
        let rows = 2 * self.parts() * modes + 1;
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
    /// States (B, groups, tiles, N, 1 or 2, CHANNELS) before the first row of each tile.
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
        let mut y = uninit(x.len());
        let out = Shared::new(&mut y);
        let mut states = uninit(if keeps { tasks * sizes.kept } else { 0 });
        let kept = split_mut(&mut states, sizes.kept, tasks);
        kept.into_par_iter().enumerate().for_each(|(task, states)| {
            let place = Place::new(*self, sizes, task, parameters);
            let y = &out;
            match self.complex {
                true => isa.run(Forward::<true> {
                    place,
                    x,
                    y,
                    states,
                }),
                false => isa.run(Forward::<false> {
                    place,
                    x,
                    y,
                    states,
                }),
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
        let mut dx = uninit(x.len());
        let mut partials = vec![0.0; sizes.batch * parameters.len()];
        let (dx_out, partials_out) = (Shared::new(&mut dx), Shared::new(&mut partials));
        let tasks = 0..sizes.batch * sizes.groups;
        tasks.into_par_iter().for_each(|task| {
            let place = Place::new(*self, sizes, task, parameters);
            let states = &states[task * sizes.kept..][..sizes.kept];
            let (dx, gradients) = (&dx_out, &partials_out);
            match self.complex {
                true => isa.run(Backward::<true> {
                    place,
                    x,
                    dy,
                    states,
                    dx,
                    gradients,
                }),
                false => isa.run(Backward::<false> {
                    place,
                    x,
                    dy,
                    states,
                    dx,
                    gradients,
                }),
            }
        });
        let gradient = sum_partials(&partials, parameters.len());
        Ok([dx.into(), gradient.into()])
    }
}

/// One task: some channels of one example.
#[derive(Clone, Copy)]
struct Place<'a> {
    options: StateSpace,
    sizes: Sizes,
    example: usize,
    first: usize,
    end: usize,
    parameters: &'a [f32],
}

/// Real and imaginary parts in one register each; real numbers have no others.
type Pair<S> = [<S as pulp::Simd>::f32s; 2];

/// a and c of one mode.
#[derive(Clone, Copy)]
struct Mode<S: Lanes> {
    a: Pair<S>,
    c: Pair<S>,
}

impl<'a> Place<'a> {
    fn new(options: StateSpace, sizes: Sizes, task: usize, parameters: &'a [f32]) -> Self {
        let first = task % sizes.groups * CHANNELS;
        Self {
            options,
            sizes,
            example: task / sizes.groups,
            first,
            end: (first + CHANNELS).min(sizes.width),
            parameters,
        }
    }

    /// Registers of channels: where they start, and how many channels they hold.
    fn lanes(&self, lanes: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let end = self.end;
        let starts = (self.first..end).step_by(lanes);
        starts.map(move |start| (start, lanes.min(end - start)))
    }

    /// Where row number `step` of the walk starts.
    #[inline(always)]
    fn row(&self, step: usize) -> usize {
        let Sizes { length, width, .. } = self.sizes;
        let row = match self.options.reverse {
            true => length - 1 - step,
            false => step,
        };
        (self.example * length + row) * width
    }

    /// Row of the parameters.
    #[inline(always)]
    fn parameter<S: Lanes>(&self, s: S, row: usize, first: usize, count: usize) -> S::f32s {
        s.partial_load_f32s(&self.parameters[row * self.sizes.width + first..][..count])
    }

    #[inline(always)]
    fn mode<S: Lanes, const COMPLEX: bool>(
        &self,
        s: S,
        mode: usize,
        first: usize,
        count: usize,
    ) -> Mode<S> {
        let modes = self.options.modes;
        let row = |row: usize| self.parameter(s, row * modes + mode, first, count);
        let zero = s.splat_f32s(0.0);
        match COMPLEX {
            true => Mode {
                a: [row(0), row(1)],
                c: [row(2), row(3)],
            },
            false => Mode {
                a: [row(0), zero],
                c: [row(1), zero],
            },
        }
    }
}

/// Where the state of a mode at the start of a tile is kept: for registers that start `offset` channels into a task.
#[inline(always)]
fn kept<const COMPLEX: bool>(tile: usize, modes: usize, mode: usize, offset: usize) -> [usize; 2] {
    let parts = 1 + usize::from(COMPLEX);
    let at = (tile * modes + mode) * parts * CHANNELS + offset;
    [at, at + (parts - 1) * CHANNELS]
}

/// a h + x.
#[inline(always)]
fn advance<S: Lanes, const COMPLEX: bool>(s: S, a: Pair<S>, h: Pair<S>, x: S::f32s) -> Pair<S> {
    let re = s.fma(a[0], h[0], x);
    match COMPLEX {
        true => [
            s.fma(s.neg_f32s(a[1]), h[1], re),
            s.fma(a[1], h[0], s.mul_f32s(a[0], h[1])),
        ],
        false => [re, h[1]],
    }
}

/// Re(c h) + y.
#[inline(always)]
fn read_out<S: Lanes, const COMPLEX: bool>(s: S, c: Pair<S>, h: Pair<S>, y: S::f32s) -> S::f32s {
    let y = s.fma(c[0], h[0], y);
    match COMPLEX {
        true => s.fma(s.neg_f32s(c[1]), h[1], y),
        false => y,
    }
}

/// ā r + c̄ dy.
#[inline(always)]
fn retreat<S: Lanes, const COMPLEX: bool>(s: S, mode: Mode<S>, r: Pair<S>, dy: S::f32s) -> Pair<S> {
    let Mode { a, c } = mode;
    let re = s.fma(a[0], r[0], s.mul_f32s(c[0], dy));
    match COMPLEX {
        true => {
            let im = s.fma(a[0], r[1], s.mul_f32s(s.neg_f32s(c[1]), dy));
            [s.fma(a[1], r[1], re), s.fma(s.neg_f32s(a[1]), r[0], im)]
        }
        false => [re, r[1]],
    }
}

/// dy h̄ + sum.
#[inline(always)]
fn add_read_out<S: Lanes, const COMPLEX: bool>(
    s: S,
    dy: S::f32s,
    h: Pair<S>,
    sum: Pair<S>,
) -> Pair<S> {
    let re = s.fma(dy, h[0], sum[0]);
    match COMPLEX {
        true => [re, s.fma(s.neg_f32s(dy), h[1], sum[1])],
        false => [re, sum[1]],
    }
}

/// r h̄ + sum.
#[inline(always)]
fn add_product<S: Lanes, const COMPLEX: bool>(
    s: S,
    r: Pair<S>,
    h: Pair<S>,
    sum: Pair<S>,
) -> Pair<S> {
    let re = s.fma(r[0], h[0], sum[0]);
    match COMPLEX {
        true => [
            s.fma(r[1], h[1], re),
            s.fma(s.neg_f32s(r[0]), h[1], s.fma(r[1], h[0], sum[1])),
        ],
        false => [re, sum[1]],
    }
}

struct Forward<'a, const COMPLEX: bool> {
    place: Place<'a>,
    x: &'a [f32],
    y: &'a Shared<'a>,
    /// Empty if nothing is kept.
    states: &'a mut [f32],
}

impl<const COMPLEX: bool> Kernel for Forward<'_, COMPLEX> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (place, zero) = (self.place, s.splat_f32s(0.0));
        let StateSpace { modes, .. } = place.options;
        let mut states = vec![[zero; 2]; modes];
        let (mut x, mut y) = ([zero; TILE], [zero; TILE]);
        for (first, count) in place.lanes(S::F32_LANES) {
            let skip = place.parameter(s, 2 * modes * (1 + usize::from(COMPLEX)), first, count);
            states.fill([zero; 2]);
            for (tile, start) in (0..place.sizes.length).step_by(TILE).enumerate() {
                let rows = TILE.min(place.sizes.length - start);
                for step in 0..rows {
                    let at = place.row(start + step) + first;
                    x[step] = s.partial_load_f32s(&self.x[at..at + count]);
                    y[step] = s.mul_f32s(skip, x[step]);
                }
                if !self.states.is_empty() {
                    for (mode, state) in states.iter().enumerate() {
                        let at = kept::<COMPLEX>(tile, modes, mode, first - place.first);
                        for part in 0..=usize::from(COMPLEX) {
                            let to = &mut self.states[at[part]..][..S::F32_LANES];
                            s.partial_store_f32s(to, state[part]);
                        }
                    }
                }
                let (x, y) = (&x[..rows], &mut y[..rows]);
                let mut mode = 0;
                while mode + TOGETHER <= modes {
                    let both = [mode, mode + 1];
                    let all = both.map(|m| place.mode::<S, COMPLEX>(s, m, first, count));
                    let h = [states[mode], states[mode + 1]];
                    let h = walk::<S, COMPLEX, TOGETHER>(s, place.options.exclusive, all, h, x, y);
                    [states[mode], states[mode + 1]] = h;
                    mode += TOGETHER;
                }
                while mode < modes {
                    let one = [place.mode::<S, COMPLEX>(s, mode, first, count)];
                    let h = [states[mode]];
                    [states[mode]] =
                        walk::<S, COMPLEX, 1>(s, place.options.exclusive, one, h, x, y);
                    mode += 1;
                }
                for (step, y) in y.iter().enumerate() {
                    let at = place.row(start + step) + first;
                    // SAFETY: the channels of an example belong to one task.
                    s.partial_store_f32s(unsafe { self.y.slice(at, count) }, *y);
                }
            }
        }
    }
}

/// Adds what M modes read out to the rows of a tile, and returns the states behind it.
#[inline(always)]
fn walk<S: Lanes, const COMPLEX: bool, const M: usize>(
    s: S,
    exclusive: bool,
    modes: [Mode<S>; M],
    mut h: [Pair<S>; M],
    x: &[S::f32s],
    y: &mut [S::f32s],
) -> [Pair<S>; M] {
    for (x, y) in x.iter().zip(y) {
        for m in 0..M {
            let Mode { a, c } = modes[m];
            if exclusive {
                *y = read_out::<S, COMPLEX>(s, c, h[m], *y);
            }
            h[m] = advance::<S, COMPLEX>(s, a, h[m], *x);
            if !exclusive {
                *y = read_out::<S, COMPLEX>(s, c, h[m], *y);
            }
        }
    }
    h
}

struct Backward<'a, const COMPLEX: bool> {
    place: Place<'a>,
    x: &'a [f32],
    dy: &'a [f32],
    states: &'a [f32],
    dx: &'a Shared<'a>,
    /// Like the parameters, for each example.
    gradients: &'a Shared<'a>,
}

/// The gradients of one mode, and that of the state before the rows walked so far.
#[derive(Clone, Copy)]
struct Sums<S: Lanes> {
    r: Pair<S>,
    da: Pair<S>,
    dc: Pair<S>,
}

impl<const COMPLEX: bool> Kernel for Backward<'_, COMPLEX> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (place, zero) = (self.place, s.splat_f32s(0.0));
        let StateSpace {
            modes, exclusive, ..
        } = place.options;
        let parts = 1 + usize::from(COMPLEX);
        let nothing = Sums {
            r: [zero; 2],
            da: [zero; 2],
            dc: [zero; 2],
        };
        let mut sums = vec![nothing; modes];
        let (mut x, mut dy, mut dx) = ([zero; TILE], [zero; TILE], [zero; TILE]);
        let mut states = [[zero; 2]; TILE + 1];
        for (first, count) in place.lanes(S::F32_LANES) {
            let skip = place.parameter(s, 2 * modes * parts, first, count);
            sums.fill(nothing);
            let mut dskip = zero;
            for (tile, start) in (0..place.sizes.length).step_by(TILE).enumerate().rev() {
                let rows = TILE.min(place.sizes.length - start);
                for step in 0..rows {
                    let at = place.row(start + step) + first;
                    x[step] = s.partial_load_f32s(&self.x[at..at + count]);
                    dy[step] = s.partial_load_f32s(&self.dy[at..at + count]);
                    dx[step] = s.mul_f32s(skip, dy[step]);
                    dskip = s.fma(dy[step], x[step], dskip);
                }
                for (mode, sums) in sums.iter_mut().enumerate() {
                    let at = kept::<COMPLEX>(tile, modes, mode, first - place.first);
                    let state = |at: usize| &self.states[at..][..S::F32_LANES];
                    states[0] = at.map(|at| s.partial_load_f32s(state(at)));
                    let tile = Tile::<S> {
                        x: &x[..rows],
                        dy: &dy[..rows],
                        dx: &mut dx[..rows],
                        states: &mut states[..=rows],
                    };
                    let mode = place.mode::<S, COMPLEX>(s, mode, first, count);
                    walk_back::<S, COMPLEX>(s, exclusive, mode, sums, tile);
                }
                for (step, dx) in dx[..rows].iter().enumerate() {
                    let at = place.row(start + step) + first;
                    // SAFETY: the channels of an example belong to one task.
                    s.partial_store_f32s(unsafe { self.dx.slice(at, count) }, *dx);
                }
            }
            let width = place.sizes.width;
            let store = |row: usize, gradient: S::f32s| {
                let at = place.example * place.parameters.len() + row * width + first;
                // SAFETY: as above.
                s.partial_store_f32s(unsafe { self.gradients.slice(at, count) }, gradient);
            };
            for (mode, Sums { da, dc, .. }) in sums.iter().enumerate() {
                for part in 0..parts {
                    store(part * modes + mode, da[part]);
                    store((parts + part) * modes + mode, dc[part]);
                }
            }
            store(2 * modes * parts, dskip);
        }
    }
}

/// Rows of a tile, and the states of one mode before each of them and behind the last; the first is given.
struct Tile<'a, S: Lanes> {
    x: &'a [S::f32s],
    dy: &'a [S::f32s],
    dx: &'a mut [S::f32s],
    states: &'a mut [Pair<S>],
}

/// One mode through the rows of a tile, forward for its states and then back.
#[inline(always)]
fn walk_back<S: Lanes, const COMPLEX: bool>(
    s: S,
    exclusive: bool,
    mode: Mode<S>,
    sums: &mut Sums<S>,
    tile: Tile<S>,
) {
    let Tile { x, dy, dx, states } = tile;
    let mut h = states[0];
    for (x, state) in x.iter().zip(&mut states[1..]) {
        h = advance::<S, COMPLEX>(s, mode.a, h, *x);
        *state = h;
    }
    let Sums {
        mut r,
        mut da,
        mut dc,
    } = *sums;
    let rows = states.windows(2).zip(dy).zip(dx).rev();
    for ((states, dy), dx) in rows {
        // `r` is the gradient of the state behind the next row (with `exclusive`: behind this row).
        let read = states[usize::from(!exclusive)];
        dc = add_read_out::<S, COMPLEX>(s, *dy, read, dc);
        if !exclusive {
            r = retreat::<S, COMPLEX>(s, mode, r, *dy);
        }
        da = add_product::<S, COMPLEX>(s, r, states[0], da);
        *dx = s.add_f32s(*dx, r[0]);
        if exclusive {
            r = retreat::<S, COMPLEX>(s, mode, r, *dy);
        }
    }
    *sums = Sums { r, da, dc };
}
