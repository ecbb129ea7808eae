//! Some columns of rows, with a gradient that is zero in the others.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::unspecified;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Elements per parallel task, about.
const CHUNK: usize = 16 * 1024;

/// Returns columns `first..first + count` of x (.., W).
pub fn columns(x: &Tensor, first: usize, count: usize) -> Result<Tensor> {
    let width = x.dims().last().copied().unwrap_or(0);
    if count == 0 || first + count > width {
        let name = Columns::NAME;
        bail!("{name}: {count} columns from {first} on of {:?}", x.shape());
    }
    apply(Columns { first, count }, [x])
}

struct Columns {
    first: usize,
    count: usize,
}

/// Returns W, and the rows of one task.
fn sizes(x: &Shape) -> (usize, usize) {
    let width = x.dims().last().copied().unwrap_or(1);
    (width, (CHUNK / width).max(1))
}

impl CustomOp<1> for Columns {
    const NAME: &'static str = "columns";
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [x]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let (first, count) = (self.first, self.count);
        let (width, rows) = sizes(&x.shape);
        let mut y = unspecified(x.data.len() / width * count);
        let tasks = y.par_chunks_mut(rows * count);
        tasks
            .zip(x.data.par_chunks(rows * width))
            .for_each(|(y, x)| {
                for (y, x) in y.chunks_exact_mut(count).zip(x.chunks_exact(width)) {
                    y.copy_from_slice(&x[first..first + count]);
                }
            });
        let mut shape = x.shape.dims().to_vec();
        shape.pop();
        shape.push(count);
        Ok((y, shape.into(), ()))
    }

    fn backward(&self, [x]: [View; 1], pass: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
        let (first, count) = (self.first, self.count);
        let (width, rows) = sizes(&x.shape);
        let mut dx = unspecified(x.shape.elem_count());
        let tasks = dx.par_chunks_mut(rows * width);
        tasks
            .zip(pass.dy.par_chunks(rows * count))
            .for_each(|(dx, dy)| {
                for (dx, dy) in dx.chunks_exact_mut(width).zip(dy.chunks_exact(count)) {
                    dx[..first].fill(0.0);
                    dx[first..first + count].copy_from_slice(dy);
                    dx[first + count..].fill(0.0);
                }
            });
        Ok([dx.into()])
    }
}
