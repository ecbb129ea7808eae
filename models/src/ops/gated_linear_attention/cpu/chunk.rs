//! A chunk of rows in the layouts of the products, and the walk from the first to the last.

use lra_cpu::buffers::Shared;
use lra_cpu::format::Format;
use lra_cpu::isa::Isa;
use lra_cpu::math::exp;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::tile::{Lhs, product};

use super::order::ScanOrder;
use super::pairs::{Pairs, solve};
use super::{CHUNK, SEGMENT, Sizes};
use crate::autograd::View;

/// All rows of the operands; decays and rates are empty where there are none.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) log_decay: &'a [f32],
    pub(super) delta: &'a [f32],
}

impl<'a> Operands<'a> {
    pub(super) fn new(operands: &[View<'a>; 5]) -> Self {
        let [q, k, v, log_decay, delta] = operands.each_ref().map(|view| view.data);
        Self {
            q,
            k,
            v,
            log_decay,
            delta,
        }
    }
}

/// Computes `out = a b`, or `out += a b` if `ADD`, as [`product`] does.
struct Multiply<'a, const ADD: bool> {
    a: Lhs<'a>,
    b: (&'a [f32], usize),
    out: (&'a mut [f32], usize),
    sizes: (usize, usize, usize),
}

impl<const ADD: bool> Kernel for Multiply<'_, ADD> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        product::<S, ADD>(s, Format::F32, self.a, self.b, self.out, self.sizes);
    }
}

/// Computes `out = a b` for a (m, k), b (k, n) and out (m, n), rows of `b` and `out` being n apart.
pub(super) fn multiply(isa: Isa, sizes: (usize, usize, usize), a: Lhs, b: &[f32], out: &mut [f32]) {
    let (b, out) = ((b, sizes.1), (out, sizes.1));
    isa.run(Multiply::<false> { a, b, out, sizes });
}

/// Computes `out += a b` as [`multiply`] does.
pub(super) fn multiply_add(
    isa: Isa,
    sizes: (usize, usize, usize),
    a: Lhs,
    b: &[f32],
    out: &mut [f32],
) {
    let (b, out) = ((b, sizes.1), (out, sizes.1));
    isa.run(Multiply::<true> { a, b, out, sizes });
}

/// Working memory that is still to be split up.
pub(super) struct Split<'a>(pub(super) &'a mut [f32]);

impl<'a> Split<'a> {
    /// Splits off the next `len` numbers.
    pub(super) fn off(&mut self, len: usize) -> &'a mut [f32] {
        let (part, rest) = std::mem::take(&mut self.0).split_at_mut(len);
        self.0 = rest;
        part
    }
}

/// Rows of a chunk. K and V are padded; rows beyond those that count have k, q, v = 0 and a = 1.
pub(super) struct Chunk<'a> {
    pub(super) sizes: Sizes,
    /// Rows that count.
    pub(super) rows: usize,
    /// (C, K).
    pub(super) q: &'a mut [f32],
    /// (C, K).
    pub(super) k: &'a mut [f32],
    /// a (C, K).
    pub(super) decays: &'a mut [f32],
    /// p (C, K).
    pub(super) from_start: &'a mut [f32],
    /// s (C, K).
    pub(super) to_end: &'a mut [f32],
    /// q ⊙ p (C, K).
    pub(super) q_decayed: &'a mut [f32],
    /// k ⊙ s (C, K).
    pub(super) k_kept: &'a mut [f32],
    /// k ⊙ p (C, K), for the delta rule.
    pub(super) k_decayed: &'a mut [f32],
    /// u (C, V).
    pub(super) values: &'a mut [f32],
    /// x (C, V), for the delta rule.
    pub(super) written: &'a mut [f32],
    /// β (C).
    pub(super) delta: [f32; CHUNK],
    /// w (C, C).
    pub(super) weights: &'a mut [f32],
    /// m (C, C), zeros on and above the diagonal.
    pub(super) reads: &'a mut [f32],
    /// A row of K.
    row: &'a mut [f32],
}

impl<'a> Chunk<'a> {
    /// Returns the numbers that a chunk takes.
    pub(super) fn len(sizes: Sizes) -> usize {
        let (wide, wide_values) = (sizes.wide_keys(), sizes.wide_values());
        CHUNK * (8 * wide + 2 * wide_values + 2 * CHUNK) + wide
    }

    /// Makes a chunk of unspecified numbers in `space`.
    pub(super) fn new(sizes: Sizes, space: &'a mut [f32]) -> Self {
        let (wide, wide_values) = (sizes.wide_keys(), sizes.wide_values());
        let (keys, values) = (CHUNK * wide, CHUNK * wide_values);
        let mut split = Split(space);
        Self {
            sizes,
            rows: 0,
            q: split.off(keys),
            k: split.off(keys),
            decays: split.off(keys),
            from_start: split.off(keys),
            to_end: split.off(keys),
            q_decayed: split.off(keys),
            k_kept: split.off(keys),
            k_decayed: split.off(keys),
            values: split.off(values),
            written: split.off(values),
            delta: [0.0; CHUNK],
            weights: split.off(CHUNK * CHUNK),
            reads: split.off(CHUNK * CHUNK),
            row: split.off(wide),
        }
    }

    /// Returns the pairs of the chunk's keys with other rows.
    #[inline(always)]
    pub(super) fn pairs(&self) -> Pairs<'_> {
        Pairs {
            k: self.k,
            decays: self.decays,
            rows: self.rows,
            wide: self.sizes.wide_keys(),
        }
    }

    /// Loads the keys, values and decays of the steps from `first` on, and forms u for the state
    /// that they meet.
    #[inline(always)]
    pub(super) fn load<S: Lanes>(
        &mut self,
        s: S,
        isa: Isa,
        (order, operands): (&ScanOrder, &Operands),
        first: usize,
        state: &[f32],
    ) {
        let Sizes { keys, values, .. } = self.sizes;
        let (wide, wide_values) = (self.sizes.wide_keys(), self.sizes.wide_values());
        self.rows = CHUNK.min(order.rows - first);
        let rows = self.rows;
        order.load(operands.k, (first, rows), (keys, wide), self.k);
        let target = if self.sizes.delta {
            &mut *self.written
        } else {
            &mut *self.values
        };
        order.load(operands.v, (first, rows), (values, wide_values), target);
        self.load_decays(s, order, operands, first);
        multiply_rows(s, self.k, self.to_end, self.k_kept);
        if !self.sizes.delta {
            return;
        }
        order.load(operands.delta, (first, rows), (1, 1), &mut self.delta);
        multiply_rows(s, self.k, self.from_start, self.k_decayed);
        let read = &mut *self.values;
        let left = Lhs::strided(self.k_decayed, wide, 1);
        multiply(isa, (CHUNK, wide_values, keys), left, state, read);
        let pairs = Pairs {
            k: self.k,
            decays: self.decays,
            rows,
            wide,
        };
        pairs.weights(s, self.k, false, self.row, self.reads);
        // r in place of u, and β m in place of w, until they are solved.
        for (i, rate) in self.delta.iter().enumerate() {
            let rate_register = s.splat_f32s(*rate);
            let at = i * wide_values..(i + 1) * wide_values;
            let written = S::as_mut_simd_f32s(&mut self.written[at.clone()]).0;
            let value = S::as_mut_simd_f32s(&mut self.values[at]).0;
            for (written, value) in written.iter_mut().zip(value) {
                *written = s.sub_f32s(*written, *value);
                *value = s.mul_f32s(rate_register, *written);
            }
            let at = i * CHUNK..(i + 1) * CHUNK;
            let reads = &self.reads[at.clone()];
            let to = self.weights[at].iter_mut().zip(reads);
            to.for_each(|(to, read)| *to = rate * read);
        }
        solve(s, self.weights, rows, wide_values, self.values);
    }

    #[inline(always)]
    fn load_decays<S: Lanes>(
        &mut self,
        s: S,
        order: &ScanOrder,
        operands: &Operands,
        first: usize,
    ) {
        let Sizes { keys, decays, .. } = self.sizes;
        let (rows, wide) = (self.rows, self.sizes.wide_keys());
        let one = s.splat_f32s(1.0);
        match decays {
            0 => self.decays.fill(1.0),
            1 => {
                let mut row = [0.0; CHUNK];
                order.load(operands.log_decay, (first, rows), (1, 1), &mut row);
                let mut a = [0.0; CHUNK];
                exponentials(s, &row, &mut a);
                let to = self.decays.chunks_exact_mut(wide);
                to.zip(a).for_each(|(to, a)| to.fill(a));
            }
            _ => {
                // A logarithm of 0 is a decay of 1, in rows and columns that do not count.
                let (log, rows) = (&mut *self.to_end, (first, rows));
                order.load(operands.log_decay, rows, (keys, wide), log);
                exponentials(s, log, self.decays);
            }
        }
        for column in (0..wide).step_by(S::F32_LANES) {
            let at = |row: usize| row * wide + column..row * wide + column + S::F32_LANES;
            let mut product = one;
            for i in 0..CHUNK {
                product = s.mul_f32s(product, s.load(&self.decays[at(i)]));
                s.store(&mut self.from_start[at(i)], product);
            }
            product = one;
            for i in (0..CHUNK).rev() {
                s.store(&mut self.to_end[at(i)], product);
                product = s.mul_f32s(product, s.load(&self.decays[at(i)]));
            }
        }
    }

    /// Loads the queries of the steps from `first` on, and forms their weights.
    #[inline(always)]
    pub(super) fn load_queries<S: Lanes>(
        &mut self,
        s: S,
        (order, operands): (&ScanOrder, &Operands),
        first: usize,
    ) {
        let wide = self.sizes.wide_keys();
        let steps = (first + order.ahead, self.rows);
        order.load(operands.q, steps, (self.sizes.keys, wide), self.q);
        multiply_rows(s, self.q, self.from_start, self.q_decayed);
        let pairs = Pairs {
            k: self.k,
            decays: self.decays,
            rows: self.rows,
            wide,
        };
        pairs.weights(s, self.q, true, self.row, self.weights);
    }

    /// Returns the decays from the chunk's start to its end.
    #[inline(always)]
    pub(super) fn whole(&self) -> &[f32] {
        let wide = self.sizes.wide_keys();
        &self.from_start[(CHUNK - 1) * wide..]
    }

    /// Makes the state at the chunk's end of that at its start.
    #[inline(always)]
    pub(super) fn advance<S: Lanes>(&self, s: S, isa: Isa, state: &mut [f32]) {
        let (wide, wide_values) = (self.sizes.wide_keys(), self.sizes.wide_values());
        scale_rows(s, self.whole(), wide_values, state);
        let left = Lhs::strided(self.k_kept, 1, wide);
        multiply_add(isa, (wide, wide_values, CHUNK), left, self.values, state);
    }
}

/// Computes y = e^x.
#[inline(always)]
fn exponentials<S: Lanes>(s: S, x: &[f32], y: &mut [f32]) {
    let (x, y) = (S::as_simd_f32s(x).0, S::as_mut_simd_f32s(y).0);
    for (x, y) in x.iter().zip(y) {
        *y = exp(s, *x);
    }
}

/// Computes y = a ⊙ b.
#[inline(always)]
pub(super) fn multiply_rows<S: Lanes>(s: S, a: &[f32], b: &[f32], y: &mut [f32]) {
    let (a, b) = (S::as_simd_f32s(a).0, S::as_simd_f32s(b).0);
    let y = S::as_mut_simd_f32s(y).0;
    for ((a, b), y) in a.iter().zip(b).zip(y) {
        *y = s.mul_f32s(*a, *b);
    }
}

/// Multiplies each row of `state`, `wide` numbers, by its own factor.
#[inline(always)]
pub(super) fn scale_rows<S: Lanes>(s: S, factors: &[f32], wide: usize, state: &mut [f32]) {
    for (row, factor) in state.chunks_exact_mut(wide).zip(factors) {
        let factor = s.splat_f32s(*factor);
        for x in S::as_mut_simd_f32s(row).0 {
            *x = s.mul_f32s(*x, factor);
        }
    }
}

/// Computes the outputs of one sequence and head.
pub(super) struct Forward<'a> {
    pub(super) isa: Isa,
    pub(super) sizes: Sizes,
    pub(super) order: ScanOrder,
    pub(super) operands: Operands<'a>,
    pub(super) y: &'a Shared<'a>,
    /// The states of all walks that are kept, if any are.
    pub(super) states: Option<&'a Shared<'a>>,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Forward {
            isa,
            sizes,
            order,
            operands,
            y,
            states,
        } = self;
        let Sizes { keys, values, .. } = sizes;
        let (wide, wide_values) = (sizes.wide_keys(), sizes.wide_values());
        let mut space = Scratch::unspecified(Chunk::len(sizes));
        let mut chunk = Chunk::new(sizes, &mut space);
        let mut state = Scratch::zeros(sizes.state());
        let mut out = Scratch::unspecified(CHUNK * wide_values);
        order.clear(values, y);
        for first in (0..order.rows).step_by(CHUNK) {
            if let Some(states) = states.filter(|_| first % SEGMENT == 0) {
                let at = (order.kept + first / SEGMENT) * sizes.state();
                // SAFETY: the states of a sequence and head belong to one task.
                unsafe { states.slice(at, sizes.state()) }.copy_from_slice(&state);
            }
            chunk.load(s, isa, (&order, &operands), first, &state);
            chunk.load_queries(s, (&order, &operands), first);
            let sizes = (CHUNK, wide_values, CHUNK);
            let left = Lhs::strided(chunk.weights, CHUNK, 1);
            multiply(isa, sizes, left, chunk.values, &mut out);
            let left = Lhs::strided(chunk.q_decayed, wide, 1);
            multiply_add(isa, (CHUNK, wide_values, keys), left, &state, &mut out);
            let steps = (first + order.ahead, chunk.rows);
            order.store(&out, steps, (values, wide_values), y);
            chunk.advance(s, isa, &mut state);
        }
    }
}
