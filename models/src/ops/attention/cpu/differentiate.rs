//! Scores of a tile to weights after dropout, P M with P = exp2(S - sum), and gradients of those to
//! gradients of scores, dS = P (M D - δ), times the slope of the function that bounds them, if
//! there is one. Rows are keys, columns queries.

#[cfg(target_arch = "x86_64")]
use lra_cpu::format::amx_packing::{self, Parts, TERMS, TILE};
use lra_cpu::math::exp2_bounded;
use lra_cpu::simd::Lanes;
use lra_cpu::tile::{Lhs, Operand, PAD, PANEL, SIDE};

use super::backward::{Queries, Tiles};

/// Weights and gradients of scores as products take them.
pub(super) struct Operands<'a> {
    /// Left operands, whose rows are keys.
    pub(super) weights: Lhs<'a>,
    pub(super) gradients: Lhs<'a>,
    /// Right operand, whose columns are queries, and its stride.
    pub(super) gradients_right: (&'a [f32], usize),
}

impl Tiles {
    /// Returns the operands of `keys` keys, of which `bits` marks the valid ones, and `count`
    /// queries.
    #[inline(always)]
    pub(super) fn operands<S: Lanes, const DROP: bool>(
        &mut self,
        s: S,
        (queries, count): (&Queries, usize),
        (keys, bits): (usize, u64),
    ) -> Operands<'_> {
        #[cfg(target_arch = "x86_64")]
        if let Some(parts) = self.format.split_terms() {
            let sizes = (keys, count);
            match parts {
                1 => self.cut::<S, 1, DROP>(s, queries, bits, sizes),
                _ => self.cut::<S, 3, DROP>(s, queries, bits, sizes),
            }
            let [weights, gradients, right] = &self.scratch;
            return Operands {
                weights: Lhs::strided(weights, SIDE, 1),
                gradients: Lhs::strided(gradients, SIDE, 1),
                gradients_right: (right, SIDE),
            };
        }
        let columns = count.next_multiple_of(PAD);
        self.differentiate::<S, DROP>(s, queries, bits, (keys.next_multiple_of(PANEL), columns));
        let format = self.format;
        let [weights, gradients, right] = &mut self.scratch;
        let (p, ds) = ((&self.weights[..], SIDE), (&self.gradients[..], SIDE));
        let left = Operand::A;
        Operands {
            weights: left.of(format, p, (keys, count), weights).left(),
            gradients: left.of(format, ds, (keys, count), gradients).left(),
            gradients_right: Operand::B.of(format, ds, (keys, columns), right).right(),
        }
    }

    /// Differentiates in place.
    #[inline(always)]
    fn differentiate<S: Lanes, const DROP: bool>(
        &mut self,
        s: S,
        queries: &Queries,
        bits: u64,
        (rows, columns): (usize, usize),
    ) {
        let (sums, _) = S::as_simd_f32s(&queries.sums);
        let (deltas, _) = S::as_simd_f32s(&queries.deltas);
        let zero = s.splat_f32s(0.0);
        let used = columns / S::F32_LANES;
        for key in 0..rows {
            let row = key * SIDE..key * SIDE + columns;
            let (weights, _) = S::as_mut_simd_f32s(&mut self.weights[row.clone()]);
            let (gradients, _) = S::as_mut_simd_f32s(&mut self.gradients[row.clone()]);
            let (factors, _) = S::as_simd_f32s(&self.factors[row.clone()]);
            if bits >> key & 1 == 0 {
                weights.fill(zero);
                gradients.fill(zero);
                continue;
            }
            let per_query = sums[..used].iter().zip(&deltas[..used]).zip(factors);
            for ((weight, gradient), ((sum, delta), factor)) in
                weights.iter_mut().zip(&mut *gradients).zip(per_query)
            {
                let tile = [*weight, *gradient, *factor];
                (*weight, *gradient) = differentiate::<S, DROP>(s, tile, [*sum, *delta]);
            }
            if let Some(slopes) = &self.slopes {
                let (slopes, _) = S::as_simd_f32s(&slopes[row]);
                for (gradient, slope) in gradients.iter_mut().zip(slopes) {
                    *gradient = s.mul_f32s(*gradient, *slope);
                }
            }
        }
    }

    /// Writes the operands that AMX multiplies, all in one pass. Gradients of scores replace those
    /// of weights where they are asked for.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn cut<S: Lanes, const PARTS: usize, const DROP: bool>(
        &mut self,
        s: S,
        queries: &Queries,
        bits: u64,
        (keys, count): (usize, usize),
    ) {
        /// Registers of a tile's terms, and of a row of scores.
        const GROUPS: usize = TERMS / amx_packing::SIDE;
        const REGISTERS: usize = SIDE / amx_packing::SIDE;
        assert!(
            S::F32_LANES == amx_packing::SIDE,
            "a register is a tile's row"
        );
        let (key_step, query_step) = (
            amx_packing::step(PARTS, keys),
            amx_packing::step(PARTS, count),
        );
        let [weights, left, right] = &mut self.scratch;
        for space in [&*weights, left, right] {
            assert!(
                space.len() >= amx_packing::words(PARTS, SIDE, SIDE),
                "operand"
            );
        }
        let [weights, left, right] = [weights, left, right].map(|space| space.as_mut_ptr());
        let (sums, _) = S::as_simd_f32s(&queries.sums);
        let (deltas, _) = S::as_simd_f32s(&queries.deltas);
        let (scores, _) = S::as_simd_f32s(&*self.weights);
        let (gradients, _) = S::as_mut_simd_f32s(&mut *self.gradients);
        let (factors, _) = S::as_simd_f32s(&*self.factors);
        let slopes = self.slopes.as_ref();
        let slopes = slopes.map(|slopes| S::as_simd_f32s(&slopes[..]).0);
        let zero = s.splat_f32s(0.0);
        for key_tile in 0..amx_packing::steps(keys) {
            for line in 0..amx_packing::SIDE {
                // Two keys of a pair, and two groups of queries, go side by side.
                let pair = [0, 1].map(|half| (key_tile * GROUPS + half) * amx_packing::SIDE + line);
                for query_tile in 0..amx_packing::steps(count) {
                    let first = query_tile * GROUPS;
                    let (mut p, mut ds) = ([[zero; GROUPS]; 2], [[zero; GROUPS]; 2]);
                    for (half, key) in pair.into_iter().enumerate() {
                        if bits >> key & 1 == 0 {
                            continue;
                        }
                        for group in 0..GROUPS {
                            let column = first + group;
                            let at = key * REGISTERS + column;
                            let tile = [scores[at], gradients[at], factors[at]];
                            let per_query = [sums[column], deltas[column]];
                            (p[half][group], ds[half][group]) =
                                differentiate::<S, DROP>(s, tile, per_query);
                            if let Some(slopes) = slopes {
                                ds[half][group] = s.mul_f32s(ds[half][group], slopes[at]);
                            }
                        }
                    }
                    if self.returns_gradients {
                        for (key, ds) in pair.into_iter().zip(&ds) {
                            gradients[key * REGISTERS + first..][..GROUPS].copy_from_slice(ds);
                        }
                    }
                    // A line of a tile of an operand, whose sides are keys or queries, and terms
                    // the others.
                    let of_key = |half: usize| {
                        let group = key_tile * GROUPS + half;
                        group * query_step + query_tile * PARTS * TILE + line * amx_packing::SIDE
                    };
                    let of_query = |group: usize| {
                        (first + group) * key_step
                            + key_tile * PARTS * TILE
                            + line * amx_packing::SIDE
                    };
                    // SAFETY: there is AMX where factors are tiles, and so AVX-512; operands have
                    // room for all keys and queries of a tile.
                    unsafe {
                        for (half, [near, far]) in p.into_iter().enumerate() {
                            let near = Parts::<PARTS>::of::<S>(near);
                            near.store_beside(Parts::of::<S>(far), weights.add(of_key(half)));
                        }
                        let [[a, b], [c, d]] = ds;
                        let (a, b) = (Parts::<PARTS>::of::<S>(a), Parts::of::<S>(b));
                        let (c, d) = (Parts::of::<S>(c), Parts::of::<S>(d));
                        a.store_beside(b, left.add(of_key(0)));
                        c.store_beside(d, left.add(of_key(1)));
                        a.store_beside(c, right.add(of_query(0)));
                        b.store_beside(d, right.add(of_query(1)));
                    }
                }
            }
        }
    }
}

/// Returns a register of weights after dropout and gradients of scores, from one of scores, of
/// gradients of weights and of the factors of dropout.
#[inline(always)]
fn differentiate<S: Lanes, const DROP: bool>(
    s: S,
    [score, gradient, factor]: [S::f32s; 3],
    [sum, delta]: [S::f32s; 2],
) -> (S::f32s, S::f32s) {
    let p = exp2_bounded(s, s.sub_f32s(score, sum));
    let (weight, gradient) = match DROP {
        true => (s.mul_f32s(p, factor), s.mul_f32s(gradient, factor)),
        false => (p, gradient),
    };
    (weight, s.mul_f32s(p, s.sub_f32s(gradient, delta)))
}
