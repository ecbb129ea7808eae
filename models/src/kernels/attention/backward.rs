//! The backward pass: weights recomputed tile by tile from the saved sums.
//!
//! With weights P = softmax(S), dropout factors M, D = dO Vᵀ and δ = rowsum(dO O):
//! dV = (P M)ᵀ dO, dS = P (M D - δ), dK = dSᵀ Q, dQ = dS K (Dao et al., 2022, arXiv 2205.14135).

use super::drop::factors;
use super::keys::KeyBlock;
use super::problem::{Head, Problem};
use crate::kernels::buffers::Shared;
use crate::kernels::isa::{Kernel, Lanes};
use crate::kernels::math::exp2_bounded;
use crate::kernels::tile::{
    Left, PAD, PANEL, Rows, SIDE, pack_columns, pack_panels, pack_rows, padded, product,
};

/// Floats of one operand of the keys that are worked on together, so that they stay in the second-level cache.
const GROUP_FLOATS: usize = 32 * 1024;

/// All queries of one head against some of its keys.
pub(super) struct BackwardTask<'a> {
    pub(super) problem: &'a Problem<'a>,
    pub(super) head: Head,
    pub(super) blocks: &'a [KeyBlock],
    /// The output of the forward pass, and its gradient.
    pub(super) output: Rows<'a>,
    pub(super) doutput: Rows<'a>,
    /// Sums of weights of this head's queries.
    pub(super) sums: &'a [f32],
    pub(super) dqueries: Target<'a>,
    pub(super) dkeys: Target<'a>,
    pub(super) dvalues: Target<'a>,
}

/// Where rows of a gradient go: row i is `start + i * stride`.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) buffer: &'a Shared<'a>,
    pub(super) start: usize,
    pub(super) stride: usize,
}

impl Target<'_> {
    /// Writes rows `first..` from `rows`, each `padded(width)` long, times `scale`.
    ///
    /// # Safety
    /// No other task may touch these rows.
    unsafe fn write(&self, first: usize, count: usize, width: usize, scale: f32, rows: &[f32]) {
        for (i, row) in rows.chunks_exact(padded(width)).take(count).enumerate() {
            // SAFETY: by this function's contract.
            let out = unsafe {
                self.buffer
                    .slice(self.start + (first + i) * self.stride, width)
            };
            for (out, x) in out.iter_mut().zip(row) {
                *out = x * scale;
            }
        }
    }
}

/// A block of queries in the layouts that the products want.
struct Queries {
    rows: Vec<f32>,
    columns: Vec<f32>,
    drows: Vec<f32>,
    dcolumns: Vec<f32>,
    sums: [f32; SIDE],
    deltas: [f32; SIDE],
}

/// A group of key blocks in the layouts that the products want, and the sums of their gradients.
struct Group {
    key_panels: Vec<f32>,
    key_rows: Vec<f32>,
    value_panels: Vec<f32>,
    dkeys: Vec<f32>,
    dvalues: Vec<f32>,
}

impl Kernel for BackwardTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let problem = self.problem;
        let (width, wide) = (problem.width, padded(problem.width));
        let query_blocks = problem.queries_len.div_ceil(SIDE);
        let per_group = (GROUP_FLOATS / (SIDE * wide)).max(1);
        let deltas = deltas(s, self.output, self.doutput, problem.queries_len);
        let mut dqueries = vec![0.0; query_blocks * SIDE * wide];
        let mut queries = Queries {
            rows: vec![0.0; SIDE * wide],
            columns: vec![0.0; SIDE * width],
            drows: vec![0.0; SIDE * wide],
            dcolumns: vec![0.0; SIDE * width],
            sums: [0.0; SIDE],
            deltas: [0.0; SIDE],
        };
        let mut group = Group {
            key_panels: vec![0.0; per_group * SIDE * width],
            key_rows: vec![0.0; per_group * SIDE * wide],
            value_panels: vec![0.0; per_group * SIDE * width],
            dkeys: vec![0.0; per_group * SIDE * wide],
            dvalues: vec![0.0; per_group * SIDE * wide],
        };
        let mut tiles = Tiles::default();
        for blocks in self.blocks.chunks(per_group) {
            group.load(&self, blocks);
            for (index, dqueries) in dqueries.chunks_exact_mut(SIDE * wide).enumerate() {
                let first = index * SIDE;
                let count = SIDE.min(problem.queries_len - first);
                queries.load(&self, first, count, &deltas);
                for (slot, block) in blocks.iter().enumerate() {
                    let at = (first, count);
                    self.step(
                        s,
                        &queries,
                        at,
                        (&mut group, slot, *block),
                        &mut tiles,
                        dqueries,
                    );
                }
            }
            for (slot, block) in blocks.iter().enumerate() {
                let range = slot * SIDE * wide..(slot + 1) * SIDE * wide;
                // SAFETY: a task alone has its head's columns of its keys' rows.
                unsafe {
                    self.dkeys.write(
                        block.first,
                        block.len(),
                        width,
                        1.0,
                        &group.dkeys[range.clone()],
                    );
                    self.dvalues
                        .write(block.first, block.len(), width, 1.0, &group.dvalues[range]);
                }
            }
        }
        // SAFETY: each task has its own rows for the gradient of its head's queries.
        unsafe {
            self.dqueries
                .write(0, problem.queries_len, width, problem.scale, &dqueries)
        };
    }
}

/// Weights and their gradients, (keys, queries), and the factors of dropout.
struct Tiles {
    weights: [f32; SIDE * SIDE],
    gradients: [f32; SIDE * SIDE],
    kept: [f32; SIDE * SIDE],
}

impl Default for Tiles {
    fn default() -> Self {
        // Without dropout the factors stay one.
        Tiles {
            weights: [0.0; SIDE * SIDE],
            gradients: [0.0; SIDE * SIDE],
            kept: [1.0; SIDE * SIDE],
        }
    }
}

impl BackwardTask<'_> {
    /// One tile: a block of queries against a block of keys.
    #[inline(always)]
    fn step<S: Lanes>(
        &self,
        s: S,
        queries: &Queries,
        (first, count): (usize, usize),
        (group, slot, block): (&mut Group, usize, KeyBlock),
        tiles: &mut Tiles,
        dqueries: &mut [f32],
    ) {
        let width = self.problem.width;
        let wide = padded(width);
        let columns = count.next_multiple_of(PAD);
        let panels = slot * SIDE * width..(slot + 1) * SIDE * width;
        let rows = slot * SIDE * wide..(slot + 1) * SIDE * wide;
        let scores = (block.rows(), columns, width);
        let key_panels = Left::panels(&group.key_panels[panels.clone()], width);
        let value_panels = Left::panels(&group.value_panels[panels], width);
        product::<S, _, _, false>(
            s,
            key_panels,
            (&queries.columns, SIDE),
            (&mut tiles.weights, SIDE),
            scores,
        );
        product::<S, _, _, false>(
            s,
            value_panels,
            (&queries.dcolumns, SIDE),
            (&mut tiles.gradients, SIDE),
            scores,
        );
        if let Some(dropout) = self.problem.dropout {
            let tile = self.problem.tile(dropout, self.head, first, block.first);
            factors(s, tile, &mut tiles.kept);
            tiles.differentiate::<S, true>(s, queries, block, columns);
        } else {
            tiles.differentiate::<S, false>(s, queries, block, columns);
        }
        let sums = (block.rows(), wide, count);
        product::<S, _, _, true>(
            s,
            Left::tile(&tiles.weights),
            (&queries.drows, wide),
            (&mut group.dvalues[rows.clone()], wide),
            sums,
        );
        product::<S, _, _, true>(
            s,
            Left::tile(&tiles.gradients),
            (&queries.rows, wide),
            (&mut group.dkeys[rows.clone()], wide),
            sums,
        );
        product::<S, _, _, true>(
            s,
            Left::transposed(&tiles.gradients),
            (&group.key_rows[rows], wide),
            (dqueries, wide),
            (count.next_multiple_of(PANEL), wide, block.len()),
        );
    }
}

impl Tiles {
    /// Scores to dropped-out weights, and gradients of those weights to gradients of scores.
    #[inline(always)]
    fn differentiate<S: Lanes, const DROP: bool>(
        &mut self,
        s: S,
        queries: &Queries,
        block: KeyBlock,
        columns: usize,
    ) {
        let (sums, _) = S::as_simd_f32s(&queries.sums);
        let (deltas, _) = S::as_simd_f32s(&queries.deltas);
        let zero = s.splat_f32s(0.0);
        let used = columns / S::F32_LANES;
        for key in 0..block.rows() {
            let row = key * SIDE..key * SIDE + columns;
            let (weights, _) = S::as_mut_simd_f32s(&mut self.weights[row.clone()]);
            let (gradients, _) = S::as_mut_simd_f32s(&mut self.gradients[row.clone()]);
            let (kept, _) = S::as_simd_f32s(&self.kept[row]);
            if !block.is_real(key) {
                weights.fill(zero);
                gradients.fill(zero);
                continue;
            }
            let per_query = sums[..used].iter().zip(&deltas[..used]).zip(kept);
            for ((weight, gradient), ((sum, delta), kept)) in
                weights.iter_mut().zip(gradients).zip(per_query)
            {
                let p = exp2_bounded(s, s.sub_f32s(*weight, *sum));
                let d = if DROP {
                    s.mul_f32s(*gradient, *kept)
                } else {
                    *gradient
                };
                *weight = if DROP { s.mul_f32s(p, *kept) } else { p };
                *gradient = s.mul_f32s(p, s.sub_f32s(d, *delta));
            }
        }
    }
}

impl Queries {
    fn load(&mut self, task: &BackwardTask, first: usize, count: usize, deltas: &[f32]) {
        let problem = task.problem;
        let queries = problem.queries(task.head).from(first);
        let doutput = task.doutput.from(first);
        pack_rows(queries, count, problem.scale, &mut self.rows);
        let scale = problem.scale * std::f32::consts::LOG2_E;
        pack_columns(queries, count, scale, &mut self.columns);
        pack_rows(doutput, count, 1.0, &mut self.drows);
        pack_columns(doutput, count, 1.0, &mut self.dcolumns);
        // Columns beyond the last query: no weight, no gradient.
        self.sums.fill(f32::INFINITY);
        self.deltas.fill(0.0);
        self.sums[..count].copy_from_slice(&task.sums[first..first + count]);
        self.deltas[..count].copy_from_slice(&deltas[first..first + count]);
    }
}

impl Group {
    fn load(&mut self, task: &BackwardTask, blocks: &[KeyBlock]) {
        let width = task.problem.width;
        let wide = padded(width);
        let (keys, values) = (task.problem.keys(task.head), task.problem.values(task.head));
        for (slot, block) in blocks.iter().enumerate() {
            let panels = slot * SIDE * width..(slot + 1) * SIDE * width;
            let keys = keys.from(block.first);
            pack_panels(keys, block.len(), &mut self.key_panels[panels.clone()]);
            pack_rows(
                keys,
                block.len(),
                1.0,
                &mut self.key_rows[slot * SIDE * wide..],
            );
            pack_panels(
                values.from(block.first),
                block.len(),
                &mut self.value_panels[panels],
            );
        }
        self.dkeys.fill(0.0);
        self.dvalues.fill(0.0);
    }
}

/// rowsum(dO O) of every query.
#[inline(always)]
fn deltas<S: Lanes>(s: S, output: Rows, doutput: Rows, count: usize) -> Vec<f32> {
    let delta = |i| {
        let (x, x_tail) = S::as_simd_f32s(output.row(i));
        let (y, y_tail) = S::as_simd_f32s(doutput.row(i));
        let tail = s.mul_f32s(s.partial_load_f32s(x_tail), s.partial_load_f32s(y_tail));
        let sum = x.iter().zip(y).fold(tail, |sum, (x, y)| s.fma(*x, *y, sum));
        s.reduce_sum_f32s(sum)
    };
    (0..count).map(delta).collect()
}
