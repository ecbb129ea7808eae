//! Dropout by the kernel of `cuda.cu`, which drops the elements that the CPU drops.

use candle_core::{D, DType, Device, Result, Tensor};

use super::DropoutMask;
use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, MOST_BLOCKS, Module, module};
use crate::rng::{Stream, mask_constants};

const MODULE: Module = module!("ops-dropout-cuda");
const THREADS: usize = 128;
/// Positions of a thread, where they share a mask.
const REPEATS: usize = 64;
/// Elements whose words are drawn by 16 threads.
const GROUP: usize = 64;

/// Returns whether a grid has blocks enough for x (B, ..), which is not empty, and its mask.
pub(super) fn takes(x: &Tensor, mask: &DropoutMask) -> bool {
    let (batch, width) = (x.dims().first(), x.dims().last());
    let (batch, width) = (batch.copied().unwrap_or(1), width.copied().unwrap_or(1));
    let positions = match mask.tied {
        true => x.elem_count() / batch / width,
        false => 1,
    };
    batch.max(positions.div_ceil(REPEATS)) <= MOST_BLOCKS
}

/// Returns `residual`, if any, plus x (B, ..) with the elements of `mask` dropped. The mask is not
/// of a packed batch.
pub(in crate::ops) fn dropout(
    gpu: &Gpu,
    x: &Tensor,
    residual: Option<&Tensor>,
    mask: &DropoutMask,
) -> Result<Tensor> {
    let x = x.contiguous()?;
    let residual = residual.map(Tensor::contiguous).transpose()?;
    let launch = Dropout {
        gpu: gpu.clone(),
        stream: Argument::words(&philox_words(&mask.stream, mask.rate)),
        batch: x.dim(0)?,
        elements: x.elem_count() / x.dim(0)?,
        period: match mask.tied {
            true => x.dim(D::Minus1)?,
            false => x.elem_count() / x.dim(0)?,
        },
    };
    let y = gpu.empty(x.shape(), DType::F32)?;
    let elements = x.elem_count();
    let added = match &residual {
        Some(residual) => gpu.floats(residual, elements)?,
        None => Argument::NULL,
    };
    launch.run(gpu.floats(&x, elements)?, added, y.pointer())?;
    let mut operands = vec![&x];
    operands.extend(&residual);
    let count = operands.len();
    with_backward(
        "dropout",
        &operands,
        y.into_output(),
        false,
        move |_, dy| {
            let dx = launch.gpu.empty(dy.shape(), DType::F32)?;
            let of_dy = launch.gpu.floats(dy, elements)?;
            launch.run(of_dy, Argument::NULL, dx.pointer())?;
            let mut gradients = vec![Some(dx.into_tensor())];
            gradients.resize(count, Some(dy.clone()));
            Ok(gradients)
        },
    )
}

struct Dropout {
    gpu: Gpu,
    stream: Argument,
    batch: usize,
    elements: usize,
    period: usize,
}

impl Dropout {
    fn run(&self, x: Argument, residual: Argument, y: Argument) -> Result<()> {
        let threads = self.period.div_ceil(GROUP) * (GROUP / 4);
        let positions = self.elements.div_ceil(self.period);
        let blocks = [
            threads.div_ceil(THREADS),
            self.batch,
            positions.div_ceil(REPEATS),
        ];
        let long = |size: usize| Argument::Long(size as i64);
        let arguments = [
            x,
            residual,
            y,
            self.stream,
            Argument::NULL,
            Argument::Int(0),
            long(self.elements),
            long(self.period),
        ];
        self.gpu
            .launch(&MODULE, "dropout", Grid::new(blocks, THREADS), &arguments)
    }
}

/// Returns the factors, 0 or 1 / (1 - rate), of `elements` elements of each of `batch` examples:
/// (batch, elements). `words` is the structure `Philox`.
pub(in crate::ops) fn factors(
    gpu: &Gpu,
    words: [u32; 7],
    (batch, elements): (usize, usize),
    device: &Device,
) -> Result<Tensor> {
    let ones = Tensor::ones((batch, elements), DType::F32, device)?;
    let launch = Dropout {
        gpu: gpu.clone(),
        stream: Argument::words(&words),
        batch,
        elements,
        period: elements,
    };
    let factors = gpu.empty((batch, elements), DType::F32)?;
    let ones = gpu.floats(&ones, batch * elements)?;
    launch.run(ones, Argument::NULL, factors.pointer())?;
    Ok(factors.into_tensor())
}

/// Returns the structure `Philox` of `cuda/philox.cuh` as bits.
fn philox_words(stream: &Stream, rate: f64) -> [u32; 7] {
    let ([key0, key1], [row, tail0, tail1]) = (stream.key(), stream.counter(0));
    let (threshold, keep) = mask_constants(rate);
    [key0, key1, row, tail0, tail1, threshold, keep.to_bits()]
}
