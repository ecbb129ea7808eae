//! LayerNorm over the last dimension: y = weight (x - mean) / sqrt(variance + epsilon) + bias.
//!
//! Mean and reciprocal deviation of every row, two numbers, are kept for the backward pass. With
//! n = (x - mean) / deviation and g = dy weight, the input gradient is
//! dx = (g - mean(g) - n mean(g n)) / deviation (arXiv 1607.06450).

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{chunk_rows, split_mut, sum_partials, unspecified};
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "layer-norm";
/// Chunks of rows, and so partial sums of the gradients of weight and bias.
const CHUNKS: usize = 64;
const LEAST_ROWS: usize = 64;

/// Returns LayerNorm of x (..., D) with weight and bias (D).
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f64) -> Result<Tensor> {
    let epsilon = epsilon as f32;
    apply(LayerNorm { epsilon }, [x, weight, bias])
}

struct LayerNorm {
    epsilon: f32,
}

impl CustomOp<3> for LayerNorm {
    const NAME: &'static str = NAME;
    /// Mean and reciprocal deviation of each row.
    type Saved = Vec<[f32; 2]>;

    fn forward(
        &self,
        [x, weight, bias]: [View; 3],
        _: bool,
    ) -> Result<(Vec<f32>, Shape, Self::Saved)> {
        let width = weight.shape.dims1()?;
        if width == 0 || x.shape.dims().last() != Some(&width) || bias.shape != weight.shape {
            let (x, weight, bias) = (x.shape, weight.shape, bias.shape);
            bail!("{NAME}: x {x:?}, gain {weight:?} and offset {bias:?} do not fit");
        }
        let (shape, x, weight, bias) = (x.shape, x.data, weight.data, bias.data);
        let isa = Isa::current();
        let rows = chunk_rows(x.len() / width, LEAST_ROWS, CHUNKS);
        let mut y = unspecified(x.len());
        let mut statistics = vec![[0.0; 2]; x.len() / width];
        let parts = y
            .par_chunks_mut(rows * width)
            .zip(x.par_chunks(rows * width));
        parts
            .zip(statistics.par_chunks_mut(rows))
            .for_each(|((y, x), statistics)| {
                isa.run(Forward {
                    x,
                    weight,
                    bias,
                    epsilon: self.epsilon,
                    y,
                    statistics,
                });
            });
        Ok((y, shape, statistics))
    }

    fn backward(
        &self,
        [x, weight, _]: [View; 3],
        pass: BackwardPass<Self::Saved, 3>,
    ) -> Result<[Gradient; 3]> {
        let (x, weight, dy, statistics) = (x.data, weight.data, pass.dy, pass.saved);
        let width = weight.len();
        let isa = Isa::current();
        let rows = chunk_rows(statistics.len(), LEAST_ROWS, CHUNKS);
        let chunks = statistics.len().div_ceil(rows);
        let mut dx = unspecified(x.len());
        let mut partials = vec![0.0; chunks * 2 * width];
        let dx_pieces = split_mut(&mut dx, rows * width, chunks);
        let partial_pieces = split_mut(&mut partials, 2 * width, chunks);
        let tasks = dx_pieces.into_par_iter().zip(partial_pieces).enumerate();
        tasks.for_each(|(i, (dx, partial))| {
            let (x, dy) = (
                &x[i * rows * width..][..dx.len()],
                &dy[i * rows * width..][..dx.len()],
            );
            let statistics = &statistics[i * rows..][..dx.len() / width];
            let (dweight, dbias) = partial.split_at_mut(width);
            isa.run(Backward {
                x,
                weight,
                dy,
                statistics,
                dx,
                dweight,
                dbias,
            });
        });
        let mut dweight = sum_partials(&partials, 2 * width);
        let dbias = dweight.split_off(width);
        Ok([dx.into(), dweight.into(), dbias.into()])
    }
}

/// Rows of x to rows of y, and their mean and reciprocal deviation.
pub(in crate::ops) struct Forward<'a> {
    pub(in crate::ops) x: &'a [f32],
    pub(in crate::ops) weight: &'a [f32],
    pub(in crate::ops) bias: &'a [f32],
    pub(in crate::ops) epsilon: f32,
    pub(in crate::ops) y: &'a mut [f32],
    pub(in crate::ops) statistics: &'a mut [[f32; 2]],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let width = self.weight.len();
        let (weight, gain_tail) = S::as_simd_f32s(self.weight);
        let (bias, offset_tail) = S::as_simd_f32s(self.bias);
        let present = s.mask_between_m32s(0, gain_tail.len() as u32).mask();
        let zero = s.splat_f32s(0.0);
        let rows = self
            .x
            .chunks_exact(width)
            .zip(self.y.chunks_exact_mut(width));
        for ((x, y), statistics) in rows.zip(self.statistics) {
            let (x, x_tail) = S::as_simd_f32s(x);
            let (y, y_tail) = S::as_mut_simd_f32s(y);
            let last = s.partial_load_f32s(x_tail);
            let sum = x.iter().fold(last, |sum, x| s.add_f32s(sum, *x));
            let mean = s.reduce_sum_f32s(sum) / width as f32;
            let means = s.splat_f32s(mean);
            let last = s.select_f32s(present, s.sub_f32s(last, means), zero);
            let squares = x.iter().fold(s.mul_f32s(last, last), |sum, x| {
                let d = s.sub_f32s(*x, means);
                s.fma(d, d, sum)
            });
            let variance = s.reduce_sum_f32s(squares) / width as f32;
            let inverse = 1.0 / (variance + self.epsilon).sqrt();
            let inverses = s.splat_f32s(inverse);
            for (((y, x), weight), bias) in y.iter_mut().zip(x).zip(weight).zip(bias) {
                let n = s.mul_f32s(s.sub_f32s(*x, means), inverses);
                *y = s.fma(n, *weight, *bias);
            }
            if !x_tail.is_empty() {
                let n = s.mul_f32s(last, inverses);
                let weight = s.partial_load_f32s(gain_tail);
                s.partial_store_f32s(y_tail, s.fma(n, weight, s.partial_load_f32s(offset_tail)));
            }
            *statistics = [mean, inverse];
        }
    }
}

/// Rows of dy to rows of dx; the gradients of weight and bias are added to.
pub(in crate::ops) struct Backward<'a> {
    pub(in crate::ops) x: &'a [f32],
    pub(in crate::ops) weight: &'a [f32],
    pub(in crate::ops) dy: &'a [f32],
    pub(in crate::ops) statistics: &'a [[f32; 2]],
    pub(in crate::ops) dx: &'a mut [f32],
    pub(in crate::ops) dweight: &'a mut [f32],
    pub(in crate::ops) dbias: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let width = self.weight.len();
        let (weight, gain_tail) = S::as_simd_f32s(self.weight);
        let (dweight, dgain_tail) = S::as_mut_simd_f32s(self.dweight);
        let (dbias, doffset_tail) = S::as_mut_simd_f32s(self.dbias);
        let last_gain = s.partial_load_f32s(gain_tail);
        let zero = s.splat_f32s(0.0);
        let rows = self.x.chunks_exact(width).zip(self.dy.chunks_exact(width));
        let rows = rows
            .zip(self.dx.chunks_exact_mut(width))
            .zip(self.statistics);
        for (((x, dy), dx), [mean, inverse]) in rows {
            let (x, x_tail) = S::as_simd_f32s(x);
            let (dy, dy_tail) = S::as_simd_f32s(dy);
            let (dx, dx_tail) = S::as_mut_simd_f32s(dx);
            let (means, inverses) = (s.splat_f32s(*mean), s.splat_f32s(*inverse));
            // Sums of g and g n; the lanes beyond the tail hold dy = 0 and so add 0.
            let (mut sum, mut product) = (zero, zero);
            let body = x
                .iter()
                .zip(dy)
                .zip(weight)
                .zip(dweight.iter_mut().zip(dbias.iter_mut()));
            for (((x, dy), weight), (dweight, dbias)) in body {
                let n = s.mul_f32s(s.sub_f32s(*x, means), inverses);
                let g = s.mul_f32s(*dy, *weight);
                sum = s.add_f32s(sum, g);
                product = s.fma(g, n, product);
                *dweight = s.fma(*dy, n, *dweight);
                *dbias = s.add_f32s(*dbias, *dy);
            }
            let last_dy = s.partial_load_f32s(dy_tail);
            let last_x = s.partial_load_f32s(x_tail);
            let last_n = s.mul_f32s(s.sub_f32s(last_x, means), inverses);
            let last_g = s.mul_f32s(last_dy, last_gain);
            if !x_tail.is_empty() {
                sum = s.add_f32s(sum, last_g);
                product = s.fma(last_g, last_n, product);
                let total = s.partial_load_f32s(dgain_tail);
                s.partial_store_f32s(dgain_tail, s.fma(last_dy, last_n, total));
                let total = s.partial_load_f32s(doffset_tail);
                s.partial_store_f32s(doffset_tail, s.add_f32s(total, last_dy));
            }
            let sum = s.splat_f32s(s.reduce_sum_f32s(sum) / width as f32);
            let product = s.splat_f32s(-s.reduce_sum_f32s(product) / width as f32);
            let finish = |g, n| s.mul_f32s(s.fma(n, product, s.sub_f32s(g, sum)), inverses);
            for (((dx, x), dy), weight) in dx.iter_mut().zip(x).zip(dy).zip(weight) {
                let n = s.mul_f32s(s.sub_f32s(*x, means), inverses);
                *dx = finish(s.mul_f32s(*dy, *weight), n);
            }
            if !x_tail.is_empty() {
                s.partial_store_f32s(dx_tail, finish(last_g, last_n));
            }
        }
    }
}
