//! The transpose of matrices, by the kernel of `transpose.cu`.

use candle_core::{DType, Result, Tensor};

use super::{Argument, Buffer, Gpu, Grid, Module, module};

const MODULE: Module = module!("cuda-transpose");
const TILE: usize = 32;
const THREADS: usize = 256;

/// Returns x (B, R, C), contiguous, as (B, C, R).
///
/// # Errors
/// If x has not three axes, or the launch fails.
pub(crate) fn transpose(gpu: &Gpu, x: &Tensor) -> Result<Buffer> {
    let (batch, rows, columns) = x.dims3()?;
    let y = gpu.empty((batch, columns, rows), DType::F32)?;
    let blocks = [columns.div_ceil(TILE), rows.div_ceil(TILE), batch];
    let arguments = [
        gpu.floats(x, batch * rows * columns)?,
        y.pointer(),
        Argument::size(rows)?,
        Argument::size(columns)?,
    ];
    gpu.launch(&MODULE, "transpose", Grid::new(blocks, THREADS), &arguments)?;
    Ok(y)
}
