//! Rows of a table by number, by the kernels of `cuda.cu`.

use candle_core::{DType, Result, Tensor};

use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, Module, module, sum_parts};

const MODULE: Module = module!("ops-embedding-cuda");
const THREADS: usize = 256;
/// Columns of a warp of the backward pass.
const COLUMNS: usize = 32;
/// Most rows of a table whose gradient is summed in shared memory: 64 KiB.
const MOST_ROWS: usize = 512;
/// Most segments of rows, and the least of them.
const SEGMENTS: usize = 256;
const LEAST_SEGMENT: usize = 64;

/// Returns whether the kernels take a table of this many rows.
pub(super) fn takes(vocabulary: usize) -> bool {
    vocabulary <= MOST_ROWS
}

/// Returns rows (R, D) of `table` (V, D) by `ids`, R of them in any shape.
pub(super) fn rows(gpu: &Gpu, ids: &Tensor, table: &Tensor) -> Result<Tensor> {
    let (ids, table) = (ids.to_dtype(DType::U32)?.contiguous()?, table.contiguous()?);
    let (rows, (vocabulary, width)) = (ids.elem_count(), table.dims2()?);
    let y = gpu.empty((rows, width), DType::F32)?;
    let sizes = [Argument::size(vocabulary)?, Argument::size(width)?];
    let numbers = Argument::Long((rows * width) as i64);
    let of_ids = gpu.pointer(&ids, DType::U32, rows)?;
    let of_table = gpu.floats(&table, vocabulary * width)?;
    let operands = [of_ids, of_table, y.pointer()];
    let arguments = [&operands[..], &[numbers], &sizes].concat();
    let grid = Grid::new([(rows * width).div_ceil(THREADS), 1, 1], THREADS);
    gpu.launch(&MODULE, "embedding_forward", grid, &arguments)?;
    let gpu = gpu.clone();
    let output = y.into_output();
    with_backward("embedding", &[&table], output, false, move |_, dy| {
        let segment = rows.div_ceil(SEGMENTS).max(LEAST_SEGMENT);
        let segments = rows.div_ceil(segment);
        let parts = gpu.empty((segments, vocabulary, width), DType::F32)?;
        let of_ids = gpu.pointer(&ids, DType::U32, rows)?;
        let operands = [of_ids, gpu.floats(dy, rows * width)?, parts.pointer()];
        let count = [Argument::size(rows)?];
        let arguments = [&operands[..], &count, &sizes, &[Argument::size(segment)?]].concat();
        let grid = Grid {
            blocks: [width.div_ceil(COLUMNS), segments, 1],
            threads: COLUMNS,
            shared: 4 * COLUMNS * vocabulary,
        };
        gpu.launch(&MODULE, "embedding_backward", grid, &arguments)?;
        let sum = sum_parts(&gpu, &parts, segments, (vocabulary, width))?;
        Ok(vec![Some(sum)])
    })
}
