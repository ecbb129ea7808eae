//! Softmax over the last dimension, y_k = exp(x_k - m) / Σ_j exp(x_j - m) with m the largest x_j,
//! over the keys that are not hidden.
//!
//! Only y is kept for the backward pass: dx_k = y_k (dy_k - Σ_j dy_j y_j). Rows are cut in chunks
//! that depend on the shape alone.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{chunk_rows, unspecified};
use lra_cpu::isa::Isa;
use lra_cpu::math::exp;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::read;
use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "softmax";
/// Chunks of rows.
const CHUNKS: usize = 64;
/// Numbers below which a chunk is not worth a task.
const EPS: usize = 4096;

/// Returns softmax of x (.., K). With `valid` (B, K), whose zeros are hidden keys, x is (B, .., K):
/// hidden keys get 0, and rows of an example without a valid key are zeros. A row with a NaN
/// becomes NaN.
pub fn softmax(x: &Tensor, valid: Option<&Tensor>) -> Result<Tensor> {
    let keys = x.dims().last().copied().unwrap_or(0);
    let hidden = match valid {
        None => vec![0.0; keys],
        Some(valid) => {
            let (batch, valid_keys) = valid.dims2()?;
            if x.dims().first() != Some(&batch) || valid_keys != keys || x.rank() < 2 {
                bail!("{NAME}: x {:?} and mask {:?}", x.shape(), valid.shape());
            }
            let valid = valid.contiguous()?;
            hidden(&read(NAME, &valid)?)
        }
    };
    apply(Softmax { keys, hidden }, [x])
}

/// Returns the bias of the scores of keys, of which 0 in `valid` marks the hidden ones: 0, or minus
/// infinity for a hidden key.
pub(in crate::ops) fn hidden(valid: &[f32]) -> Vec<f32> {
    let term = |valid: &f32| match *valid {
        0.0 => f32::NEG_INFINITY,
        _ => 0.0,
    };
    valid.iter().map(term).collect()
}

struct Softmax {
    /// K.
    keys: usize,
    /// Bias of x, of each example or of all: 0, or minus infinity for a hidden key.
    hidden: Vec<f32>,
}

impl Softmax {
    fn rows_per_chunk(&self, rows: usize) -> usize {
        chunk_rows(rows, EPS.div_ceil(self.keys), CHUNKS)
    }
}

impl CustomOp<1> for Softmax {
    const NAME: &'static str = NAME;
    type Saved = ();
    const READS_OUTPUT: bool = true;

    fn forward(&self, [x]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let mut y = unspecified(x.data.len());
        if y.is_empty() {
            return Ok((y, x.shape, ()));
        }
        let isa = Isa::current();
        let rows = x.data.len() / self.keys;
        let per_example = rows * self.keys / self.hidden.len();
        let chunk = self.rows_per_chunk(rows);
        y.par_chunks_mut(chunk * self.keys)
            .zip(x.data.par_chunks(chunk * self.keys))
            .enumerate()
            .for_each(|(index, (y, x))| {
                isa.run(Forward {
                    keys: self.keys,
                    hidden: &self.hidden,
                    first: index * chunk,
                    per_example,
                    x,
                    y,
                });
            });
        Ok((y, x.shape, ()))
    }

    fn backward(&self, [x]: [View; 1], pass: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
        let mut dx = unspecified(x.data.len());
        if dx.is_empty() {
            return Ok([dx.into()]);
        }
        let isa = Isa::current();
        let keys = self.keys;
        let chunk = self.rows_per_chunk(dx.len() / keys) * keys;
        dx.par_chunks_mut(chunk)
            .zip(pass.y.par_chunks(chunk))
            .zip(pass.dy.par_chunks(chunk))
            .for_each(|((dx, y), dy)| isa.run(Backward { keys, y, dy, dx }));
        Ok([dx.into()])
    }
}

/// y of x.
pub(in crate::ops) struct Forward<'a> {
    pub(in crate::ops) keys: usize,
    pub(in crate::ops) hidden: &'a [f32],
    /// Number of the first row among all.
    pub(in crate::ops) first: usize,
    /// Number of rows that share a bias.
    pub(in crate::ops) per_example: usize,
    pub(in crate::ops) x: &'a [f32],
    pub(in crate::ops) y: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let keys = self.keys;
        let examples = self.hidden.len() / keys;
        let lowest = s.splat_f32s(f32::NEG_INFINITY);
        let present = s.mask_between_m32s(0, (keys % S::F32_LANES) as u32).mask();
        let rows = self.x.chunks_exact(keys).zip(self.y.chunks_exact_mut(keys));
        for (row, (x, y)) in (self.first..).zip(rows) {
            let example = row / self.per_example % examples;
            let (hidden, hidden_tail) =
                S::as_simd_f32s(&self.hidden[example * keys..(example + 1) * keys]);
            let (x, x_tail) = S::as_simd_f32s(x);
            let (to, tail) = S::as_mut_simd_f32s(y);
            let mut largest = lowest;
            for ((to, x), hidden) in to.iter_mut().zip(x).zip(hidden) {
                *to = s.add_f32s(*x, *hidden);
                largest = s.max_f32s(largest, *to);
            }
            let mut last = lowest;
            if !tail.is_empty() {
                let x = s.partial_load_f32s(x_tail);
                last = s.add_f32s(x, s.partial_load_f32s(hidden_tail));
                last = s.select_f32s(present, last, lowest);
                largest = s.max_f32s(largest, last);
            }
            // Where every key is hidden, or no number: the maximum of some sets swallows a NaN.
            let largest = match s.reduce_max_f32s(largest) {
                f32::NEG_INFINITY => 0.0,
                largest => largest,
            };
            let largest = s.splat_f32s(largest);
            let mut sum = s.splat_f32s(0.0);
            for to in to.iter_mut() {
                *to = exp(s, s.sub_f32s(*to, largest));
                sum = s.add_f32s(sum, *to);
            }
            if !tail.is_empty() {
                last = exp(s, s.sub_f32s(last, largest));
                sum = s.add_f32s(sum, last);
            }
            let share = match s.reduce_sum_f32s(sum) {
                0.0 => 0.0,
                sum => sum.recip(),
            };
            let share = s.splat_f32s(share);
            for to in to {
                *to = s.mul_f32s(*to, share);
            }
            if !tail.is_empty() {
                s.partial_store_f32s(tail, s.mul_f32s(last, share));
            }
        }
    }
}

/// dx of y and dy.
pub(in crate::ops) struct Backward<'a> {
    pub(in crate::ops) keys: usize,
    pub(in crate::ops) y: &'a [f32],
    pub(in crate::ops) dy: &'a [f32],
    pub(in crate::ops) dx: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let rows = self
            .y
            .chunks_exact(self.keys)
            .zip(self.dy.chunks_exact(self.keys));
        for ((y, dy), dx) in rows.zip(self.dx.chunks_exact_mut(self.keys)) {
            let (y, y_tail) = S::as_simd_f32s(y);
            let (dy, dy_tail) = S::as_simd_f32s(dy);
            let (dx, dx_tail) = S::as_mut_simd_f32s(dx);
            let mut sum = s.splat_f32s(0.0);
            for (y, dy) in y.iter().zip(dy) {
                sum = s.fma(*y, *dy, sum);
            }
            let mut last = [sum; 2];
            if !dx_tail.is_empty() {
                last = [s.partial_load_f32s(y_tail), s.partial_load_f32s(dy_tail)];
                sum = s.fma(last[0], last[1], sum);
            }
            let sum = s.splat_f32s(s.reduce_sum_f32s(sum));
            for ((dx, y), dy) in dx.iter_mut().zip(y).zip(dy) {
                *dx = s.mul_f32s(*y, s.sub_f32s(*dy, sum));
            }
            if !dx_tail.is_empty() {
                let [y, dy] = last;
                s.partial_store_f32s(dx_tail, s.mul_f32s(y, s.sub_f32s(dy, sum)));
            }
        }
    }
}
