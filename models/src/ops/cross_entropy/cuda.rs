//! The softmax cross-entropy by the kernels of `cuda.cu`.

use candle_core::{DType, Result, Tensor};

use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, Module, module};

const MODULE: Module = module!("ops-cross_entropy-cuda");
/// Rows of a block, and threads.
const ROWS: usize = 8;
const THREADS: usize = 256;

/// Returns the cross-entropy of each row of x (B, C) with labels (B) of type u32: (B).
pub(in crate::ops) fn cross_entropies(gpu: &Gpu, x: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let (x, labels) = (x.contiguous()?, labels.contiguous()?);
    let (rows, classes) = x.dims2()?;
    let losses = gpu.empty(rows, DType::F32)?;
    let grid = Grid::new([rows.div_ceil(ROWS), 1, 1], THREADS);
    let sizes = [Argument::size(rows)?, Argument::size(classes)?];
    let of_x = gpu.floats(&x, rows * classes)?;
    let of_labels = gpu.pointer(&labels, DType::U32, rows)?;
    let arguments = [of_x, of_labels, losses.pointer(), sizes[0], sizes[1]];
    gpu.launch(&MODULE, "cross_entropy_forward", grid, &arguments)?;
    let (gpu, kept) = (gpu.clone(), [x.detach(), labels]);
    let output = losses.into_output();
    with_backward("cross-entropy", &[&x], output, false, move |_, dlosses| {
        let dx = gpu.empty((rows, classes), DType::F32)?;
        let x = gpu.floats(&kept[0], rows * classes)?;
        let labels = gpu.pointer(&kept[1], DType::U32, rows)?;
        let dlosses = gpu.floats(dlosses, rows)?;
        let arguments = [x, labels, dlosses, dx.pointer(), sizes[0], sizes[1]];
        gpu.launch(&MODULE, "cross_entropy_backward", grid, &arguments)?;
        Ok(vec![Some(dx.into_tensor())])
    })
}
