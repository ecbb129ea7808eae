//! LSTM and GRU in main memory, in f32 and f64: sequences side by side, positions one after the
//! other.
//!
//! The loops are plain, and compiled for each instruction set. Nothing in them depends on its
//! width: no sum is split, and nothing is fused.

use candle_core::{Result, Shape, Tensor, WithDType};
use lra_cpu::buffers::split_mut;
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use super::Cell;
use crate::autograd::{BackwardPass, CustomOp, Gradient, Input, View, apply};

/// Positions between two that keep a c.
const CHUNK: usize = 32;
/// Tasks of a backward pass, each with a gradient of the weight of its own.
const TASKS: usize = 16;

/// A number that the loops compute with.
pub(crate) trait Number: WithDType {
    fn exp(self) -> Self;
    fn tanh(self) -> Self;
    /// Returns ln (1 + self).
    fn ln_1p(self) -> Self;

    #[inline(always)]
    fn sigmoid(self) -> Self {
        Self::one() / (Self::one() + (Self::zero() - self).exp())
    }

    /// Returns the logarithm of the logistic function.
    #[inline(always)]
    fn log_sigmoid(self) -> Self {
        let minus = Self::zero() - self;
        match self < Self::zero() {
            true => self - self.exp().ln_1p(),
            false => Self::zero() - minus.exp().ln_1p(),
        }
    }
}

impl Number for f32 {
    #[inline(always)]
    fn exp(self) -> Self {
        self.exp()
    }

    #[inline(always)]
    fn tanh(self) -> Self {
        self.tanh()
    }

    #[inline(always)]
    fn ln_1p(self) -> Self {
        self.ln_1p()
    }
}

impl Number for f64 {
    #[inline(always)]
    fn exp(self) -> Self {
        self.exp()
    }

    #[inline(always)]
    fn tanh(self) -> Self {
        self.tanh()
    }

    #[inline(always)]
    fn ln_1p(self) -> Self {
        self.ln_1p()
    }
}

/// Returns h (B, L, W) of x (B, L, G W), the weight (G W, W) and the bias (G W).
///
/// # Errors
/// If a tensor is not in main memory or of another type.
pub(crate) fn recurrent<T: Number>(
    cell: Cell,
    [x, weight, bias]: [&Tensor; 3],
    mask: Option<&Tensor>,
) -> Result<Tensor> {
    let operands = [x.into(), weight.into(), bias.into(), Input::from(mask)];
    apply::<_, 4, T>(Recurrent { cell }, operands)
}

pub(super) struct Recurrent {
    pub(super) cell: Cell,
}

/// Operands of a recurrence, and its sizes.
struct Operands<'a, T> {
    cell: Cell,
    batch: usize,
    length: usize,
    width: usize,
    /// G W.
    row: usize,
    x: &'a [T],
    /// (G W, W).
    weight: &'a [T],
    /// (W, G W).
    transposed: Vec<T>,
    bias: &'a [T],
    mask: Option<&'a [T]>,
}

impl<'a, T: Number> Operands<'a, T> {
    fn new(cell: Cell, [x, weight, bias, mask]: &[View<'a, T>; 4]) -> Result<Self> {
        let ((batch, length, row), (_, width)) = (x.shape.dims3()?, weight.shape.dims2()?);
        let mut transposed = vec![T::zero(); row * width];
        for (index, value) in weight.data.iter().enumerate() {
            transposed[index % width * row + index / width] = *value;
        }
        Ok(Self {
            cell,
            batch,
            length,
            width,
            row,
            x: x.data,
            weight: weight.data,
            transposed,
            bias: bias.data,
            mask: mask.given(),
        })
    }

    /// Returns the number of positions of one sequence that keep a c.
    fn chunks(&self) -> usize {
        match self.cell {
            Cell::Lstm => self.length.div_ceil(CHUNK),
            Cell::Gru => 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.batch * self.length * self.width == 0
    }

    #[inline(always)]
    fn is_padding(&self, sequence: usize, t: usize) -> bool {
        match self.mask {
            Some(mask) => mask[sequence * self.length + t] == T::zero(),
            None => false,
        }
    }

    #[inline(always)]
    fn x(&self, sequence: usize, t: usize) -> &[T] {
        &self.x[(sequence * self.length + t) * self.row..][..self.row]
    }

    /// Writes i, f, g, o of the LSTM, or r, z, n and a_n of the GRU, to `gates` (4 W), with `a`
    /// (G W) for scratch.
    #[inline(always)]
    fn gates(&self, x: &[T], h: &[T], a: &mut [T], gates: &mut [T]) {
        let width = self.width;
        a.copy_from_slice(self.bias);
        add_rows(&self.transposed, h, a);
        let (first, rest) = gates.split_at_mut(width);
        let (second, rest) = rest.split_at_mut(width);
        let (third, fourth) = rest.split_at_mut(width);
        for j in 0..width {
            let [k, l] = [j + width, j + 2 * width];
            first[j] = (x[j] + a[j]).sigmoid();
            second[j] = (x[k] + a[k]).sigmoid();
            match self.cell {
                Cell::Lstm => {
                    third[j] = (x[l] + a[l]).tanh();
                    fourth[j] = (x[l + width] + a[l + width]).sigmoid();
                }
                Cell::Gru => {
                    third[j] = (x[l] + first[j] * a[l]).tanh();
                    fourth[j] = a[l];
                }
            }
        }
    }
}

/// Adds Σ_k factors_k rows_k to `sum`, for rows as long as it.
#[inline(always)]
pub(in crate::ops) fn add_rows<T: Number>(rows: &[T], factors: &[T], sum: &mut [T]) {
    let len = sum.len();
    let whole = factors.len() / 4 * 4;
    for k in (0..whole).step_by(4) {
        let [f0, f1, f2, f3] = [0, 1, 2, 3].map(|i| factors[k + i]);
        let (r0, rest) = rows[k * len..][..4 * len].split_at(len);
        let (r1, rest) = rest.split_at(len);
        let (r2, r3) = rest.split_at(len);
        for j in 0..len {
            sum[j] += (f0 * r0[j] + f1 * r1[j]) + (f2 * r2[j] + f3 * r3[j]);
        }
    }
    for k in whole..factors.len() {
        let row = &rows[k * len..][..len];
        for j in 0..len {
            sum[j] += factors[k] * row[j];
        }
    }
}

impl<T: Number> CustomOp<4, T> for Recurrent {
    const NAME: &'static str = "recurrence";
    /// c before each chunk (B, L / 32, W).
    type Saved = Vec<T>;
    const READS_OUTPUT: bool = true;

    fn forward(&self, operands: [View<T>; 4], keeps: bool) -> Result<(Vec<T>, Shape, Vec<T>)> {
        let operands = Operands::new(self.cell, &operands)?;
        let (batch, length, width) = (operands.batch, operands.length, operands.width);
        let mut y = vec![T::zero(); batch * length * width];
        let kept_of_one = operands.chunks() * width;
        let mut kept = vec![T::zero(); if keeps { batch * kept_of_one } else { 0 }];
        if !operands.is_empty() {
            let isa = Isa::current();
            let rows = y.par_chunks_mut(length * width).enumerate();
            let kept = split_mut(&mut kept, kept_of_one, batch);
            let workspaces = Workspaces::new(batch, || States::new(&operands));
            rows.zip(kept).for_each(|((sequence, y), kept)| {
                workspaces.lend(|states| {
                    isa.run(Forward {
                        operands: &operands,
                        sequence,
                        y,
                        kept,
                        states,
                    });
                });
            });
        }
        Ok((y, (batch, length, width).into(), kept))
    }

    fn backward(
        &self,
        operands: [View<T>; 4],
        pass: BackwardPass<Vec<T>, 4, T>,
    ) -> Result<[Gradient<T>; 4]> {
        let operands = Operands::new(self.cell, &operands)?;
        let (row, width) = (operands.row, operands.width);
        let mut dx = vec![T::zero(); operands.x.len()];
        let (weight, bias) = (row * width, row);
        let group = operands.batch.div_ceil(TASKS).max(1);
        let mut sums = vec![T::zero(); operands.batch.div_ceil(group) * (weight + bias)];
        if !operands.is_empty() {
            let isa = Isa::current();
            let dx = dx.par_chunks_mut(group * operands.length * row).enumerate();
            let workspaces = Workspaces::new(dx.len(), || Scratch::new(&operands));
            let sums = sums.par_chunks_mut(weight + bias);
            dx.zip(sums).for_each(|((index, dx), sums)| {
                let (dw, db) = sums.split_at_mut(weight);
                let task = Backward {
                    operands: &operands,
                    first: index * group,
                    y: pass.y,
                    kept: &pass.saved,
                    dy: pass.dy,
                    dx,
                    dw,
                    db,
                };
                workspaces.lend(|scratch| isa.run(Gradients { task, scratch }));
            });
        }
        let mut sum = vec![T::zero(); weight + bias];
        for part in sums.chunks_exact((weight + bias).max(1)) {
            for (sum, part) in sum.iter_mut().zip(part) {
                *sum += *part;
            }
        }
        let db = sum.split_off(weight);
        Ok([dx.into(), sum.into(), db.into(), Gradient::Nothing])
    }
}

/// The states of one sequence.
struct Forward<'a, T> {
    operands: &'a Operands<'a, T>,
    sequence: usize,
    /// (L, W).
    y: &'a mut [T],
    /// (L / 32, W), or nothing.
    kept: &'a mut [T],
    states: &'a mut States<T>,
}

/// Working memory of a forward pass: the states (W), a (G W) and the gates (4 W).
struct States<T> {
    h: Vec<T>,
    c: Vec<T>,
    a: Vec<T>,
    gates: Vec<T>,
}

impl<T: Number> States<T> {
    fn new(of: &Operands<T>) -> Self {
        let zeros = |count| vec![T::zero(); count];
        Self {
            h: zeros(of.width),
            c: zeros(of.width),
            a: zeros(of.row),
            gates: zeros(4 * of.width),
        }
    }
}

impl<T: Number> Kernel for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let of = self.operands;
        let width = of.width;
        let States { h, c, a, gates } = self.states;
        h.fill(T::zero());
        c.fill(T::zero());
        for (t, y) in self.y.chunks_exact_mut(width).enumerate() {
            if t % CHUNK == 0 && !self.kept.is_empty() {
                self.kept[t / CHUNK * width..][..width].copy_from_slice(c);
            }
            if !of.is_padding(self.sequence, t) {
                of.gates(of.x(self.sequence, t), h, a, gates);
                advance(of.cell, gates, c, h);
            }
            y.copy_from_slice(h);
        }
    }
}

/// Moves states c (of the LSTM) and h on by a position with these gates.
#[inline(always)]
fn advance<T: Number>(cell: Cell, gates: &[T], c: &mut [T], h: &mut [T]) {
    let width = h.len();
    for j in 0..width {
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|gate| gates[gate * width + j]);
        match cell {
            Cell::Lstm => {
                c[j] = second * c[j] + first * third;
                h[j] = fourth * c[j].tanh();
            }
            Cell::Gru => h[j] = third + second * (h[j] - third),
        }
    }
}

/// The gradients of a group of sequences.
struct Backward<'a, T> {
    operands: &'a Operands<'a, T>,
    /// The first sequence of the group.
    first: usize,
    y: &'a [T],
    kept: &'a [T],
    dy: &'a [T],
    /// Of the group's sequences.
    dx: &'a mut [T],
    dw: &'a mut [T],
    db: &'a mut [T],
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
        let of = task.operands;
        let count = task.dx.len() / (of.length * of.row);
        for index in 0..count {
            scratch.dh.fill(T::zero());
            scratch.dc.fill(T::zero());
            for chunk in (0..of.length.div_ceil(CHUNK)).rev() {
                let rows = chunk * CHUNK..of.length.min((chunk + 1) * CHUNK);
                task.again(task.first + index, rows.clone(), scratch);
                for t in rows.rev() {
                    task.step(index, t, scratch);
                }
            }
        }
    }
}

/// Working memory of a backward pass.
struct Scratch<T> {
    /// (G W).
    a: Vec<T>,
    /// (32, 4 W).
    gates: Vec<T>,
    /// c before and behind each position of a chunk (33, W).
    c: Vec<T>,
    /// Gradients of the state at hand (W).
    dh: Vec<T>,
    dc: Vec<T>,
    /// Gradient of a (G W).
    da: Vec<T>,
    /// A state of zeros (W).
    zeros: Vec<T>,
}

impl<T: Number> Scratch<T> {
    fn new(of: &Operands<T>) -> Self {
        let zeros = |count| vec![T::zero(); count];
        Self {
            a: zeros(of.row),
            gates: zeros(CHUNK * 4 * of.width),
            c: zeros((CHUNK + 1) * of.width),
            dh: zeros(of.width),
            dc: zeros(of.width),
            da: zeros(of.row),
            zeros: zeros(of.width),
        }
    }
}

impl<T: Number> Backward<'_, T> {
    /// Returns the range in y of the state before position t; none at the first.
    #[inline(always)]
    fn before(&self, sequence: usize, t: usize) -> Option<&[T]> {
        let of = self.operands;
        let row = sequence * of.length + t.checked_sub(1)?;
        Some(&self.y[row * of.width..][..of.width])
    }

    /// Computes gates, and c, of the positions `rows` again.
    #[inline(always)]
    fn again(&self, sequence: usize, rows: std::ops::Range<usize>, scratch: &mut Scratch<T>) {
        let of = self.operands;
        let width = of.width;
        if of.cell == Cell::Lstm {
            let place = (sequence * of.chunks() + rows.start / CHUNK) * width;
            scratch.c[..width].copy_from_slice(&self.kept[place..][..width]);
        }
        for (local, t) in rows.enumerate() {
            let (before, behind) = scratch.c[local * width..][..2 * width].split_at_mut(width);
            behind.copy_from_slice(before);
            if of.is_padding(sequence, t) {
                continue;
            }
            let h = self.before(sequence, t).unwrap_or(&scratch.zeros);
            let gates = &mut scratch.gates[local * 4 * width..][..4 * width];
            of.gates(of.x(sequence, t), h, &mut scratch.a, gates);
            if of.cell == Cell::Lstm {
                for j in 0..width {
                    behind[j] = gates[width + j] * before[j] + gates[j] * gates[2 * width + j];
                }
            }
        }
    }

    /// Moves the gradients of the state from behind position t to before it.
    #[inline(always)]
    fn step(&mut self, index: usize, t: usize, scratch: &mut Scratch<T>) {
        let of = self.operands;
        let (width, local, sequence) = (of.width, t % CHUNK, self.first + index);
        let Scratch {
            gates,
            c,
            dh,
            dc,
            da,
            zeros,
            ..
        } = scratch;
        let dy = &self.dy[(sequence * of.length + t) * width..][..width];
        for j in 0..width {
            dh[j] += dy[j];
        }
        if of.is_padding(sequence, t) {
            return;
        }
        let one = T::one();
        let gates = &gates[local * 4 * width..][..4 * width];
        let (before, behind) = c[local * width..][..2 * width].split_at(width);
        let h = match t.checked_sub(1) {
            Some(t) => &self.y[(sequence * of.length + t) * width..][..width],
            None => &zeros[..],
        };
        let dx = &mut self.dx[(index * of.length + t) * of.row..][..of.row];
        for j in 0..width {
            let [k, l] = [j + width, j + 2 * width];
            match of.cell {
                Cell::Lstm => {
                    let (i, f, g, o) = (gates[j], gates[k], gates[l], gates[l + width]);
                    let size = behind[j].tanh();
                    let along = dc[j] + dh[j] * o * (one - size * size);
                    dx[j] = along * g * i * (one - i);
                    dx[k] = along * before[j] * f * (one - f);
                    dx[l] = along * i * (one - g * g);
                    dx[l + width] = dh[j] * size * o * (one - o);
                    dc[j] = along * f;
                    dh[j] = T::zero();
                }
                Cell::Gru => {
                    let (r, z, n, a) = (gates[j], gates[k], gates[l], gates[l + width]);
                    let inner = dh[j] * (one - z) * (one - n * n);
                    dx[j] = inner * a * r * (one - r);
                    dx[k] = dh[j] * (h[j] - n) * z * (one - z);
                    dx[l] = inner;
                    da[l] = inner * r;
                    dh[j] *= z;
                }
            }
        }
        let same = match of.cell {
            Cell::Lstm => 4 * width,
            Cell::Gru => 2 * width,
        };
        da[..same].copy_from_slice(&dx[..same]);
        add_rows(of.weight, da, dh);
        for (row, da) in da.iter().enumerate() {
            self.db[row] += *da;
            let dw = &mut self.dw[row * width..][..width];
            for j in 0..width {
                dw[j] += *da * h[j];
            }
        }
    }
}
