//! Square matrices of f64 in the nearest caches, and their products.

use lra_cpu::simd::Lanes;

/// Rows of a product that are computed together; sides are padded to a multiple of it, which is one
/// of registers too.
const PANEL: usize = 8;
/// Columns of the widest panel: two registers of eight numbers.
const WIDEST: usize = 16;

/// A square matrix, its rows and columns padded with zeros.
pub(super) struct Square {
    pub(super) numbers: Vec<f64>,
    pub(super) side: usize,
    pub(super) padded: usize,
}

impl Square {
    pub(super) fn zeros(side: usize) -> Self {
        let padded = side.next_multiple_of(PANEL);
        Square {
            numbers: vec![0.0; padded * padded],
            side,
            padded,
        }
    }

    /// Takes these rows, and zeros around them.
    pub(super) fn set(&mut self, rows: &[f64]) {
        let (side, padded) = (self.side, self.padded);
        self.numbers.fill(0.0);
        for (to, from) in self.numbers.chunks_mut(padded).zip(rows.chunks(side)) {
            to[..side].copy_from_slice(from);
        }
    }

    /// Writes the rows without padding.
    pub(super) fn write(&self, rows: &mut [f64]) {
        let own = self.numbers.chunks(self.padded);
        for (to, from) in rows.chunks_mut(self.side).zip(own) {
            to.copy_from_slice(&from[..self.side]);
        }
    }

    #[inline(always)]
    pub(super) fn set_transposed(&mut self, other: &Square) {
        let padded = self.padded;
        for first in (0..padded).step_by(PANEL) {
            for (column, to) in self.numbers.chunks_mut(padded).enumerate() {
                for (place, to) in to[first..first + PANEL].iter_mut().enumerate() {
                    *to = other.numbers[(first + place) * padded + column];
                }
            }
        }
    }

    /// Adds `factor` I.
    #[inline(always)]
    pub(super) fn add_identity(&mut self, factor: f64) {
        let step = self.padded + 1;
        for x in self.numbers.iter_mut().step_by(step).take(self.side) {
            *x += factor;
        }
    }

    /// Sets this matrix to `factor` I - X.
    #[inline(always)]
    pub(super) fn set_less(&mut self, factor: f64, x: &Square) {
        for (to, x) in self.numbers.iter_mut().zip(&x.numbers) {
            *to = -x;
        }
        self.add_identity(factor);
    }

    /// Returns the first of the columns of largest sum, and that sum.
    pub(super) fn largest_column(&self) -> (usize, f64) {
        let sum = |column: usize| -> f64 {
            let numbers = self.numbers[column..].iter().step_by(self.padded);
            numbers.fold(0.0, |sum, x| sum + x)
        };
        let first = (0, sum(0));
        (1..self.side).fold(first, |largest, column| match sum(column) {
            sum if sum > largest.1 => (column, sum),
            _ => largest,
        })
    }
}

/// A left operand: element (i, j) is at i `row` + j `column`.
#[derive(Clone, Copy)]
pub(super) struct Lhs<'a> {
    numbers: &'a [f64],
    row: usize,
    column: usize,
}

impl<'a> Lhs<'a> {
    #[inline(always)]
    pub(super) fn of(square: &'a Square) -> Self {
        Lhs {
            numbers: &square.numbers,
            row: square.padded,
            column: 1,
        }
    }

    #[inline(always)]
    pub(super) fn transposed(square: &'a Square) -> Self {
        Lhs {
            numbers: &square.numbers,
            row: 1,
            column: square.padded,
        }
    }
}

/// Both operands of a product, in the order in which [`block`] reads them. Rows of 128 numbers lie
/// so far apart that only a few of them would fit into the nearest cache at once.
pub(super) struct Packed {
    /// Panels of rows: first the first element of each row, then the second ones.
    a: Vec<f64>,
    /// A panel of columns, row by row.
    b: Vec<f64>,
}

impl Packed {
    pub(super) fn zeros(side: usize) -> Self {
        let padded = side.next_multiple_of(PANEL);
        Packed {
            a: vec![0.0; padded * padded],
            b: vec![0.0; padded * WIDEST],
        }
    }

    #[inline(always)]
    fn set_a<const M: usize>(&mut self, a: Lhs, padded: usize) {
        for (panel, to) in self.a.chunks_exact_mut(M * padded).enumerate() {
            for (k, to) in to.chunks_exact_mut(M).enumerate() {
                for (i, to) in to.iter_mut().enumerate() {
                    *to = a.numbers[(panel * M + i) * a.row + k * a.column];
                }
            }
        }
    }

    #[inline(always)]
    fn set_b(&mut self, b: &Square, column: usize, width: usize) {
        let rows = b.numbers.chunks_exact(b.padded);
        for (to, row) in self.b.chunks_exact_mut(width).zip(rows) {
            to.copy_from_slice(&row[column..][..width]);
        }
    }
}

/// Computes `out = factor a b`, or `out += factor a b` if `ADD`.
#[inline(always)]
pub(super) fn product<S: Lanes, const ADD: bool>(
    s: S,
    packed: &mut Packed,
    a: Lhs,
    b: &Square,
    factor: f64,
    out: &mut Square,
) {
    match S::REGISTER_COUNT >= 32 {
        true => product_of_panels::<S, PANEL, ADD>(s, packed, a, b, factor, out),
        false => product_of_panels::<S, { PANEL / 2 }, ADD>(s, packed, a, b, factor, out),
    }
}

/// Computes [`product`] M rows at a time.
#[inline(always)]
fn product_of_panels<S: Lanes, const M: usize, const ADD: bool>(
    s: S,
    packed: &mut Packed,
    a: Lhs,
    b: &Square,
    factor: f64,
    out: &mut Square,
) {
    let padded = b.padded;
    let len = padded * padded;
    assert!(
        [
            a.numbers.len(),
            packed.a.len(),
            b.numbers.len(),
            out.numbers.len()
        ] == [len; 4]
            && padded.is_multiple_of(PANEL),
        "matrices of one side"
    );
    let lanes = S::F64_LANES;
    packed.set_a::<M>(a, padded);
    let mut column = 0;
    while column < padded {
        let pair = padded - column >= 2 * lanes;
        let width = if pair { 2 * lanes } else { lanes };
        packed.set_b(b, column, width);
        let right = &packed.b[..padded * width];
        let rows = out.numbers.chunks_exact_mut(M * padded);
        for (left, out) in packed.a.chunks_exact(M * padded).zip(rows) {
            let out = &mut out[column..];
            match pair {
                true => block::<S, M, 2, ADD>(s, (left, right), padded, factor, out),
                false => block::<S, M, 1, ADD>(s, (left, right), padded, factor, out),
            }
        }
        column += width;
    }
}

/// Computes M rows by N registers of a product, held in registers while all terms are added.
#[inline(always)]
fn block<S: Lanes, const M: usize, const N: usize, const ADD: bool>(
    s: S,
    (a, b): (&[f64], &[f64]),
    padded: usize,
    factor: f64,
    out: &mut [f64],
) {
    let mut sums = [[s.splat_f64s(0.0); N]; M];
    let (b, _) = S::as_simd_f64s(b);
    for (left, right) in a.chunks_exact(M).zip(b.chunks_exact(N)) {
        for (left, sums) in left.iter().zip(&mut sums) {
            let left = s.splat_f64s(*left);
            for (sum, right) in sums.iter_mut().zip(right) {
                *sum = s.fma_f64s(left, *right, *sum);
            }
        }
    }
    let factor = s.splat_f64s(factor);
    for (i, sums) in sums.iter().enumerate() {
        let (out, _) = S::as_mut_simd_f64s(&mut out[i * padded..][..N * S::F64_LANES]);
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
    use crate::ops::testing::Sampler;
    use lra_cpu::isa::Isa;
    use lra_cpu::simd::Kernel;

    struct Both<'a>(&'a Square, &'a Square, [&'a mut Square; 2]);

    impl Kernel for Both<'_> {
        type Output = ();

        #[inline(always)]
        fn run<S: Lanes>(self, s: S) {
            let Both(a, b, [plain, added]) = self;
            let packed = &mut Packed::zeros(a.side);
            product::<S, false>(s, packed, Lhs::of(a), b, 0.5, plain);
            product::<S, true>(s, packed, Lhs::transposed(a), b, -2.0, added);
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
                let square = |rows: &[f64]| {
                    let mut square = Square::zeros(side);
                    square.set(rows);
                    square
                };
                let [left, right] = [&a, &b].map(|x| square(x));
                let (mut plain, mut added) = (Square::zeros(side), square(&start));
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
