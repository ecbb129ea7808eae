//! Dropout whose mask is drawn from its counter again in the backward pass, instead of being kept.
//!
//! [`dropout`] is y = m x, [`add_dropped`] is y = r + m x in one pass, for residual connections; m is 0 with
//! probability `rate` and 1 / (1 - rate) otherwise. The first dimension is the batch: element i of an example
//! takes word i of that example's row of the stream, exactly as [`Stream::mask`] does.

use candle_core::{Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::buffers::uninit;
use super::custom_op::{BackwardPass, CustomOp, Gradient, View, apply};
use crate::philox;
use crate::rng::{Stream, mask_constants};

const NAME: &str = "dropout";
/// Elements per parallel task, and words drawn at a time; multiples of the group at which a row can be entered.
const SEGMENT: usize = 16 * 1024;
const WORDS: usize = 1024;

/// Zeroes elements of x (B, ...) with probability `rate`, in [0, 1), and scales the others by 1 / (1 - rate).
pub fn dropout(x: &Tensor, stream: &Stream, rate: f64) -> Result<Tensor> {
    apply(Dropout::new(stream, rate), [None, Some(x)])
}

/// `residual + dropout(x)`.
pub fn add_dropped(residual: &Tensor, x: &Tensor, stream: &Stream, rate: f64) -> Result<Tensor> {
    if residual.dims() != x.dims() {
        bail!(
            "{NAME}: residual {:?} and x {:?} do not fit",
            residual.shape(),
            x.shape()
        );
    }
    apply(Dropout::new(stream, rate), [residual, x])
}

#[derive(Clone, Copy)]
pub(super) struct Dropout {
    stream: Stream,
    threshold: u32,
    keep: f32,
}

impl Dropout {
    pub(super) fn new(stream: &Stream, rate: f64) -> Self {
        let (threshold, keep) = mask_constants(rate);
        Dropout {
            stream: *stream,
            threshold,
            keep,
        }
    }

    /// Multiplies elements `first..` of example `row` by their part of the mask.
    pub(super) fn scale(&self, row: usize, first: usize, elements: &mut [f32]) {
        let (key, counter) = (self.stream.key(), self.stream.counter(row));
        let mut words = [0; WORDS];
        let mut next = first;
        let mut rest = elements;
        while !rest.is_empty() {
            // A row of the stream can only be entered at a group.
            let skipped = next % philox::GROUP;
            let (part, others) = rest.split_at_mut(rest.len().min(WORDS - skipped));
            let words = &mut words[..skipped + part.len()];
            philox::fill(key, counter, next - skipped, words);
            for (element, word) in part.iter_mut().zip(&words[skipped..]) {
                *element *= if *word < self.threshold {
                    0.0
                } else {
                    self.keep
                };
            }
            next += part.len();
            rest = others;
        }
    }

    /// The mask times x, plus `residual` if there is one, for a batch of `rows` examples.
    fn apply(&self, x: &[f32], residual: Option<&[f32]>, rows: usize) -> Vec<f32> {
        let width = x.len().checked_div(rows).unwrap_or(0).max(1);
        let mut y = uninit(x.len());
        let segments = y.chunks_mut(width).enumerate().flat_map(|(row, y)| {
            y.chunks_mut(SEGMENT)
                .enumerate()
                .map(move |(i, y)| (row, i * SEGMENT, y))
        });
        let segments: Vec<_> = segments.collect();
        segments.into_par_iter().for_each(|(row, first, y)| {
            let range = row * width + first..row * width + first + y.len();
            y.copy_from_slice(&x[range.clone()]);
            self.scale(row, first, y);
            if let Some(residual) = residual {
                y.iter_mut()
                    .zip(&residual[range])
                    .for_each(|(y, r)| *y += r);
            }
        });
        y
    }
}

/// Of a residual, where there is one, and x.
impl CustomOp<2> for Dropout {
    const NAME: &'static str = NAME;
    type Saved = ();

    fn forward(&self, [residual, x]: [View; 2], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let y = self.apply(x.data, residual.given(), examples(x.shape.dims()));
        Ok((y, x.shape, ()))
    }

    fn backward(&self, [_, x]: [View; 2], pass: BackwardPass<(), 2>) -> Result<[Gradient; 2]> {
        let dx = pass.wanted[1].then(|| self.apply(pass.dy, None, examples(x.shape.dims())));
        Ok([Gradient::OfOutput, dx.into()])
    }
}

/// The first dimension.
fn examples(dims: &[usize]) -> usize {
    dims.first().copied().unwrap_or(1)
}
