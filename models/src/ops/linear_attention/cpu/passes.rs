//! The loops over positions: four passes, each over some positions of one head.
//!
//! With features f of queries and g of keys, values v, n_i = f_i·z + ε, and output y_i = f_i S
//! / n_i: S = Σ_j g_j v_jᵀ and z = Σ_j g_j. With e_i = dy_i / n_i and c_i = e_i·y_i the gradients
//! are df_i = S e_i - c_i z, dS = Σ_i f_i e_iᵀ, dz = -Σ_i c_i f_i, dg_j = dS v_j + dz, dv_j = dSᵀ
//! g_j.

use lra_cpu::format::Format;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::tile::{PANEL, Rows, SIDE, padded, product};
use lra_cpu::zero_rows::are_zero_rows;

use super::blocks::{Block, Positions, Sizes, State, add_scaled, dot};
use super::features::Features;

/// Adds the features and values of positions `range` to `state` (S and z).
pub(super) struct Gather<'a, F> {
    pub(super) map: F,
    pub(super) format: Format,
    pub(super) sizes: Sizes,
    pub(super) keys: Positions<'a>,
    pub(super) values: Rows<'a>,
    pub(super) range: (usize, usize),
    pub(super) state: &'a mut [f32],
}

impl<F: Features> Kernel for Gather<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Gather {
            map,
            sizes,
            keys,
            values,
            range: (start, end),
            state,
            ..
        } = self;
        let (matrix, total) = state.split_at_mut(sizes.matrix());
        let wide = padded(sizes.values);
        let (mut features, mut block) = (Block::new(sizes.features), Block::new(sizes.values));
        for first in (start..end).step_by(SIDE) {
            let count = SIDE.min(end - first);
            if keys.padding(first, count) {
                continue;
            }
            map.fill(s, keys, first, count, &mut features);
            block.load(values, first, count);
            let sizes = (sizes.features, wide, count);
            sum_products(s, self.format, &mut features, &mut block, matrix, sizes);
            for i in 0..count {
                add_scaled(s, total, features.row(i), 1.0);
            }
        }
    }
}

/// Computes matrix (M, E) += featuresᵀ values.
#[inline(always)]
fn sum_products<S: Lanes>(
    s: S,
    format: Format,
    features: &mut Block,
    values: &mut Block,
    matrix: &mut [f32],
    (m, wide, count): (usize, usize, usize),
) {
    product::<S, true>(
        s,
        format,
        features.left_columns(format, count),
        values.right(format, count),
        (matrix, wide),
        (m.next_multiple_of(PANEL), wide, count),
    );
}

/// Writes the outputs of queries `range`, each `out(position)`.
pub(super) struct Attend<'a, F, O> {
    pub(super) map: F,
    pub(super) format: Format,
    pub(super) sizes: Sizes,
    pub(super) eps: f32,
    pub(super) state: State<'a>,
    pub(super) queries: Positions<'a>,
    pub(super) range: (usize, usize),
    pub(super) out: O,
}

impl<'a, F: Features, O: FnMut(usize) -> &'a mut [f32]> Kernel for Attend<'_, F, O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(mut self, s: S) {
        let wide = padded(self.sizes.values);
        let queries = self.queries;
        let mut features = Block::new(self.sizes.features);
        let mut sums = Scratch::zeros(SIDE * wide);
        let mut space = Scratch::default();
        let matrix = self.state.matrix_of(self.format, &mut space);
        let (start, end) = self.range;
        for first in (start..end).step_by(SIDE) {
            let count = SIDE.min(end - first);
            if queries.padding(first, count) {
                (first..first + count).for_each(|position| (self.out)(position).fill(0.0));
                continue;
            }
            self.map.fill(s, queries.all(), first, count, &mut features);
            let m = self.sizes.features;
            product::<S, false>(
                s,
                self.format,
                features.left(self.format, count),
                matrix.right(),
                (&mut sums, wide),
                (count.next_multiple_of(PANEL), wide, m),
            );
            for (i, sums) in sums.chunks_exact(wide).take(count).enumerate() {
                let inverse = (dot(s, features.row(i), self.state.total) + self.eps).recip();
                for (out, x) in (self.out)(first + i).iter_mut().zip(sums) {
                    *out = x * inverse;
                }
            }
        }
    }
}

/// Writes the gradients of queries `range`, and adds to those of S and z (`dstate`).
pub(super) struct QueryGradient<'a, F, O> {
    pub(super) map: F,
    pub(super) format: Format,
    pub(super) sizes: Sizes,
    pub(super) eps: f32,
    pub(super) state: State<'a>,
    pub(super) queries: Positions<'a>,
    pub(super) output: Rows<'a>,
    pub(super) doutput: Rows<'a>,
    pub(super) range: (usize, usize),
    pub(super) dstate: &'a mut [f32],
    pub(super) out: O,
}

impl<'a, F: Features, O: FnMut(usize) -> &'a mut [f32]> Kernel for QueryGradient<'_, F, O> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(mut self, s: S) {
        let Sizes {
            features: m,
            values: e,
        } = self.sizes;
        let (wide, features_wide) = (padded(e), padded(m));
        let (dmatrix, dtotal) = self.dstate.split_at_mut(self.sizes.matrix());
        let format = self.format;
        let transposed = self.state.transposed(format);
        let queries = self.queries;
        let (mut features, mut block) = (Block::new(m), Block::new(e));
        let mut gradients = Scratch::zeros(SIDE * features_wide);
        let mut shares = [0.0; SIDE];
        let (start, end) = self.range;
        for first in (start..end).step_by(SIDE) {
            let count = SIDE.min(end - first);
            if queries.padding(first, count) || are_zero_rows(self.doutput.from(first), count) {
                (first..first + count).for_each(|position| (self.out)(position).fill(0.0));
                continue;
            }
            let queries = queries.all();
            self.map.fill(s, queries, first, count, &mut features);
            block.load(self.doutput, first, count);
            for (i, share) in shares[..count].iter_mut().enumerate() {
                let inverse = (dot(s, features.row(i), self.state.total) + self.eps).recip();
                let row = &mut block.rows[i * wide..][..e];
                let mut sum = 0.0;
                for (x, y) in row.iter_mut().zip(self.output.row(first + i)) {
                    *x *= inverse;
                    sum += *x * y;
                }
                *share = sum;
                add_scaled(s, dtotal, features.row(i), -sum);
            }
            product::<S, false>(
                s,
                format,
                block.left(format, count),
                transposed.right(0),
                (&mut gradients, features_wide),
                (count.next_multiple_of(PANEL), features_wide, e),
            );
            let sizes = (m, wide, count);
            sum_products(s, format, &mut features, &mut block, dmatrix, sizes);
            let rows = gradients.chunks_exact_mut(features_wide).zip(&shares);
            for (row, share) in rows.take(count) {
                add_scaled(s, row, self.state.total, -share);
            }
            let place = (first, count);
            self.map
                .backward(s, queries, place, &features, &mut gradients, &mut self.out);
        }
    }
}

/// Writes the gradients of keys and values `range`, from those of S and z.
pub(super) struct KeyGradient<'a, F, K, V> {
    pub(super) map: F,
    pub(super) format: Format,
    pub(super) sizes: Sizes,
    pub(super) dstate: State<'a>,
    pub(super) keys: Positions<'a>,
    pub(super) values: Rows<'a>,
    pub(super) range: (usize, usize),
    pub(super) dkeys: K,
    pub(super) dvalues: V,
}

impl<'a, 'b, F, K, V> Kernel for KeyGradient<'_, F, K, V>
where
    F: Features,
    K: FnMut(usize) -> &'a mut [f32],
    V: FnMut(usize) -> &'b mut [f32],
{
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(mut self, s: S) {
        let Sizes {
            features: m,
            values: e,
        } = self.sizes;
        let (wide, features_wide) = (padded(e), padded(m));
        let format = self.format;
        let transposed = self.dstate.transposed(format);
        let mut space = Scratch::default();
        let dmatrix = self.dstate.matrix_of(format, &mut space);
        let (mut features, mut block) = (Block::new(m), Block::new(e));
        let mut dfeatures = Scratch::zeros(SIDE * features_wide);
        let mut dvalues = Scratch::zeros(SIDE * wide);
        let (start, end) = self.range;
        for first in (start..end).step_by(SIDE) {
            let count = SIDE.min(end - first);
            if self.keys.padding(first, count) {
                for position in first..first + count {
                    (self.dkeys)(position).fill(0.0);
                    (self.dvalues)(position).fill(0.0);
                }
                continue;
            }
            let rows = count.next_multiple_of(PANEL);
            self.map.fill(s, self.keys, first, count, &mut features);
            block.load(self.values, first, count);
            product::<S, false>(
                s,
                format,
                features.left(format, count),
                dmatrix.right(),
                (&mut dvalues, wide),
                (rows, wide, m),
            );
            product::<S, false>(
                s,
                format,
                block.left(format, count),
                transposed.right(0),
                (&mut dfeatures, features_wide),
                (rows, features_wide, e),
            );
            for row in dfeatures.chunks_exact_mut(features_wide).take(count) {
                add_scaled(s, row, self.dstate.total, 1.0);
            }
            let place = (first, count);
            self.map.backward(
                s,
                self.keys,
                place,
                &features,
                &mut dfeatures,
                &mut self.dkeys,
            );
            // The features of a padded key are zero, and so is the gradient of its value.
            for (position, row) in (first..).zip(dvalues.chunks_exact(wide).take(count)) {
                (self.dvalues)(position).copy_from_slice(&row[..e]);
            }
        }
    }
}
