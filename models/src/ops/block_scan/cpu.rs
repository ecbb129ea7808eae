//! The scan in main memory: blocks of sequences side by side, N states of a group of channels in
//! registers, positions one after the other.
//!
//! States at the start of each tile of [`TILE`] positions are kept for the backward pass, which
//! computes those within a tile again. With d = e^(δ a), f = (d - 1) / a, w = f (b + β) and G_t =
//! (c_t dy_t, 0) + d̄_(t+1) G_(t+1) the gradient of s_t as a whole, a complex number as in
//! [`crate::ops::complex`]: dv = Re(Ḡ w), dw = G v, df = dw (b̄ + β̄), db = dβ = dw f̄, the gradient
//! of d is G s̄_(t-1) + df / ā, that of the exponent z = δ a is it times d̄, dδ = Re(dz ā), and da =
//! δ dz - df f̄ / ā. dc = Re(s) dy.

use candle_core::{Result, Shape, Tensor};
use lra_cpu::buffers::{split_mut, sum_partials, unspecified};
use lra_cpu::isa::Isa;
use lra_cpu::math::{exp_m1, sin_cos};
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Positions between two that keep a state.
const TILE: usize = 32;

/// Returns y (B, L, J, P) of v, δ, the selection, a and β.
///
/// # Errors
/// If a tensor is not in main memory or of another type.
pub(crate) fn block_scan(operands: [&Tensor; 5]) -> Result<Tensor> {
    apply(Scan, operands)
}

struct Scan;

/// Operands of the scan, and its sizes.
struct Operands<'a> {
    batch: usize,
    length: usize,
    blocks: usize,
    /// N.
    states: usize,
    /// P.
    width: usize,
    values: &'a [f32],
    steps: &'a [f32],
    selection: &'a [f32],
    rates: &'a [f32],
    bias: &'a [f32],
}

impl<'a> Operands<'a> {
    fn new([values, steps, selection, rates, bias]: &[View<'a>; 5]) -> Result<Self> {
        let (batch, length, blocks, width) = values.shape.dims4()?;
        Ok(Self {
            batch,
            length,
            blocks,
            states: rates.shape.dims1()? / 2,
            width,
            values: values.data,
            steps: steps.data,
            selection: selection.data,
            rates: rates.data,
            bias: bias.data,
        })
    }

    /// Returns the number of blocks of all sequences.
    fn tasks(&self) -> usize {
        match self.length * self.width {
            0 => 0,
            _ => self.batch * self.blocks,
        }
    }

    /// Returns the numbers of a block's states, (2 N, P).
    fn state(&self) -> usize {
        2 * self.states * self.width
    }

    /// Returns the kept numbers of a task.
    fn kept(&self) -> usize {
        self.length.div_ceil(TILE) * self.state()
    }

    /// Returns the row of a task's position.
    #[inline(always)]
    fn row(&self, task: usize, t: usize) -> usize {
        let (sequence, block) = (task / self.blocks, task % self.blocks);
        (sequence * self.length + t) * self.blocks + block
    }

    /// Returns the real parts of b, its imaginary parts and c of a row.
    #[inline(always)]
    fn selection(&self, row: usize) -> [&'a [f32]; 3] {
        let numbers = &self.selection[row * 3 * self.states..][..3 * self.states];
        let (re, rest) = numbers.split_at(self.states);
        let (im, c) = rest.split_at(self.states);
        [re, im, c]
    }

    /// Returns b + β of `channels` (first, count) of a mode.
    #[inline(always)]
    fn coefficient<S: Lanes>(
        &self,
        s: S,
        task: usize,
        row: usize,
        mode: usize,
        channels: (usize, usize),
    ) -> C<S> {
        let [re, im, _] = self.selection(row);
        C(
            s.add_f32s(s.splat_f32s(re[mode]), self.bias(s, task, mode, channels)),
            s.add_f32s(
                s.splat_f32s(im[mode]),
                self.bias(s, task, self.states + mode, channels),
            ),
        )
    }

    /// Returns β of `channels` (first, count) in a row: a real part or, N rows further, its imaginary
    /// part.
    #[inline(always)]
    fn bias<S: Lanes>(&self, s: S, task: usize, row: usize, channels: (usize, usize)) -> S::f32s {
        let place = (task % self.blocks) * self.state() + row * self.width + channels.0;
        s.load(&self.bias[place..][..channels.1])
    }
}

/// Computes d s + w v of a state s, where `grown` is d - 1.
#[inline(always)]
fn advance<S: Lanes>(s: S, state: C<S>, grown: C<S>, input: C<S>, value: S::f32s) -> C<S> {
    fma(s, input, value, add(s, state, mul(s, grown, state)))
}

/// Groups of at most `lanes` of `width` channels: the first, and how many they are.
fn groups(width: usize, lanes: usize) -> impl Iterator<Item = (usize, usize)> {
    let starts = (0..width).step_by(lanes);
    starts.map(move |first| (first, lanes.min(width - first)))
}

/// A complex number of each lane.
#[derive(Clone, Copy)]
struct C<S: Lanes>(S::f32s, S::f32s);

/// Computes e^(δ a) - 1.
#[inline(always)]
fn grown<S: Lanes>(s: S, step: S::f32s, a: C<S>) -> C<S> {
    let grown = exp_m1(s, s.mul_f32s(step, a.0));
    // By half the angle, since 1 - cos y has few digits of a small y.
    let angle = s.mul_f32s(step, s.mul_f32s(a.1, s.splat_f32s(0.5)));
    let (sin, cos) = sin_cos(s, angle);
    let twice = s.add_f32s(sin, sin);
    let fall = s.mul_f32s(twice, sin);
    let size = s.add_f32s(grown, s.splat_f32s(1.0));
    // e^x cos y - 1 = (e^x - 1) - e^x 2 sin²(y/2).
    let re = s.fma(s.neg_f32s(size), fall, grown);
    C(re, s.mul_f32s(size, s.mul_f32s(twice, cos)))
}

/// Computes x y.
#[inline(always)]
fn mul<S: Lanes>(s: S, x: C<S>, y: C<S>) -> C<S> {
    let minus = s.neg_f32s(x.1);
    C(
        s.fma(minus, y.1, s.mul_f32s(x.0, y.0)),
        s.fma(x.1, y.0, s.mul_f32s(x.0, y.1)),
    )
}

/// Computes x ȳ.
#[inline(always)]
fn mul_conjugate<S: Lanes>(s: S, x: C<S>, y: C<S>) -> C<S> {
    mul(s, x, C(y.0, s.neg_f32s(y.1)))
}

/// Computes x + y.
#[inline(always)]
fn add<S: Lanes>(s: S, x: C<S>, y: C<S>) -> C<S> {
    C(s.add_f32s(x.0, y.0), s.add_f32s(x.1, y.1))
}

/// Computes x + f y.
#[inline(always)]
fn fma<S: Lanes>(s: S, y: C<S>, f: S::f32s, x: C<S>) -> C<S> {
    C(s.fma(y.0, f, x.0), s.fma(y.1, f, x.1))
}

/// Fills `rates` with the parts of each rate a, then with those of 1 / a, each (N).
#[inline(always)]
fn load_rates<S: Lanes>(s: S, of: &Operands, rates: &mut [S::f32s]) {
    let states = of.states;
    for mode in 0..states {
        let (re, im) = (of.rates[mode], of.rates[states + mode]);
        let square = re * re + im * im;
        for (part, number) in [re, im, re / square, -im / square].into_iter().enumerate() {
            rates[part * states + mode] = s.splat_f32s(number);
        }
    }
}

/// Returns rate a of a mode, and 1 / a, from what [`load_rates`] has filled.
#[inline(always)]
fn rate<S: Lanes>(rates: &[S::f32s], mode: usize) -> (C<S>, C<S>) {
    let states = rates.len() / 4;
    (
        C(rates[mode], rates[states + mode]),
        C(rates[2 * states + mode], rates[3 * states + mode]),
    )
}

/// The outputs of one block of a sequence.
struct Forward<'a> {
    of: &'a Operands<'a>,
    task: usize,
    /// (L, P).
    y: &'a mut [f32],
    /// (L / 32, 2 N, P); empty if no states are kept.
    kept: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (of, task, states) = (self.of, self.task, self.of.states);
        let zero = s.splat_f32s(0.0);
        let mut scratch = Scratch::unspecified(6 * states * S::F32_LANES);
        let (rates, rest) = scratch.registers::<S>().split_at_mut(4 * states);
        let (re, im) = rest.split_at_mut(states);
        load_rates(s, of, rates);
        for channels in groups(of.width, S::F32_LANES) {
            let (first, count) = channels;
            re.fill(zero);
            im.fill(zero);
            for t in 0..of.length {
                if t % TILE == 0 && !self.kept.is_empty() {
                    let place = t / TILE * of.state() + first;
                    for (mode, part) in re.iter().chain(&*im).enumerate() {
                        s.store(&mut self.kept[place + mode * of.width..][..count], *part);
                    }
                }
                let row = of.row(task, t);
                let step = s.load(&of.steps[row * of.width + first..][..count]);
                let value = s.load(&of.values[row * of.width + first..][..count]);
                let [_, _, c] = of.selection(row);
                let mut y = zero;
                for mode in 0..states {
                    let (a, inverse) = rate::<S>(rates, mode);
                    let grown = grown(s, step, a);
                    let written = of.coefficient(s, task, row, mode, channels);
                    let input = mul(s, mul(s, grown, inverse), written);
                    let state = advance(s, C(re[mode], im[mode]), grown, input, value);
                    (re[mode], im[mode]) = (state.0, state.1);
                    y = s.fma(s.splat_f32s(c[mode]), state.0, y);
                }
                s.store(&mut self.y[t * of.width + first..][..count], y);
            }
        }
    }
}

/// The gradients of one block of a sequence.
struct Backward<'a> {
    of: &'a Operands<'a>,
    task: usize,
    dy: &'a [f32],
    kept: &'a [f32],
    /// (L, P).
    dvalues: &'a mut [f32],
    /// (L, P).
    dsteps: &'a mut [f32],
    /// (L, 3 N), zeros.
    dselection: &'a mut [f32],
    /// (2 N), zeros.
    drates: &'a mut [f32],
    /// (2 N, P).
    dbias: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (of, task, states) = (self.of, self.task, self.of.states);
        let zero = s.splat_f32s(0.0);
        let mut scratch = Scratch::unspecified((2 * TILE + 6) * 2 * states * S::F32_LANES);
        let (rates, registers) = scratch.registers::<S>().split_at_mut(4 * states);
        load_rates(s, of, rates);
        // States before each position of a tile and behind the last, and each position's e^(δ a) - 1;
        // then the gradients of the state, of β and of a.
        let (state_at, rest) = registers.split_at_mut((TILE + 1) * 2 * states);
        let (grown_at, rest) = rest.split_at_mut(TILE * 2 * states);
        let (g, rest) = rest.split_at_mut(2 * states);
        let (dbias, rest) = rest.split_at_mut(2 * states);
        let drates = rest;
        drates.fill(zero);
        for channels in groups(of.width, S::F32_LANES) {
            let (first, count) = channels;
            g.fill(zero);
            dbias.fill(zero);
            for start in (0..of.length).step_by(TILE).rev() {
                let positions = TILE.min(of.length - start);
                let place = start / TILE * of.state() + first;
                for (mode, part) in state_at[..2 * states].iter_mut().enumerate() {
                    *part = s.load(&self.kept[place + mode * of.width..][..count]);
                }
                for local in 0..positions {
                    let row = of.row(task, start + local);
                    let step = s.load(&of.steps[row * of.width + first..][..count]);
                    let value = s.load(&of.values[row * of.width + first..][..count]);
                    let (before, behind) = state_at[local * 2 * states..].split_at_mut(2 * states);
                    let grown_at = &mut grown_at[local * 2 * states..][..2 * states];
                    for mode in 0..states {
                        let (a, inverse) = rate::<S>(rates, mode);
                        let grown = grown(s, step, a);
                        (grown_at[mode], grown_at[states + mode]) = (grown.0, grown.1);
                        let written = of.coefficient(s, task, row, mode, channels);
                        let input = mul(s, mul(s, grown, inverse), written);
                        let state = advance(
                            s,
                            C(before[mode], before[states + mode]),
                            grown,
                            input,
                            value,
                        );
                        (behind[mode], behind[states + mode]) = (state.0, state.1);
                    }
                }
                for local in (0..positions).rev() {
                    let t = start + local;
                    let row = of.row(task, t);
                    let step = s.load(&of.steps[row * of.width + first..][..count]);
                    let value = s.load(&of.values[row * of.width + first..][..count]);
                    let dy = s.load(&self.dy[row * of.width + first..][..count]);
                    let [_, _, c] = of.selection(row);
                    let (before, behind) = state_at[local * 2 * states..].split_at(2 * states);
                    let grown_at = &grown_at[local * 2 * states..][..2 * states];
                    let dselection = &mut self.dselection[t * 3 * states..][..3 * states];
                    let (mut dvalue, mut dstep) = (zero, zero);
                    for mode in 0..states {
                        let (a, inverse) = rate::<S>(rates, mode);
                        let grown = C(grown_at[mode], grown_at[states + mode]);
                        dselection[2 * states + mode] +=
                            s.reduce_sum_f32s(s.mul_f32s(dy, behind[mode]));
                        let gradient =
                            C(s.fma(s.splat_f32s(c[mode]), dy, g[mode]), g[states + mode]);
                        let held = mul(s, grown, inverse);
                        let written = of.coefficient(s, task, row, mode, channels);
                        // Re(Ḡ w).
                        dvalue =
                            s.add_f32s(dvalue, mul_conjugate(s, gradient, mul(s, held, written)).0);
                        let through =
                            C(s.mul_f32s(gradient.0, value), s.mul_f32s(gradient.1, value));
                        let dwritten = mul_conjugate(s, through, held);
                        dselection[mode] += s.reduce_sum_f32s(dwritten.0);
                        dselection[states + mode] += s.reduce_sum_f32s(dwritten.1);
                        dbias[mode] = s.add_f32s(dbias[mode], dwritten.0);
                        dbias[states + mode] = s.add_f32s(dbias[states + mode], dwritten.1);
                        // df / ā, which goes to d and, times -f̄, to a.
                        let dheld = mul_conjugate(s, through, written);
                        let dheld = mul_conjugate(s, dheld, inverse);
                        let state = C(before[mode], before[states + mode]);
                        let ddecay = add(s, mul_conjugate(s, gradient, state), dheld);
                        let dpower = add(s, ddecay, mul_conjugate(s, ddecay, grown));
                        dstep = s.add_f32s(dstep, mul_conjugate(s, dpower, a).0);
                        let lost = mul_conjugate(s, dheld, held);
                        let da = C(drates[mode], drates[states + mode]);
                        let da = fma(s, dpower, step, da);
                        drates[mode] = s.sub_f32s(da.0, lost.0);
                        drates[states + mode] = s.sub_f32s(da.1, lost.1);
                        let gradient = add(s, gradient, mul_conjugate(s, gradient, grown));
                        (g[mode], g[states + mode]) = (gradient.0, gradient.1);
                    }
                    let at = t * of.width + first;
                    s.store(&mut self.dvalues[at..][..count], dvalue);
                    s.store(&mut self.dsteps[at..][..count], dstep);
                }
            }
            for (mode, part) in dbias.iter().enumerate() {
                s.store(&mut self.dbias[mode * of.width + first..][..count], *part);
            }
        }
        for (sum, part) in self.drates.iter_mut().zip(&*drates) {
            *sum = s.reduce_sum_f32s(*part);
        }
    }
}

impl CustomOp<5> for Scan {
    const NAME: &'static str = "block scan";
    /// The states before each tile (B, J, L / 32, 2 N, P).
    type Saved = Vec<f32>;

    fn forward(&self, operands: [View; 5], keeps: bool) -> Result<(Vec<f32>, Shape, Vec<f32>)> {
        let of = Operands::new(&operands)?;
        let (tasks, isa) = (of.tasks(), Isa::current());
        let rows = of.length * of.width;
        let mut y = unspecified(tasks * rows);
        let mut kept = unspecified(if keeps { tasks * of.kept() } else { 0 });
        let workspaces = Workspaces::new(tasks, || ());
        let each = split_mut(&mut kept, of.kept(), tasks);
        let each = each.into_par_iter().zip(split_mut(&mut y, rows, tasks));
        each.enumerate().for_each(|(task, (kept, y))| {
            let of = &of;
            workspaces.lend(|()| isa.run(Forward { of, task, y, kept }));
        });
        let shape = operands[0].shape.clone();
        Ok((by_position(&of, y, of.width), shape, kept))
    }

    fn backward(
        &self,
        operands: [View; 5],
        pass: BackwardPass<Vec<f32>, 5>,
    ) -> Result<[Gradient; 5]> {
        let of = Operands::new(&operands)?;
        let (tasks, isa, twice) = (of.tasks(), Isa::current(), 2 * of.states);
        let (rows, selection) = (of.length * of.width, of.length * 3 * of.states);
        let (mut dvalues, mut dsteps) = (unspecified(tasks * rows), unspecified(tasks * rows));
        let mut dselection = vec![0.0; tasks * selection];
        let mut drates = vec![0.0; tasks * twice];
        let mut dbias = vec![0.0; tasks * of.state()];
        let workspaces = Workspaces::new(tasks, || ());
        let each = split_mut(&mut dvalues, rows, tasks).into_par_iter();
        let each = each.zip(split_mut(&mut dsteps, rows, tasks));
        let each = each.zip(split_mut(&mut dselection, selection, tasks));
        let each = each.zip(split_mut(&mut drates, twice, tasks));
        let each = each.zip(split_mut(&mut dbias, of.state(), tasks));
        each.enumerate().for_each(
            |(task, ((((dvalues, dsteps), dselection), drates), dbias))| {
                let task = Backward {
                    of: &of,
                    task,
                    dy: pass.dy,
                    kept: &pass.saved[task * of.kept()..][..of.kept()],
                    dvalues,
                    dsteps,
                    dselection,
                    drates,
                    dbias,
                };
                workspaces.lend(|()| isa.run(task));
            },
        );
        Ok([
            by_position(&of, dvalues, of.width).into(),
            by_position(&of, dsteps, of.width).into(),
            by_position(&of, dselection, 3 * of.states).into(),
            sum_partials(&drates, twice).into(),
            sum_partials(&dbias, of.blocks * of.state()).into(),
        ])
    }
}

/// Returns rows (B, J, L, `row`) as (B, L, J, `row`).
fn by_position(of: &Operands, x: Vec<f32>, row: usize) -> Vec<f32> {
    if of.blocks == 1 {
        return x;
    }
    let mut y = unspecified(x.len());
    let sequence = (of.blocks * of.length * row).max(1);
    let sequences = y.par_chunks_mut(sequence).zip(x.par_chunks(sequence));
    sequences.for_each(|(y, x)| {
        for (place, y) in y.chunks_exact_mut(row).enumerate() {
            let (t, block) = (place / of.blocks, place % of.blocks);
            y.copy_from_slice(&x[(block * of.length + t) * row..][..row]);
        }
    });
    y
}
