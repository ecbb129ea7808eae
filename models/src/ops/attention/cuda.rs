//! Softmax attention over all keys in tiles, by the kernels of `cuda.cu`.

use candle_core::{DType, Result, Tensor};

use super::AttentionOptions;
use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, Module, module};

const MODULE: Module = module!("ops-attention-cuda");
const THREADS: usize = 256;
/// Rows of a block.
const OWN: usize = 64;
/// Widest head.
const WIDEST: usize = 64;

/// Returns whether the kernels compute this attention: every query on every valid key, values as
/// wide as keys.
pub(super) fn takes(k: &Tensor, v: &Tensor, options: &AttentionOptions) -> bool {
    let AttentionOptions {
        heads,
        scale: _,
        mask: _,
        dropout: _,
        block_masks,
        relative,
        soft_cap,
        key_columns,
        padded_queries: _,
    } = options;
    let plain = block_masks.is_none() && relative.is_none() && soft_cap.is_none();
    let widths = [k.dims().last(), v.dims().last()].map(|width| width.copied().unwrap_or(0));
    let fits = widths[0] == widths[1] && *heads > 0 && widths[0] <= heads * WIDEST;
    plain && fits && key_columns.is_none() && k.elem_count() > 0
}

/// Returns attention (B, Lq, H E) of q (B, Lq, H E) on k and v (B, Lk, H E).
pub(super) fn attend(
    gpu: &Gpu,
    [q, k, v]: [&Tensor; 3],
    options: &AttentionOptions,
) -> Result<Tensor> {
    let [q, k, v] = [q, k, v].map(Tensor::contiguous);
    let (q, k, v) = (q?, k?, v?);
    let ((batch, queries, row), keys, heads) = (q.dims3()?, k.dim(1)?, options.heads);
    options.check(batch, (queries, keys), [row, k.dim(2)?, v.dim(2)?])?;
    let width = row / heads;
    let sizes = [heads, queries, keys, width].map(|size| size as u32);
    let scale = options.scale.unwrap_or((width as f64).powf(-0.5)) as f32;
    let dropout = options.dropout.as_ref();
    let stream = dropout.map_or([0; 7], super::AttentionDropout::philox_words);
    let drops = u32::from(dropout.is_some());
    let words = [&sizes[..], &[scale.to_bits(), drops], &stream].concat();
    let of = Argument::words(&words);
    let grid = move |length: usize, numbers: usize| Grid {
        blocks: [length.div_ceil(OWN), batch * heads, 1],
        threads: THREADS,
        shared: 4 * numbers,
    };
    // Numbers in shared memory: two tables of own rows forward, two more of a tile backward, and
    // rows of a tile with their factors.
    let [own, tile] = [2 * 68 * width, 2 * 36 * width];
    let [of_forward, of_backward] = [64 * (64 + 68), 32 * (64 + 68)];
    let mask = options.mask.as_ref().map(Tensor::contiguous).transpose()?;
    let valid = move |gpu: &Gpu| match &mask {
        Some(mask) => gpu.pointer(mask),
        None => Ok(Argument::NULL),
    };
    let y = gpu.empty(q.shape(), DType::F32)?;
    let logs = gpu.empty((batch, heads, queries), DType::F32)?;
    let operands = [gpu.pointer(&q)?, gpu.pointer(&k)?, gpu.pointer(&v)?];
    let arguments = [valid(gpu)?, y.pointer(), logs.pointer(), of];
    let arguments = [&operands[..], &arguments].concat();
    gpu.launch(
        &MODULE,
        "attention_forward",
        grid(queries, own + of_forward),
        &arguments,
    )?;
    let (gpu, kept) = (gpu.clone(), [&q, &k, &v].map(Tensor::detach));
    let output = y.into_output();
    with_backward("attention", &[&q, &k, &v], output, true, move |y, dy| {
        let [q, k, v] = &kept;
        let operands = [gpu.pointer(q)?, gpu.pointer(k)?, gpu.pointer(v)?];
        let (valid, dy, logs) = (valid(&gpu)?, gpu.pointer(dy)?, logs.pointer());
        let [dq, dk, dv] = [q, k, v].map(|x| gpu.empty(x.shape(), DType::F32));
        let (dq, dk, dv) = (dq?, dk?, dv?);
        let dots = gpu.empty((batch, heads, queries), DType::F32)?;
        let rest = [
            valid,
            gpu.pointer(y)?,
            logs,
            dy,
            dq.pointer(),
            dots.pointer(),
            of,
        ];
        let arguments = [&operands[..], &rest].concat();
        let shape = grid(queries, own + tile + of_backward);
        gpu.launch(&MODULE, "attention_backward_queries", shape, &arguments)?;
        let rest = [
            valid,
            logs,
            dots.pointer(),
            dy,
            dk.pointer(),
            dv.pointer(),
            of,
        ];
        let arguments = [&operands[..], &rest].concat();
        let shape = grid(keys, own + tile + 2 * of_backward);
        gpu.launch(&MODULE, "attention_backward_keys", shape, &arguments)?;
        Ok([dq, dk, dv]
            .map(|gradient| Some(gradient.into_tensor()))
            .into())
    })
}
