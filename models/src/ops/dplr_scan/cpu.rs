//! The scan in main memory, in f32 and f64: sequences side by side, heads and positions one after
//! the other.
//!
//! The loops are plain, and compiled for each instruction set. Sums have eight parts whatever its
//! width, and nothing is fused.

use candle_core::{Result, Shape, Tensor, WithDType};
use lra_cpu::buffers::split_mut;
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Positions between two that keep a state.
const CHUNK: usize = 32;
/// Parts of a sum.
const PARTS: usize = 8;

/// Returns y (B, L, H, V) of r, w, k, v, a and b.
///
/// # Errors
/// If a tensor is not in main memory or of another type.
pub(crate) fn dplr_scan<T: WithDType>(operands: [&Tensor; 6]) -> Result<Tensor> {
    apply::<_, 6, T>(Scan, operands)
}

pub(super) struct Scan;

/// Operands of the scan, and its sizes.
struct Operands<'a, T> {
    batch: usize,
    length: usize,
    heads: usize,
    /// K.
    keys: usize,
    /// V.
    values: usize,
    r: &'a [T],
    w: &'a [T],
    k: &'a [T],
    v: &'a [T],
    a: &'a [T],
    b: &'a [T],
}

impl<'a, T: WithDType> Operands<'a, T> {
    fn new([r, w, k, v, a, b]: &[View<'a, T>; 6]) -> Result<Self> {
        let ((batch, length, heads, keys), values) = (r.shape.dims4()?, v.shape.dims4()?.3);
        Ok(Self {
            batch,
            length,
            heads,
            keys,
            values,
            r: r.data,
            w: w.data,
            k: k.data,
            v: v.data,
            a: a.data,
            b: b.data,
        })
    }

    fn is_empty(&self) -> bool {
        self.batch * self.length * self.heads * self.keys * self.values == 0
    }

    /// Returns the numbers of a state.
    fn state(&self) -> usize {
        self.keys * self.values
    }

    /// Returns the number of states that a head of a sequence keeps.
    fn chunks(&self) -> usize {
        self.length.div_ceil(CHUNK)
    }

    /// Returns the row of a sequence, position and head.
    #[inline(always)]
    fn row(&self, sequence: usize, t: usize, head: usize) -> usize {
        (sequence * self.length + t) * self.heads + head
    }

    /// Returns r, w, k, a and b of a row.
    #[inline(always)]
    fn of_keys(&self, row: usize) -> [&'a [T]; 5] {
        [self.r, self.w, self.k, self.a, self.b].map(|x| &x[row * self.keys..][..self.keys])
    }

    #[inline(always)]
    fn of_values(&self, row: usize) -> &'a [T] {
        &self.v[row * self.values..][..self.values]
    }

    /// Moves `state` on by a position; `read` becomes Sᵀ a of the state before.
    #[inline(always)]
    fn advance(&self, row: usize, state: &mut [T], read: &mut [T]) {
        let [_, w, k, a, b] = self.of_keys(row);
        let v = self.of_values(row);
        read.fill(T::zero());
        for (a, state) in a.iter().zip(state.chunks_exact(self.values)) {
            add(read, *a, state);
        }
        let rows = state.chunks_exact_mut(self.values);
        for (i, state) in rows.enumerate() {
            let (w, k, b) = (w[i], k[i], b[i]);
            for ((state, read), v) in state.iter_mut().zip(&*read).zip(v) {
                *state = w * *state + (b * *read + k * *v);
            }
        }
    }
}

/// Adds `factor` times `row` to `sum`.
#[inline(always)]
pub(in crate::ops) fn add<T: WithDType>(sum: &mut [T], factor: T, row: &[T]) {
    for (sum, x) in sum.iter_mut().zip(row) {
        *sum += factor * *x;
    }
}

/// Returns the sum of products.
#[inline(always)]
pub(in crate::ops) fn dot<T: WithDType>(x: &[T], y: &[T]) -> T {
    let mut parts = [T::zero(); PARTS];
    let (whole_x, whole_y) = (x.chunks_exact(PARTS), y.chunks_exact(PARTS));
    let (rest_x, rest_y) = (whole_x.remainder(), whole_y.remainder());
    for (x, y) in whole_x.zip(whole_y) {
        for j in 0..PARTS {
            parts[j] += x[j] * y[j];
        }
    }
    for (j, (x, y)) in rest_x.iter().zip(rest_y).enumerate() {
        parts[j] += *x * *y;
    }
    let [a, b, c, d, e, f, g, h] = parts;
    ((a + e) + (b + f)) + ((c + g) + (d + h))
}

impl<T: WithDType> CustomOp<6, T> for Scan {
    const NAME: &'static str = "rank-1 scan";
    /// The states before each chunk (B, H, L / 32, K, V).
    type Saved = Vec<T>;

    fn forward(&self, operands: [View<T>; 6], keeps: bool) -> Result<(Vec<T>, Shape, Vec<T>)> {
        let of = Operands::new(&operands)?;
        let row = of.heads * of.values;
        let mut y = vec![T::zero(); of.batch * of.length * row];
        let kept_of_one = of.heads * of.chunks() * of.state();
        let mut kept = vec![T::zero(); if keeps { of.batch * kept_of_one } else { 0 }];
        if !of.is_empty() {
            let isa = Isa::current();
            let y = y.par_chunks_mut(of.length * row).enumerate();
            let zeros = || [of.state(), of.values].map(|len| vec![T::zero(); len]);
            let workspaces = Workspaces::new(of.batch, zeros);
            let kept = split_mut(&mut kept, kept_of_one, of.batch);
            y.zip(kept).for_each(|((sequence, y), kept)| {
                workspaces.lend(|[state, read]| {
                    isa.run(Forward {
                        of: &of,
                        sequence,
                        y,
                        kept,
                        state,
                        read,
                    });
                });
            });
        }
        let shape = (of.batch, of.length, of.heads, of.values);
        Ok((y, shape.into(), kept))
    }

    fn backward(
        &self,
        operands: [View<T>; 6],
        pass: BackwardPass<Vec<T>, 6, T>,
    ) -> Result<[Gradient<T>; 6]> {
        let of = Operands::new(&operands)?;
        let (keys, values) = (of.heads * of.keys, of.heads * of.values);
        // Gradients of r, w, k, a and b side by side, and that of v.
        let mut of_keys = vec![T::zero(); of.batch * of.length * 5 * keys];
        let mut dv = vec![T::zero(); of.batch * of.length * values];
        if !of.is_empty() {
            let isa = Isa::current();
            let of_keys = of_keys.par_chunks_mut(of.length * 5 * keys).enumerate();
            let workspaces = Workspaces::new(of.batch, || Scratch::new(&of));
            of_keys.zip(dv.par_chunks_mut(of.length * values)).for_each(
                |((sequence, of_keys), dv)| {
                    let task = Backward {
                        of: &of,
                        sequence,
                        kept: &pass.saved,
                        dy: pass.dy,
                        of_keys,
                        dv,
                    };
                    workspaces.lend(|scratch| isa.run(Gradients { task, scratch }));
                },
            );
        }
        let part = |at: usize| -> Gradient<T> {
            let rows = of_keys.chunks_exact((5 * of.keys).max(1));
            let rows = rows.flat_map(|row| &row[at * of.keys..][..of.keys]);
            rows.copied().collect::<Vec<T>>().into()
        };
        let [dr, dw, dk, da, db] = [0, 1, 2, 3, 4].map(part);
        Ok([dr, dw, dk, dv.into(), da, db])
    }
}

/// The outputs of one sequence.
struct Forward<'a, T> {
    of: &'a Operands<'a, T>,
    sequence: usize,
    /// (L, H, V).
    y: &'a mut [T],
    /// (H, L / 32, K, V); empty if no states are kept.
    kept: &'a mut [T],
    /// Working memory: the state (K, V), and Sᵀ a (V).
    state: &'a mut [T],
    read: &'a mut [T],
}

impl<T: WithDType> Kernel for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let (of, state, read) = (self.of, self.state, self.read);
        for head in 0..of.heads {
            state.fill(T::zero());
            for t in 0..of.length {
                if t % CHUNK == 0 && !self.kept.is_empty() {
                    let place = (head * of.chunks() + t / CHUNK) * of.state();
                    self.kept[place..][..of.state()].copy_from_slice(state);
                }
                let row = of.row(self.sequence, t, head);
                of.advance(row, state, read);
                let y = &mut self.y[(t * of.heads + head) * of.values..][..of.values];
                let [r, ..] = of.of_keys(row);
                for (r, state) in r.iter().zip(state.chunks_exact(of.values)) {
                    add(y, *r, state);
                }
            }
        }
    }
}

/// The gradients of one sequence.
struct Backward<'a, T> {
    of: &'a Operands<'a, T>,
    sequence: usize,
    kept: &'a [T],
    dy: &'a [T],
    /// (L, H, 5, K).
    of_keys: &'a mut [T],
    /// (L, H, V).
    dv: &'a mut [T],
}

/// Working memory of a backward pass.
struct Scratch<T> {
    /// States before and behind each position of a chunk (33, K, V).
    states: Vec<T>,
    /// Sᵀ a of each position of a chunk (32, V).
    reads: Vec<T>,
    /// Gradient of the state at hand (K, V).
    dstate: Vec<T>,
    /// Gradient of Sᵀ a (V).
    dread: Vec<T>,
}

impl<T: WithDType> Scratch<T> {
    fn new(of: &Operands<T>) -> Self {
        let zeros = |count| vec![T::zero(); count];
        Self {
            states: zeros((CHUNK + 1) * of.state()),
            reads: zeros(CHUNK * of.values),
            dstate: zeros(of.state()),
            dread: zeros(of.values),
        }
    }
}

/// The gradients of one sequence, and the memory to compute them in.
struct Gradients<'a, T> {
    task: Backward<'a, T>,
    scratch: &'a mut Scratch<T>,
}

impl<T: WithDType> Kernel for Gradients<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let Self { mut task, scratch } = self;
        let of = task.of;
        for head in 0..of.heads {
            scratch.dstate.fill(T::zero());
            for chunk in (0..of.chunks()).rev() {
                let rows = chunk * CHUNK..of.length.min((chunk + 1) * CHUNK);
                task.again(head, rows.clone(), scratch);
                for t in rows.rev() {
                    task.step(head, t, scratch);
                }
            }
        }
    }
}

impl<T: WithDType> Backward<'_, T> {
    /// Computes the states of the positions `rows` again.
    #[inline(always)]
    fn again(&self, head: usize, rows: std::ops::Range<usize>, scratch: &mut Scratch<T>) {
        let (of, state) = (self.of, self.of.state());
        let place = (self.sequence * of.heads + head) * of.chunks() + rows.start / CHUNK;
        scratch.states[..state].copy_from_slice(&self.kept[place * state..][..state]);
        for (local, t) in rows.enumerate() {
            let both = &mut scratch.states[local * state..][..2 * state];
            let (before, behind) = both.split_at_mut(state);
            behind.copy_from_slice(before);
            let read = &mut scratch.reads[local * of.values..][..of.values];
            of.advance(of.row(self.sequence, t, head), behind, read);
        }
    }

    /// Moves the gradient of the state from behind position t to before it.
    #[inline(always)]
    fn step(&mut self, head: usize, t: usize, scratch: &mut Scratch<T>) {
        let (of, local) = (self.of, t % CHUNK);
        let (keys, values, state) = (of.keys, of.values, of.state());
        let Scratch {
            states,
            reads,
            dstate,
            dread,
        } = scratch;
        let row = of.row(self.sequence, t, head);
        let [r, w, k, a, b] = of.of_keys(row);
        let v = of.of_values(row);
        let dy = &self.dy[row * values..][..values];
        let (before, behind) = states[local * state..][..2 * state].split_at(state);
        let read = &reads[local * values..][..values];
        let own = t * of.heads + head;
        let gradients = &mut self.of_keys[own * 5 * keys..][..5 * keys];
        let dv = &mut self.dv[own * values..][..values];
        dread.fill(T::zero());
        for i in 0..keys {
            let line = i * values..(i + 1) * values;
            let dstate = &mut dstate[line.clone()];
            add(dstate, r[i], dy);
            gradients[i] = dot(&behind[line.clone()], dy);
            gradients[keys + i] = dot(dstate, &before[line]);
            gradients[2 * keys + i] = dot(dstate, v);
            gradients[4 * keys + i] = dot(dstate, read);
            add(dv, k[i], dstate);
            add(dread, b[i], dstate);
        }
        for i in 0..keys {
            let line = i * values..(i + 1) * values;
            gradients[3 * keys + i] = dot(&before[line.clone()], dread);
            for (dstate, dread) in dstate[line].iter_mut().zip(&*dread) {
                *dstate = w[i] * *dstate + a[i] * *dread;
            }
        }
    }
}
