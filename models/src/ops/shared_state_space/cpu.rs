//! A diagonal state space whose states all channels share: h_t = λ ⊙ h_{t-1} + B x_t, y_t = Re(C
//! h_t) + d ⊙ x_t.
//!
//! Complex numbers are pairs of planes: x and y are (B, L, D), B is (2P, D), real parts before
//! imaginary ones, λ (2P), and C a matrix (D, 2P) for each direction, [Re C, -Im C], one above the
//! other; the second one reads states that run from the end. Only the states are kept: intermediate
//! results between the products, (B, L, 2P) and (B, L, D), live within one pass.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{add, chunk_rows, split_mut, sum_partials, unspecified};
use lra_cpu::gemm::{Matrix, PackedMatrix, multiply_packed};
use lra_cpu::isa::Isa;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};
use crate::ops::linear::cpu as linear;
use crate::ops::scan::cpu::{Scan, Sizes};

const NAME: &str = "shared state space";
/// Rows of one task, and at most so many tasks.
const LEAST_ROWS: usize = 64;
const CHUNKS: usize = 32;

/// Returns y for x (B, L, D), b (2P, D), lambda (2P), c (D, 2P) or (2D, 2P) with both directions, d
/// (D). `forwards` runs from the first row, over packed sequences if it says so.
///
/// # Errors
/// If shapes do not fit, or an operand is not f32 in main memory.
pub(crate) fn shared_state_space(
    x: &Tensor,
    b: &Tensor,
    lambda: &Tensor,
    c: &Tensor,
    d: &Tensor,
    forwards: Scan,
) -> Result<Tensor> {
    let backwards = Scan {
        reverse: true,
        ..forwards.clone()
    };
    let op = SharedStateSpace {
        scans: [forwards, backwards],
    };
    apply(op, [x, b, lambda, c, d])
}

struct SharedStateSpace {
    scans: [Scan; 2],
}

/// A direction of the walk through the rows.
struct Direction<'a> {
    scan: &'a Scan,
    sizes: Sizes,
    /// (D, 2P).
    c: &'a [f32],
}

/// Rows M, channels D, planes of states 2P.
struct Widths {
    m: usize,
    d: usize,
    p: usize,
}

impl SharedStateSpace {
    /// Returns widths and directions by the shapes.
    fn directions<'a>(
        &'a self,
        [x, b, lambda, c, d]: &[View<'a>; 5],
    ) -> Result<(Widths, Vec<Direction<'a>>)> {
        let (batch, length, width) = x.shape.dims3()?;
        let p = lambda.data.len();
        let rows = c.shape.dims().first().copied().unwrap_or(0);
        let fits = b.shape.dims() == [p, width]
            && (rows == width || rows == 2 * width)
            && c.shape.dims() == [rows, p]
            && d.shape.dims() == [width]
            && width * p > 0;
        if !fits {
            let [x, b, c, d] = [x, b, c, d].map(|operand| &operand.shape);
            bail!("{NAME}: x {x:?}, B {b:?}, C {c:?} and D {d:?} do not fit {p} states");
        }
        let states = Shape::from((batch, length, p));
        let parts = self.scans.iter().zip(c.data.chunks_exact(width * p));
        let directions = parts.map(|(scan, c)| {
            let sizes = scan.sizes(&states, &lambda.shape)?;
            Ok(Direction { scan, sizes, c })
        });
        let widths = Widths {
            m: batch * length,
            d: width,
            p,
        };
        Ok((widths, directions.collect::<Result<_>>()?))
    }
}

/// Operands: x, B, λ, C and d.
impl CustomOp<5> for SharedStateSpace {
    const NAME: &'static str = NAME;
    /// h of each direction, (B, L, 2P).
    type Saved = Vec<Vec<f32>>;

    fn forward(&self, operands: [View; 5], _: bool) -> Result<(Vec<f32>, Shape, Self::Saved)> {
        let (Widths { m, d, p }, directions) = self.directions(&operands)?;
        let [x, b, lambda, _, skip] = operands;
        let entering = linear::forward(x.data, b.data, None, (m, p, d));
        let states = directions
            .iter()
            .map(|it| it.scan.states(&it.sizes, &entering, lambda.data));
        let states: Vec<_> = states.collect();
        drop(entering);
        let isa = Isa::current();
        let pack = |c| PackedMatrix::new(isa, Matrix::columns(c, p), (p, d));
        let packed: Vec<_> = directions.iter().map(|it| pack(it.c)).collect();
        let mut y = unspecified(m * d);
        let rows = chunk_rows(m, LEAST_ROWS, CHUNKS);
        y.par_chunks_mut(rows * d).enumerate().for_each(|(i, y)| {
            let (first, count) = (i * rows, y.len() / d);
            for (y, x) in y
                .chunks_exact_mut(d)
                .zip(x.data[first * d..].chunks_exact(d))
            {
                scale(skip.data, x, y);
            }
            for (h, c) in states.iter().zip(&packed) {
                let h = Matrix::rows(&h[first * p..][..count * p], p);
                multiply_packed(isa, count, h, c, y, true);
            }
        });
        Ok((y, x.shape, states))
    }

    fn backward(
        &self,
        operands: [View; 5],
        pass: BackwardPass<Self::Saved, 5>,
    ) -> Result<[Gradient; 5]> {
        let (Widths { m, d, p }, directions) = self.directions(&operands)?;
        let [x, b, lambda, _, skip] = operands;
        let (mut dentering, mut dlambda, mut dc) = (vec![], vec![0.0; p], vec![]);
        for (Direction { scan, sizes, c }, h) in directions.into_iter().zip(pass.saved) {
            let expected = [true, true, false];
            let [dh, dpart, _] = linear::backward(&h, c, false, pass.dy, (m, d, p), expected);
            dc.extend(dpart.unwrap_or_default());
            let dh = dh.unwrap_or_default();
            let [g, da] = scan.gradients(&sizes, lambda.data, &h, &dh);
            add(&da, &mut dlambda);
            if dentering.is_empty() {
                dentering = g;
            } else {
                add(&g, &mut dentering);
            }
        }
        let expected = [true, true, false];
        let [dx, db, _] = linear::backward(x.data, b.data, false, &dentering, (m, p, d), expected);
        let mut dx = dx.unwrap_or_default();
        let rows = chunk_rows(m, LEAST_ROWS, CHUNKS);
        let mut partials = vec![0.0; m.div_ceil(rows) * d];
        let pieces = split_mut(&mut partials, d, m.div_ceil(rows));
        let tasks = dx.par_chunks_mut(rows * d).zip(pieces).enumerate();
        tasks.for_each(|(i, (dx, dskip))| {
            let narrow = i * rows * d..i * rows * d + dx.len();
            let [x, dy] = [x.data, pass.dy].map(|rows| rows[narrow.clone()].chunks_exact(d));
            for (dx, (x, dy)) in dx.chunks_exact_mut(d).zip(x.zip(dy)) {
                add_scaled(skip.data, dy, dx);
                add_scaled(x, dy, dskip);
            }
        });
        let dskip = sum_partials(&partials, d);
        let [dx, db] = [dx, db.unwrap_or_default()];
        Ok([dx, db, dlambda, dc, dskip].map(Gradient::Of))
    }
}

/// Computes y = a ⊙ x.
fn scale(a: &[f32], x: &[f32], y: &mut [f32]) {
    for (y, (a, x)) in y.iter_mut().zip(a.iter().zip(x)) {
        *y = a * x;
    }
}

/// Computes y += a ⊙ x.
fn add_scaled(a: &[f32], x: &[f32], y: &mut [f32]) {
    for (y, (a, x)) in y.iter_mut().zip(a.iter().zip(x)) {
        *y += a * x;
    }
}
