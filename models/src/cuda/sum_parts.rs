//! Sums of parts that blocks have left in memory, by the kernel of `sum_parts.cu`.

use candle_core::{DType, Result, Shape, Tensor};

use super::{Argument, Buffer, Gpu, Grid, Module, module};

const MODULE: Module = module!("cuda-sum_parts");
const THREADS: usize = 128;

/// Returns the sum of `count` parts, of this shape.
///
/// # Errors
/// If a launch fails.
pub(crate) fn sum_parts(
    gpu: &Gpu,
    parts: &Buffer,
    count: usize,
    shape: impl Into<Shape>,
) -> Result<Tensor> {
    let sum = gpu.empty(shape, DType::F32)?;
    let width = sum.elements();
    let grid = Grid::new([width.div_ceil(THREADS), 1, 1], THREADS);
    let arguments = [
        parts.pointer(),
        sum.pointer(),
        Argument::size(count)?,
        Argument::size(width)?,
    ];
    gpu.launch(&MODULE, "sum_parts", grid, &arguments)?;
    Ok(sum.into_tensor())
}
