//! Normalisation of each channel over all rows of a batch: mean and variance, and y = weight (x -
//! mean) / sqrt(variance + epsilon) + bias.
//!
//! Rows are taken in blocks of [`ROWS`] at any number of threads; the results of the blocks are
//! combined in index order. With n = (x - mean) / deviation and sums over all R rows, where the
//! statistics are those of x itself dx = weight (dy - Σ dy / R - n Σ dy n / R) / deviation (arXiv
//! 1502.03167); where they are given, dx = weight dy / deviation.

use candle_core::{Device, Result, Shape, Tensor, bail};
use lra_cpu::buffers::{split_mut, sum_partials, unspecified};
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::read;
use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "batch norm";
/// Rows of a block.
const ROWS: usize = 64;

/// Returns the mean and variance, (2, D), of the rows of x (..., D) whose number in `valid` (...) is
/// not 0; of all without it. Zeros where there is no row.
///
/// # Errors
/// If shapes do not fit.
pub fn channel_moments(x: &Tensor, valid: Option<&Tensor>) -> Result<Tensor> {
    let width = x.dims().last().copied().unwrap_or(0);
    let rows = x.elem_count() / width.max(1);
    let x = x.contiguous()?;
    let valid = chosen(valid, rows)?;
    let reading = read(NAME, &x)?;
    let x: &[f32] = &reading;
    let isa = Isa::current();
    let blocks = rows.div_ceil(ROWS);
    let mut partials = vec![0.0; blocks * 2 * width];
    let pieces = split_mut(&mut partials, 2 * width, blocks);
    let tasks = pieces.into_par_iter().enumerate();
    let counts: Vec<usize> = tasks
        .map(|(block, partial)| {
            let first = block * ROWS;
            let rows = ROWS.min(rows - first);
            let (mean, squares) = partial.split_at_mut(width);
            isa.run(Moments {
                x: &x[first * width..][..rows * width],
                valid: valid.as_ref().map(|valid| &valid[first..][..rows]),
                mean,
                squares,
            })
        })
        .collect();
    Tensor::from_vec(
        together(&partials, &counts, width),
        (2, width),
        &Device::Cpu,
    )
}

/// Returns the mean and variance of all blocks from the mean and the sum of squares around it of
/// each (Chan et al., 1979).
fn together(partials: &[f32], counts: &[usize], width: usize) -> Vec<f32> {
    let mut mean = vec![0.0f64; width];
    let mut squares = vec![0.0f64; width];
    let mut total = 0.0;
    for (partial, &count) in partials.chunks_exact((2 * width).max(1)).zip(counts) {
        if count == 0 {
            continue;
        }
        let count = count as f64;
        let (share, between) = (count / (total + count), total * count / (total + count));
        for channel in 0..width {
            let apart = f64::from(partial[channel]) - mean[channel];
            mean[channel] += apart * share;
            squares[channel] += f64::from(partial[width + channel]) + apart * apart * between;
        }
        total += count;
    }
    let variance = squares.iter().map(|sum| sum / total.max(1.0));
    mean.iter()
        .copied()
        .chain(variance)
        .map(|x| x as f32)
        .collect()
}

fn chosen(valid: Option<&Tensor>, rows: usize) -> Result<Option<Vec<f32>>> {
    let Some(valid) = valid else {
        return Ok(None);
    };
    if valid.elem_count() != rows {
        bail!(
            "{NAME}: {:?} says which of {rows} rows count",
            valid.shape()
        );
    }
    Ok(Some(read(NAME, &valid.contiguous()?)?.to_vec()))
}

/// Rows of one block to the number of those that count, their mean and the sum of squares around
/// it.
struct Moments<'a> {
    x: &'a [f32],
    valid: Option<&'a [f32]>,
    mean: &'a mut [f32],
    squares: &'a mut [f32],
}

impl Kernel for Moments<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) -> usize {
        let Moments {
            x,
            valid,
            mean,
            squares,
        } = self;
        let width = mean.len();
        let counts = |row: usize| valid.is_none_or(|valid| valid[row] != 0.0);
        let mut count = 0;
        for (row, x) in x.chunks_exact(width).enumerate() {
            if counts(row) {
                count += 1;
                mean.iter_mut().zip(x).for_each(|(mean, x)| *mean += x);
            }
        }
        let share = 1.0 / (count as f32).max(1.0);
        mean.iter_mut().for_each(|mean| *mean *= share);
        for (row, x) in x.chunks_exact(width).enumerate() {
            if counts(row) {
                for ((squares, mean), x) in squares.iter_mut().zip(&*mean).zip(x) {
                    let apart = x - mean;
                    *squares += apart * apart;
                }
            }
        }
        count
    }
}

/// Returns y for x (..., D), weight and bias (D), by `moments` (2, D), mean and variance. They are
/// constants; with `own` they are those of the rows of x that `valid` (as in [`channel_moments`])
/// chooses, and the gradient knows it.
///
/// # Errors
/// If shapes do not fit.
pub fn channel_norm(
    x: &Tensor,
    [weight, bias]: [&Tensor; 2],
    moments: &Tensor,
    epsilon: f64,
    own: Option<Option<&Tensor>>,
) -> Result<Tensor> {
    let width = weight.dims1()?;
    if width == 0
        || x.dims().last() != Some(&width)
        || bias.dims() != [width]
        || moments.dims() != [2, width]
    {
        let (x, weight, bias) = (x.shape(), weight.shape(), bias.shape());
        bail!("{NAME}: x {x:?}, gain {weight:?} and offset {bias:?} do not fit");
    }
    let rows = x.elem_count() / width;
    let moments = moments.contiguous()?;
    let moments = read(NAME, &moments)?;
    let inverse = moments[width..].iter();
    let inverse = inverse.map(|variance| (1.0 / (f64::from(*variance) + epsilon).sqrt()) as f32);
    let op = ChannelNorm {
        mean: moments[..width].to_vec(),
        inverse: inverse.collect(),
        own: own.map(|valid| chosen(valid, rows)).transpose()?,
    };
    apply(op, [x, weight, bias])
}

struct ChannelNorm {
    mean: Vec<f32>,
    /// 1 / deviation.
    inverse: Vec<f32>,
    /// Rows of x that the statistics count, if they are those of x.
    own: Option<Option<Vec<f32>>>,
}

impl CustomOp<3> for ChannelNorm {
    const NAME: &'static str = NAME;
    type Saved = ();

    fn forward(&self, [x, weight, bias]: [View; 3], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let width = weight.data.len();
        let isa = Isa::current();
        let inverse = self.inverse.iter().zip(weight.data);
        let scale: Vec<f32> = inverse.map(|(inverse, weight)| inverse * weight).collect();
        let mut y = unspecified(x.data.len());
        let parts = y.par_chunks_mut(ROWS * width);
        parts
            .zip(x.data.par_chunks(ROWS * width))
            .for_each(|(y, x)| {
                isa.run(Forward {
                    x,
                    mean: &self.mean,
                    scale: &scale,
                    bias: bias.data,
                    y,
                });
            });
        Ok((y, x.shape, ()))
    }

    fn backward(
        &self,
        [x, weight, _]: [View; 3],
        pass: BackwardPass<(), 3>,
    ) -> Result<[Gradient; 3]> {
        let (x, weight, dy) = (x.data, weight.data, pass.dy);
        let width = weight.len();
        let isa = Isa::current();
        let (mean, inverse) = (&self.mean, &self.inverse);
        let rows = x.len() / width;
        let blocks = rows.div_ceil(ROWS);
        let mut partials = vec![0.0; blocks * 2 * width];
        let pieces = split_mut(&mut partials, 2 * width, blocks).into_par_iter();
        let operands = x.par_chunks(ROWS * width).zip(dy.par_chunks(ROWS * width));
        pieces.zip(operands).for_each(|(partial, (x, dy))| {
            let (dweight, dbias) = partial.split_at_mut(width);
            isa.run(Sums {
                x,
                dy,
                mean,
                inverse,
                dweight,
                dbias,
            });
        });
        let mut dweight = sum_partials(&partials, 2 * width);
        if partials.is_empty() {
            dweight = vec![0.0; 2 * width];
        }
        let dbias = dweight.split_off(width);
        let dx = pass.expected[0].then(|| {
            let count = match &self.own {
                Some(Some(valid)) => valid.iter().filter(|valid| **valid != 0.0).count(),
                _ => rows,
            };
            let share = 1.0 / count.max(1) as f32;
            let mut dx = unspecified(x.len());
            let parts = dx.par_chunks_mut(ROWS * width).enumerate();
            parts.for_each(|(block, dx)| {
                let (start, len) = (block * ROWS * width, dx.len());
                isa.run(Backward {
                    x: &x[start..][..len],
                    dy: &dy[start..][..len],
                    valid: self.own.as_ref().map(|valid| {
                        let valid = valid.as_ref();
                        valid.map(|valid| &valid[block * ROWS..][..len / width])
                    }),
                    mean,
                    inverse,
                    weight,
                    sums: [&dweight, &dbias],
                    share,
                    dx,
                });
            });
            dx
        });
        Ok([dx.into(), dweight.into(), dbias.into()])
    }
}

/// Rows of x to rows of y.
struct Forward<'a> {
    x: &'a [f32],
    mean: &'a [f32],
    scale: &'a [f32],
    bias: &'a [f32],
    y: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let width = self.mean.len();
        let rows = self.y.chunks_exact_mut(width);
        for (y, x) in rows.zip(self.x.chunks_exact(width)) {
            let channels = self.mean.iter().zip(self.scale).zip(self.bias);
            for ((y, x), ((mean, scale), bias)) in y.iter_mut().zip(x).zip(channels) {
                *y = (x - mean) * scale + bias;
            }
        }
    }
}

/// Adds up dy n and dy over the rows of a block.
struct Sums<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    mean: &'a [f32],
    inverse: &'a [f32],
    dweight: &'a mut [f32],
    dbias: &'a mut [f32],
}

impl Kernel for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let width = self.mean.len();
        for (x, dy) in self.x.chunks_exact(width).zip(self.dy.chunks_exact(width)) {
            let totals = self.dweight.iter_mut().zip(self.dbias.iter_mut());
            for ((x, dy), (mean, (dweight, dbias))) in
                x.iter().zip(dy).zip(self.mean.iter().zip(totals))
            {
                *dweight += dy * (x - mean);
                *dbias += dy;
            }
        }
        let inverse = self.dweight.iter_mut().zip(self.inverse);
        inverse.for_each(|(dweight, inverse)| *dweight *= inverse);
    }
}

/// Rows of dy to rows of dx.
struct Backward<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    /// As in [`ChannelNorm`].
    valid: Option<Option<&'a [f32]>>,
    mean: &'a [f32],
    inverse: &'a [f32],
    weight: &'a [f32],
    /// Σ dy n and Σ dy.
    sums: [&'a [f32]; 2],
    /// 1 / R.
    share: f32,
    dx: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let width = self.mean.len();
        let [dweight, dbias] = self.sums;
        let rows = self.x.chunks_exact(width).zip(self.dy.chunks_exact(width));
        let rows = rows.zip(self.dx.chunks_exact_mut(width)).enumerate();
        for (row, ((x, dy), dx)) in rows {
            let counts = match self.valid {
                None => false,
                Some(valid) => valid.is_none_or(|valid| valid[row] != 0.0),
            };
            let share = if counts { self.share } else { 0.0 };
            let channels = self.mean.iter().zip(self.inverse).zip(self.weight);
            let channels = channels.zip(dweight.iter().zip(dbias));
            let elements = dx.iter_mut().zip(x.iter().zip(dy));
            for ((dx, (x, dy)), (((mean, inverse), weight), (dweight, dbias))) in
                elements.zip(channels)
            {
                let n = (x - mean) * inverse;
                *dx = weight * inverse * (dy - share * (dbias + n * dweight));
            }
        }
    }
}
