//! Dropout whose mask is drawn from its counter again in the backward pass, instead of being kept.
//!
//! [`dropout`] is y = m x, [`add_dropped`] is y = r + m x in one pass, for residual connections; m
//! is 0 with probability `rate` and 1 / (1 - rate) otherwise. The first dimension is the batch, or
//! [`DropoutOptions::offsets`] say where its examples begin: element i of an example takes word i
//! of that example's row of the stream, exactly as [`Stream::mask`] does.

use std::sync::Arc;

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::unspecified;
use lra_cpu::philox;
use lra_cpu::scratch::Scratch;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};
use crate::rng::{Stream, mask_constants};

const NAME: &str = "dropout";
/// Elements per parallel task, and words drawn at a time; multiples of the group at which a row can
/// be entered.
const SEGMENT: usize = 16 * 1024;
const WORDS: usize = 1024;

/// Dropout mask: the elements that are dropped.
#[derive(Clone)]
pub struct DropoutOptions {
    /// Source of random words.
    pub stream: Stream,
    /// Dropout rate, in [0, 1).
    pub rate: f64,
    /// True if the rows of an example share one mask: its element d then takes word d.
    pub tied: bool,
    /// Offsets of packed examples, x being (1, T, D): the row where each begins, and the end of the
    /// last one.
    pub offsets: Option<Arc<[usize]>>,
}

/// Zeroes elements of x (B, ...) with probability `rate`, in [0, 1), and scales the others by 1 /
/// (1 - rate).
pub fn dropout(x: &Tensor, options: DropoutOptions) -> Result<Tensor> {
    apply(RowDropout::new(options, x)?, [None, Some(x)])
}

/// Returns `residual + dropout(x)`.
pub fn add_dropped(residual: &Tensor, x: &Tensor, options: DropoutOptions) -> Result<Tensor> {
    if residual.dims() != x.dims() {
        bail!(
            "{NAME}: residual {:?} and x {:?} do not fit",
            residual.shape(),
            x.shape()
        );
    }
    apply(RowDropout::new(options, x)?, [residual, x])
}

/// A mask for the elements of any example.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Dropout {
    stream: Stream,
    threshold: u32,
    keep: f32,
}

impl Dropout {
    pub(in crate::ops) fn new(stream: &Stream, rate: f64) -> Self {
        let (threshold, keep) = mask_constants(rate);
        Dropout {
            stream: *stream,
            threshold,
            keep,
        }
    }

    /// Multiplies elements `first..` of example `row` by their part of the mask.
    pub(in crate::ops) fn scale(&self, row: usize, first: usize, elements: &mut [f32]) {
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

/// Dropout of rows, each of which belongs to an example.
pub(in crate::ops) struct RowDropout {
    dropout: Dropout,
    tied: bool,
    offsets: Option<Arc<[usize]>>,
    /// Rows of an example where there are no offsets.
    length: usize,
}

impl RowDropout {
    /// Builds the mask for the rows of x (B, ..., D), or (1, T, D) if packed.
    pub(in crate::ops) fn new(options: DropoutOptions, x: &Tensor) -> Result<Self> {
        let dims = x.dims();
        // In (B), every element is a row.
        let rows: usize = match dims {
            [examples] => *examples,
            dims => dims[..dims.len().saturating_sub(1)].iter().product(),
        };
        let examples = dims.first().copied().unwrap_or(1);
        if let Some(offsets) = &options.offsets
            && (offsets.first(), offsets.last()) != (Some(&0), Some(&rows))
        {
            bail!("{NAME}: x {:?} is not packed as offsets say", x.shape());
        }
        Ok(Self {
            dropout: Dropout::new(&options.stream, options.rate),
            tied: options.tied,
            offsets: options.offsets,
            length: rows.checked_div(examples).unwrap_or(0).max(1),
        })
    }

    /// Returns the example of a row, which of its rows it is, and how many follow up to its end.
    fn place(&self, row: usize) -> (usize, usize, usize) {
        match &self.offsets {
            Some(offsets) => {
                let example = offsets.partition_point(|start| *start <= row) - 1;
                let (start, end) = (offsets[example], offsets[example + 1]);
                (example, row - start, end - row)
            }
            None => {
                let place = row % self.length;
                (row / self.length, place, self.length - place)
            }
        }
    }

    /// Multiplies the rows from `first` on, `width` elements each, by their part of the mask.
    pub(in crate::ops) fn scale(&self, first: usize, width: usize, rows: &mut [f32]) {
        let (mut row, mut rest) = (first, rows);
        while !rest.is_empty() {
            let (example, place, left) = self.place(row);
            let count = left.min(rest.len() / width);
            let (part, others) = rest.split_at_mut(count * width);
            if self.tied {
                let mut mask = Scratch::unspecified(width);
                mask.fill(1.0);
                self.dropout.scale(example, 0, &mut mask);
                for row in part.chunks_exact_mut(width) {
                    row.iter_mut().zip(&*mask).for_each(|(x, mask)| *x *= mask);
                }
            } else {
                self.dropout.scale(example, place * width, part);
            }
            row += count;
            rest = others;
        }
    }

    /// Returns the mask times x, plus `residual` if there is one.
    fn apply(&self, x: &[f32], residual: Option<&[f32]>, width: usize) -> Vec<f32> {
        let mut y = unspecified(x.len());
        let size = (SEGMENT / width).max(1) * width;
        let chunks = y.par_chunks_mut(size).zip(x.par_chunks(size)).enumerate();
        chunks.for_each(|(chunk, (y, x))| {
            y.copy_from_slice(x);
            self.scale(chunk * size / width, width, y);
            if let Some(residual) = residual {
                let residual = &residual[chunk * size..][..y.len()];
                y.iter_mut().zip(residual).for_each(|(y, r)| *y += r);
            }
        });
        y
    }
}

/// Returns the number of elements of a row of x.
fn width(x: &Shape) -> usize {
    match x.dims() {
        [] | [_] => 1,
        [.., width] => (*width).max(1),
    }
}

/// Operands: a residual, where there is one, and x.
impl CustomOp<2> for RowDropout {
    const NAME: &'static str = NAME;
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [residual, x]: [View; 2], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let y = self.apply(x.data, residual.given(), width(&x.shape));
        Ok((y, x.shape, ()))
    }

    fn backward(&self, [_, x]: [View; 2], pass: BackwardPass<(), 2>) -> Result<[Gradient; 2]> {
        let dx = pass.expected[1].then(|| self.apply(pass.dy, None, width(&x.shape)));
        Ok([Gradient::PassThrough, dx.into()])
    }
}
