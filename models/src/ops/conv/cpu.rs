//! Depthwise convolution along a sequence, every channel by a kernel of its own: y_td = b_d + Σ_j
//! w_dj x_{t+j-left, d}, zeros around x.
//!
//! dx is the convolution of dy with the kernels turned around, dw_dj = Σ_t dy_td x_{t+j-left, d},
//! db_d = Σ_t dy_td.

use std::ops::Range;

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{Shared, sum_partials, unspecified};
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "depthwise convolution";
/// Rows of one task.
const ROWS: usize = 64;
/// Channels of one task in the backward pass: a cache line of each row.
const CHANNELS: usize = 16;
/// Outputs, or taps of the weight's gradient, that are summed at once in registers.
const UNROLL: usize = 8;

/// Maps x (B, L, D), `weight` (D, W) and `bias` (D) to y (B, `outputs`, D), with `left` zeros
/// before x and enough behind it.
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn depthwise_conv1d(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    left: usize,
    outputs: usize,
) -> Result<Tensor> {
    apply(Convolution { left, outputs }, [Some(x), Some(weight), bias])
}

struct Convolution {
    left: usize,
    outputs: usize,
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    length: usize,
    channels: usize,
    /// W.
    width: usize,
}

impl Convolution {
    fn sizes(&self, [x, weight, bias]: &[View; 3]) -> Result<Sizes> {
        let ((batch, length, channels), (rows, width)) = (x.shape.dims3()?, weight.shape.dims2()?);
        let fits = bias.given().is_none_or(|bias| bias.len() == channels);
        if rows != channels || !fits || channels * width == 0 {
            let (x, weight, bias) = (&x.shape, &weight.shape, &bias.shape);
            bail!("{NAME}: x {x:?}, weight {weight:?} and bias {bias:?} do not fit");
        }
        Ok(Sizes {
            batch,
            length,
            channels,
            width,
        })
    }
}

impl CustomOp<3> for Convolution {
    const NAME: &'static str = NAME;
    type Saved = ();

    fn forward(&self, operands: [View; 3], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let sizes = self.sizes(&operands)?;
        let [x, weight, bias] = operands;
        let taps = by_tap(weight.data, sizes, |tap| tap);
        let left = self.left as isize;
        let x = (x.data, sizes.length);
        let y = convolve(x, &taps, bias.given(), left, self.outputs, sizes);
        Ok((y, (sizes.batch, self.outputs, sizes.channels).into(), ()))
    }

    fn backward(&self, operands: [View; 3], pass: BackwardPass<(), 3>) -> Result<[Gradient; 3]> {
        let sizes = self.sizes(&operands)?;
        let Sizes {
            batch,
            length,
            channels,
            width,
        } = sizes;
        let [x, weight, _] = operands;
        let (x, dy) = (x.data, pass.dy);
        let dx = pass.expected[0].then(|| {
            let taps = by_tap(weight.data, sizes, |tap| width - 1 - tap);
            let left = width as isize - 1 - self.left as isize;
            convolve((dy, self.outputs), &taps, None, left, length, sizes)
        });
        let groups = channels.div_ceil(CHANNELS);
        let isa = Isa::current();
        // (B, W + 1, D): of the taps and of the bias.
        let mut partials = unspecified(batch * (width + 1) * channels);
        let out = Shared::new(&mut partials);
        (0..batch * groups).into_par_iter().for_each(|task| {
            let (example, first) = (task / groups, task % groups * CHANNELS);
            isa.run(OfWeight {
                x: &x[example * length * channels..][..length * channels],
                dy: &dy[example * self.outputs * channels..][..self.outputs * channels],
                left: self.left,
                columns: first..(first + CHANNELS).min(channels),
                channels,
                width,
                start: example * (width + 1) * channels,
                out: &out,
            });
        });
        let mut sums = sum_partials(&partials, (width + 1) * channels);
        let dbias = sums.split_off(width * channels);
        let mut dweight = unspecified(channels * width);
        for (channel, row) in dweight.chunks_exact_mut(width).enumerate() {
            for (tap, gradient) in row.iter_mut().enumerate() {
                *gradient = sums[tap * channels + channel];
            }
        }
        Ok([dx.into(), dweight.into(), dbias.into()])
    }
}

/// Returns weights (D, W) as (W, D), tap `from(j)` in row j.
fn by_tap(weight: &[f32], sizes: Sizes, from: impl Fn(usize) -> usize) -> Vec<f32> {
    let mut taps = unspecified(weight.len());
    for (tap, row) in taps.chunks_exact_mut(sizes.channels).enumerate() {
        let column = from(tap);
        for (weight, to) in weight.chunks_exact(sizes.width).zip(row) {
            *to = weight[column];
        }
    }
    taps
}

/// Returns y (B, `outputs`, D) from x (B, L, D) and taps (W, D), `y_t = bias + Σ_j w_j
/// x_{t+j-left}`.
fn convolve(
    (x, length): (&[f32], usize),
    taps: &[f32],
    bias: Option<&[f32]>,
    left: isize,
    outputs: usize,
    sizes: Sizes,
) -> Vec<f32> {
    let Sizes {
        batch, channels, ..
    } = sizes;
    let mut y = unspecified(batch * outputs * channels);
    let isa = Isa::current();
    let examples = y.par_chunks_mut((outputs * channels).max(1));
    examples.enumerate().for_each(|(example, y)| {
        let x = &x[example * length * channels..][..length * channels];
        let tasks = y.par_chunks_mut(ROWS * channels).enumerate();
        tasks.for_each(|(task, y)| {
            isa.run(Forward {
                x,
                taps,
                bias,
                // Row of x that the first tap meets at the first row of y.
                first: (task * ROWS) as isize - left,
                channels,
                y,
            });
        });
    });
    y
}

/// Returns the row of x (L, D) with this number, if it has one.
#[inline(always)]
fn row(x: &[f32], channels: usize, row: isize) -> Option<&[f32]> {
    let row = usize::try_from(row).ok()?;
    x.get(row * channels..(row + 1) * channels)
}

/// Some rows of y.
struct Forward<'a> {
    x: &'a [f32],
    taps: &'a [f32],
    bias: Option<&'a [f32]>,
    /// Row of x that the first tap meets for the first row of y.
    first: isize,
    channels: usize,
    y: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let channels = self.channels;
        let width = (self.taps.len() / channels) as isize;
        let length = (self.x.len() / channels) as isize;
        for column in (0..channels).step_by(S::F32_LANES) {
            let count = S::F32_LANES.min(channels - column);
            let bias = match self.bias {
                Some(bias) => s.load(&bias[column..][..count]),
                None => s.splat_f32s(0.0),
            };
            let taps = self.taps.chunks_exact(channels);
            let taps = taps.map(|tap| s.load(&tap[column..][..count]));
            let blocks = self.y.chunks_mut(UNROLL * channels).enumerate();
            for (block, y) in blocks {
                let first = self.first + (block * UNROLL) as isize;
                let whole = y.len() == UNROLL * channels;
                let last = first + UNROLL as isize + width - 1;
                if whole && first >= 0 && last <= length {
                    // Every tap of every row meets a row of x.
                    let mut sums = [bias; UNROLL];
                    let x = &self.x[first as usize * channels..last as usize * channels];
                    for (j, tap) in taps.clone().enumerate() {
                        let x = &x[j * channels..][..UNROLL * channels];
                        for (sum, x) in sums.iter_mut().zip(x.chunks_exact(channels)) {
                            *sum = s.fma(tap, s.load(&x[column..][..count]), *sum);
                        }
                    }
                    for (y, sum) in y.chunks_exact_mut(channels).zip(sums) {
                        s.store(&mut y[column..][..count], sum);
                    }
                    continue;
                }
                for (i, y) in y.chunks_exact_mut(channels).enumerate() {
                    let mut sum = bias;
                    for (j, tap) in taps.clone().enumerate() {
                        if let Some(x) = row(self.x, channels, first + (i + j) as isize) {
                            sum = s.fma(tap, s.load(&x[column..][..count]), sum);
                        }
                    }
                    s.store(&mut y[column..][..count], sum);
                }
            }
        }
    }
}

/// Gradients of taps and bias from one example, for some channels.
struct OfWeight<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    left: usize,
    columns: Range<usize>,
    channels: usize,
    width: usize,
    /// Start of the gradients (W + 1, D) of this example.
    start: usize,
    out: &'a Shared<'a>,
}

impl Kernel for OfWeight<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Self {
            channels, width, ..
        } = self;
        let zero = s.splat_f32s(0.0);
        for column in self.columns.clone().step_by(S::F32_LANES) {
            let count = S::F32_LANES.min(self.columns.end - column);
            let load = |row: &[f32]| s.load(&row[column..][..count]);
            let store = |row: usize, gradient: S::f32s| {
                let at = self.start + row * channels + column;
                // SAFETY: the channels of an example belong to one task.
                s.store(unsafe { self.out.slice(at, count) }, gradient);
            };
            for first in (0..width).step_by(UNROLL) {
                let taps = UNROLL.min(width - first);
                let mut sums = [zero; UNROLL];
                for (t, dy) in self.dy.chunks_exact(channels).enumerate() {
                    let dy = load(dy);
                    let at = (t + first) as isize - self.left as isize;
                    let all = usize::try_from(at)
                        .ok()
                        .and_then(|at| self.x.get(at * channels..(at + UNROLL) * channels));
                    if let Some(x) = all.filter(|_| taps == UNROLL) {
                        for (sum, x) in sums.iter_mut().zip(x.chunks_exact(channels)) {
                            *sum = s.fma(dy, load(x), *sum);
                        }
                        continue;
                    }
                    for (j, sum) in sums.iter_mut().take(taps).enumerate() {
                        if let Some(x) = row(self.x, channels, at + j as isize) {
                            *sum = s.fma(dy, load(x), *sum);
                        }
                    }
                }
                for (j, sum) in sums.into_iter().take(taps).enumerate() {
                    store(first + j, sum);
                }
            }
            let rows = self.dy.chunks_exact(channels);
            store(width, rows.fold(zero, |sum, dy| s.add_f32s(sum, load(dy))));
        }
    }
}
