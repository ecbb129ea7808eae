//! Softmax over the last dimension by the kernels of `cuda.cu`.

use candle_core::{D, DType, Result, Tensor};

use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, Module, module};

const MODULE: Module = module!("ops-softmax-cuda");
/// Rows of a block, and threads.
const ROWS: usize = 8;
const THREADS: usize = 256;

/// Returns softmax of x (B, .., K) over K; keys whose `valid` (B, K) is 0 get weight 0.
pub(in crate::ops) fn softmax(gpu: &Gpu, x: &Tensor, valid: Option<&Tensor>) -> Result<Tensor> {
    let x = x.contiguous()?;
    let valid = valid.map(Tensor::contiguous).transpose()?;
    let keys = x.dim(D::Minus1)?;
    let rows = x.elem_count() / keys;
    let rows_each = rows / x.dim(0)?;
    let y = gpu.empty(x.shape(), DType::F32)?;
    let elements = rows * keys;
    let valid = match &valid {
        Some(valid) => gpu.floats(valid, x.dim(0)? * keys)?,
        None => Argument::NULL,
    };
    let grid = Grid::new([rows.div_ceil(ROWS), 1, 1], THREADS);
    let [rows, rows_each, keys] = [rows, rows_each, keys].map(Argument::size);
    let (rows, keys) = (rows?, keys?);
    let of_x = gpu.floats(&x, elements)?;
    let arguments = [of_x, valid, y.pointer(), rows, rows_each?, keys];
    gpu.launch(&MODULE, "softmax_forward", grid, &arguments)?;
    let gpu = gpu.clone();
    with_backward("softmax", &[&x], y.into_output(), true, move |y, dy| {
        let dx = gpu.empty(dy.shape(), DType::F32)?;
        let [y, dy] = [y, dy].map(|x| gpu.floats(x, elements));
        let arguments = [y?, dy?, dx.pointer(), rows, keys];
        gpu.launch(&MODULE, "softmax_backward", grid, &arguments)?;
        Ok(vec![Some(dx.into_tensor())])
    })
}
