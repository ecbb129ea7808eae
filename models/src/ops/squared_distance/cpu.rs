//! Squared Euclidean distances of rows, d = Σ_e (x_e - y_e)², keeping only x and y: dx = 2 (x - y)
//! dd and dy = -dx.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::unspecified;
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Elements per parallel task, about.
const CHUNK: usize = 16 * 1024;

/// Returns the squared distances (..) between the rows of x and y (.., E).
pub fn squared_distance(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let fits = x.dims() == y.dims() && x.dims().last().is_some_and(|width| *width > 0);
    if !fits {
        let (x, y) = (x.shape(), y.shape());
        bail!("{}: rows of {x:?} and of {y:?}", Distance::NAME);
    }
    apply(Distance, [x, y])
}

struct Distance;

/// Returns E, and the rows of one task.
fn sizes(shape: &Shape) -> (usize, usize) {
    let width = shape.dims().last().copied().unwrap_or(1);
    (width, (CHUNK / width).max(1))
}

impl CustomOp<2> for Distance {
    const NAME: &'static str = "squared_distance";
    type Saved = ();

    fn forward(&self, [x, y]: [View; 2], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let (isa, (width, rows)) = (Isa::current(), sizes(&x.shape));
        let mut distances = unspecified(x.data.len() / width);
        let operands = x.data.par_chunks(rows * width);
        let operands = operands.zip(y.data.par_chunks(rows * width));
        let tasks = distances.par_chunks_mut(rows).zip(operands);
        tasks.for_each(|(distances, (x, y))| isa.run(Forward(width, [x, y], distances)));
        let (_, shape) = x.shape.dims().split_last().unwrap_or((&0, &[]));
        Ok((distances, shape.into(), ()))
    }

    fn backward(&self, [x, y]: [View; 2], pass: BackwardPass<(), 2>) -> Result<[Gradient; 2]> {
        let (width, rows) = sizes(&x.shape);
        let along = |factor: f32| {
            let mut gradient: Vec<f32> = unspecified(x.data.len());
            let operands = x.data.par_chunks(rows * width);
            let operands = operands.zip(y.data.par_chunks(rows * width));
            let tasks = gradient.par_chunks_mut(rows * width).zip(operands);
            tasks
                .zip(pass.dy.par_chunks(rows))
                .for_each(|((gradient, (x, y)), dd)| {
                    let operands = x.chunks_exact(width).zip(y.chunks_exact(width));
                    let rows = gradient.chunks_exact_mut(width).zip(operands);
                    for ((gradient, (x, y)), dd) in rows.zip(dd) {
                        let scale = factor * dd;
                        let pairs = x.iter().zip(y);
                        let each = gradient.iter_mut().zip(pairs);
                        each.for_each(|(gradient, (x, y))| *gradient = scale * (x - y));
                    }
                });
            gradient
        };
        let [of_x, of_y] = pass.expected;
        Ok([of_x.then(|| along(2.0)), of_y.then(|| along(-2.0))].map(Gradient::from))
    }
}

/// E, x and y, distances.
struct Forward<'a>(usize, [&'a [f32]; 2], &'a mut [f32]);

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Forward(width, [x, y], distances) = self;
        let rows = x.chunks_exact(width).zip(y.chunks_exact(width));
        for (distance, (x, y)) in distances.iter_mut().zip(rows) {
            let (x, x_tail) = S::as_simd_f32s(x);
            let (y, y_tail) = S::as_simd_f32s(y);
            let [x_tail, y_tail] = [x_tail, y_tail].map(|tail| s.partial_load_f32s(tail));
            let squared = |sum, x, y| {
                let apart = s.sub_f32s(x, y);
                s.fma(apart, apart, sum)
            };
            let sum = squared(s.splat_f32s(0.0), x_tail, y_tail);
            let sum = x
                .iter()
                .zip(y)
                .fold(sum, |sum, (x, y)| squared(sum, *x, *y));
            *distance = s.reduce_sum_f32s(sum);
        }
    }
}
