//! Features of queries and keys, a block of 64 positions at a time, and their gradients.

use lra_cpu::format::Format;
use lra_cpu::isa::Isa;
use lra_cpu::math::exp;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::tile::{Operand, PANEL, PackedTiles, Rows, SIDE, pack_rows, padded, product};

use super::SPLIT_WIDTH;
use super::blocks::{Block, Positions};
use crate::ops::activation::cpu::UnaryFunction;

/// A map to features, as the loops over positions want it.
pub(super) trait Features: Copy + Sync {
    /// Writes the features of positions `first..first + count` to the rows of `block`; zeros where
    /// a position does not count.
    fn fill<S: Lanes>(self, s: S, x: Positions, first: usize, count: usize, block: &mut Block);

    /// Writes the gradients of `count` positions from `first` on (`place`), from those of their
    /// features, `gradients` (padded rows, which it may change), and the features in `block`; zeros
    /// where a position does not count.
    fn backward<'a, S: Lanes>(
        self,
        s: S,
        x: Positions,
        place: (usize, usize),
        block: &Block,
        gradients: &mut [f32],
        out: impl FnMut(usize) -> &'a mut [f32],
    );
}

/// A function of each element alone.
#[derive(Clone, Copy)]
pub(super) struct Elementwise<C>(pub(super) C);

impl<C: UnaryFunction> Features for Elementwise<C> {
    #[inline(always)]
    fn fill<S: Lanes>(self, s: S, x: Positions, first: usize, count: usize, block: &mut Block) {
        let width = block.width;
        let rows = block.rows.chunks_exact_mut(padded(width)).take(count);
        for (i, row) in rows.enumerate() {
            let row = &mut row[..width];
            if !x.is_valid(first + i) {
                row.fill(0.0);
                continue;
            }
            let (from, from_tail) = S::as_simd_f32s(x.rows.row(first + i));
            let (to, to_tail) = S::as_mut_simd_f32s(row);
            for (to, from) in to.iter_mut().zip(from) {
                *to = self.0.value(s, *from);
            }
            if !to_tail.is_empty() {
                let from = s.partial_load_f32s(from_tail);
                s.partial_store_f32s(to_tail, self.0.value(s, from));
            }
        }
    }

    #[inline(always)]
    fn backward<'a, S: Lanes>(
        self,
        s: S,
        x: Positions,
        (first, count): (usize, usize),
        block: &Block,
        gradients: &mut [f32],
        mut out: impl FnMut(usize) -> &'a mut [f32],
    ) {
        let rows = gradients.chunks_exact(padded(block.width)).take(count);
        for (position, row) in (first..).zip(rows) {
            let out = out(position);
            // The features of a padded key are zero for any key.
            if !x.is_valid(position) {
                out.fill(0.0);
                continue;
            }
            let (x, x_tail) = S::as_simd_f32s(x.rows.row(position));
            let (out, out_tail) = S::as_mut_simd_f32s(out);
            let (row, rest) = row.split_at(x.len() * S::F32_LANES);
            let (row, _) = S::as_simd_f32s(row);
            for ((out, x), row) in out.iter_mut().zip(x).zip(row) {
                *out = s.mul_f32s(self.0.slope(s, *x), *row);
            }
            if !out_tail.is_empty() {
                let slope = self.0.slope(s, s.partial_load_f32s(x_tail));
                let row = s.partial_load_f32s(&rest[..out_tail.len()]);
                s.partial_store_f32s(out_tail, s.mul_f32s(slope, row));
            }
        }
    }
}

/// FAVOR+ features φ_r(x) = exp(w_r·x - |x|² / (2 √E) - shift) + ε for directions w (M, E), which
/// already carry the factor E^-¼ (Choromanski et al., 2020, arXiv 2009.14794).
pub(super) struct Directions {
    /// w, (M, padded E), as a right operand.
    rows: PackedTiles,
    /// wᵀ, (E, padded M), as a right operand.
    columns: PackedTiles,
    count: usize,
    width: usize,
    epsilon: f32,
    /// Number format of w and of the other factor.
    format: Format,
}

/// Shift of the exponents, so that they neither overflow nor vanish. A constant to the gradient: it
/// cancels but for ε.
#[derive(Clone, Copy)]
pub(super) enum Shift {
    /// The largest w·x of each row, for queries.
    Row,
    /// One number for all positions of a head, for keys.
    Given(f32),
}

#[derive(Clone, Copy)]
pub(super) struct Favor<'a> {
    pub(super) directions: &'a Directions,
    pub(super) shift: Shift,
}

impl Directions {
    pub(super) fn new(w: &[f32], (count, width): (usize, usize), epsilon: f32) -> Self {
        let (wide, features) = (padded(width), padded(count));
        let format = Isa::current().format();
        let format = format.for_width(count.min(width), SPLIT_WIDTH);
        let held = |size| PackedTiles::new(format, Operand::B, 1, size);
        let (mut rows, mut columns) = (held((count, wide)), held((width, features)));
        rows.pack(0, (count, wide), |rows| {
            for (row, w) in rows.chunks_exact_mut(wide).zip(w.chunks_exact(width)) {
                row[..width].copy_from_slice(w);
            }
        });
        columns.pack(0, (width, features), |columns| {
            for (r, w) in w.chunks_exact(width).enumerate() {
                for (column, w) in columns.chunks_exact_mut(features).zip(w) {
                    column[r] = *w;
                }
            }
        });
        Directions {
            rows,
            columns,
            count,
            width,
            epsilon,
            format,
        }
    }

    /// Returns M.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns 1 / (2 √E).
    fn half(&self) -> f32 {
        0.5 / (self.width as f32).sqrt()
    }

    /// Writes w·x of positions `first..first + count` to rows of padded M.
    #[inline(always)]
    fn project<S: Lanes>(
        &self,
        s: S,
        x: Rows,
        first: usize,
        count: usize,
        inputs: &mut PackedTiles,
        rows: &mut [f32],
    ) {
        inputs.pack(0, (count, self.width), |inputs| {
            pack_rows(x.from(first), count, 1.0, inputs);
        });
        let features = padded(self.count);
        product::<S, false>(
            s,
            self.format,
            inputs.left(0),
            self.columns.right(0),
            (rows, features),
            (count.next_multiple_of(PANEL), features, self.width),
        );
    }

    /// Allocates room for a block of positions that are projected.
    fn inputs(&self) -> PackedTiles {
        PackedTiles::new(self.format, Operand::A, 1, (SIDE, padded(self.width)))
    }

    /// Returns the largest w·x of the valid positions `start..end`, -∞ if there are none: the shift
    /// of keys.
    pub(super) fn highest(&self, isa: Isa, x: Positions, range: (usize, usize)) -> f32 {
        isa.run(Highest {
            directions: self,
            x,
            range,
        })
    }
}

struct Highest<'a> {
    directions: &'a Directions,
    x: Positions<'a>,
    range: (usize, usize),
}

impl Kernel for Highest<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) -> f32 {
        let Highest {
            directions,
            x,
            range: (start, end),
        } = self;
        let features = padded(directions.count);
        let mut inputs = directions.inputs();
        let mut rows = Scratch::zeros(SIDE * features);
        let mut highest = f32::NEG_INFINITY;
        for first in (start..end).step_by(SIDE) {
            let count = SIDE.min(end - first);
            directions.project(s, x.rows, first, count, &mut inputs, &mut rows);
            let rows = rows.chunks_exact(features).take(count);
            for (position, row) in (first..).zip(rows) {
                if x.is_valid(position) {
                    highest = highest.max(largest(s, &row[..directions.count]));
                }
            }
        }
        highest
    }
}

/// Returns |x|².
#[inline(always)]
fn norm<S: Lanes>(s: S, x: &[f32]) -> f32 {
    let (x, tail) = S::as_simd_f32s(x);
    let tail = s.partial_load_f32s(tail);
    let mut sum = s.mul_f32s(tail, tail);
    for x in x {
        sum = s.fma(*x, *x, sum);
    }
    s.reduce_sum_f32s(sum)
}

/// Returns e^(p - less) + ε. A function, not a closure: only inlined code has the vector
/// instructions.
#[inline(always)]
fn feature<S: Lanes>(s: S, p: S::f32s, less: S::f32s, epsilon: S::f32s) -> S::f32s {
    s.add_f32s(exp(s, s.sub_f32s(p, less)), epsilon)
}

#[inline(always)]
fn largest<S: Lanes>(s: S, row: &[f32]) -> f32 {
    let (row, tail) = S::as_simd_f32s(row);
    let min = s.splat_f32s(f32::NEG_INFINITY);
    let max = row.iter().fold(min, |max, x| s.max_f32s(max, *x));
    tail.iter()
        .fold(s.reduce_max_f32s(max), |max, x| max.max(*x))
}

impl Features for Favor<'_> {
    #[inline(always)]
    fn fill<S: Lanes>(self, s: S, x: Positions, first: usize, count: usize, block: &mut Block) {
        let Favor { directions, shift } = self;
        let features = padded(directions.count);
        let inputs = block.inputs.get_or_insert_with(|| directions.inputs());
        directions.project(s, x.rows, first, count, inputs, &mut block.rows);
        let rows = block.rows.chunks_exact_mut(features).take(count);
        for (position, row) in (first..).zip(rows) {
            let (row, padding) = row.split_at_mut(directions.count);
            padding.fill(0.0);
            if !x.is_valid(position) {
                row.fill(0.0);
                continue;
            }
            let x = x.rows.row(position);
            let square = norm(s, x);
            let shift = match shift {
                Shift::Row => largest(s, row),
                Shift::Given(shift) => shift,
            };
            let less = s.splat_f32s(square * directions.half() + shift);
            let epsilon = s.splat_f32s(directions.epsilon);
            let (row, tail) = S::as_mut_simd_f32s(row);
            for x in row.iter_mut() {
                *x = feature(s, *x, less, epsilon);
            }
            if !tail.is_empty() {
                let last = feature(s, s.partial_load_f32s(tail), less, epsilon);
                s.partial_store_f32s(tail, last);
            }
        }
    }

    #[inline(always)]
    fn backward<'a, S: Lanes>(
        self,
        s: S,
        x: Positions,
        (first, count): (usize, usize),
        block: &Block,
        gradients: &mut [f32],
        mut out: impl FnMut(usize) -> &'a mut [f32],
    ) {
        let Directions {
            count: features,
            width,
            epsilon,
            format,
            ref rows,
            ..
        } = *self.directions;
        let (wide, features_wide) = (padded(width), padded(features));
        let mut sums = [0.0; SIDE];
        for (i, row) in gradients
            .chunks_exact_mut(features_wide)
            .take(count)
            .enumerate()
        {
            // Times the exponential, which is the feature without ε: the gradient of the exponent.
            // The padding has none.
            row[features..].fill(0.0);
            let (row, _) = S::as_mut_simd_f32s(row);
            let (block, _) = S::as_simd_f32s(block.row(i));
            let epsilon = s.splat_f32s(epsilon);
            let mut sum = s.splat_f32s(0.0);
            for (gradient, feature) in row.iter_mut().zip(block) {
                *gradient = s.mul_f32s(*gradient, s.sub_f32s(*feature, epsilon));
                sum = s.add_f32s(sum, *gradient);
            }
            sums[i] = s.reduce_sum_f32s(sum);
        }
        let mut back = Scratch::zeros(SIDE * wide);
        let mut space = Operand::A.scratch(format, (SIDE, features_wide));
        let gradients = (&*gradients, features_wide);
        let gradients = Operand::A.of(format, gradients, (count, features), &mut space);
        product::<S, false>(
            s,
            format,
            gradients.left(),
            rows.right(0),
            (&mut back, wide),
            (count.next_multiple_of(PANEL), wide, features),
        );
        let twice = 2.0 * self.directions.half();
        for (i, back) in back.chunks_exact(wide).take(count).enumerate() {
            let out = out(first + i);
            if !x.is_valid(first + i) {
                out.fill(0.0);
                continue;
            }
            let sum = twice * sums[i];
            for ((out, back), x) in out.iter_mut().zip(back).zip(x.rows.row(first + i)) {
                *out = back - sum * x;
            }
        }
    }
}
