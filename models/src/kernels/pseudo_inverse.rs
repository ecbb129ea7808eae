//! An iteration to the pseudo-inverse of square matrices, in f64 (Razavi et al., 2014; Nyströmformer, arXiv 2102.03902):
//!     Z ← ¼ Z (13 I - Y (15 I - Y (7 I - Y))),  Y = A Z,  from Z = Aᵀ / (largest column sum of A)
//!
//! One matrix goes through all iterations in the nearest caches. Nothing is kept but A: the backward pass iterates again, and goes the same
//! way back with what lies between.

use candle_core::{Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::custom_op::{BackwardPass, CustomOp, Gradient, View, apply};
use super::isa::{Isa, Kernel, Lanes};

const NAME: &str = "pseudo_inverse";
/// Rows of a product that are computed together; sides are padded to a multiple of it, which is one of registers too.
const PANEL: usize = 8;

/// Z for each of the matrices A (.., M, M) of f64.
///
/// # Errors
/// If matrices are not square, or not f64 in main memory.
pub fn pseudo_inverse(a: &Tensor, iterations: usize) -> Result<Tensor> {
    match a.dims() {
        [.., rows, columns] if rows == columns && *rows > 0 => {}
        dims => bail!("{NAME}: matrices {dims:?} are not square"),
    }
    apply(PseudoInverse { iterations }, [a])
}

struct PseudoInverse {
    iterations: usize,
}

impl CustomOp<1, f64> for PseudoInverse {
    const NAME: &'static str = NAME;
    type Saved = ();

    fn forward(&self, [a]: [View<f64>; 1], _: bool) -> Result<(Vec<f64>, Shape, ())> {
        let side = side(&a.shape);
        let mut z = vec![0.0; a.data.len()];
        let isa = Isa::current();
        let matrices = z.par_chunks_mut(side * side);
        let matrices = matrices.zip(a.data.par_chunks(side * side));
        matrices.for_each(|(z, a)| {
            isa.run(Iterate {
                iterations: self.iterations,
                side,
                a,
                z,
            });
        });
        Ok((z, a.shape, ()))
    }

    fn backward(
        &self,
        [a]: [View<f64>; 1],
        pass: BackwardPass<(), 1, f64>,
    ) -> Result<[Gradient<f64>; 1]> {
        let side = side(&a.shape);
        let mut da = vec![0.0; a.data.len()];
        let isa = Isa::current();
        let matrices = da.par_chunks_mut(side * side);
        let matrices = matrices.zip(a.data.par_chunks(side * side));
        let matrices = matrices.zip(pass.dy.par_chunks(side * side));
        matrices.for_each(|((da, a), dz)| {
            isa.run(Differentiate {
                iterations: self.iterations,
                side,
                a,
                dz,
                da,
            });
        });
        Ok([da.into()])
    }
}

/// M.
fn side(shape: &Shape) -> usize {
    shape.dims().last().copied().unwrap_or(1)
}

/// A square matrix, its rows and columns padded with zeros.
#[derive(Clone)]
struct Square {
    numbers: Vec<f64>,
    side: usize,
    padded: usize,
}

impl Square {
    fn zeros(side: usize) -> Self {
        let padded = side.next_multiple_of(PANEL);
        Square {
            numbers: vec![0.0; padded * padded],
            side,
            padded,
        }
    }

    fn new(side: usize, rows: &[f64]) -> Self {
        let mut square = Square::zeros(side);
        let padded = square.padded;
        for (to, from) in square.numbers.chunks_mut(padded).zip(rows.chunks(side)) {
            to[..side].copy_from_slice(from);
        }
        square
    }

    /// Writes the rows without padding.
    fn write(&self, rows: &mut [f64]) {
        let own = self.numbers.chunks(self.padded);
        for (to, from) in rows.chunks_mut(self.side).zip(own) {
            to.copy_from_slice(&from[..self.side]);
        }
    }

    fn transposed(&self) -> Self {
        let mut square = Square::zeros(self.side);
        square.set_transposed(self);
        square
    }

    #[inline(always)]
    fn set_transposed(&mut self, other: &Square) {
        let padded = self.padded;
        for first in (0..padded).step_by(PANEL) {
            for (column, to) in self.numbers.chunks_mut(padded).enumerate() {
                for (place, to) in to[first..first + PANEL].iter_mut().enumerate() {
                    *to = other.numbers[(first + place) * padded + column];
                }
            }
        }
    }

    /// `factor` I is added.
    #[inline(always)]
    fn add_identity(&mut self, factor: f64) {
        let step = self.padded + 1;
        for x in self.numbers.iter_mut().step_by(step).take(self.side) {
            *x += factor;
        }
    }

    /// `factor` I - X.
    #[inline(always)]
    fn set_less(&mut self, factor: f64, x: &Square) {
        for (to, x) in self.numbers.iter_mut().zip(&x.numbers) {
            *to = -x;
        }
        self.add_identity(factor);
    }

    /// The first of the columns of largest sum, and that sum.
    fn largest_column(&self) -> (usize, f64) {
        let mut sums = vec![0.0; self.padded];
        for row in self.numbers.chunks(self.padded) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
        let mut largest = (0, sums[0]);
        for (column, &sum) in sums.iter().enumerate().take(self.side) {
            if sum > largest.1 {
                largest = (column, sum);
            }
        }
        largest
    }
}

/// What an iteration computes.
struct Between {
    z: Square,
    /// A Z.
    y: Square,
    /// 7 I - Y, 15 I - Y P and 13 I - Y Q.
    p: Square,
    q: Square,
    r: Square,
}

impl Between {
    /// Where A's iteration begins.
    fn new(a: &Square) -> Self {
        let mut z = a.transposed();
        let (_, largest) = a.largest_column();
        z.numbers.iter_mut().for_each(|x| *x /= largest);
        let zeros = || Square::zeros(a.side);
        Between {
            z,
            y: zeros(),
            p: zeros(),
            q: zeros(),
            r: zeros(),
        }
    }

    /// Everything that follows from Z.
    #[inline(always)]
    fn compute<S: Lanes>(&mut self, s: S, a: &Square) {
        product::<S, false>(s, Left::of(a), &self.z, 1.0, &mut self.y);
        self.p.set_less(7.0, &self.y);
        product::<S, false>(s, Left::of(&self.y), &self.p, -1.0, &mut self.q);
        self.q.add_identity(15.0);
        product::<S, false>(s, Left::of(&self.y), &self.q, -1.0, &mut self.r);
        self.r.add_identity(13.0);
    }

    /// The next Z.
    #[inline(always)]
    fn next<S: Lanes>(&self, s: S, z: &mut Square) {
        product::<S, false>(s, Left::of(&self.z), &self.r, 0.25, z);
    }
}

/// From A to Z.
struct Iterate<'a> {
    iterations: usize,
    side: usize,
    a: &'a [f64],
    z: &'a mut [f64],
}

impl Kernel for Iterate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let a = Square::new(self.side, self.a);
        let mut between = Between::new(&a);
        let mut z = Square::zeros(self.side);
        for _ in 0..self.iterations {
            between.compute(s, &a);
            between.next(s, &mut z);
            std::mem::swap(&mut between.z, &mut z);
        }
        between.z.write(self.z);
    }
}

/// From the gradient of Z to that of A.
struct Differentiate<'a> {
    iterations: usize,
    side: usize,
    a: &'a [f64],
    dz: &'a [f64],
    da: &'a mut [f64],
}

impl Kernel for Differentiate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let side = self.side;
        let a = Square::new(side, self.a);
        let mut all = Vec::with_capacity(self.iterations);
        let mut between = Between::new(&a);
        for _ in 0..self.iterations {
            between.compute(s, &a);
            let mut following = Between {
                z: Square::zeros(side),
                y: Square::zeros(side),
                p: Square::zeros(side),
                q: Square::zeros(side),
                r: Square::zeros(side),
            };
            between.next(s, &mut following.z);
            all.push(std::mem::replace(&mut between, following));
        }
        let mut da = Square::zeros(side);
        let mut dz = Square::new(side, self.dz);
        let [mut dy, mut before, mut dr, mut dq, mut dp, mut turned] =
            [(); 6].map(|()| Square::zeros(side));
        for Between { z, y, p, q, r } in all.iter().rev() {
            // Z' = ¼ Z R
            turned.set_transposed(r);
            product::<S, false>(s, Left::of(&dz), &turned, 0.25, &mut before);
            product::<S, false>(s, Left::transposed(z), &dz, 0.25, &mut dr);
            // R = 13 I - Y Q
            turned.set_transposed(q);
            product::<S, false>(s, Left::of(&dr), &turned, -1.0, &mut dy);
            product::<S, false>(s, Left::transposed(y), &dr, -1.0, &mut dq);
            // Q = 15 I - Y P
            turned.set_transposed(p);
            product::<S, true>(s, Left::of(&dq), &turned, -1.0, &mut dy);
            product::<S, false>(s, Left::transposed(y), &dq, -1.0, &mut dp);
            // P = 7 I - Y
            for (dy, dp) in dy.numbers.iter_mut().zip(&dp.numbers) {
                *dy -= dp;
            }
            // Y = A Z
            turned.set_transposed(z);
            product::<S, true>(s, Left::of(&dy), &turned, 1.0, &mut da);
            product::<S, true>(s, Left::transposed(&a), &dy, 1.0, &mut before);
            std::mem::swap(&mut dz, &mut before);
        }
        // Z = Aᵀ / c, with c the sum of a column.
        let (column, sum) = a.largest_column();
        turned.set_transposed(&dz);
        let mut dsum = 0.0;
        for ((da, dz), a) in da.numbers.iter_mut().zip(&turned.numbers).zip(&a.numbers) {
            *da += dz / sum;
            dsum -= dz * a;
        }
        dsum /= sum * sum;
        for row in da.numbers.chunks_mut(da.padded).take(side) {
            row[column] += dsum;
        }
        da.write(self.da);
    }
}

/// A left operand: element (i, j) is at i `row` + j `column`.
#[derive(Clone, Copy)]
struct Left<'a> {
    numbers: &'a [f64],
    row: usize,
    column: usize,
}

impl<'a> Left<'a> {
    #[inline(always)]
    fn of(square: &'a Square) -> Self {
        Left {
            numbers: &square.numbers,
            row: square.padded,
            column: 1,
        }
    }

    #[inline(always)]
    fn transposed(square: &'a Square) -> Self {
        Left {
            numbers: &square.numbers,
            row: 1,
            column: square.padded,
        }
    }
}

/// `out = factor a b`, or `out += factor a b` if `ADD`.
#[inline(always)]
fn product<S: Lanes, const ADD: bool>(s: S, a: Left, b: &Square, factor: f64, out: &mut Square) {
    let padded = b.padded;
    let len = padded * padded;
    assert!(
        [a.numbers.len(), b.numbers.len(), out.numbers.len()] == [len; 3]
            && padded.is_multiple_of(PANEL),
        "matrices of one side"
    );
    let lanes = S::F64_LANES;
    let operands = (a, b.numbers.as_slice());
    for first in (0..padded).step_by(PANEL) {
        let mut column = 0;
        while column < padded {
            let pair = padded - column >= 2 * lanes;
            let out = &mut out.numbers[first * padded + column..];
            let (half, other) = ((first, column), (first + PANEL / 2, column));
            match (S::REGISTER_COUNT >= 32, pair) {
                (true, true) => block::<S, PANEL, 2, ADD>(s, operands, half, padded, factor, out),
                (true, false) => block::<S, PANEL, 1, ADD>(s, operands, half, padded, factor, out),
                (false, true) => {
                    block::<S, 4, 2, ADD>(s, operands, half, padded, factor, out);
                    let out = &mut out[PANEL / 2 * padded..];
                    block::<S, 4, 2, ADD>(s, operands, other, padded, factor, out);
                }
                (false, false) => {
                    block::<S, 4, 1, ADD>(s, operands, half, padded, factor, out);
                    let out = &mut out[PANEL / 2 * padded..];
                    block::<S, 4, 1, ADD>(s, operands, other, padded, factor, out);
                }
            }
            column += if pair { 2 * lanes } else { lanes };
        }
    }
}

/// M rows by N registers of a product, held in registers while all terms are added.
#[inline(always)]
fn block<S: Lanes, const M: usize, const N: usize, const ADD: bool>(
    s: S,
    (a, b): (Left, &[f64]),
    (row, column): (usize, usize),
    padded: usize,
    factor: f64,
    out: &mut [f64],
) {
    let lanes = S::F64_LANES;
    let mut sums = [[s.splat_f64s(0.0); N]; M];
    for k in 0..padded {
        let (right, _) = S::as_simd_f64s(&b[k * padded + column..][..N * lanes]);
        for (i, sums) in sums.iter_mut().enumerate() {
            let left = s.splat_f64s(a.numbers[(row + i) * a.row + k * a.column]);
            for (sum, right) in sums.iter_mut().zip(right) {
                *sum = s.fma_f64s(left, *right, *sum);
            }
        }
    }
    let factor = s.splat_f64s(factor);
    for (i, sums) in sums.iter().enumerate() {
        let (out, _) = S::as_mut_simd_f64s(&mut out[i * padded..][..N * lanes]);
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = match ADD {
                true => s.fma_f64s(*sum, factor, *out),
                false => s.mul_f64s(*sum, factor),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::Sampler;

    struct Both<'a>(&'a Square, &'a Square, [&'a mut Square; 2]);

    impl Kernel for Both<'_> {
        type Output = ();

        #[inline(always)]
        fn run<S: Lanes>(self, s: S) {
            let Both(a, b, [plain, added]) = self;
            product::<S, false>(s, Left::of(a), b, 0.5, plain);
            product::<S, true>(s, Left::transposed(a), b, -2.0, added);
        }
    }

    #[test]
    fn products_are_sums_of_products_on_every_instruction_set() {
        let mut sampler = Sampler::new(41);
        for side in [1, 3, 8, 9, 16, 24, 37] {
            let mut random = || (0..side * side).map(|_| sampler.uniform() - 0.5).collect();
            let [a, b, start]: [Vec<f64>; 3] = [random(), random(), random()];
            let sum = |i, j, turned: bool| -> f64 {
                let a = |i: usize, k: usize| a[if turned { k * side + i } else { i * side + k }];
                (0..side).map(|k| a(i, k) * b[k * side + j]).sum()
            };
            for isa in Isa::all() {
                let [left, right] = [&a, &b].map(|x| Square::new(side, x));
                let (mut plain, mut added) = (Square::zeros(side), Square::new(side, &start));
                isa.run(Both(&left, &right, [&mut plain, &mut added]));
                for i in 0..side {
                    for j in 0..side {
                        let at = i * plain.padded + j;
                        let errors = [
                            plain.numbers[at] - 0.5 * sum(i, j, false),
                            added.numbers[at] - start[i * side + j] + 2.0 * sum(i, j, true),
                        ];
                        assert!(
                            errors.iter().all(|error| error.abs() < 1e-13),
                            "{isa:?} {side}"
                        );
                    }
                }
                let beyond = plain.numbers.iter().filter(|x| **x != 0.0).count();
                assert!(beyond <= side * side, "padding stays zero");
            }
        }
    }
}
