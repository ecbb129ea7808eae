//! LayerNorm and RMSNorm by the kernels of `cuda.cu`.

use candle_core::{D, DType, Result, Tensor};

use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, MOST_BLOCKS, Module, module, sum_parts};

const MODULE: Module = module!("ops-norm-cuda");
/// Rows of a block, and threads.
const ROWS: usize = 8;
const THREADS: usize = 256;
/// Columns and rows of a block of `norm_parameters`.
const COLUMNS: usize = 32;
const SEGMENT: usize = 512;

/// Returns whether a grid has blocks enough for x (.., D), which is not empty.
pub(in crate::ops) fn takes(x: &Tensor) -> bool {
    let width = x.dims().last().copied().unwrap_or(1);
    (x.elem_count() / width).div_ceil(SEGMENT) <= MOST_BLOCKS
}

/// Returns the LayerNorm of x (.., D) with `bias` (D), or the RMSNorm without; `weight` is (D).
pub(in crate::ops) fn norm(
    gpu: &Gpu,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    epsilon: f64,
) -> Result<Tensor> {
    let [x, weight] = [x, weight].map(Tensor::contiguous);
    let (x, weight, bias) = (x?, weight?, bias.map(Tensor::contiguous).transpose()?);
    let width = x.dim(D::Minus1)?;
    let rows = x.elem_count() / width;
    let y = gpu.empty(x.shape(), DType::F32)?;
    let scales = gpu.empty(rows, DType::F32)?;
    let means = match &bias {
        Some(_) => Some(gpu.empty(rows, DType::F32)?),
        None => None,
    };
    let sizes = [Argument::size(rows)?, Argument::size(width)?];
    let grid = Grid::new([rows.div_ceil(ROWS), 1, 1], THREADS);
    let elements = rows * width;
    let mut arguments = vec![gpu.floats(&x, elements)?, gpu.floats(&weight, width)?];
    if let Some(bias) = &bias {
        arguments.push(gpu.floats(bias, width)?);
    }
    arguments.push(y.pointer());
    arguments.extend(means.as_ref().map(crate::cuda::Buffer::pointer));
    arguments.push(scales.pointer());
    arguments.extend(sizes);
    arguments.push(Argument::Float(epsilon as f32));
    let name = match bias {
        Some(_) => "layer_norm_forward",
        None => "rms_norm_forward",
    };
    gpu.launch(&MODULE, name, grid, &arguments)?;
    let (gpu, kept) = (gpu.clone(), [x.detach(), weight.detach()]);
    let mut operands = vec![&x, &weight];
    operands.extend(&bias);
    let name = if bias.is_some() {
        "layer norm"
    } else {
        "rms norm"
    };
    with_backward(name, &operands, y.into_output(), false, move |_, dy| {
        let [x, weight] = kept;
        let [x, weight] = [gpu.floats(&x, elements)?, gpu.floats(&weight, width)?];
        let (scales, dy) = (scales.pointer(), gpu.floats(dy, elements)?);
        let dx = gpu.empty((rows, width), DType::F32)?;
        let mut arguments = vec![x, weight];
        arguments.extend(means.as_ref().map(crate::cuda::Buffer::pointer));
        arguments.extend([scales, dy, dx.pointer()]);
        arguments.extend(sizes);
        let name = match &means {
            Some(_) => "layer_norm_backward",
            None => "rms_norm_backward",
        };
        gpu.launch(&MODULE, name, grid, &arguments)?;
        let segments = rows.div_ceil(SEGMENT);
        let parts = gpu.empty((segments, 2, width), DType::F32)?;
        let centre = means
            .as_ref()
            .map_or(Argument::NULL, crate::cuda::Buffer::pointer);
        let arguments = [x, centre, scales, dy, parts.pointer(), sizes[0], sizes[1]];
        let grid = Grid::new([width.div_ceil(COLUMNS), segments, 1], THREADS);
        gpu.launch(&MODULE, "norm_parameters", grid, &arguments)?;
        let sums = sum_parts(&gpu, &parts, segments, (2, width))?;
        let mut gradients = vec![Some(dx.into_tensor()), Some(sums.get(0)?)];
        if means.is_some() {
            gradients.push(Some(sums.get(1)?));
        }
        Ok(gradients)
    })
}
