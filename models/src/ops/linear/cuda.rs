//! The linear map with a bias on a GPU: products of a library, and the kernels of `cuda.cu`. Keeps
//! x and the weight, and neither the product nor the sum.

use candle_core::{DType, Tensor};

use super::matmul;
use crate::Result;
use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, MOST_BLOCKS, Module, module, sum_parts};

const MODULE: Module = module!("ops-linear-cuda");
/// Columns and rows of a block, and threads.
const COLUMNS: usize = 32;
const SEGMENT: usize = 512;
const THREADS: usize = 256;

/// Returns whether a grid has blocks enough for so many rows.
pub(super) fn takes(rows: usize) -> bool {
    rows.div_ceil(SEGMENT) <= MOST_BLOCKS
}

/// Returns x (.., K) times the transposed weight (N, K), plus bias (N): `dims`, which are (.., N).
pub(in crate::ops) fn linear(
    gpu: &Gpu,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    dims: Vec<usize>,
) -> Result<Tensor> {
    let bias = bias.contiguous()?;
    let (width, inputs) = weight.dims2()?;
    let rows = x.elem_count() / inputs;
    let kept = [x.detach().reshape((rows, inputs))?, weight.detach()];
    let product = matmul(&kept[0], &kept[1].t()?)?;
    let segments = rows.div_ceil(SEGMENT);
    let grid = Grid::new([width.div_ceil(COLUMNS), segments, 1], THREADS);
    let sizes = [Argument::size(rows)?, Argument::size(width)?];
    let y = gpu.empty(dims, DType::F32)?;
    let of_product = gpu.floats(&product, rows * width)?;
    let operands = [of_product, gpu.floats(&bias, width)?, y.pointer()];
    let arguments = [&operands[..], &sizes].concat();
    gpu.launch(&MODULE, "linear_bias", grid, &arguments)?;
    let (gpu, of_x) = (gpu.clone(), x.track_op());
    let operands = [x, weight, &bias];
    let output = y.into_output();
    let y = with_backward("linear", &operands, output, false, move |_, dy| {
        let [x, weight] = &kept;
        let dy = &dy.reshape((rows, width))?;
        let part = gpu.empty((segments, width), DType::F32)?;
        let operands = [gpu.floats(dy, rows * width)?, part.pointer()];
        let arguments = [&operands[..], &sizes].concat();
        gpu.launch(&MODULE, "linear_bias_gradient", grid, &arguments)?;
        let dbias = sum_parts(&gpu, &part, segments, width)?;
        let product = |a: &Tensor, b: &Tensor| matmul(a, b).map_err(candle_core::Error::wrap);
        let dx = of_x.then(|| product(dy, weight)).transpose()?;
        let dweight = product(&dy.t()?, x)?;
        Ok(vec![dx, Some(dweight), Some(dbias)])
    });
    Ok(y?)
}
