//! LayerNorm over the last dimension: y = gain (x - mean) / sqrt(variance + epsilon) + offset.
//!
//! Mean and reciprocal deviation of every row, two numbers, are kept for the backward pass. With
//! n = (x - mean) / deviation and g = dy gain, the input gradient is
//! dx = (g - mean(g) - n mean(g n)) / deviation (arXiv 1607.06450).

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{chunk_rows, split_mut, sum_partials, unspecified};
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "layer-norm";
/// Chunks of rows, and so partial sums of the gradients of gain and offset.
const CHUNKS: usize = 64;
const LEAST_ROWS: usize = 64;

/// Returns LayerNorm of x (..., D) with gain and offset (D).
pub fn layer_norm(x: &Tensor, gain: &Tensor, offset: &Tensor, epsilon: f64) -> Result<Tensor> {
    let epsilon = epsilon as f32;
    apply(LayerNorm { epsilon }, [x, gain, offset])
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
        [x, gain, offset]: [View; 3],
        _: bool,
    ) -> Result<(Vec<f32>, Shape, Self::Saved)> {
        let width = gain.shape.dims1()?;
        if width == 0 || x.shape.dims().last() != Some(&width) || offset.shape != gain.shape {
            let (x, gain, offset) = (x.shape, gain.shape, offset.shape);
            bail!("{NAME}: x {x:?}, gain {gain:?} and offset {offset:?} do not fit");
        }
        let (shape, x, gain, offset) = (x.shape, x.data, gain.data, offset.data);
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
                    gain,
                    offset,
                    epsilon: self.epsilon,
                    y,
                    statistics,
                });
            });
        Ok((y, shape, statistics))
    }

    fn backward(
        &self,
        [x, gain, _]: [View; 3],
        pass: BackwardPass<Self::Saved, 3>,
    ) -> Result<[Gradient; 3]> {
        let (x, gain, dy, statistics) = (x.data, gain.data, pass.dy, pass.saved);
        let width = gain.len();
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
            let (dgain, doffset) = partial.split_at_mut(width);
            isa.run(Backward {
                x,
                gain,
                dy,
                statistics,
                dx,
                dgain,
                doffset,
            });
        });
        let mut dgain = sum_partials(&partials, 2 * width);
        let doffset = dgain.split_off(width);
        Ok([dx.into(), dgain.into(), doffset.into()])
    }
}

/// Rows of x to rows of y, and their mean and reciprocal deviation.
pub(in crate::ops) struct Forward<'a> {
    pub(in crate::ops) x: &'a [f32],
    pub(in crate::ops) gain: &'a [f32],
    pub(in crate::ops) offset: &'a [f32],
    pub(in crate::ops) epsilon: f32,
    pub(in crate::ops) y: &'a mut [f32],
    pub(in crate::ops) statistics: &'a mut [[f32; 2]],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let width = self.gain.len();
        let (gain, gain_tail) = S::as_simd_f32s(self.gain);
        let (offset, offset_tail) = S::as_simd_f32s(self.offset);
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
            for (((y, x), gain), offset) in y.iter_mut().zip(x).zip(gain).zip(offset) {
                let n = s.mul_f32s(s.sub_f32s(*x, means), inverses);
                *y = s.fma(n, *gain, *offset);
            }
            if !x_tail.is_empty() {
                let n = s.mul_f32s(last, inverses);
                let gain = s.partial_load_f32s(gain_tail);
                s.partial_store_f32s(y_tail, s.fma(n, gain, s.partial_load_f32s(offset_tail)));
            }
            *statistics = [mean, inverse];
        }
    }
}

/// Rows of dy to rows of dx; the gradients of gain and offset are added to.
pub(in crate::ops) struct Backward<'a> {
    pub(in crate::ops) x: &'a [f32],
    pub(in crate::ops) gain: &'a [f32],
    pub(in crate::ops) dy: &'a [f32],
    pub(in crate::ops) statistics: &'a [[f32; 2]],
    pub(in crate::ops) dx: &'a mut [f32],
    pub(in crate::ops) dgain: &'a mut [f32],
    pub(in crate::ops) doffset: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let width = self.gain.len();
        let (gain, gain_tail) = S::as_simd_f32s(self.gain);
        let (dgain, dgain_tail) = S::as_mut_simd_f32s(self.dgain);
        let (doffset, doffset_tail) = S::as_mut_simd_f32s(self.doffset);
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
                .zip(gain)
                .zip(dgain.iter_mut().zip(doffset.iter_mut()));
            for (((x, dy), gain), (dgain, doffset)) in body {
                let n = s.mul_f32s(s.sub_f32s(*x, means), inverses);
                let g = s.mul_f32s(*dy, *gain);
                sum = s.add_f32s(sum, g);
                product = s.fma(g, n, product);
                *dgain = s.fma(*dy, n, *dgain);
                *doffset = s.add_f32s(*doffset, *dy);
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
            for (((dx, x), dy), gain) in dx.iter_mut().zip(x).zip(dy).zip(gain) {
                let n = s.mul_f32s(s.sub_f32s(*x, means), inverses);
                *dx = finish(s.mul_f32s(*dy, *gain), n);
            }
            if !x_tail.is_empty() {
                s.partial_store_f32s(dx_tail, finish(last_g, last_n));
            }
        }
    }
}
