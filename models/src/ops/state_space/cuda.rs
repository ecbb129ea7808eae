//! The kernel of a diagonal state space by `cuda.cu`, and its application as a long convolution.

use candle_core::{DType, Tensor};

use super::{Modes, StateSpaceOptions};
use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, Module, module, sum_parts};
use crate::ops::fft::{Lags, fft_conv};
use crate::{Error, Result};

const MODULE: Module = module!("ops-state_space-cuda");
const THREADS: usize = 256;
/// Positions of a block.
const SPAN: usize = 1024;

/// Returns the sum over `walks` of the state spaces of x (B, L, D).
///
/// Walks to the right are taps that look back, walks to the left taps that look ahead, so that one
/// convolution computes all of them.
pub(super) fn state_spaces(
    gpu: &Gpu,
    x: &Tensor,
    walks: &[(&Modes, StateSpaceOptions)],
) -> Result<Tensor> {
    let length = x.dim(1)?;
    let (mut back, mut ahead) = (None, None);
    let add = |sum: &mut Option<Tensor>, taps: Tensor| {
        *sum = Some(match sum.take() {
            Some(sum) => (sum + taps)?,
            None => taps,
        });
        Ok::<_, Error>(())
    };
    for (modes, options) in walks {
        match options {
            StateSpaceOptions {
                reverse: false,
                exclusive: false,
            } => add(&mut back, taps(gpu, modes, length)?)?,
            StateSpaceOptions {
                reverse: false,
                exclusive: true,
            } => {
                let taps = taps(gpu, modes, length)?;
                let later = match length {
                    1 => (taps * 0.0)?,
                    _ => taps.narrow(1, 0, length - 1)?.pad_with_zeros(1, 1, 0)?,
                };
                add(&mut back, later)?;
            }
            StateSpaceOptions {
                reverse: true,
                exclusive: true,
            } => add(&mut ahead, taps(gpu, modes, length)?)?,
            StateSpaceOptions {
                reverse: true,
                exclusive: false,
            } => {
                let taps = taps(gpu, modes, length + 1)?;
                let own = taps.narrow(1, 0, 1)?;
                add(&mut back, own.pad_with_zeros(1, 0, length - 1)?)?;
                add(&mut ahead, taps.narrow(1, 1, length)?)?;
            }
        }
    }
    let x = x.contiguous()?;
    match (back, ahead) {
        (Some(back), None) => fft_conv(&x, &back, Lags::Causal),
        (back, Some(ahead)) => {
            let back = back.map_or_else(|| ahead.zeros_like(), Ok)?;
            let taps = Tensor::cat(&[&back, &ahead], 1)?;
            fft_conv(&x, &taps, Lags::Bidirectional)
        }
        (None, None) => Ok(x.zeros_like()?),
    }
}

/// Returns the taps K_l = Re Σ_n c_n a_nˡ (D, L) of modes (D, N).
fn taps(gpu: &Gpu, modes: &Modes, length: usize) -> Result<Tensor> {
    let operands = match modes {
        Modes::Real { a, c } => vec![a, c],
        Modes::Complex { a, c } => vec![&a.re, &a.im, &c.re, &c.im],
    };
    let operands: Vec<Tensor> = operands
        .into_iter()
        .map(Tensor::contiguous)
        .collect::<Result<_, _>>()?;
    let (width, count) = operands[0].dims2()?;
    let pointers = move |gpu: &Gpu, of: &[Tensor]| {
        let mut all = Vec::new();
        for operand in of {
            all.push(gpu.floats(operand, width * count)?);
            if of.len() == 2 {
                all.push(Argument::NULL);
            }
        }
        Ok::<_, candle_core::Error>(all)
    };
    let spans = length.div_ceil(SPAN);
    let grid = Grid::new([spans, width, 1], THREADS);
    let sizes = [Argument::size(count)?, Argument::size(length)?];
    let kernel = gpu.empty((width, length), DType::F32)?;
    let arguments = [&pointers(gpu, &operands)?[..], &[kernel.pointer()], &sizes].concat();
    gpu.launch(&MODULE, "state_space_kernel_forward", grid, &arguments)?;
    let (gpu, kept): (_, Vec<Tensor>) =
        (gpu.clone(), operands.iter().map(Tensor::detach).collect());
    let operands: Vec<&Tensor> = operands.iter().collect();
    let output = kernel.into_output();
    Ok(with_backward(
        "state space kernel",
        &operands,
        output,
        false,
        move |_, dkernel| {
            let parts = gpu.empty((spans, 4, width, count), DType::F32)?;
            let gradients = [gpu.floats(dkernel, width * length)?, parts.pointer()];
            let arguments = [&pointers(&gpu, &kept)?[..], &gradients, &sizes].concat();
            gpu.launch(&MODULE, "state_space_kernel_backward", grid, &arguments)?;
            let sums = sum_parts(&gpu, &parts, spans, (4, width, count))?;
            // Of a_re, a_im, c_re, c_im; real modes have the first and the third.
            let step = 4 / kept.len();
            let each = (0..kept.len()).map(|i| Ok(Some(sums.get(i * step)?)));
            each.collect()
        },
    )?)
}
