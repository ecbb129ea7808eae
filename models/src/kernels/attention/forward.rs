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
    Left, PAD, PANEL, SIDE, Square, pack_columns, pack_rows, padded, product,
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
        let mut key_rows = Scratch::zeros(blocks.len() * SIDE * key_wide);
        let mut value_rows = Scratch::zeros(blocks.len() * SIDE * wide);
        let packs = key_rows
            .chunks_mut(SIDE * key_wide)
            .zip(value_rows.chunks_mut(SIDE * wide));
        for (block, (key_rows, value_rows)) in blocks.iter().zip(packs) {
            keys.from(block.first).pack_rows(block.len(), key_rows);
            factors.columns(&mut key_rows[..block.len() * key_wide], key_wide);
            pack_rows(values.from(block.first), block.len(), 1.0, value_rows);
            factors.rows(&mut value_rows[..block.len() * wide], wide);
        }

        let mut queries = Scratch::zeros(SIDE * width);
        let mut sum = Scratch::zeros(SIDE * wide);
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
            let rows = count.next_multiple_of(PANEL);
            let scale = problem.scale * std::f32::consts::LOG2_E;
            pack_columns(
                problem.queries(head).from(first),
                count,
                scale,
                &mut queries,
            );
            factors.rows(&mut queries, SIDE);
            sum.fill(0.0);
            let mut running = Running::new();
            let packs = key_rows
                .chunks(SIDE * key_wide)
                .zip(value_rows.chunks(SIDE * wide));
            for (block, (key_rows, value_rows)) in seen.iter().zip(packs) {
                product::<S, false>(
                    s,
                    factors,
                    Left::strided(key_rows, key_wide, 1),
                    (&queries, SIDE),
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
                running.shrink(&mut sum, wide, count);
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
                factors.rows(&mut weights[..block.len() * SIDE], SIDE);
                product::<S, true>(
                    s,
                    factors,
                    Left::transposed(&*weights),
                    (value_rows, wide),
                    (&mut sum, wide),
                    (rows, wide, block.len()),
                );
            }
            for (i, sum) in sum.chunks_exact(wide).take(count).enumerate() {
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

    /// Takes the weighted values that were summed before down to the new maximum.
    #[inline(always)]
    pub(super) fn shrink(&self, sums: &mut [f32], wide: usize, count: usize) {
        for (row, shrink) in sums.chunks_exact_mut(wide).zip(&self.shrink[..count]) {
            if *shrink != 1.0 {
                row.iter_mut().for_each(|x| *x *= shrink);
            }
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
