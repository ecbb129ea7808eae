//! A sum by the kernel of `cuda.cu`. candle's keeps both operands; this keeps nothing, and both
//! have the gradient of the sum.

use candle_core::{DType, Result, Tensor};

use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, Module, module};

const MODULE: Module = module!("ops-add-cuda");
const THREADS: usize = 256;
/// Elements of a block.
const ELEMENTS: usize = 4 * THREADS;

/// Returns `a + b`, two tensors of the same shape.
pub(in crate::ops) fn add(gpu: &Gpu, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (a, b) = (a.contiguous()?, b.contiguous()?);
    let y = gpu.empty(a.shape(), DType::F32)?;
    let count = a.elem_count();
    let [of_a, of_b] = [&a, &b].map(|x| gpu.floats(x, count));
    let grid = Grid::new([count.div_ceil(ELEMENTS), 1, 1], THREADS);
    let count = Argument::Long(count as i64);
    let arguments = [of_a?, of_b?, y.pointer(), count];
    gpu.launch(&MODULE, "add", grid, &arguments)?;
    with_backward("add", &[&a, &b], y.into_output(), false, |_, dy| {
        Ok(vec![Some(dy.clone()); 2])
    })
}
