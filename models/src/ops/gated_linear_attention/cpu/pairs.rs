//! Weights of pairs of rows of a chunk, with the decays between them, and their gradients.

use lra_cpu::simd::Lanes;

use super::CHUNK;

/// Rows (C, padded K) whose pairs have weights w_ij = x_i·(k_j ⊙ a_(j+1) ⊙ .. ⊙ a_i), j ≤ i.
#[derive(Clone, Copy)]
pub(super) struct Pairs<'a> {
    pub(super) k: &'a [f32],
    /// a.
    pub(super) decays: &'a [f32],
    /// Rows that count.
    pub(super) rows: usize,
    /// Padded K.
    pub(super) wide: usize,
}

impl Pairs<'_> {
    /// Writes the weights (C, C) of rows `x`, zeros elsewhere; those of a row with itself only if
    /// `own`. `decayed` (padded K) is working memory.
    #[inline(always)]
    pub(super) fn weights<S: Lanes>(
        self,
        s: S,
        x: &[f32],
        own: bool,
        decayed: &mut [f32],
        weights: &mut [f32],
    ) {
        let Pairs {
            k,
            decays,
            rows,
            wide,
        } = self;
        weights.fill(0.0);
        for j in 0..rows {
            decayed.copy_from_slice(&k[j * wide..][..wide]);
            let decayed = S::as_mut_simd_f32s(decayed).0;
            for i in j..rows {
                if i == j && !own {
                    continue;
                }
                let x = S::as_simd_f32s(&x[i * wide..][..wide]).0;
                let a = S::as_simd_f32s(&decays[i * wide..][..wide]).0;
                let mut sum = s.splat_f32s(0.0);
                if i > j {
                    for ((k, a), x) in decayed.iter_mut().zip(a).zip(x) {
                        *k = s.mul_f32s(*k, *a);
                        sum = s.fma(*k, *x, sum);
                    }
                } else {
                    for (k, x) in decayed.iter().zip(x) {
                        sum = s.fma(*k, *x, sum);
                    }
                }
                weights[i * CHUNK + j] = s.reduce_sum_f32s(sum);
            }
        }
    }

    /// Adds the gradients of rows x and k to `dx` and `dk`, given those of the weights, for all
    /// pairs of two different rows.
    #[inline(always)]
    pub(super) fn gradients<S: Lanes>(
        self,
        s: S,
        x: &[f32],
        dweights: &[f32],
        dx: &mut [f32],
        dk: &mut [f32],
    ) {
        let Pairs {
            k,
            decays,
            rows,
            wide,
        } = self;
        let lanes = S::F32_LANES;
        for first in (0..wide).step_by(lanes) {
            let at = |row: usize| row * wide + first..row * wide + first + lanes;
            for j in 0..rows {
                let key = s.load(&k[at(j)]);
                let mut decay = s.splat_f32s(1.0);
                let mut sum = s.load(&dk[at(j)]);
                for i in j + 1..rows {
                    decay = s.mul_f32s(decay, s.load(&decays[at(i)]));
                    let weight = s.splat_f32s(dweights[i * CHUNK + j]);
                    let decayed = s.mul_f32s(weight, decay);
                    let dx = &mut dx[at(i)];
                    let gradient = s.fma(decayed, key, s.load(dx));
                    s.store(dx, gradient);
                    sum = s.fma(decayed, s.load(&x[at(i)]), sum);
                }
                s.store(&mut dk[at(j)], sum);
            }
        }
    }
}

/// Solves (I + n) u = r in place, for n (C, C) with zeros on and above the diagonal and `rows` rows
/// of r, `wide` apart.
#[inline(always)]
pub(super) fn solve<S: Lanes>(s: S, n: &[f32], rows: usize, wide: usize, r: &mut [f32]) {
    for i in 0..rows {
        let (before, row) = r.split_at_mut(i * wide);
        let row = S::as_mut_simd_f32s(&mut row[..wide]).0;
        for (j, other) in before.chunks_exact(wide).enumerate() {
            let factor = s.splat_f32s(-n[i * CHUNK + j]);
            let other = S::as_simd_f32s(other).0;
            for (x, other) in row.iter_mut().zip(other) {
                *x = s.fma(factor, *other, *x);
            }
        }
    }
}

/// Solves (I + n)ᵀ u = r in place, as [`solve`] does.
#[inline(always)]
pub(super) fn solve_transposed<S: Lanes>(s: S, n: &[f32], rows: usize, wide: usize, r: &mut [f32]) {
    for i in (0..rows).rev() {
        let (row, after) = r[i * wide..rows * wide].split_at_mut(wide);
        let row = S::as_mut_simd_f32s(row).0;
        for (j, other) in after.chunks_exact(wide).enumerate() {
            let factor = s.splat_f32s(-n[(i + 1 + j) * CHUNK + i]);
            let other = S::as_simd_f32s(other).0;
            for (x, other) in row.iter_mut().zip(other) {
                *x = s.fma(factor, *other, *x);
            }
        }
    }
}
