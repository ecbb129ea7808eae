//! Sums of values weighted by softmax over blocks of keys, with a running maximum.
//!
//! Weights live only as tiles of 64 keys by 64 queries. Queries are the columns, so that maximum,
//! sum and exponential run down whole registers and no register is ever summed across its lanes.

use lra_cpu::format::Format;
#[cfg(target_arch = "x86_64")]
use lra_cpu::format::amx_packing::{self, Parts, TERMS, TILE};
use lra_cpu::math::exp2_bounded;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::Lanes;
use lra_cpu::tile::{Lhs, Operand, PANEL, SIDE, Tile64, columns_to_rows, padded, product};

use super::args::AttentionArgs;
use super::dropout::{Tile, kept_factors};

/// Below every score.
const LOWEST: f32 = -1e30;

/// Maxima that run beside each other, over as many keys.
const CHAINS: usize = 4;
const _: () = assert!(PANEL.is_multiple_of(CHAINS));

/// Weighted sums of the values of a block of queries, block of keys by block of keys.
pub(super) struct WeightedSums {
    format: Format,
    width: usize,
    /// Scores (keys, queries) that [`WeightedSums::add`] turns into weights.
    pub(super) scores: Tile64,
    /// Factors of dropout.
    factors: Tile64,
    /// Room for weights whose format is not plain numbers.
    space: Scratch,
    /// Columns are queries.
    sums: Scratch,
    rows: Scratch,
    running: Running,
}

/// Running maximum, sum, and the factor by which a new maximum shrinks the sum before it.
struct Running {
    top: [f32; SIDE],
    sum: [f32; SIDE],
    rescale: [f32; SIDE],
}

impl WeightedSums {
    pub(super) fn new(args: &AttentionArgs) -> Self {
        let (format, width) = (args.format, args.widths.values);
        WeightedSums {
            format,
            width,
            scores: Tile64::filled(0.0),
            factors: Tile64::filled(0.0),
            space: Operand::B.scratch(format, (SIDE, SIDE)),
            sums: Scratch::zeros(SIDE * padded(width)),
            rows: Scratch::zeros(SIDE * padded(width)),
            running: Running::new(),
        }
    }

    /// Starts sums of another block of queries.
    pub(super) fn clear(&mut self) {
        self.sums.fill(0.0);
        self.running = Running::new();
    }

    /// Adds the values of `keys` keys, of which `bits` marks the valid ones, weighted by the scores
    /// of `columns` queries.
    #[inline(always)]
    pub(super) fn add<S: Lanes>(
        &mut self,
        s: S,
        (keys, bits): (usize, u64),
        columns: usize,
        values: Lhs,
        drawn: Option<Tile>,
    ) {
        let WeightedSums {
            format,
            width,
            scores,
            factors,
            space,
            sums,
            running,
            ..
        } = self;
        let rows = keys.next_multiple_of(PANEL);
        hide_keys(bits, rows, columns, scores);
        // No closure: it would be compiled for the baseline of the target, where every instruction
        // of the set is a call.
        let factors = match drawn {
            Some(tile) => {
                kept_factors(s, tile, factors);
                Some(&*factors)
            }
            None => None,
        };
        running.update_max(s, (rows, columns), scores);
        let weights = match running.cut(s, *format, (keys, columns), (scores, factors), space) {
            true => (&**space, SIDE),
            false => {
                running.exp_and_sum(s, (rows, columns), scores);
                if let Some(factors) = factors {
                    let pairs = scores.iter_mut().zip(factors.iter());
                    pairs.for_each(|(weight, factor)| *weight *= factor);
                }
                let weights = (&scores[..], SIDE);
                Operand::B
                    .of(*format, weights, (keys, columns), space)
                    .right()
            }
        };
        running.rescale(columns, sums);
        product::<S, true>(
            s,
            *format,
            values,
            weights,
            (sums, SIDE),
            (padded(*width), columns, keys),
        );
    }

    /// Returns for each of the first `count` queries the maximum, the sum of weights relative to
    /// it, and the sum of values, padded.
    pub(super) fn rows(&mut self, count: usize) -> impl Iterator<Item = (f32, f32, &[f32])> {
        columns_to_rows(&self.sums, count, self.width, &mut self.rows);
        let rows = self.rows.chunks_exact(padded(self.width)).take(count);
        let running = self.running.top.iter().zip(&self.running.sum);
        running.zip(rows).map(|((top, sum), row)| (*top, *sum, row))
    }
}

/// Returns the factor that makes a mean of a sum of weighted values, and the logarithm of the sum
/// of weights. A query that saw no key gets zeros, and weights that vanish in the backward pass.
pub(super) fn finalize(top: f32, sum: f32) -> (f32, f32) {
    if sum > 0.0 {
        (sum.recip(), top + sum.log2())
    } else if sum.is_nan() {
        (sum, sum)
    } else {
        (0.0, f32::INFINITY)
    }
}

/// Sets scores of keys without a bit to minus infinity.
#[inline(always)]
fn hide_keys(bits: u64, rows: usize, columns: usize, tile: &mut [f32; SIDE * SIDE]) {
    for key in (0..rows).filter(|key| bits >> key & 1 == 0) {
        tile[key * SIDE..][..columns].fill(f32::NEG_INFINITY);
    }
}

impl Running {
    fn new() -> Self {
        // A finite floor: where all scores are minus infinity, so are their differences to it.
        Running {
            top: [LOWEST; SIDE],
            sum: [0.0; SIDE],
            rescale: [0.0; SIDE],
        }
    }

    /// Raises the maxima to those of a tile of scores.
    #[inline(always)]
    fn update_max<S: Lanes>(&mut self, s: S, (rows, columns): (usize, usize), tile: &Tile64) {
        let (top, _) = S::as_mut_simd_f32s(&mut self.top);
        let (rescale, _) = S::as_mut_simd_f32s(&mut self.rescale);
        let (tile, _) = S::as_simd_f32s(&**tile);
        let registers = SIDE / S::F32_LANES;
        for c in 0..columns / S::F32_LANES {
            // Several at a time: one after the other, each would wait for the last.
            let mut tops = [top[c]; CHAINS];
            for key in (0..rows).step_by(CHAINS) {
                for (chain, top) in tops.iter_mut().enumerate() {
                    *top = s.max_f32s(*top, tile[(key + chain) * registers + c]);
                }
            }
            let mut highest = top[c];
            for top in tops {
                highest = s.max_f32s(highest, top);
            }
            rescale[c] = exp2_bounded(s, s.sub_f32s(top[c], highest));
            top[c] = highest;
        }
    }

    /// Turns a tile of scores into weights relative to the maxima, and adds them to the sums.
    #[inline(always)]
    fn exp_and_sum<S: Lanes>(&mut self, s: S, (rows, columns): (usize, usize), tile: &mut Tile64) {
        let (top, _) = S::as_simd_f32s(&self.top);
        let (sum, _) = S::as_mut_simd_f32s(&mut self.sum);
        let (rescale, _) = S::as_simd_f32s(&self.rescale);
        let (tile, _) = S::as_mut_simd_f32s(&mut **tile);
        let registers = SIDE / S::F32_LANES;
        for c in 0..columns / S::F32_LANES {
            let mut total = s.splat_f32s(0.0);
            for key in 0..rows {
                let weight = &mut tile[key * registers + c];
                *weight = exp2_bounded(s, s.sub_f32s(*weight, top[c]));
                total = s.add_f32s(total, *weight);
            }
            sum[c] = s.fma(sum[c], rescale[c], total);
        }
    }

    /// Writes the same weights, times the dropout factors, into the operand that AMX multiplies.
    /// Returns false if other instructions multiply.
    #[inline(always)]
    fn cut<S: Lanes>(
        &mut self,
        s: S,
        format: Format,
        sizes: (usize, usize),
        (scores, factors): (&Tile64, Option<&Tile64>),
        to: &mut [f32],
    ) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let Some(parts) = format.split_terms() {
            match parts {
                1 => self.cut_parts::<S, 1>(s, sizes, (scores, factors), to),
                _ => self.cut_parts::<S, 3>(s, sizes, (scores, factors), to),
            }
            return true;
        }
        let _ = (s, format, sizes, scores, factors, to);
        false
    }

    /// Computes [`Running::cut`] with `PARTS` parts of a number.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn cut_parts<S: Lanes, const PARTS: usize>(
        &mut self,
        s: S,
        (keys, columns): (usize, usize),
        (scores, factors): (&Tile64, Option<&Tile64>),
        to: &mut [f32],
    ) {
        const LINES: usize = amx_packing::SIDE;
        assert!(S::F32_LANES == LINES, "a register is a tile's row");
        assert!(
            amx_packing::words(PARTS, columns, keys) <= to.len(),
            "operand"
        );
        let (top, _) = S::as_simd_f32s(&self.top);
        let (sum, _) = S::as_mut_simd_f32s(&mut self.sum);
        let (rescale, _) = S::as_simd_f32s(&self.rescale);
        let (scores, _) = S::as_simd_f32s(&**scores);
        let registers = SIDE / LINES;
        let zero = s.splat_f32s(0.0);
        let mut tile = to.as_mut_ptr();
        for c in 0..columns / LINES {
            let mut totals = [zero; 2];
            for first in (0..keys).step_by(TERMS) {
                for line in 0..LINES {
                    let mut weights = [zero; 2];
                    for half in 0..2 {
                        let key = first + half * LINES + line;
                        if key >= keys {
                            continue;
                        }
                        let at = key * registers + c;
                        let weight = exp2_bounded(s, s.sub_f32s(scores[at], top[c]));
                        totals[half] = s.add_f32s(totals[half], weight);
                        weights[half] = match factors {
                            Some(factors) => s.mul_f32s(weight, S::as_simd_f32s(&**factors).0[at]),
                            None => weight,
                        };
                    }
                    let [near, far] = weights;
                    // SAFETY: there is AMX where factors are tiles, and so AVX-512; the operand has
                    // a tile for each part of these terms.
                    unsafe {
                        let near = Parts::<PARTS>::of::<S>(near);
                        near.store_beside(Parts::of::<S>(far), tile.add(line * LINES));
                    }
                }
                // SAFETY: as above.
                tile = unsafe { tile.add(PARTS * TILE) };
            }
            let total = s.add_f32s(totals[0], totals[1]);
            sum[c] = s.fma(sum[c], rescale[c], total);
        }
    }

    /// Takes the weighted values that were summed before, whose columns are queries, down to the
    /// new maximum.
    #[inline(always)]
    fn rescale(&self, columns: usize, sums: &mut [f32]) {
        let rescale = &self.rescale[..columns];
        if rescale.iter().all(|rescale| *rescale == 1.0) {
            return;
        }
        for row in sums.chunks_exact_mut(SIDE) {
            row.iter_mut()
                .zip(rescale)
                .for_each(|(x, rescale)| *x *= rescale);
        }
    }
}
