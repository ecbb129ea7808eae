//! The forward pass: softmax over blocks of keys with a running maximum.
//!
//! Weights live only as tiles of 64 keys by 64 queries. Queries are the columns, so that maximum, sum and
//! exponential run down whole registers and no register is ever summed across its lanes.

use super::dropout::{Tile, kept_factors, row_length};
use super::key_mask::KeyBlock;
use super::problem::{Head, Problem};
use super::relative::Places;
use crate::kernels::buffers::Shared;
use crate::kernels::isa::{Kernel, Lanes};
use crate::kernels::math::exp2_bounded;
use crate::kernels::scratch::Scratch;
use crate::kernels::tile::{
    Held, PAD, Role, SIDE, Square, columns_to_rows, pack_columns, pack_rows, padded, product,
};

/// The queries `first..first + count` of one head (whole blocks, except at the end).
pub(super) struct ForwardTask<'a> {
    pub(super) problem: &'a Problem<'a>,
    pub(super) head: Head,
    pub(super) first: usize,
    pub(super) count: usize,
    /// Output (B, Lq, H Ev).
    pub(super) output: &'a Shared<'a>,
    /// Base-2 logarithms of the sums of weights, (B, H, Lq).
    pub(super) sums: &'a Shared<'a>,
}

/// Below every score.
const LOWEST: f32 = -1e30;

/// Running maximum, sum, and the factor by which a new maximum shrinks what was summed before it.
pub(super) struct Running {
    pub(super) top: [f32; SIDE],
    pub(super) sum: [f32; SIDE],
    shrink: [f32; SIDE],
}

impl Kernel for ForwardTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let ForwardTask {
            problem,
            head,
            first,
            count,
            output,
            sums,
        } = self;
        let (width, value_width) = (problem.widths.queries, problem.widths.values);
        let (key_wide, wide) = (padded(width), padded(value_width));
        let factors = problem.factors;
        let (keys, values) = (problem.keys(head), problem.values(head));
        let blocks: Vec<KeyBlock> = problem.real.blocks(head.example).collect();
        let held = |role, row| Held::new(factors, role, blocks.len(), (SIDE, row));
        let mut key_blocks = held(Role::LeftRows, key_wide);
        let mut value_blocks = held(Role::LeftColumns, wide);
        for (i, block) in blocks.iter().enumerate() {
            let count = block.len();
            key_blocks.load(i, (count, width), |rows| {
                keys.from(block.first).pack_rows(count, rows);
            });
            value_blocks.load(i, (count, wide), |rows| {
                pack_rows(values.from(block.first), count, 1.0, rows);
            });
        }

        let mut queries = Held::new(factors, Role::RightRows, 1, (width, SIDE));
        let mut space = Role::RightRows.space(factors, (SIDE, SIDE));
        // Columns are queries.
        let mut sum = Scratch::zeros(SIDE * wide);
        let mut rows = Scratch::zeros(SIDE * wide);
        let mut weights = Square::filled(0.0);
        let mut kept = Square::filled(0.0);
        let mut biases = Square::filled(0.0);
        for first in (first..first + count).step_by(SIDE) {
            let count = SIDE.min(problem.queries_len - first);
            // Queries that see no key yield zeros.
            let seen = match problem.padding(head.example, first..first + count) {
                true => &[],
                false => &*blocks,
            };
            let columns = count.next_multiple_of(PAD);
            let scale = problem.scale * std::f32::consts::LOG2_E;
            queries.load(0, (width, SIDE), |columns| {
                pack_columns(problem.queries(head).from(first), count, scale, columns);
            });
            sum.fill(0.0);
            let mut running = Running::new();
            for (i, block) in seen.iter().enumerate() {
                product::<S, false>(
                    s,
                    factors,
                    key_blocks.left(i),
                    queries.right(0),
                    (&mut *weights, SIDE),
                    (block.rows(), columns, width),
                );
                if let Some(bias) = problem.bias {
                    let sizes = (count, block.len());
                    bias.load(head.number, (first, block.first), sizes, &mut biases);
                    bias.add(&biases, block.len(), &mut weights);
                }
                if let Some(tables) = &problem.relative {
                    let keys = block.first..block.first + block.len();
                    let places = Places::new(tables, first..first + count, keys);
                    tables.add(&places, head, &mut weights);
                }
                hide_keys(block.bits, block.rows(), columns, &mut weights);
                running.absorb(s, block.rows(), columns, &mut weights);
                running.shrink(columns, &mut sum);
                if let Some(dropout) = problem.dropout {
                    kept_factors(
                        s,
                        problem.tile(dropout, head, first, block.first),
                        &mut kept,
                    );
                    weights
                        .iter_mut()
                        .zip(kept.iter())
                        .for_each(|(weight, kept)| *weight *= kept);
                }
                let size = (block.len(), columns);
                let weights = Role::RightRows.of(factors, (&*weights, SIDE), size, &mut space);
                product::<S, true>(
                    s,
                    factors,
                    value_blocks.left(i),
                    weights.right(),
                    (&mut sum, SIDE),
                    (wide, columns, block.len()),
                );
            }
            columns_to_rows(&sum, count, value_width, &mut rows);
            for (i, sum) in rows.chunks_exact(wide).take(count).enumerate() {
                let (inverse, log) = close(running.top[i], running.sum[i]);
                // SAFETY: this task alone writes its head's columns of its queries' rows, and their sums.
                let (output, logs) = unsafe {
                    let start = problem.output_start(head, first + i);
                    (
                        output.slice(start, value_width),
                        sums.slice(problem.sum_index(head, first + i), 1),
                    )
                };
                for (y, x) in output.iter_mut().zip(sum) {
                    *y = x * inverse;
                }
                logs[0] = log;
            }
        }
    }
}

/// The factor that makes a mean of a sum of weighted values, and the logarithm of the sum of weights.
///
/// A query that saw no key gets zeros, and weights that vanish in the backward pass.
pub(super) fn close(top: f32, sum: f32) -> (f32, f32) {
    if sum > 0.0 {
        (sum.recip(), top + sum.log2())
    } else if sum.is_nan() {
        (sum, sum)
    } else {
        (0.0, f32::INFINITY)
    }
}

/// Scores of keys without a bit become minus infinity.
#[inline(always)]
pub(super) fn hide_keys(bits: u64, rows: usize, columns: usize, tile: &mut [f32; SIDE * SIDE]) {
    for key in (0..rows).filter(|key| bits >> key & 1 == 0) {
        tile[key * SIDE..][..columns].fill(f32::NEG_INFINITY);
    }
}

impl Running {
    pub(super) fn new() -> Self {
        // A finite floor: where all scores are minus infinity, so are their differences to it.
        Running {
            top: [LOWEST; SIDE],
            sum: [0.0; SIDE],
            shrink: [0.0; SIDE],
        }
    }

    /// Turns a tile of scores into weights relative to the running maximum, and adds them to the sums.
    #[inline(always)]
    pub(super) fn absorb<S: Lanes>(
        &mut self,
        s: S,
        rows: usize,
        columns: usize,
        tile: &mut [f32; SIDE * SIDE],
    ) {
        let (top, _) = S::as_mut_simd_f32s(&mut self.top);
        let (sum, _) = S::as_mut_simd_f32s(&mut self.sum);
        let (shrink, _) = S::as_mut_simd_f32s(&mut self.shrink);
        let (tile, _) = S::as_mut_simd_f32s(tile);
        let registers = SIDE / S::F32_LANES;
        for c in 0..columns / S::F32_LANES {
            let before = top[c];
            let mut highest = before;
            for key in 0..rows {
                highest = s.max_f32s(highest, tile[key * registers + c]);
            }
            let mut total = s.splat_f32s(0.0);
            for key in 0..rows {
                let weight = &mut tile[key * registers + c];
                *weight = exp2_bounded(s, s.sub_f32s(*weight, highest));
                total = s.add_f32s(total, *weight);
            }
            let factor = exp2_bounded(s, s.sub_f32s(before, highest));
            top[c] = highest;
            shrink[c] = factor;
            sum[c] = s.fma(sum[c], factor, total);
        }
    }

    /// Takes the weighted values that were summed before, whose columns are queries, down to the new maximum.
    #[inline(always)]
    pub(super) fn shrink(&self, columns: usize, sums: &mut [f32]) {
        let shrink = &self.shrink[..columns];
        if shrink.iter().all(|shrink| *shrink == 1.0) {
            return;
        }
        for row in sums.chunks_exact_mut(SIDE) {
            row.iter_mut()
                .zip(shrink)
                .for_each(|(x, shrink)| *x *= shrink);
        }
    }
}

impl Problem<'_> {
    /// The place of a tile in the dropout stream.
    pub(super) fn tile<'a>(
        &self,
        dropout: &'a super::AttentionDropout,
        head: Head,
        query: usize,
        key: usize,
    ) -> Tile<'a> {
        let row = row_length(self.keys_len);
        let first = (head.number * self.queries_len + query) * row + key;
        Tile {
            dropout,
            example: head.example,
            first,
            row,
        }
    }
}
