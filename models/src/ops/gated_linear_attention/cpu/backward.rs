//! The walk from the last chunk to the first, with the gradient of the state.

use lra_cpu::buffers::{Shared, add};
use lra_cpu::isa::Isa;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::tile::Lhs;

use super::chunk::{Chunk, Operands, Split, multiply, multiply_add, scale_rows};
use super::order::ScanOrder;
use super::pairs::solve_transposed;
use super::{CHUNK, CHUNKS, SEGMENT, Sizes};

/// Computes the gradients of one sequence and head.
pub(super) struct Backward<'a> {
    pub(super) isa: Isa,
    pub(super) sizes: Sizes,
    pub(super) order: ScanOrder,
    pub(super) operands: Operands<'a>,
    pub(super) dy: &'a [f32],
    /// The states of all walks that were kept.
    pub(super) states: &'a [f32],
    /// Of q, k, v, log decays and rates.
    pub(super) gradients: &'a [Shared<'a>; 5],
}

/// Gradients of a chunk, and working memory for them. K and V are padded.
struct Gradients<'a> {
    /// (C, V).
    dy: &'a mut [f32],
    /// dyᵀ (V, C).
    dy_columns: &'a mut [f32],
    /// Of u, then r, then x: (C, V).
    dvalues: &'a mut [f32],
    /// uᵀ (V, C).
    value_columns: &'a mut [f32],
    /// Of x with the opposite sign, (C, V), and transposed (V, C), for the delta rule.
    negative: &'a mut [f32],
    negative_columns: &'a mut [f32],
    /// Of w, and of m: (C, C).
    dweights: &'a mut [f32],
    dreads: &'a mut [f32],
    /// (C, K).
    dq: &'a mut [f32],
    /// Of k where it is multiplied with the state or keys before it, as a query is: (C, K).
    dk_reading: &'a mut [f32],
    /// Of k where it is kept: (C, K).
    dk_kept: &'a mut [f32],
    /// Of the logarithms of decays, (C, K).
    dlog: &'a mut [f32],
    /// Of β (C).
    ddelta: [f32; CHUNK],
    /// dq, and both gradients of k, without pairs of rows: (C, K).
    before: [&'a mut [f32]; 3],
    /// (K).
    sums: &'a mut [f32],
    /// (K, C).
    columns: &'a mut [f32],
}

impl<'a> Gradients<'a> {
    /// Returns the numbers that the gradients of a chunk take.
    fn len(sizes: Sizes) -> usize {
        let (wide, wide_values) = (sizes.wide_keys(), sizes.wide_values());
        CHUNK * (8 * wide + 6 * wide_values + 2 * CHUNK) + wide
    }

    /// Makes gradients of unspecified numbers in `space`.
    fn new(sizes: Sizes, space: &'a mut [f32]) -> Self {
        let (wide, wide_values) = (sizes.wide_keys(), sizes.wide_values());
        let (keys, values) = (CHUNK * wide, CHUNK * wide_values);
        let mut split = Split(space);
        Self {
            dy: split.off(values),
            dy_columns: split.off(values),
            dvalues: split.off(values),
            value_columns: split.off(values),
            negative: split.off(values),
            negative_columns: split.off(values),
            dweights: split.off(CHUNK * CHUNK),
            dreads: split.off(CHUNK * CHUNK),
            dq: split.off(keys),
            dk_reading: split.off(keys),
            dk_kept: split.off(keys),
            dlog: split.off(keys),
            ddelta: [0.0; CHUNK],
            before: [(); 3].map(|()| split.off(keys)),
            sums: split.off(wide),
            columns: split.off(keys),
        }
    }

    /// Takes the gradient of u apart into those of x, β and m.
    #[inline(always)]
    fn through_delta<S: Lanes>(&mut self, s: S, isa: Isa, chunk: &Chunk) {
        let Sizes { values, .. } = chunk.sizes;
        let (rows, wide) = (chunk.rows, chunk.sizes.wide_values());
        let mut factors = [0.0; CHUNK * CHUNK];
        for (i, rate) in chunk.delta.iter().enumerate() {
            let at = i * CHUNK..(i + 1) * CHUNK;
            let reads = chunk.reads[at.clone()].iter();
            let factors = factors[at].iter_mut().zip(reads);
            factors.for_each(|(factor, read)| *factor = rate * read);
        }
        solve_transposed(s, &factors, rows, wide, self.dvalues);
        let left = Lhs::strided(self.dvalues, wide, 1);
        let sizes = (CHUNK, CHUNK, values);
        multiply(isa, sizes, left, self.value_columns, self.dreads);
        for (i, rate) in chunk.delta.iter().enumerate() {
            let at = i * wide..(i + 1) * wide;
            let mut sum = dot(s, &self.dvalues[at.clone()], &chunk.written[at.clone()]);
            for j in 0..CHUNK {
                let (dread, read) = (&mut self.dreads[i * CHUNK + j], chunk.reads[i * CHUNK + j]);
                match j < i {
                    true => sum -= *dread * read,
                    false => *dread = 0.0,
                }
                *dread *= -rate;
            }
            self.ddelta[i] = sum;
            let pairs = self.dvalues[at.clone()]
                .iter_mut()
                .zip(&mut self.negative[at]);
            for (dvalue, negative) in pairs {
                *dvalue *= rate;
                *negative = -*dvalue;
            }
        }
        transpose(self.negative, wide, self.negative_columns);
    }

    /// Writes the gradients of logarithms of decays, but for pairs within the chunk: from the state
    /// at its start, that at its end, and keys that are kept.
    #[inline(always)]
    fn of_decays<S: Lanes>(&mut self, s: S, chunk: &Chunk, state: &[f32], dstate: &[f32]) {
        let (wide, wide_values) = (chunk.sizes.wide_keys(), chunk.sizes.wide_values());
        let rows = state
            .chunks_exact(wide_values)
            .zip(dstate.chunks_exact(wide_values));
        for ((to, (state, dstate)), whole) in self.dlog.iter_mut().zip(rows).zip(chunk.whole()) {
            *to = whole * dot(s, state, dstate);
        }
        for at in wide..CHUNK * wide {
            let before = at - wide;
            self.dlog[at] = self.dlog[before] + chunk.k[before] * self.dk_kept[before];
        }
        self.sums.fill(0.0);
        for i in (0..CHUNK).rev() {
            for (sum, at) in self.sums.iter_mut().zip(i * wide..) {
                *sum += chunk.q[at] * self.dq[at] + chunk.k[at] * self.dk_reading[at];
                self.dlog[at] += *sum;
            }
        }
    }

    /// Adds the gradients of logarithms of decays through pairs of rows within the chunk, from
    /// those of q and of both roles of k, and what they were `before` those pairs.
    #[inline(always)]
    fn of_decays_between(&mut self, chunk: &Chunk) {
        let wide = chunk.sizes.wide_keys();
        let [dq, dk_reading, dk_kept] = &self.before;
        self.sums.fill(0.0);
        for i in (0..CHUNK).rev() {
            for (sum, at) in self.sums.iter_mut().zip(i * wide..) {
                let keys = self.dk_reading[at] - dk_reading[at] - (self.dk_kept[at] - dk_kept[at]);
                *sum += chunk.q[at] * (self.dq[at] - dq[at]) + chunk.k[at] * keys;
                self.dlog[at] += *sum;
            }
        }
    }
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Backward {
            isa,
            sizes,
            order,
            operands,
            ..
        } = self;
        let len = sizes.state();
        let mut space = Scratch::unspecified(Chunk::len(sizes));
        let mut chunk = Chunk::new(sizes, &mut space);
        let mut space = Scratch::unspecified(Gradients::len(sizes));
        let mut gradients = Gradients::new(sizes, &mut space);
        let mut dstate = Scratch::zeros(len);
        let mut states = Scratch::unspecified(CHUNKS * len);
        order.clear(sizes.keys, &self.gradients[0]);
        for segment in (0..order.rows.div_ceil(SEGMENT)).rev() {
            let start = segment * SEGMENT;
            let chunks = (order.rows - start).div_ceil(CHUNK).min(CHUNKS);
            states[..len].copy_from_slice(&self.states[(order.kept + segment) * len..][..len]);
            for index in 1..chunks {
                let (before, after) = states.split_at_mut(index * len);
                let (before, after) = (&before[(index - 1) * len..], &mut after[..len]);
                let first = start + (index - 1) * CHUNK;
                chunk.load(s, isa, (&order, &operands), first, before);
                after.copy_from_slice(before);
                chunk.advance(s, isa, after);
            }
            for index in (0..chunks).rev() {
                let state = &states[index * len..][..len];
                let first = start + index * CHUNK;
                chunk.load(s, isa, (&order, &operands), first, state);
                chunk.load_queries(s, (&order, &operands), first);
                self.chunk(s, first, &chunk, (state, &mut dstate), &mut gradients);
            }
        }
    }
}

impl Backward<'_> {
    /// Writes the gradients of a chunk's rows, and makes the gradient of the state at its start of
    /// that at its end.
    #[inline(always)]
    fn chunk<S: Lanes>(
        &self,
        s: S,
        first: usize,
        chunk: &Chunk,
        (state, dstate): (&[f32], &mut Scratch),
        to: &mut Gradients,
    ) {
        let Backward {
            isa, sizes, order, ..
        } = *self;
        let Sizes {
            keys,
            values,
            decays,
            delta,
            ..
        } = sizes;
        let (wide, wide_values) = (sizes.wide_keys(), sizes.wide_values());
        let ahead = (first + order.ahead, chunk.rows);
        order.load(self.dy, ahead, (values, wide_values), to.dy);
        transpose(to.dy, wide_values, to.dy_columns);
        transpose(chunk.values, wide_values, to.value_columns);
        // Of u.
        let left = Lhs::strided(chunk.weights, 1, CHUNK);
        let sizes_of = (CHUNK, wide_values, CHUNK);
        multiply(isa, sizes_of, left, to.dy, to.dvalues);
        let left = Lhs::strided(chunk.k_kept, wide, 1);
        let sizes_of = (CHUNK, wide_values, keys);
        multiply_add(isa, sizes_of, left, dstate, to.dvalues);
        // Of w, q and kept keys.
        let left = Lhs::strided(to.dy, wide_values, 1);
        let sizes_of = (CHUNK, CHUNK, values);
        multiply(isa, sizes_of, left, to.value_columns, to.dweights);
        let rows_of_state = |state| Lhs::strided(state, wide_values, 1);
        let sizes_of = (wide, CHUNK, values);
        let columns = &mut *to.columns;
        multiply(isa, sizes_of, rows_of_state(state), to.dy_columns, columns);
        multiply_columns(columns, chunk.from_start, wide, to.dq);
        multiply(
            isa,
            sizes_of,
            rows_of_state(dstate),
            to.value_columns,
            columns,
        );
        multiply_columns(columns, chunk.to_end, wide, to.dk_kept);
        if delta {
            to.through_delta(s, isa, chunk);
            let columns = &mut *to.columns;
            multiply(
                isa,
                sizes_of,
                rows_of_state(state),
                to.negative_columns,
                columns,
            );
            multiply_columns(columns, chunk.from_start, wide, to.dk_reading);
        } else {
            to.dk_reading.fill(0.0);
        }
        if decays > 0 {
            to.of_decays(s, chunk, state, dstate);
        }
        // Of the state before.
        scale_rows(s, chunk.whole(), wide_values, dstate);
        let left = Lhs::strided(chunk.q_decayed, 1, wide);
        let sizes_of = (wide, wide_values, CHUNK);
        multiply_add(isa, sizes_of, left, to.dy, dstate);
        if delta {
            let left = Lhs::strided(chunk.k_decayed, 1, wide);
            multiply_add(isa, sizes_of, left, to.negative, dstate);
        }
        // Of pairs of rows.
        if decays > 0 {
            let [dq, dk_reading, dk_kept] = &mut to.before;
            dq.copy_from_slice(to.dq);
            dk_reading.copy_from_slice(to.dk_reading);
            dk_kept.copy_from_slice(to.dk_kept);
        }
        let pairs = chunk.pairs();
        pairs.gradients(s, chunk.q, to.dweights, to.dq, to.dk_kept);
        if delta {
            let (reading, kept) = (&mut *to.dk_reading, &mut *to.dk_kept);
            pairs.gradients(s, chunk.k, to.dreads, reading, kept);
        }
        if decays > 0 {
            to.of_decays_between(chunk);
        }
        for i in 0..chunk.rows {
            let weight = to.dweights[i * CHUNK + i];
            for at in i * wide..(i + 1) * wide {
                to.dq[at] += weight * chunk.k[at];
                to.dk_kept[at] += weight * chunk.q[at];
            }
        }
        add(to.dk_reading, to.dk_kept);
        let [dq, dk, dv, dlog, ddelta] = self.gradients;
        let steps = (first, chunk.rows);
        order.store(to.dq, ahead, (keys, wide), dq);
        order.store(to.dk_kept, steps, (keys, wide), dk);
        order.store(to.dvalues, steps, (values, wide_values), dv);
        match decays {
            0 => {}
            1 => {
                let mut sums = [0.0; CHUNK];
                for (sum, row) in sums.iter_mut().zip(to.dlog.chunks_exact(wide)) {
                    *sum = row[..keys].iter().sum();
                }
                order.store(&sums, steps, (1, 1), dlog);
            }
            _ => order.store(to.dlog, steps, (keys, wide), dlog),
        }
        if delta {
            order.store(&to.ddelta, steps, (1, 1), ddelta);
        }
    }
}

/// Writes rows of C numbers, the columns of `rows`, `wide` of them.
#[inline(always)]
fn transpose(rows: &[f32], wide: usize, columns: &mut [f32]) {
    for (i, row) in rows.chunks_exact(wide).enumerate() {
        for (column, x) in columns.chunks_exact_mut(CHUNK).zip(row) {
            column[i] = *x;
        }
    }
}

/// Writes rows (C, `wide`): columns (`wide`, C), transposed, times `factors`.
#[inline(always)]
fn multiply_columns(columns: &[f32], factors: &[f32], wide: usize, rows: &mut [f32]) {
    let rows = rows.chunks_exact_mut(wide).zip(factors.chunks_exact(wide));
    for (i, (row, factors)) in rows.enumerate() {
        let columns = columns.chunks_exact(CHUNK);
        for ((x, factor), column) in row.iter_mut().zip(factors).zip(columns) {
            *x = column[i] * factor;
        }
    }
}

#[inline(always)]
fn dot<S: Lanes>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let (a, b) = (S::as_simd_f32s(a).0, S::as_simd_f32s(b).0);
    let mut sum = s.splat_f32s(0.0);
    for (a, b) in a.iter().zip(b) {
        sum = s.fma(*a, *b, sum);
    }
    s.reduce_sum_f32s(sum)
}
