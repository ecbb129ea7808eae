//! The linear recurrence by the kernels of `cuda.cu`, in chunks of the sequence.

use candle_core::{DType, Result, Tensor};

use super::ScanOptions;
use crate::autograd::with_backward;
use crate::cuda::{Argument, Buffer, Gpu, Grid, MOST_BLOCKS, Module, module, sum_parts};

const MODULE: Module = module!("ops-scan-cuda");
const THREADS: usize = 128;
/// Threads from which on a card is busy, so that a sequence need not be cut.
const ENOUGH_THREADS: usize = 1 << 18;
/// Least positions of a chunk.
const LEAST_CHUNK: usize = 64;

/// Returns whether a grid has blocks enough for x (B, L, W).
pub(super) fn takes(x: &Tensor) -> bool {
    x.dims3()
        .is_ok_and(|(batch, length, _)| batch.max(length.div_ceil(LEAST_CHUNK)) <= MOST_BLOCKS)
}

/// Returns all states of x (B, L, W) with coefficients a (W) or (B, L, W).
pub(super) fn scan(gpu: &Gpu, x: &Tensor, a: &Tensor, options: ScanOptions) -> Result<Tensor> {
    let (x, a) = (x.contiguous()?, a.contiguous()?);
    let chunked = ChunkedScan::new(gpu, &x, a.rank() == 3, options)?;
    let h = gpu.empty(x.shape(), DType::F32)?;
    let elements = x.elem_count();
    let coefficients = if chunked.varies {
        elements
    } else {
        chunked.width
    };
    let (of_x, of_a) = (gpu.floats(&x, elements)?, gpu.floats(&a, coefficients)?);
    let starts = chunked.starts(of_x, of_a, false)?;
    chunked.launch(
        "forward",
        [of_x, of_a, Argument::NULL],
        starts.as_ref(),
        &[h.pointer()],
    )?;
    let kept = a.detach();
    let output = h.into_output();
    with_backward("scan", &[&x, &a], output, true, move |h, dh| {
        let gpu = &chunked.gpu;
        let (dh, a) = (gpu.floats(dh, elements)?, gpu.floats(&kept, coefficients)?);
        let dx = gpu.empty(h.shape(), DType::F32)?;
        let parts = chunked.batch * chunked.chunks;
        let da = match chunked.varies {
            true => gpu.empty(h.shape(), DType::F32)?,
            false => gpu.empty((parts, chunked.width), DType::F32)?,
        };
        let starts = chunked.starts(dh, a, true)?;
        chunked.launch(
            "backward",
            [dh, gpu.floats(h, elements)?, a],
            starts.as_ref(),
            &[dx.pointer(), da.pointer()],
        )?;
        let da = match chunked.varies {
            true => da.into_tensor(),
            false => sum_parts(gpu, &da, parts, chunked.width)?,
        };
        Ok(vec![Some(dx.into_tensor()), Some(da)])
    })
}

/// Chunks of a scan, and the launches of their kernels.
struct ChunkedScan {
    gpu: Gpu,
    options: ScanOptions,
    /// True if every token has coefficients of its own.
    varies: bool,
    batch: usize,
    width: usize,
    chunks: usize,
    /// Complex or real elements of a row.
    elements: usize,
    /// L, E, positions of a chunk, `varies` and `reverse`.
    sizes: [Argument; 5],
}

impl ChunkedScan {
    fn new(gpu: &Gpu, x: &Tensor, varies: bool, options: ScanOptions) -> Result<Self> {
        let (batch, length, width) = x.dims3()?;
        let elements = width / if options.complex { 2 } else { 1 };
        // Of the shape alone, so that equal runs add in equal order.
        let wanted = ENOUGH_THREADS.div_ceil(batch * elements);
        let chunk = length.div_ceil(wanted).max(LEAST_CHUNK).min(length);
        Ok(Self {
            gpu: gpu.clone(),
            options,
            varies,
            batch,
            width,
            chunks: length.div_ceil(chunk),
            elements,
            sizes: [
                Argument::size(length)?,
                Argument::size(elements)?,
                Argument::size(chunk)?,
                varies.into(),
                options.reverse.into(),
            ],
        })
    }

    fn kernel(&self, part: &str) -> String {
        let numbers = if self.options.complex {
            "complex"
        } else {
            "real"
        };
        format!("scan_{numbers}_{part}")
    }

    fn grid(&self) -> Grid {
        let blocks = self.elements.div_ceil(THREADS);
        Grid::new([blocks, self.chunks, self.batch], THREADS)
    }

    /// Returns the states at the chunks' starts, or none for a single chunk. `adjoint` is true for
    /// the recurrence of the backward pass.
    fn starts(&self, x: Argument, a: Argument, adjoint: bool) -> Result<Option<Buffer>> {
        if self.chunks == 1 {
            return Ok(None);
        }
        let shape = (self.batch, self.chunks, self.width);
        let ends = self.gpu.empty(shape, DType::F32)?;
        let products = self.gpu.empty(shape, DType::F32)?;
        let operands = [x, a, Argument::NULL, ends.pointer(), products.pointer()];
        let arguments = [&operands[..], &self.sizes, &[adjoint.into()]].concat();
        self.gpu
            .launch(&MODULE, &self.kernel("ends"), self.grid(), &arguments)?;
        let grid = Grid::new([self.elements.div_ceil(THREADS), self.batch, 1], THREADS);
        let arguments = [
            ends.pointer(),
            products.pointer(),
            Argument::size(self.chunks)?,
            self.sizes[1],
        ];
        self.gpu
            .launch(&MODULE, &self.kernel("starts"), grid, &arguments)?;
        Ok(Some(ends))
    }

    /// Launches the kernels over all positions.
    fn launch(
        &self,
        part: &str,
        operands: [Argument; 3],
        starts: Option<&Buffer>,
        outputs: &[Argument],
    ) -> Result<()> {
        let starts = starts.map_or(Argument::NULL, Buffer::pointer);
        // The resets come before the starts: backward behind the third operand.
        let resets: &[Argument] = match part {
            "forward" => &[],
            _ => &[Argument::NULL],
        };
        let arguments = [&operands, resets, &[starts], outputs, &self.sizes].concat();
        self.gpu
            .launch(&MODULE, &self.kernel(part), self.grid(), &arguments)
    }
}
