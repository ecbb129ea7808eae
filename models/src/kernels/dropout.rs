//! Dropout whose mask is drawn from its counter again in the backward pass, instead of being kept.
//!
//! [`dropout`] is y = m x, [`add_dropped`] is y = r + m x in one pass, for residual connections; m is 0 with
//! probability `rate` and 1 / (1 - rate) otherwise. The first dimension is the batch, or [`DropoutOptions::offsets`] say where its
//! examples begin: element i of an example takes word i of that example's row of the stream, exactly as [`Stream::mask`] does.

use std::sync::Arc;

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

/// Which elements are dropped.
#[derive(Clone)]
pub struct DropoutOptions {
    /// Where words come from.
    pub stream: Stream,
    /// In [0, 1).
    pub rate: f64,
    /// Whether the rows of an example share one mask: its element d then takes word d.
    pub tied: bool,
    /// Of packed examples, x being (1, T, D), the row where each begins and where the last one ends.
    pub offsets: Option<Arc<[usize]>>,
}

/// Zeroes elements of x (B, ...) with probability `rate`, in [0, 1), and scales the others by 1 / (1 - rate).
pub fn dropout(x: &Tensor, options: DropoutOptions) -> Result<Tensor> {
    apply(ExampleDropout::new(options), [None, Some(x)])
}

/// `residual + dropout(x)`.
pub fn add_dropped(residual: &Tensor, x: &Tensor, options: DropoutOptions) -> Result<Tensor> {
    if residual.dims() != x.dims() {
        bail!(
            "{NAME}: residual {:?} and x {:?} do not fit",
            residual.shape(),
            x.shape()
        );
    }
    apply(ExampleDropout::new(options), [residual, x])
}

/// A mask for the elements of any example.
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
}

/// Dropout of whole examples.
struct ExampleDropout {
    dropout: Dropout,
    tied: bool,
    offsets: Option<Arc<[usize]>>,
}

/// Some elements of one example.
struct Segment<'a> {
    example: usize,
    /// Which element of its example the first one is, and which of all.
    first: usize,
    start: usize,
    y: &'a mut [f32],
}

impl ExampleDropout {
    fn new(options: DropoutOptions) -> Self {
        Self {
            dropout: Dropout::new(&options.stream, options.rate),
            tied: options.tied,
            offsets: options.offsets,
        }
    }

    /// The elements of each example, given the shape of x.
    fn sizes(&self, shape: &Shape) -> Result<Vec<usize>> {
        let (dims, count) = (shape.dims(), shape.elem_count());
        let Some(offsets) = &self.offsets else {
            let examples = dims.first().copied().unwrap_or(1);
            return Ok(vec![count.checked_div(examples).unwrap_or(0); examples]);
        };
        let width = dims.last().copied().unwrap_or(0);
        if offsets.last().map(|rows| rows * width) != Some(count) {
            bail!("{NAME}: x {shape:?} is not packed as offsets say");
        }
        let rows = offsets.windows(2).map(|pair| pair[1] - pair[0]);
        Ok(rows.map(|rows| rows * width).collect())
    }

    /// The mask times x, plus `residual` if there is one.
    fn apply(&self, x: &[f32], residual: Option<&[f32]>, shape: &Shape) -> Result<Vec<f32>> {
        let width = shape.dims().last().copied().unwrap_or(1).max(1);
        // Whole rows where these share a mask.
        let most = match self.tied {
            true => (SEGMENT / width).max(1) * width,
            false => SEGMENT,
        };
        let mut y = uninit(x.len());
        let (mut rest, mut start) = (y.as_mut_slice(), 0);
        let mut segments = Vec::new();
        for (example, size) in self.sizes(shape)?.into_iter().enumerate() {
            let (elements, others) = rest.split_at_mut(size);
            rest = others;
            let parts = elements.chunks_mut(most).enumerate();
            segments.extend(parts.map(|(i, y)| Segment {
                example,
                first: i * most,
                start: start + i * most,
                y,
            }));
            start += size;
        }
        segments.into_par_iter().for_each(|segment| {
            let range = segment.start..segment.start + segment.y.len();
            let residual = residual.map(|residual| &residual[range.clone()]);
            self.fill(segment, &x[range], residual, width);
        });
        Ok(y)
    }

    fn fill(&self, segment: Segment, x: &[f32], residual: Option<&[f32]>, width: usize) {
        let Segment {
            example, first, y, ..
        } = segment;
        if self.tied {
            let mut mask = vec![1.0; width];
            self.dropout.scale(example, 0, &mut mask);
            for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
                let factors = y.iter_mut().zip(x).zip(&mask);
                factors.for_each(|((y, x), mask)| *y = x * mask);
            }
        } else {
            y.copy_from_slice(x);
            self.dropout.scale(example, first, y);
        }
        if let Some(residual) = residual {
            y.iter_mut().zip(residual).for_each(|(y, r)| *y += r);
        }
    }
}

/// Of a residual, where there is one, and x.
impl CustomOp<2> for ExampleDropout {
    const NAME: &'static str = NAME;
    type Saved = ();

    fn forward(&self, [residual, x]: [View; 2], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let y = self.apply(x.data, residual.given(), &x.shape)?;
        Ok((y, x.shape, ()))
    }

    fn backward(&self, [_, x]: [View; 2], pass: BackwardPass<(), 2>) -> Result<[Gradient; 2]> {
        let dx = pass.wanted[1].then(|| self.apply(pass.dy, None, &x.shape));
        Ok([Gradient::OfOutput, dx.transpose()?.into()])
    }
}
