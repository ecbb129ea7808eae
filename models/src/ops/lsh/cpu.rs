//! Locality-sensitive hashing by rotations: the bucket of x in a round is argmax `[x R ; -x R]`
//! (Andoni et al., 2015, arXiv 1509.02897). Projections exist only for 64 positions at a time.
//! There is no gradient.

use candle_core::{Result, Tensor, bail};
use lra_cpu::gemm::{Matrix, multiply};
use lra_cpu::isa::Isa;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use crate::autograd::read;

const NAME: &str = "lsh";
/// Positions that are projected together.
const BLOCK: usize = 64;

/// Returns the buckets (B, H, T, L) of the vectors of x (B, L, H E), for rotations (E, T, n / 2):
/// numbers below n. Among equal projections the first counts, and a vector of NaNs is in bucket 0.
///
/// # Errors
/// If shapes do not fit.
pub fn lsh(x: &Tensor, rotations: &Tensor) -> Result<Vec<u32>> {
    let ((batch, length, row), (width, rounds, half)) = (x.dims3()?, rotations.dims3()?);
    if width == 0 || row % width != 0 {
        bail!("{NAME}: rotations of {width} for rows of {row}");
    }
    let heads = row / width;
    let mut buckets = vec![0; batch * heads * rounds * length];
    if half == 0 || rounds == 0 || length == 0 {
        return Ok(buckets);
    }
    let (x, rotations) = (x.contiguous()?, rotations.contiguous()?);
    let (x, rotations) = (read(NAME, &x)?, read(NAME, &rotations)?);
    let (x, rotations) = (&*x, &*rotations);
    let isa = Isa::current();
    let per_head = buckets.par_chunks_mut(rounds * length).enumerate();
    let workspaces = Workspaces::new(per_head.len(), || ());
    per_head.for_each(|(index, buckets)| {
        workspaces.lend(|()| {
            let start = index / heads * length * row + index % heads * width;
            let columns = rounds * half;
            let mut turned = Scratch::zeros(BLOCK * columns);
            for first in (0..length).step_by(BLOCK) {
                let count = BLOCK.min(length - first);
                multiply(
                    isa,
                    (count, columns, width),
                    Matrix::rows(&x[start + first * row..], row),
                    Matrix::rows(rotations, columns),
                    &mut turned,
                    false,
                );
                let rows = turned.chunks_exact(columns).take(count);
                for (position, row) in (first..).zip(rows) {
                    for (round, row) in row.chunks_exact(half).enumerate() {
                        buckets[round * length + position] = bucket(row, isa.run(Most(row)));
                    }
                }
            }
        })
    });
    Ok(buckets)
}

/// Largest absolute value.
struct Most<'a>(&'a [f32]);

impl Kernel for Most<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) -> f32 {
        let (x, tail) = S::as_simd_f32s(self.0);
        let tail = s.abs_f32s(s.partial_load_f32s(tail));
        let max = x
            .iter()
            .fold(tail, |max, x| s.max_f32s(max, s.abs_f32s(*x)));
        s.reduce_max_f32s(max)
    }
}

/// Returns the place of `max` in `[x ; -x]`.
fn bucket(x: &[f32], max: f32) -> u32 {
    let place = |value: f32| x.iter().position(|x| *x == value);
    let place = place(max).or_else(|| place(-max).map(|place| x.len() + place));
    place.unwrap_or(0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::Sampler;

    #[test]
    fn buckets_are_those_of_the_formula_on_every_instruction_set() {
        let mut sampler = Sampler::new(51);
        for (batch, length, heads, width, rounds, half) in [
            (1, 1, 1, 1, 1, 1),
            (2, 70, 3, 5, 2, 7),
            (1, 130, 2, 16, 3, 32),
        ] {
            let x = sampler.normal(&[batch, length, heads * width], 1.0);
            let rotations = sampler.normal(&[width, rounds, half], 1.0);
            let rows = x.to_vec3::<f32>().unwrap();
            let turns = rotations.to_vec3::<f32>().unwrap();
            for isa in Isa::all() {
                let actual = isa.force(|| lsh(&x, &rotations).unwrap());
                for (index, actual) in actual.into_iter().enumerate() {
                    let (position, round) = (index % length, index / length % rounds);
                    let head = index / length / rounds;
                    let vector = &rows[head / heads][position][head % heads * width..][..width];
                    let turned = |column: usize| -> f64 {
                        let sign = if column < half { 1.0 } else { -1.0 };
                        let terms = vector.iter().zip(&turns);
                        let terms = terms
                            .map(|(x, turn)| f64::from(*x) * f64::from(turn[round][column % half]));
                        sign * terms.sum::<f64>()
                    };
                    let actual = turned(actual as usize);
                    assert!((0..2 * half).all(|column| turned(column) <= actual + 1e-5));
                }
            }
        }
        assert!(
            lsh(
                &sampler.normal(&[1, 2, 5], 1.0),
                &sampler.normal(&[2, 1, 1], 1.0)
            )
            .is_err()
        );
    }

    #[test]
    fn the_first_of_equals_counts() {
        assert_eq!(bucket(&[1.0, -2.0, 2.0], 2.0), 2);
        assert_eq!(bucket(&[1.0, -2.0], 2.0), 3);
        assert_eq!(bucket(&[f32::NAN], f32::NAN), 0);
    }
}
