//! Tensors one after the other along an axis. The gradient of each is cut out of the gradient of
//! all, and no operand is kept.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::unspecified;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Elements per parallel task, about.
const CHUNK: usize = 16 * 1024;

/// Concatenates `parts`, whose shapes differ in `axis` alone.
pub fn cat<const N: usize>(parts: [&Tensor; N], axis: usize) -> Result<Tensor> {
    let others = |x: &Tensor| {
        let mut dims = x.dims().to_vec();
        (axis < dims.len()).then(|| dims.remove(axis));
        dims
    };
    let first = parts[0];
    let fits = |x: &&Tensor| x.rank() == first.rank() && others(x) == others(first);
    if axis >= first.rank() || !parts.iter().all(fits) || first.elem_count() == 0 {
        let shapes = parts.map(Tensor::shape);
        bail!("{NAME}: {shapes:?} along axis {axis}");
    }
    apply(Cat { axis }, parts)
}

const NAME: &str = "cat";

struct Cat {
    axis: usize,
}

impl Cat {
    /// Returns elements of each part from one step of the axes before to the next.
    fn widths<const N: usize>(&self, parts: &[View; N]) -> [usize; N] {
        let width = |x: &View| x.shape.dims()[self.axis..].iter().product();
        parts.each_ref().map(width)
    }
}

impl<const N: usize> CustomOp<N> for Cat {
    const NAME: &'static str = NAME;
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, parts: [View; N], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let widths = self.widths(&parts);
        let width: usize = widths.iter().sum();
        let rows = parts[0].data.len() / widths[0];
        let per_task = (CHUNK / width).max(1);
        let mut y = unspecified(rows * width);
        let tasks = y.par_chunks_mut(per_task * width).enumerate();
        tasks.for_each(|(task, y)| {
            for (row, y) in (task * per_task..).zip(y.chunks_exact_mut(width)) {
                let mut rest = y;
                for (part, width) in parts.iter().zip(widths) {
                    let (y, others) = rest.split_at_mut(width);
                    y.copy_from_slice(&part.data[row * width..][..width]);
                    rest = others;
                }
            }
        });
        let mut dims = parts[0].shape.dims().to_vec();
        dims[self.axis] = parts.iter().map(|x| x.shape.dims()[self.axis]).sum();
        Ok((y, dims.into(), ()))
    }

    fn backward(&self, parts: [View; N], pass: BackwardPass<(), N>) -> Result<[Gradient; N]> {
        let widths = self.widths(&parts);
        let all: usize = widths.iter().sum();
        Ok(std::array::from_fn(|index| {
            let (first, width) = (widths[..index].iter().sum::<usize>(), widths[index]);
            let cut = || {
                let per_task = (CHUNK / width).max(1);
                let mut gradient = unspecified(parts[index].shape.elem_count());
                let tasks = gradient.par_chunks_mut(per_task * width);
                let rows = tasks.zip(pass.dy.par_chunks(per_task * all));
                rows.for_each(|(gradient, dy)| {
                    let rows = gradient.chunks_exact_mut(width).zip(dy.chunks_exact(all));
                    rows.for_each(|(x, dy)| x.copy_from_slice(&dy[first..first + width]));
                });
                gradient
            };
            pass.expected[index].then(cut).into()
        }))
    }
}
