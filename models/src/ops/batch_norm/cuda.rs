//! BatchNorm by the kernels of `cuda.cu`.

use candle_core::{D, DType, Result, Tensor};

use super::Normalised;
use crate::autograd::with_backward;
use crate::cuda::{Argument, Buffer, Gpu, Grid, MOST_BLOCKS, Module, module, sum_parts};

const MODULE: Module = module!("ops-batch_norm-cuda");
/// Columns and rows of a block, and threads.
const COLUMNS: usize = 32;
const SEGMENT: usize = 512;
const THREADS: usize = 256;

/// Returns whether a grid has blocks enough for x (.., D), which is not empty.
pub(super) fn takes(x: &Tensor) -> bool {
    let width = x.dims().last().copied().unwrap_or(1);
    (x.elem_count() / width).div_ceil(SEGMENT) <= MOST_BLOCKS
}

/// Statistics of the rows of x that count.
pub(in crate::ops) struct Statistics {
    /// Mean and variance, (2, D).
    pub(in crate::ops) moments: Tensor,
    /// The number of these rows.
    count: Buffer,
    /// A number for each row (R), which is 0 if the row does not count; `None` if all count.
    valid: Option<Tensor>,
}

/// Returns the statistics of the rows of x (.., D) whose number in `valid` (..) is not 0; of all
/// without it.
pub(in crate::ops) fn statistics(
    gpu: &Gpu,
    x: &Tensor,
    valid: Option<&Tensor>,
) -> Result<Statistics> {
    let x = x.contiguous()?;
    let valid = valid.map(|valid| valid.detach().contiguous()).transpose()?;
    let rows = Rows::of(gpu, &x)?;
    let part = gpu.empty((rows.segments, 3, rows.width), DType::F32)?;
    let operands = [rows.floats(&x)?, rows.pointer(valid.as_ref())?];
    let arguments = [&operands[..], &[part.pointer()], &rows.sizes].concat();
    gpu.launch(&MODULE, "batch_norm_segments", rows.grid(), &arguments)?;
    let moments = gpu.empty((2, rows.width), DType::F32)?;
    let count = gpu.empty(1, DType::F32)?;
    let arguments = [
        part.pointer(),
        moments.pointer(),
        count.pointer(),
        Argument::size(rows.segments)?,
        rows.sizes[1],
    ];
    let grid = Grid::new([rows.width.div_ceil(COLUMNS), 1, 1], THREADS);
    gpu.launch(&MODULE, "batch_norm_moments", grid, &arguments)?;
    Ok(Statistics {
        moments: moments.into_tensor(),
        count,
        valid,
    })
}

/// Returns y (.., D) of x (.., D) by `moments` (2, D). They are constants; with `own` they are
/// those of x, and the gradient knows it.
pub(in crate::ops) fn norm(
    gpu: &Gpu,
    x: &Tensor,
    norm: &Normalised,
    moments: &Tensor,
    own: Option<Statistics>,
) -> Result<Tensor> {
    let [x, gain, offset] = [x, norm.weight, norm.bias].map(Tensor::contiguous);
    let (x, gain, offset, moments) = (x?, gain?, offset?, moments.contiguous()?);
    let rows = Rows::of(gpu, &x)?;
    let epsilon = Argument::Float(norm.epsilon as f32);
    let y = gpu.empty(x.shape(), DType::F32)?;
    let width = rows.width;
    let [of_gain, of_offset] = [&gain, &offset].map(|x| gpu.floats(x, width));
    let of_moments = gpu.floats(&moments, 2 * width)?;
    let operands = [rows.floats(&x)?, of_gain?, of_offset?, of_moments];
    let arguments = [&operands[..], &[y.pointer()], &rows.sizes, &[epsilon]].concat();
    gpu.launch(&MODULE, "batch_norm_forward", rows.grid(), &arguments)?;
    let operands = [&x, &gain, &offset];
    let kept = [x.detach(), gain.detach(), moments.detach()];
    let output = y.into_output();
    with_backward("batch norm", &operands, output, false, move |_, dy| {
        let gpu = &rows.gpu;
        let [x, dy] = [rows.floats(&kept[0])?, rows.floats(dy)?];
        let [gain, moments] = [
            gpu.floats(&kept[1], width)?,
            gpu.floats(&kept[2], 2 * width)?,
        ];
        let parts = gpu.empty((rows.segments, 2, rows.width), DType::F32)?;
        let operands = [x, moments, dy, parts.pointer()];
        let arguments = [&operands[..], &rows.sizes, &[epsilon]].concat();
        gpu.launch(&MODULE, "batch_norm_parameters", rows.grid(), &arguments)?;
        let sums = sum_parts(gpu, &parts, rows.segments, (2, rows.width))?;
        let own = match &own {
            Some(of_x) => [
                rows.pointer(of_x.valid.as_ref())?,
                gpu.floats(&sums, 2 * width)?,
                of_x.count.pointer(),
            ],
            None => [Argument::NULL; 3],
        };
        let dx = gpu.empty(kept[0].shape(), DType::F32)?;
        let operands = [x, gain, moments, dy];
        let arguments = [
            &operands[..],
            &own,
            &[dx.pointer()],
            &rows.sizes,
            &[epsilon],
        ]
        .concat();
        gpu.launch(&MODULE, "batch_norm_backward", rows.grid(), &arguments)?;
        let [dgain, doffset] = [sums.get(0)?, sums.get(1)?];
        Ok(vec![Some(dx.into_tensor()), Some(dgain), Some(doffset)])
    })
}

/// The launches over the rows of one tensor (R, D).
struct Rows {
    gpu: Gpu,
    rows: usize,
    width: usize,
    segments: usize,
    /// R and D.
    sizes: [Argument; 2],
}

impl Rows {
    fn of(gpu: &Gpu, x: &Tensor) -> Result<Self> {
        let width = x.dim(D::Minus1)?;
        let rows = x.elem_count() / width;
        Ok(Self {
            gpu: gpu.clone(),
            rows,
            width,
            segments: rows.div_ceil(SEGMENT),
            sizes: [Argument::size(rows)?, Argument::size(width)?],
        })
    }

    fn grid(&self) -> Grid {
        let blocks = [self.width.div_ceil(COLUMNS), self.segments, 1];
        Grid::new(blocks, THREADS)
    }

    /// Returns the address of a tensor (R, D).
    fn floats(&self, x: &Tensor) -> Result<Argument> {
        self.gpu.floats(x, self.rows * self.width)
    }

    /// Returns the address of which rows count, none if all do.
    fn pointer(&self, valid: Option<&Tensor>) -> Result<Argument> {
        match valid {
            Some(valid) => self.gpu.floats(valid, self.rows),
            None => Ok(Argument::NULL),
        }
    }
}
