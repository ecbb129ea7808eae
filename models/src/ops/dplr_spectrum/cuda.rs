//! Spectra by the kernels of `cuda.cu`.

use candle_core::{DType, Result, Tensor};

use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, MOST_BLOCKS, Module, module};

const MODULE: Module = module!("ops-dplr_spectrum-cuda");
const THREADS: usize = 128;
/// Frequencies of a block of the backward pass, and modes.
const SEGMENT: usize = 1024;
const MODES: usize = 32;
/// Bytes of a number.
const NUMBER: usize = 8;

/// Bytes of shared memory of a block that every supported card has.
const MOST_SHARED: usize = 99 * 1024;

/// Returns whether the kernels take rows (H, 2 J + 2, M) of these sizes.
pub(super) fn takes((channels, count, modes): (usize, usize, usize)) -> bool {
    channels <= MOST_BLOCKS && NUMBER * count * (modes + THREADS) <= MOST_SHARED
}

/// Returns K̂ (H, 2 · directions, F) of rows (H, 2 J + 2, M).
pub(super) fn dplr_spectrum(
    gpu: &Gpu,
    rows: &Tensor,
    directions: usize,
    longest: usize,
) -> Result<Tensor> {
    let rows = rows.contiguous()?;
    let (channels, count, modes) = rows.dims3()?;
    let bins = longest / 2 + 1;
    let [of_modes, of_bins, roots, walks] = [modes, bins, longest, directions].map(Argument::size);
    let sizes = [of_modes?, of_bins?, roots?, walks?];
    let spectra = gpu.empty((channels, 2 * directions, bins), DType::F64)?;
    let grid = Grid {
        blocks: [bins.div_ceil(THREADS), channels, 1],
        threads: THREADS,
        shared: NUMBER * count * modes,
    };
    let elements = channels * count * modes;
    let operands = [gpu.pointer(&rows, DType::F64, elements)?, spectra.pointer()];
    let arguments = [&operands[..], &sizes].concat();
    gpu.launch(&MODULE, "dplr_spectrum_forward", grid, &arguments)?;
    let (gpu, kept) = (gpu.clone(), rows.detach());
    let output = spectra.into_output();
    with_backward("rank-1 spectrum", &[&rows], output, false, move |_, dy| {
        let segments = bins.div_ceil(SEGMENT);
        let part = gpu.empty((segments, channels, count, modes), DType::F64)?;
        let grid = Grid {
            blocks: [segments, channels, modes.div_ceil(MODES)],
            threads: THREADS,
            shared: NUMBER * count * (modes + THREADS),
        };
        let rows = gpu.pointer(&kept, DType::F64, elements)?;
        let dy = gpu.pointer(dy, DType::F64, channels * 2 * directions * bins)?;
        let operands = [rows, dy, part.pointer()];
        let arguments = [&operands[..], &sizes].concat();
        gpu.launch(&MODULE, "dplr_spectrum_backward", grid, &arguments)?;
        Ok(vec![Some(part.into_tensor().sum(0)?)])
    })
}
