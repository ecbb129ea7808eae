//! The selective scan by the kernels of `cuda.cu`.

use candle_core::{DType, Result, Tensor};

use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, MOST_BLOCKS, Module, module, sum_parts};

const MODULE: Module = module!("ops-selective_scan-cuda");
const THREADS: usize = 256;
/// Positions between two states that are kept.
const TILE: usize = 16;

/// Returns whether a grid has blocks enough for x (B, L, D).
pub(super) fn takes(x: &Tensor) -> bool {
    x.dims().first().is_some_and(|batch| *batch <= MOST_BLOCKS)
}

/// Returns y (B, L, D) of x, δ (B, L, D), a (D, N), projections (B, L, 2N) and skip (D).
pub(super) fn selective_scan(gpu: &Gpu, operands: [&Tensor; 5]) -> Result<Tensor> {
    let mut contiguous = Vec::new();
    for operand in operands {
        contiguous.push(operand.contiguous()?);
    }
    let launches = Launches::new(&contiguous)?;
    let Launches {
        batch,
        length,
        width,
        modes,
        ..
    } = launches;
    let rows = batch * length;
    let elements = [
        rows * width,
        rows * width,
        width * modes,
        rows * 2 * modes,
        width,
    ];
    let pointers = move |gpu: &Gpu, of: &[Tensor]| -> Result<Vec<Argument>> {
        let sized = of.iter().zip(elements);
        sized
            .map(|(operand, count)| gpu.floats(operand, count))
            .collect()
    };
    let trained = contiguous.iter().any(Tensor::track_op);
    let shape = (batch, length.div_ceil(TILE), width, modes);
    let states = match trained {
        true => Some(gpu.empty(shape, DType::F32)?),
        false => None,
    };
    let kept = states.as_ref().map_or(Argument::NULL, |it| it.pointer());
    let y = gpu.empty((batch, length, width), DType::F32)?;
    let arguments = [&pointers(gpu, &contiguous)?[..], &[y.pointer(), kept]].concat();
    launches.launch(gpu, "selective_scan_forward", &arguments)?;
    let saved: Vec<Tensor> = contiguous.iter().map(Tensor::detach).collect();
    let (gpu, output) = (gpu.clone(), y.into_output());
    let operands: Vec<&Tensor> = contiguous.iter().collect();
    let backward = move |_: &Tensor, dy: &Tensor| {
        let shape = (batch, length, width);
        let (dx, ddelta) = (gpu.empty(shape, DType::F32)?, gpu.empty(shape, DType::F32)?);
        let da = gpu.empty((batch, width, modes), DType::F32)?;
        let of_projections = (launches.groups, batch, length, 2 * modes);
        let dprojections = gpu.empty(of_projections, DType::F32)?;
        let dskip = gpu.empty((batch, width), DType::F32)?;
        let results = [&dx, &ddelta, &da, &dprojections, &dskip].map(|it| it.pointer());
        let states = states.as_ref().map_or(Argument::NULL, |it| it.pointer());
        let operands = pointers(&gpu, &saved)?;
        let of_dy = gpu.floats(dy, rows * width)?;
        let arguments = [&operands[..], &[states, of_dy], &results].concat();
        launches.launch(&gpu, "selective_scan_backward", &arguments)?;
        let da = sum_parts(&gpu, &da, batch, (width, modes))?;
        let shape = (batch, length, 2 * modes);
        let dprojections = sum_parts(&gpu, &dprojections, launches.groups, shape)?;
        let dskip = sum_parts(&gpu, &dskip, batch, width)?;
        let [dx, ddelta] = [dx, ddelta].map(|it| it.into_tensor());
        let all = [dx, ddelta, da, dprojections, dskip];
        Ok(all.map(Some).into())
    };
    with_backward("selective scan", &operands, output, false, backward)
}

/// The sizes of a selective scan, and how it is launched.
#[derive(Clone, Copy)]
struct Launches {
    batch: usize,
    length: usize,
    width: usize,
    modes: usize,
    /// Threads beside each other that have the modes of a channel.
    lanes: usize,
    /// Blocks that share the channels of an example.
    groups: usize,
}

impl Launches {
    fn new(operands: &[Tensor]) -> Result<Self> {
        let (batch, length, width) = operands[0].dims3()?;
        let modes = operands[2].dim(1)?;
        let lanes = modes.next_power_of_two().clamp(8, 32);
        Ok(Self {
            batch,
            length,
            width,
            modes,
            lanes,
            groups: (width * lanes).div_ceil(THREADS),
        })
    }

    /// Launches a kernel once for every 32 modes.
    fn launch(&self, gpu: &Gpu, kernel: &str, arguments: &[Argument]) -> Result<()> {
        let grid = Grid::new([self.groups, self.batch, 1], THREADS);
        for first in (0..self.modes).step_by(self.lanes) {
            let sizes = [self.length, self.width, self.modes, first, self.lanes];
            let mut all = arguments.to_vec();
            for size in sizes {
                all.push(Argument::size(size)?);
            }
            gpu.launch(&MODULE, kernel, grid, &all)?;
        }
        Ok(())
    }
}
