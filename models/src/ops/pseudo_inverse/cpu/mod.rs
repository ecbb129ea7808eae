//! An iteration to the pseudo-inverse of square matrices, in f64 (Razavi et al., 2014;
//! Nyströmformer, arXiv 2102.03902):
//!     Z ← ¼ Z (13 I - Y (15 I - Y (7 I - Y))),  Y = A Z,  from Z = Aᵀ / (largest column sum of A)
//!
//! One matrix goes through all iterations in the nearest caches. Only A is kept: the backward pass
//! iterates again, and goes the same way back with the intermediate results.

mod square;

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use self::square::{Lhs, Packed, Square, product};
use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "pseudo_inverse";

/// Returns Z for each of the matrices A (.., M, M) of f64.
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
        let workspaces = Workspaces::new(matrices.len(), || ForwardSquares::new(side));
        matrices.for_each(|(z, a)| {
            workspaces.lend(|squares| {
                isa.run(Iterate {
                    iterations: self.iterations,
                    squares,
                    a,
                    z,
                });
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
        let squares = || BackwardSquares::new(side, self.iterations);
        let workspaces = Workspaces::new(matrices.len(), squares);
        matrices.for_each(|((da, a), dz)| {
            workspaces.lend(|squares| isa.run(Differentiate { squares, a, dz, da }))
        });
        Ok([da.into()])
    }
}

/// Returns M.
fn side(shape: &Shape) -> usize {
    shape.dims().last().copied().unwrap_or(1)
}

/// Intermediate results of an iteration.
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
    fn zeros(side: usize) -> Self {
        let [z, y, p, q, r] = [(); 5].map(|()| Square::zeros(side));
        Between { z, y, p, q, r }
    }

    /// Starts the iteration for A.
    fn start(&mut self, a: &Square) {
        self.z.set_transposed(a);
        let (_, largest) = a.largest_column();
        self.z.numbers.iter_mut().for_each(|x| *x /= largest);
    }

    /// Computes all matrices that follow from Z.
    #[inline(always)]
    fn compute<S: Lanes>(&mut self, s: S, packed: &mut Packed, a: &Square) {
        product::<S, false>(s, packed, Lhs::of(a), &self.z, 1.0, &mut self.y);
        self.p.set_less(7.0, &self.y);
        product::<S, false>(s, packed, Lhs::of(&self.y), &self.p, -1.0, &mut self.q);
        self.q.add_identity(15.0);
        product::<S, false>(s, packed, Lhs::of(&self.y), &self.q, -1.0, &mut self.r);
        self.r.add_identity(13.0);
    }

    /// Computes the next Z.
    #[inline(always)]
    fn next<S: Lanes>(&self, s: S, packed: &mut Packed, z: &mut Square) {
        product::<S, false>(s, packed, Lhs::of(&self.z), &self.r, 0.25, z);
    }
}

/// Working memory of a forward pass.
struct ForwardSquares {
    packed: Packed,
    a: Square,
    between: Between,
    next: Square,
}

impl ForwardSquares {
    fn new(side: usize) -> Self {
        ForwardSquares {
            packed: Packed::zeros(side),
            a: Square::zeros(side),
            between: Between::zeros(side),
            next: Square::zeros(side),
        }
    }
}

/// Iteration from A to Z.
struct Iterate<'a> {
    iterations: usize,
    squares: &'a mut ForwardSquares,
    a: &'a [f64],
    z: &'a mut [f64],
}

impl Kernel for Iterate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let ForwardSquares {
            packed,
            a,
            between,
            next,
        } = self.squares;
        a.set(self.a);
        between.start(a);
        for _ in 0..self.iterations {
            between.compute(s, packed, a);
            between.next(s, packed, next);
            std::mem::swap(&mut between.z, next);
        }
        between.z.write(self.z);
    }
}

/// Working memory of a backward pass.
struct BackwardSquares {
    packed: Packed,
    a: Square,
    /// Of each iteration.
    all: Vec<Between>,
    da: Square,
    dz: Square,
    dy: Square,
    /// Gradient of Z before an iteration.
    before: Square,
    dr: Square,
    dq: Square,
    dp: Square,
    transposed: Square,
}

impl BackwardSquares {
    fn new(side: usize, iterations: usize) -> Self {
        let [a, da, dz, dy, before, dr, dq, dp, transposed] = [(); 9].map(|()| Square::zeros(side));
        BackwardSquares {
            packed: Packed::zeros(side),
            a,
            all: (0..iterations).map(|_| Between::zeros(side)).collect(),
            da,
            dz,
            dy,
            before,
            dr,
            dq,
            dp,
            transposed,
        }
    }
}

/// Backward pass from the gradient of Z to the gradient of A.
struct Differentiate<'a> {
    squares: &'a mut BackwardSquares,
    a: &'a [f64],
    dz: &'a [f64],
    da: &'a mut [f64],
}

impl Kernel for Differentiate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let BackwardSquares {
            packed,
            a,
            all,
            da,
            dz,
            dy,
            before,
            dr,
            dq,
            dp,
            transposed,
        } = self.squares;
        a.set(self.a);
        if let Some(first) = all.first_mut() {
            first.start(a);
        }
        for index in 0..all.len() {
            let (now, behind) = all[index..].split_at_mut(1);
            now[0].compute(s, packed, a);
            if let Some(next) = behind.first_mut() {
                now[0].next(s, packed, &mut next.z);
            }
        }
        da.numbers.fill(0.0);
        dz.set(self.dz);
        for Between { z, y, p, q, r } in all.iter().rev() {
            // Z' = ¼ Z R
            transposed.set_transposed(r);
            product::<S, false>(s, packed, Lhs::of(dz), transposed, 0.25, before);
            product::<S, false>(s, packed, Lhs::transposed(z), dz, 0.25, dr);
            // R = 13 I - Y Q
            transposed.set_transposed(q);
            product::<S, false>(s, packed, Lhs::of(dr), transposed, -1.0, dy);
            product::<S, false>(s, packed, Lhs::transposed(y), dr, -1.0, dq);
            // Q = 15 I - Y P
            transposed.set_transposed(p);
            product::<S, true>(s, packed, Lhs::of(dq), transposed, -1.0, dy);
            product::<S, false>(s, packed, Lhs::transposed(y), dq, -1.0, dp);
            // P = 7 I - Y
            for (dy, dp) in dy.numbers.iter_mut().zip(&dp.numbers) {
                *dy -= dp;
            }
            // Y = A Z
            transposed.set_transposed(z);
            product::<S, true>(s, packed, Lhs::of(dy), transposed, 1.0, da);
            product::<S, true>(s, packed, Lhs::transposed(a), dy, 1.0, before);
            std::mem::swap(dz, before);
        }
        // Z = Aᵀ / c, with c the sum of a column.
        let (column, sum) = a.largest_column();
        transposed.set_transposed(dz);
        let mut dsum = 0.0;
        for ((da, dz), a) in da
            .numbers
            .iter_mut()
            .zip(&transposed.numbers)
            .zip(&a.numbers)
        {
            *da += dz / sum;
            dsum -= dz * a;
        }
        dsum /= sum * sum;
        for row in da.numbers.chunks_mut(da.padded).take(da.side) {
            row[column] += dsum;
        }
        da.write(self.da);
    }
}
