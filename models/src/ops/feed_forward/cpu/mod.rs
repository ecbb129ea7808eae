//! The position-wise half of a block: y = r + m₂ (W₂ m₁ f(W₁ n(x) + b₁) + b₂), where n is LayerNorm
//! or the identity, the m are dropout masks or 1, and r is x or 0.
//!
//! x is (B, ..., D), W₁ (F, D), W₂ (D, F). Rows go through all steps a tile at a time, so that
//! intermediate results stay in the cache; only h = W₁ n(x) + b₁ is kept for the backward pass,
//! which computes the rest again. Gradients of weights are partial sums, one per chunk of rows, or
//! for large weights products over all rows, as in `linear.rs`.

mod operands;

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{add, chunk_rows, split_mut, sum_partials, sum_rows, unspecified};
use lra_cpu::gemm::{Matrix, PackedMatrix, affine, multiply, multiply_packed};
use lra_cpu::isa::Isa;
use lra_cpu::scratch::Tiles;
use lra_cpu::workspaces::Workspaces;
use lra_cpu::zero_rows::is_zero_row;
use rayon::prelude::*;

use self::operands::{Normal, Operands};
use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};
use crate::ops::activation::cpu::{Activation, Elementwise};
use crate::ops::dropout::cpu::{DropoutOptions, RowDropout};
use crate::ops::linear::cpu::{LARGEST_PARTIAL, by_rows_of_weight};
use crate::ops::norm::{Normalised, cpu as norm};

const NAME: &str = "feed-forward";
/// Chunks of rows, and so partial sums of every weight's gradient.
const CHUNKS: usize = 32;
const LEAST_ROWS: usize = 128;
/// Rows that go through all steps together.
const TILE: usize = 128;

/// Everything around the two products.
pub struct FeedForwardOptions<'a> {
    /// n.
    pub norm: Option<Normalised<'a>>,
    /// f.
    pub activation: Activation,
    /// m₁.
    pub inner_dropout: Option<DropoutOptions>,
    /// m₂.
    pub outer_dropout: Option<DropoutOptions>,
    /// True if r is x.
    pub residual: bool,
}

/// Returns y for x (B, ..., D), from weight (F, D) and bias (F) to weight (D, F) and bias (D).
///
/// # Errors
/// If shapes do not fit, or an operand is not f32 in main memory.
pub fn feed_forward(
    x: &Tensor,
    [w1, b1]: [&Tensor; 2],
    [w2, b2]: [&Tensor; 2],
    options: &FeedForwardOptions,
) -> Result<Tensor> {
    let norm = options.norm.as_ref();
    let (weight, bias) = (norm.map(|norm| norm.weight), norm.map(|norm| norm.bias));
    let fits = match (w1.dims(), x.dims().last()) {
        (&[f, d], Some(&last)) => {
            let vectors = [weight, bias]
                .into_iter()
                .flatten()
                .all(|x| x.dims() == [d]);
            last == d
                && d * f > 0
                && vectors
                && b1.dims() == [f]
                && w2.dims() == [d, f]
                && b2.dims() == [d]
        }
        _ => false,
    };
    if !fits {
        let operands = [w1, b1, w2, b2].into_iter().map(Some);
        let operands = operands.chain([weight, bias]).flatten();
        let shapes: Vec<_> = operands.map(Tensor::dims).collect();
        let x = x.dims();
        bail!("{NAME}: x {x:?} and operands {shapes:?} do not fit");
    }
    let dropout = |given: &Option<DropoutOptions>| {
        let rows = given
            .as_ref()
            .map(|given| RowDropout::new(given.clone(), x));
        rows.transpose()
    };
    let op = FeedForward {
        activation: options.activation,
        epsilon: options.norm.as_ref().map(|norm| norm.epsilon as f32),
        inner_dropout: dropout(&options.inner_dropout)?,
        outer_dropout: dropout(&options.outer_dropout)?,
        residual: options.residual,
    };
    let [x, w1, b1, w2, b2] = [x, w1, b1, w2, b2].map(Some);
    apply(op, [x, w1, b1, w2, b2, weight, bias])
}

struct FeedForward {
    activation: Activation,
    /// ε of the norm, if there is one.
    epsilon: Option<f32>,
    inner_dropout: Option<RowDropout>,
    outer_dropout: Option<RowDropout>,
    residual: bool,
}

impl FeedForward {
    /// Returns the operands behind x.
    fn operands<'a>(&self, [w1, b1, w2, b2, weight, bias]: [View<'a>; 6]) -> Result<Operands<'a>> {
        let (inner, width) = w1.shape.dims2()?;
        Ok(Operands {
            isa: Isa::current(),
            w1: w1.data,
            b1: b1.data,
            w2: w2.data,
            b2: b2.data,
            norm: self.epsilon.map(|e| (weight.data, bias.data, e)),
            width,
            inner,
        })
    }

    /// Returns y, and h if it is kept.
    fn run(&self, x: &[f32], op: Operands, keeps: bool) -> (Vec<f32>, Vec<f32>) {
        let (d, f) = (op.width, op.inner);
        let m = x.len() / d;
        let rows = chunk_rows(m, LEAST_ROWS, CHUNKS);
        let mut y = unspecified(m * d);
        let mut hidden = unspecified(if keeps { m * f } else { 0 });
        let kept = if keeps { rows * f } else { 0 };
        let kept = split_mut(&mut hidden, kept, m.div_ceil(rows));
        let w1 = PackedMatrix::new(op.isa, Matrix::columns(op.w1, d), (d, f));
        let w2 = PackedMatrix::new(op.isa, Matrix::columns(op.w2, f), (f, d));
        let chunks = y.par_chunks_mut(rows * d).zip(kept);
        let workspaces = Workspaces::new(chunks.len(), || Vec::with_capacity(TILE));
        chunks.enumerate().for_each(|(chunk, (y, kept))| {
            workspaces.lend(|statistics| {
                let side = TILE.min(rows);
                let mut normal = Normal::of(Tiles::new(&mut [], side, d), statistics);
                let mut hidden = Tiles::new(kept, side, f);
                let mut active = Tiles::new(&mut [], side, f);
                for (tile, y) in y.chunks_mut(TILE * d).enumerate() {
                    let (start, count) = (tile * TILE, y.len() / d);
                    let first = chunk * rows + start;
                    let x = &x[first * d..][..y.len()];
                    let normal = op.normalise(x, start, &mut normal);
                    let [hidden, active] =
                        [&mut hidden, &mut active].map(|rows| rows.at(start, count));
                    affine(op.isa, Matrix::rows(normal, d), &w1, op.b1, hidden);
                    self.activation.values(op.isa, hidden, active);
                    drop(&self.inner_dropout, first, f, active);
                    affine(op.isa, Matrix::rows(active, f), &w2, op.b2, y);
                    drop(&self.outer_dropout, first, d, y);
                    if self.residual {
                        add(x, y);
                    }
                }
            })
        });
        (y, hidden)
    }

    /// Returns the gradients of x and the operands.
    fn run_back(&self, x: &[f32], hidden: &[f32], dy: &[f32], op: Operands) -> [Gradient; 7] {
        let (d, f) = (op.width, op.inner);
        let m = x.len() / d;
        let rows = chunk_rows(m, LEAST_ROWS, CHUNKS);
        let chunks = m.div_ceil(rows);
        // Large weights have no partial sums: the factors of their gradients are kept instead.
        let large = d * f > LARGEST_PARTIAL;
        let (weights, step) = if large { (0, rows) } else { (d * f, 0) };
        let partial_len = 2 * weights + f + 3 * d;
        let mut dx = unspecified(m * d);
        let mut partials = vec![0.0; chunks * partial_len];
        let (drops, norms) = (self.outer_dropout.is_some(), op.norm.is_some());
        let kept =
            |width: usize, is_new: bool| unspecified(if large && is_new { m * width } else { 0 });
        let [mut dz_all, mut n_all] = [kept(d, drops), kept(d, norms)];
        let [mut a_all, mut dh_all] = [kept(f, true), kept(f, true)];
        let w1 = PackedMatrix::new(op.isa, Matrix::rows(op.w1, d), (f, d));
        let w2 = PackedMatrix::new(op.isa, Matrix::rows(op.w2, f), (d, f));
        let tasks = split_mut(&mut dx, rows * d, chunks)
            .into_par_iter()
            .zip(split_mut(&mut partials, partial_len, chunks))
            .zip(split_mut(&mut dz_all, step * d, chunks))
            .zip(split_mut(&mut n_all, step * d, chunks))
            .zip(split_mut(&mut a_all, step * f, chunks))
            .zip(split_mut(&mut dh_all, step * f, chunks));
        let workspaces = Workspaces::new(chunks, || Vec::with_capacity(TILE));
        tasks.enumerate().for_each(|(chunk, task)| {
            workspaces.lend(|statistics| {
                let (((((dx, partial), dz_all), n_all), a_all), dh_all) = task;
                let (dw1, partial) = partial.split_at_mut(weights);
                let (dw2, partial) = partial.split_at_mut(weights);
                let (db1, partial) = partial.split_at_mut(f);
                let (db2, partial) = partial.split_at_mut(d);
                let (dweight, dbias) = partial.split_at_mut(d);
                let side = TILE.min(rows);
                let [mut a, mut dh] = [a_all, dh_all].map(|all| Tiles::new(all, side, f));
                let [mut dz, n] = [dz_all, n_all].map(|all| Tiles::new(all, side, d));
                let mut normal = Normal::of(n, statistics);
                let [mut da, mut dn] = [f, d].map(|width| Tiles::new(&mut [], side, width));
                for (tile, dx) in dx.chunks_mut(TILE * d).enumerate() {
                    let (start, count) = (tile * TILE, dx.len() / d);
                    let first = chunk * rows + start;
                    let (narrow, wide) = (
                        first * d..(first + count) * d,
                        first * f..(first + count) * f,
                    );
                    let (x, dy, hidden) = (&x[narrow.clone()], &dy[narrow], &hidden[wide]);
                    if is_zero_row(dy) {
                        dx.fill(0.0);
                        if large {
                            for rows in [&mut dz, &mut normal.rows, &mut a, &mut dh] {
                                rows.at(start, count).fill(0.0);
                            }
                        }
                        continue;
                    }
                    let n = op.normalise(x, start, &mut normal);
                    let dz = match &self.outer_dropout {
                        Some(dropout) => {
                            let dz = dz.at(start, count);
                            dz.copy_from_slice(dy);
                            dropout.scale(first, d, dz);
                            &*dz
                        }
                        None => dy,
                    };
                    sum_rows(dz, db2);
                    let [a, da, dh] = [&mut a, &mut da, &mut dh].map(|rows| rows.at(start, count));
                    multiply_packed(op.isa, count, Matrix::rows(dz, d), &w2, da, false);
                    drop(&self.inner_dropout, first, f, da);
                    self.activation
                        .values_and_gradients(op.isa, [hidden, da], [a, dh]);
                    drop(&self.inner_dropout, first, f, a);
                    sum_rows(dh, db1);
                    if !large {
                        multiply(
                            op.isa,
                            (d, f, count),
                            Matrix::columns(dz, d),
                            Matrix::rows(a, f),
                            dw2,
                            true,
                        );
                        multiply(
                            op.isa,
                            (f, d, count),
                            Matrix::columns(dh, f),
                            Matrix::rows(n, d),
                            dw1,
                            true,
                        );
                    }
                    let dh = Matrix::rows(dh, f);
                    if let Some((weight, ..)) = op.norm {
                        let dn = dn.at(start, count);
                        multiply_packed(op.isa, count, dh, &w1, dn, false);
                        op.isa.run(norm::Backward {
                            x,
                            weight,
                            dy: dn,
                            statistics: normal.statistics,
                            dx,
                            dweight,
                            dbias,
                        });
                    } else {
                        multiply_packed(op.isa, count, dh, &w1, dx, false);
                    }
                    if self.residual {
                        add(dy, dx);
                    }
                }
            })
        });
        let mut sums = sum_partials(&partials, partial_len);
        let dbias = sums.split_off(2 * weights + f + 2 * d);
        let dweight = sums.split_off(2 * weights + f + d);
        let db2 = sums.split_off(2 * weights + f);
        let db1 = sums.split_off(2 * weights);
        let (dw1, dw2) = if large {
            let dz_all = if drops { &dz_all } else { dy };
            let n_all = if norms { &n_all } else { x };
            (
                by_rows_of_weight(op.isa, n_all, &dh_all, (m, f, d)),
                by_rows_of_weight(op.isa, &a_all, dz_all, (m, d, f)),
            )
        } else {
            let dw2 = sums.split_off(weights);
            (sums, dw2)
        };
        [dx, dw1, db1, dw2, db2, dweight, dbias].map(Gradient::Of)
    }
}

/// Operands: x, weight and bias, weight and bias, and where there is a norm its weight and bias.
impl CustomOp<7> for FeedForward {
    const NAME: &'static str = NAME;
    /// h.
    type Saved = Vec<f32>;

    fn forward(
        &self,
        [x, operands @ ..]: [View; 7],
        keeps: bool,
    ) -> Result<(Vec<f32>, Shape, Vec<f32>)> {
        let op = self.operands(operands)?;
        let (y, hidden) = self.run(x.data, op, keeps);
        Ok((y, x.shape, hidden))
    }

    fn backward(
        &self,
        [x, operands @ ..]: [View; 7],
        pass: BackwardPass<Vec<f32>, 7>,
    ) -> Result<[Gradient; 7]> {
        let op = self.operands(operands)?;
        Ok(self.run_back(x.data, &pass.saved, pass.dy, op))
    }
}

/// Drops elements of the rows from `first` on, `width` elements each.
fn drop(dropout: &Option<RowDropout>, first: usize, width: usize, rows: &mut [f32]) {
    if let Some(dropout) = dropout {
        dropout.scale(first, width, rows);
    }
}
