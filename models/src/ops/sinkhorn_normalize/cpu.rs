//! Sinkhorn's normalisation in the log domain: rows and columns of e^x are divided by their sums in
//! transpose, which takes a matrix towards a doubly stochastic one (Sinkhorn, 1964; in attention
//! arXiv 2002.11296).
//!
//! A step takes from every entry the logarithm of its row's or column's sum; its gradient takes
//! from every entry of d its share e^x of the sum of d over that row or column. The states between
//! steps are computed again in the backward pass.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::unspecified;
use lra_cpu::isa::Isa;
use lra_cpu::math::exp;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::tile::{PAD, padded};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use crate::autograd::read;
use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "sinkhorn_normalize";
/// Stand-in for the logarithm of 0, which fills rows up to whole registers.
const NOTHING: f32 = -1e9;

/// Maps scores (B, H, N, N) to matrices whose rows and columns sum to about 1, after `iterations`
/// divisions of rows and then columns. Only rows and columns that are not zero in `in_use` (B, N)
/// take part; all other entries come out as zeros.
///
/// # Errors
/// If shapes do not fit.
pub fn sinkhorn_normalize(scores: &Tensor, in_use: &Tensor, iterations: usize) -> Result<Tensor> {
    let (batch, _, side, columns) = scores.dims4()?;
    if side != columns || in_use.dims() != [batch, side] {
        let (scores, in_use) = (scores.shape(), in_use.shape());
        bail!("{NAME}: scores {scores:?} and marks {in_use:?} do not fit");
    }
    let marks = read(NAME, &in_use.contiguous()?)?.to_vec();
    let places = |marks: &[f32]| (0..side).filter(|&place| marks[place] != 0.0).collect();
    let op = Balance {
        places: marks.chunks(side.max(1)).map(places).collect(),
        iterations,
    };
    apply(op, [scores])
}

struct Balance {
    /// Rows and columns in use, of each example.
    places: Vec<Vec<usize>>,
    iterations: usize,
}

impl Balance {
    /// Returns a tensor of this shape, whose matrices `f` fills: given their number, their rows and
    /// columns in use, and zeros.
    fn each(
        &self,
        shape: &Shape,
        f: impl Fn(usize, &[usize], &mut [f32]) + Sync,
    ) -> Result<Vec<f32>> {
        let (_, heads, side, _) = shape.dims4()?;
        let mut out = unspecified(shape.elem_count());
        let matrices = out.par_chunks_mut((side * side).max(1)).enumerate();
        let workspaces = Workspaces::new(matrices.len(), || ());
        matrices.for_each(|(matrix, out)| {
            out.fill(0.0);
            let places = &self.places[matrix / heads];
            if !places.is_empty() {
                workspaces.lend(|()| f(matrix, places, out));
            }
        });
        Ok(out)
    }

    /// Returns the logarithms in the end, of rows and columns in use; `see` is shown them after
    /// every step.
    fn divide(
        &self,
        isa: Isa,
        scores: &[f32],
        places: &[usize],
        mut see: impl FnMut(usize, &[f32]),
    ) -> Scratch {
        let mut log = gather(scores, places, NOTHING);
        for step in 0..2 * self.iterations {
            isa.run(Divide {
                log: &mut log,
                row: padded(places.len()),
                columns: step % 2 == 1,
            });
            see(step, &log);
        }
        log
    }
}

/// Takes the logarithms of the sums of rows, or of columns, from `log`, whose rows are `row` long.
struct Divide<'a> {
    log: &'a mut [f32],
    row: usize,
    columns: bool,
}

impl Kernel for Divide<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self { log, row, columns } = self;
        let (nothing, zero) = (s.splat_f32s(NOTHING), s.splat_f32s(0.0));
        if !columns {
            for log in log.chunks_exact_mut(row) {
                let (log, _) = S::as_mut_simd_f32s(log);
                let max = log.iter().fold(nothing, |max, x| s.max_f32s(max, *x));
                let max = s.reduce_max_f32s(max);
                let shift = s.splat_f32s(max);
                let sum = log.iter().fold(zero, |sum, x| {
                    s.add_f32s(sum, exp(s, s.sub_f32s(*x, shift)))
                });
                let less = s.splat_f32s(max + s.reduce_sum_f32s(sum).ln());
                log.iter_mut().for_each(|x| *x = s.sub_f32s(*x, less));
            }
            return;
        }
        let lanes = S::F32_LANES;
        let count = log.len() / row;
        for first in (0..row).step_by(lanes) {
            let mut max = nothing;
            for log in log.chunks_exact(row) {
                max = s.max_f32s(max, S::as_simd_f32s(&log[first..first + lanes]).0[0]);
            }
            let mut sum = zero;
            for log in log.chunks_exact(row) {
                let x = S::as_simd_f32s(&log[first..first + lanes]).0[0];
                sum = s.add_f32s(sum, exp(s, s.sub_f32s(x, max)));
            }
            let [mut sums, mut less] = [[0.0f32; PAD]; 2];
            S::as_mut_simd_f32s(&mut sums[..lanes]).0[0] = sum;
            S::as_mut_simd_f32s(&mut less[..lanes]).0[0] = max;
            for (column, (less, sum)) in (first..).zip(less.iter_mut().zip(sums)) {
                // Columns beyond the last keep the logarithm of 0.
                *less = if column < count {
                    *less + sum.ln()
                } else {
                    0.0
                };
            }
            let less = S::as_simd_f32s(&less[..lanes]).0[0];
            for log in log.chunks_exact_mut(row) {
                let x = &mut S::as_mut_simd_f32s(&mut log[first..first + lanes]).0[0];
                *x = s.sub_f32s(*x, less);
            }
        }
    }
}

/// The gradient of a step: from the gradient of its result, which is `log`, to the gradient of its
/// input.
struct Backward<'a> {
    log: &'a [f32],
    gradient: &'a mut [f32],
    row: usize,
    columns: bool,
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let zero = s.splat_f32s(0.0);
        let row = self.row;
        let mut sums = Scratch::zeros(row);
        {
            let (sums, _) = S::as_mut_simd_f32s(&mut sums);
            if self.columns {
                for gradient in self.gradient.chunks_exact(row) {
                    let (gradient, _) = S::as_simd_f32s(gradient);
                    for (sum, d) in sums.iter_mut().zip(gradient) {
                        *sum = s.add_f32s(*sum, *d);
                    }
                }
            }
        }
        let (sums, _) = S::as_mut_simd_f32s(&mut sums);
        let rows = self.gradient.chunks_exact_mut(row);
        for (gradient, log) in rows.zip(self.log.chunks_exact(row)) {
            let (gradient, _) = S::as_mut_simd_f32s(gradient);
            let (log, _) = S::as_simd_f32s(log);
            if !self.columns {
                let sum = gradient.iter().fold(zero, |sum, d| s.add_f32s(sum, *d));
                sums.fill(s.splat_f32s(s.reduce_sum_f32s(sum)));
            }
            for ((d, x), sum) in gradient.iter_mut().zip(log).zip(sums.iter()) {
                *d = s.sub_f32s(*d, s.mul_f32s(exp(s, *x), *sum));
            }
        }
    }
}

/// Multiplies `out` by e^x.
struct Exp<'a> {
    log: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Exp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (log, _) = S::as_simd_f32s(self.log);
        let (out, _) = S::as_mut_simd_f32s(self.out);
        for (out, x) in out.iter_mut().zip(log) {
            *out = s.mul_f32s(*out, exp(s, *x));
        }
    }
}

impl CustomOp<1> for Balance {
    const NAME: &'static str = NAME;
    type Saved = ();

    fn forward(&self, [scores]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let (shape, scores) = (&scores.shape, scores.data);
        let isa = Isa::current();
        let y = self.each(shape, |matrix, places, y| {
            let scores = &scores[matrix * y.len()..][..y.len()];
            let log = self.divide(isa, scores, places, |_, _| ());
            let mut weights = Scratch::unspecified(log.len());
            weights.fill(1.0);
            isa.run(Exp {
                log: &log,
                out: &mut weights,
            });
            scatter(&weights, places, y);
        })?;
        Ok((y, shape.clone(), ()))
    }

    fn backward(&self, [scores]: [View; 1], pass: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
        let (shape, scores, dy) = (&scores.shape, scores.data, pass.dy);
        let isa = Isa::current();
        let dx = self.each(shape, |matrix, places, dx| {
            let of = matrix * dx.len()..(matrix + 1) * dx.len();
            let (scores, dy) = (&scores[of.clone()], &dy[of]);
            let len = places.len() * padded(places.len());
            let mut states = Scratch::unspecified(2 * self.iterations * len);
            let log = self.divide(isa, scores, places, |step, log| {
                states[step * len..][..len].copy_from_slice(log);
            });
            let mut gradient = gather(dy, places, 0.0);
            isa.run(Exp {
                log: &log,
                out: &mut gradient,
            });
            for (step, log) in states.chunks_exact(len).enumerate().rev() {
                isa.run(Backward {
                    log,
                    gradient: &mut gradient,
                    row: padded(places.len()),
                    columns: step % 2 == 1,
                });
            }
            scatter(&gradient, places, dx);
        })?;
        Ok([dx.into()])
    }
}

/// Returns rows and columns in use of a whole matrix, rows filled up with `filler`.
fn gather(whole: &[f32], places: &[usize], filler: f32) -> Scratch {
    let (row, side) = (padded(places.len()), whole.len().isqrt());
    let mut compact = Scratch::unspecified(places.len() * row);
    compact.fill(filler);
    for (compact, place) in compact.chunks_mut(row).zip(places) {
        for (value, other) in compact.iter_mut().zip(places) {
            *value = whole[place * side + other];
        }
    }
    compact
}

/// Copies rows and columns in use back to their places in a whole matrix.
fn scatter(compact: &[f32], places: &[usize], whole: &mut [f32]) {
    let (row, side) = (padded(places.len()), whole.len().isqrt());
    for (compact, place) in compact.chunks(row).zip(places) {
        for (value, other) in compact.iter().zip(places) {
            whole[place * side + other] = *value;
        }
    }
}
