//! The recurrence in main memory, in f32 and f64: sequences side by side, heads and positions one
//! after the other.
//!
//! m cancels in h, so the backward pass holds it constant.

use candle_core::{Result, Shape, Tensor};
use lra_cpu::buffers::split_mut;
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, Input, View, apply};
use crate::ops::recurrent::cpu::{Number, add_rows};

/// Positions between two that keep a state.
const CHUNK: usize = 32;
/// Most tasks of the backward pass: each has gradients of the weights of its own.
const TASKS: usize = 16;
/// States kept: c, n and m.
const KEPT: usize = 3;
/// Numbers of a position that the backward pass reads: i, f, tanh(z), σ(o) and 1 - σ(f).
const GATES: usize = 5;

/// Returns h (B, L, H, E) of x (B, L, H, 4 E) and the weight (H, 4 E, E).
///
/// # Errors
/// If a tensor is not in main memory or of another type.
pub(crate) fn slstm<T: Number>(
    x: &Tensor,
    weight: &Tensor,
    mask: Option<&Tensor>,
) -> Result<Tensor> {
    apply::<_, 3, T>(Slstm, [x.into(), weight.into(), Input::from(mask)])
}

pub(super) struct Slstm;

/// Operands of the recurrence, and its sizes.
struct Operands<'a, T> {
    batch: usize,
    length: usize,
    heads: usize,
    /// E.
    width: usize,
    x: &'a [T],
    /// (H, 4 E, E).
    weight: &'a [T],
    /// (H, E, 4 E).
    transposed: Vec<T>,
    mask: Option<&'a [T]>,
}

impl<'a, T: Number> Operands<'a, T> {
    fn new([x, weight, mask]: &[View<'a, T>; 3]) -> Result<Self> {
        let ((batch, length, heads, row), (_, _, width)) =
            (x.shape.dims4()?, weight.shape.dims3()?);
        let size = row * width;
        let mut transposed = vec![T::zero(); heads * size];
        for (index, value) in weight.data.iter().enumerate() {
            let (head, index) = (index / size, index % size);
            transposed[head * size + index % width * row + index / width] = *value;
        }
        Ok(Self {
            batch,
            length,
            heads,
            width,
            x: x.data,
            weight: weight.data,
            transposed,
            mask: mask.given(),
        })
    }

    fn is_empty(&self) -> bool {
        self.batch * self.length * self.heads * self.width == 0
    }

    /// Returns the number of positions of a head that keep states.
    fn chunks(&self) -> usize {
        self.length.div_ceil(CHUNK)
    }

    /// Returns 4 E · E.
    fn matrix(&self) -> usize {
        4 * self.width * self.width
    }

    #[inline(always)]
    fn is_padding(&self, sequence: usize, t: usize) -> bool {
        match self.mask {
            Some(mask) => mask[sequence * self.length + t] == T::zero(),
            None => false,
        }
    }

    /// Moves c, n and m (3 E) on by a position, writes its gates (5 E), and σ(o) c / n to `next`,
    /// with `a` (4 E) for scratch; h is that of the position before.
    #[inline(always)]
    fn advance(
        &self,
        row: usize,
        h: &[T],
        states: &mut [T],
        gates: &mut [T],
        a: &mut [T],
        next: &mut [T],
    ) {
        let (width, head) = (self.width, row % self.heads);
        a.copy_from_slice(&self.x[row * 4 * width..][..4 * width]);
        let transposed = &self.transposed[head * self.matrix()..][..self.matrix()];
        add_rows(transposed, h, a);
        let (c, rest) = states.split_at_mut(width);
        let (n, m) = rest.split_at_mut(width);
        for j in 0..width {
            let (input, forget) = (a[j], a[width + j]);
            let log_forget = forget.log_sigmoid();
            let kept = m[j] + log_forget;
            let most = if kept > input { kept } else { input };
            let (i, f) = ((input - most).exp(), (kept - most).exp());
            let z = a[2 * width + j].tanh();
            let o = a[3 * width + j].sigmoid();
            c[j] = f * c[j] + i * z;
            n[j] = f * n[j] + i;
            m[j] = most;
            next[j] = o * (c[j] / n[j]);
            let closed = (T::zero() - forget).sigmoid();
            for (gate, value) in [i, f, z, o, closed].into_iter().enumerate() {
                gates[gate * width + j] = value;
            }
        }
    }

    /// Sets c and n to 0 and m to minus infinity.
    fn clear(&self, states: &mut [T]) {
        let (memory, m) = states.split_at_mut(2 * self.width);
        memory.fill(T::zero());
        m.fill(T::from_f64(f64::NEG_INFINITY));
    }
}

impl<T: Number> CustomOp<3, T> for Slstm {
    const NAME: &'static str = "sLSTM";
    /// c, n and m before each chunk (B, H, L / 32, 3, E).
    type Saved = Vec<T>;
    const READS_OUTPUT: bool = true;

    fn forward(&self, operands: [View<T>; 3], keeps: bool) -> Result<(Vec<T>, Shape, Vec<T>)> {
        let of = Operands::new(&operands)?;
        let row = of.heads * of.width;
        let mut y = vec![T::zero(); of.batch * of.length * row];
        let kept_of_one = of.heads * of.chunks() * KEPT * of.width;
        let mut kept = vec![T::zero(); if keeps { of.batch * kept_of_one } else { 0 }];
        if !of.is_empty() {
            let isa = Isa::current();
            let y = y.par_chunks_mut(of.length * row).enumerate();
            let workspaces = Workspaces::new(of.batch, || Position::new(&of));
            let kept = split_mut(&mut kept, kept_of_one, of.batch);
            y.zip(kept).for_each(|((sequence, y), kept)| {
                workspaces.lend(|position| {
                    isa.run(Forward {
                        of: &of,
                        sequence,
                        y,
                        kept,
                        position,
                    });
                });
            });
        }
        let shape = (of.batch, of.length, of.heads, of.width);
        Ok((y, shape.into(), kept))
    }

    fn backward(
        &self,
        operands: [View<T>; 3],
        pass: BackwardPass<Vec<T>, 3, T>,
    ) -> Result<[Gradient<T>; 3]> {
        let of = Operands::new(&operands)?;
        let weights = of.heads * of.matrix();
        let mut dx = vec![T::zero(); of.x.len()];
        let group = of.batch.div_ceil(TASKS).max(1);
        let mut sums = vec![T::zero(); of.batch.div_ceil(group) * weights];
        if !of.is_empty() {
            let isa = Isa::current();
            let rows = group * of.length * of.heads * 4 * of.width;
            let dx = dx.par_chunks_mut(rows).enumerate();
            let workspaces = Workspaces::new(dx.len(), || Scratch::new(&of));
            dx.zip(sums.par_chunks_mut(weights))
                .for_each(|((index, dx), dw)| {
                    let task = Backward {
                        of: &of,
                        first: index * group,
                        y: pass.y,
                        kept: &pass.saved,
                        dy: pass.dy,
                        dx,
                        dw,
                    };
                    workspaces.lend(|scratch| isa.run(Gradients { task, scratch }));
                });
        }
        let mut dw = vec![T::zero(); weights];
        for part in sums.chunks_exact(weights.max(1)) {
            for (sum, part) in dw.iter_mut().zip(part) {
                *sum += *part;
            }
        }
        Ok([dx.into(), dw.into(), Gradient::Nothing])
    }
}

/// The states of one sequence.
struct Forward<'a, T> {
    of: &'a Operands<'a, T>,
    sequence: usize,
    /// (L, H, E).
    y: &'a mut [T],
    /// (H, L / 32, 3, E); empty if no states are kept.
    kept: &'a mut [T],
    position: &'a mut Position<T>,
}

/// Working memory of a forward pass: h before and behind a position (E), c, n and m (3 E), and
/// what [`Operands::advance`] writes.
struct Position<T> {
    h: Vec<T>,
    next: Vec<T>,
    states: Vec<T>,
    a: Vec<T>,
    gates: Vec<T>,
}

impl<T: Number> Position<T> {
    fn new(of: &Operands<T>) -> Self {
        let zeros = |count| vec![T::zero(); count * of.width];
        Self {
            h: zeros(1),
            next: zeros(1),
            states: zeros(KEPT),
            a: zeros(4),
            gates: zeros(GATES),
        }
    }
}

impl<T: Number> Kernel for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let (of, width) = (self.of, self.of.width);
        let Position {
            h,
            next,
            states,
            a,
            gates,
        } = self.position;
        for head in 0..of.heads {
            h.fill(T::zero());
            of.clear(states);
            for t in 0..of.length {
                if t % CHUNK == 0 && !self.kept.is_empty() {
                    let place = (head * of.chunks() + t / CHUNK) * KEPT * width;
                    self.kept[place..][..KEPT * width].copy_from_slice(states);
                }
                if !of.is_padding(self.sequence, t) {
                    let row = (self.sequence * of.length + t) * of.heads + head;
                    of.advance(row, h, states, gates, a, next);
                    h.copy_from_slice(next);
                }
                self.y[(t * of.heads + head) * width..][..width].copy_from_slice(h);
            }
        }
    }
}

/// The gradients of a group of sequences.
struct Backward<'a, T> {
    of: &'a Operands<'a, T>,
    /// The first sequence of the group.
    first: usize,
    y: &'a [T],
    kept: &'a [T],
    dy: &'a [T],
    /// Of the group's sequences.
    dx: &'a mut [T],
    /// (H, 4 E, E).
    dw: &'a mut [T],
}

/// Working memory of a backward pass.
struct Scratch<T> {
    /// (4 E).
    a: Vec<T>,
    /// (E).
    next: Vec<T>,
    /// Gates of each position of a chunk (32, 5 E).
    gates: Vec<T>,
    /// c, n and m before and behind each position of a chunk (33, 3 E).
    states: Vec<T>,
    /// Gradients of h, c and n at hand (E).
    dh: Vec<T>,
    dc: Vec<T>,
    dn: Vec<T>,
    /// A state of zeros (E).
    zeros: Vec<T>,
}

impl<T: Number> Scratch<T> {
    fn new(of: &Operands<T>) -> Self {
        let zeros = |count| vec![T::zero(); count * of.width];
        Self {
            a: zeros(4),
            next: zeros(1),
            gates: zeros(CHUNK * GATES),
            states: zeros((CHUNK + 1) * KEPT),
            dh: zeros(1),
            dc: zeros(1),
            dn: zeros(1),
            zeros: zeros(1),
        }
    }
}

/// The gradients of a group of sequences, and the memory to compute them in.
struct Gradients<'a, T> {
    task: Backward<'a, T>,
    scratch: &'a mut Scratch<T>,
}

impl<T: Number> Kernel for Gradients<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let Self { mut task, scratch } = self;
        let of = task.of;
        let count = task.dx.len() / (of.length * of.heads * 4 * of.width);
        for (index, head) in (0..count).flat_map(|index| (0..of.heads).map(move |h| (index, h))) {
            for gradient in [&mut scratch.dh, &mut scratch.dc, &mut scratch.dn] {
                gradient.fill(T::zero());
            }
            for chunk in (0..of.chunks()).rev() {
                let rows = chunk * CHUNK..of.length.min((chunk + 1) * CHUNK);
                task.again(task.first + index, head, rows.clone(), scratch);
                for t in rows.rev() {
                    task.step(index, head, t, scratch);
                }
            }
        }
    }
}

impl<T: Number> Backward<'_, T> {
    /// Returns the range in y of the state before position t; none at the first.
    #[inline(always)]
    fn before(&self, sequence: usize, head: usize, t: usize) -> Option<&[T]> {
        let of = self.of;
        let row = (sequence * of.length + t.checked_sub(1)?) * of.heads + head;
        Some(&self.y[row * of.width..][..of.width])
    }

    /// Computes gates and states of the positions `rows` again.
    #[inline(always)]
    fn again(
        &self,
        sequence: usize,
        head: usize,
        rows: std::ops::Range<usize>,
        scratch: &mut Scratch<T>,
    ) {
        let (of, size) = (self.of, KEPT * self.of.width);
        let place = (sequence * of.heads + head) * of.chunks() + rows.start / CHUNK;
        scratch.states[..size].copy_from_slice(&self.kept[place * size..][..size]);
        for (local, t) in rows.enumerate() {
            let both = &mut scratch.states[local * size..][..2 * size];
            let (before, behind) = both.split_at_mut(size);
            behind.copy_from_slice(before);
            if of.is_padding(sequence, t) {
                continue;
            }
            let row = (sequence * of.length + t) * of.heads + head;
            let h = self.before(sequence, head, t).unwrap_or(&scratch.zeros);
            let gates = &mut scratch.gates[local * GATES * of.width..][..GATES * of.width];
            of.advance(row, h, behind, gates, &mut scratch.a, &mut scratch.next);
        }
    }

    /// Moves the gradients of the states from behind position t to before it.
    #[inline(always)]
    fn step(&mut self, index: usize, head: usize, t: usize, scratch: &mut Scratch<T>) {
        let of = self.of;
        let (width, local, sequence) = (of.width, t % CHUNK, self.first + index);
        let Scratch {
            gates,
            states,
            dh,
            dc,
            dn,
            zeros,
            ..
        } = scratch;
        let row = (sequence * of.length + t) * of.heads + head;
        let dy = &self.dy[row * width..][..width];
        for (dh, dy) in dh.iter_mut().zip(dy) {
            *dh += *dy;
        }
        if of.is_padding(sequence, t) {
            return;
        }
        let one = T::one();
        let gates = &gates[local * GATES * width..][..GATES * width];
        let size = KEPT * width;
        let (before, behind) = states[local * size..][..2 * size].split_at(size);
        let own = (index * of.length + t) * of.heads + head;
        let dx = &mut self.dx[own * 4 * width..][..4 * width];
        for j in 0..width {
            let [i, f, z, o, closed] = [0, 1, 2, 3, 4].map(|gate| gates[gate * width + j]);
            let (c, n) = (behind[j], behind[width + j]);
            let ratio = c / n;
            let along = dh[j] * o / n;
            let dc_all = dc[j] + along;
            let dn_all = dn[j] - along * ratio;
            dx[j] = (dc_all * z + dn_all) * i;
            dx[width + j] = (dc_all * before[j] + dn_all * before[width + j]) * f * closed;
            dx[2 * width + j] = dc_all * i * (one - z * z);
            dx[3 * width + j] = dh[j] * ratio * o * (one - o);
            (dc[j], dn[j]) = (dc_all * f, dn_all * f);
            dh[j] = T::zero();
        }
        add_rows(&of.weight[head * of.matrix()..][..of.matrix()], dx, dh);
        let h = match t.checked_sub(1) {
            Some(t) => {
                let row = (sequence * of.length + t) * of.heads + head;
                &self.y[row * width..][..width]
            }
            None => &zeros[..],
        };
        let dw = &mut self.dw[head * of.matrix()..][..of.matrix()];
        for (dw, da) in dw.chunks_exact_mut(width).zip(&*dx) {
            for (dw, h) in dw.iter_mut().zip(h) {
                *dw += *da * *h;
            }
        }
    }
}
