//! Long convolutions by the kernels of `cuda.cu` and `long.cu`, which compute channels (B, D, L) of
//! sequences (B, L, D): both sides are transposed. Inverse transforms are convolutions of pulses.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use candle_core::{DType, Result, Tensor};

use super::{Complex, Lags};
use crate::autograd::with_backward;
use crate::cuda::{
    Argument, Buffer, Gpu, GpuId, Grid, MOST_BLOCKS, Module, module, sum_parts, transpose,
};

const SHORT: Module = module!("ops-fft-cuda");
const LONG: Module = module!("ops-fft-long");
/// Longest transforms, of numbers in shared memory and of both passes.
const MOST_SHORT: usize = 8192;
const MOST_LONG: usize = 131_072;
/// Columns of a block of the long form.
const COLUMNS: usize = 8;
/// Blocks from which on a card is busy.
const ENOUGH_BLOCKS: usize = 1024;
/// Bytes of a complex number.
const COMPLEX: usize = 8;

/// Returns the transform's length for x (B, L, D) and K taps, if the kernels compute it.
pub(super) fn transform_length(
    (batch, length, width): (usize, usize, usize),
    taps: usize,
    lags: Lags,
) -> Option<usize> {
    let reach = match lags {
        Lags::Causal => taps,
        Lags::Bidirectional => taps / 2,
        Lags::Circular => return None,
    };
    let n = (length + reach.min(length)).next_power_of_two().max(4);
    (n <= MOST_LONG && takes(batch, width, n)).then_some(n)
}

/// Returns whether a grid has blocks enough for `width` channels of `batch` examples, with
/// transforms of length n.
fn takes(batch: usize, width: usize, n: usize) -> bool {
    batch <= MOST_BLOCKS && (n <= MOST_SHORT || width <= MOST_BLOCKS)
}

/// Returns the convolution of x (B, L, D) with `kernel` (D, K), by transforms of length n.
pub(super) fn fft_conv(
    gpu: &Gpu,
    x: &Tensor,
    kernel: &Tensor,
    lags: Lags,
    n: usize,
) -> Result<Tensor> {
    let (x, kernel) = (x.contiguous()?, kernel.contiguous()?);
    let (batch, length, width) = x.dims3()?;
    let conv = Conv {
        gpu: gpu.clone(),
        roots: roots(gpu, n)?,
        batch,
        length,
        width,
        taps: kernel.dim(1)?,
        bidirectional: lags == Lags::Bidirectional,
        plan: Plan::new(n),
    };
    let spectrum = conv.spectrum(&kernel)?;
    let channels = transpose(gpu, &x)?.into_tensor();
    let y = conv.apply(&channels, spectrum.pointer(), false)?;
    let (of_x, of_kernel) = (x.track_op(), kernel.track_op());
    let output = y.into_output();
    with_backward(
        "convolution",
        &[&x, &kernel],
        output,
        false,
        move |_, dy| {
            let dy = transpose(&conv.gpu, dy)?.into_tensor();
            let dx = match of_x {
                true => Some(conv.apply(&dy, spectrum.pointer(), true)?.into_tensor()),
                false => None,
            };
            let dkernel = match of_kernel {
                true => Some(conv.taps_gradient(&channels, &dy)?),
                false => None,
            };
            Ok(vec![dx, dkernel])
        },
    )
}

/// Returns whether [`irfft`] computes sequences of n positions of spectra x (B, F, D).
pub(super) fn inverts(x: &Tensor, n: usize) -> bool {
    let fits = x
        .dims3()
        .is_ok_and(|(batch, _, width)| takes(1, batch * width, n));
    fits && n.is_power_of_two() && (4..=MOST_LONG).contains(&n)
}

/// Returns real sequences (B, n, D) of their spectra (B, n/2 + 1, D): pulses convolved with what
/// has these spectra.
pub(super) fn irfft(gpu: &Gpu, x: &Complex, n: usize) -> Result<Tensor> {
    let (batch, bins, width) = x.re.dims3()?;
    let parts = [&x.re, &x.im].map(|part| part.transpose(1, 2)?.contiguous());
    let [re, im] = parts;
    let spectra = Tensor::stack(&[re?, im?], 3)?; // (B, D, F, 2)
    let channels = batch * width;
    let conv = Conv {
        gpu: gpu.clone(),
        roots: roots(gpu, n)?,
        batch: 1,
        length: n,
        width: channels,
        taps: n,
        bidirectional: false,
        plan: Plan::new(n),
    };
    // The first and the last bin are real, and stand for no conjugate.
    let like = |shape: (usize, usize)| Tensor::ones(shape, DType::F32, spectra.device());
    let real = Tensor::cat(&[like((1, 1))?, like((1, 1))?.zeros_like()?], 1)?;
    let bins = |ends: f64, others: f64| {
        let ends = (&real * ends)?;
        Tensor::cat(&[&ends, &(like((bins - 2, 2))? * others)?, &ends], 0) // (F, 2)
    };
    let kept = spectra.detach().broadcast_mul(&bins(1.0, 1.0)?)?;
    let pulse = Tensor::ones((1, channels, 1), DType::F32, spectra.device())?;
    let pulse = pulse.pad_with_zeros(2, 0, n - 1)?;
    let spectrum = gpu.floats(&kept, channels * (n / 2 + 1) * 2)?;
    let y = conv.apply(&pulse, spectrum, false)?; // (1, n, B D)
    let weights = bins(1.0 / n as f64, 2.0 / n as f64)?;
    let (shape, output) = (spectra.shape().clone(), y.into_output());
    let y = with_backward("irfft", &[&spectra], output, false, move |_, dy| {
        let dy = transpose(&conv.gpu, dy)?.into_tensor();
        let of_bins = conv.spectrum(&dy)?.into_tensor().reshape(shape)?;
        Ok(vec![Some(of_bins.broadcast_mul(&weights)?)])
    })?;
    let y = y.reshape((n, batch, width))?;
    y.transpose(0, 1)?.contiguous()
}

/// Returns e^{-2πij/n} for j < n, (n, 2). Made once for each device.
fn roots(gpu: &Gpu, n: usize) -> Result<Tensor> {
    static ROOTS: LazyLock<Mutex<HashMap<(GpuId, usize), Tensor>>> = LazyLock::new(Mutex::default);
    let mut known = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (gpu.id(), n);
    if let Some(roots) = known.get(&key) {
        return Ok(roots.clone());
    }
    let roots = gpu.empty((n, 2), DType::F32)?;
    let grid = Grid::new([n.div_ceil(256), 1, 1], 256);
    gpu.launch(
        &SHORT,
        "fft_roots",
        grid,
        &[roots.pointer(), Argument::size(n)?],
    )?;
    let roots = roots.into_tensor();
    known.insert(key, roots.clone());
    Ok(roots)
}

/// The form that computes a transform of n = 2M real numbers.
#[derive(Clone, Copy)]
enum Plan {
    /// In shared memory, M complex numbers.
    Short { size: usize },
    /// In two passes, M = rows · columns.
    Long { rows: usize, columns: usize },
}

impl Plan {
    fn new(n: usize) -> Self {
        let size = n / 2;
        if n <= MOST_SHORT {
            return Self::Short { size };
        }
        let columns = 1 << (size.ilog2() / 2);
        Self::Long {
            rows: size / columns,
            columns,
        }
    }

    fn size(self) -> usize {
        match self {
            Self::Short { size } => size,
            Self::Long { rows, columns } => rows * columns,
        }
    }
}

/// The launches of a convolution.
struct Conv {
    gpu: Gpu,
    roots: Tensor,
    batch: usize,
    length: usize,
    width: usize,
    taps: usize,
    bidirectional: bool,
    plan: Plan,
}

impl Conv {
    /// Returns the grid of the short form, with D blocks for each of `count` examples or groups.
    fn short(&self, size: usize, count: usize) -> Grid {
        Grid {
            blocks: [self.width, count, 1],
            threads: (size / 4).max(32),
            shared: COMPLEX * size,
        }
    }

    /// Returns the grids of columns and of rows of the long form.
    fn long(&self, rows: usize, columns: usize, count: usize) -> [Grid; 2] {
        let of_columns = Grid {
            blocks: [columns.div_ceil(COLUMNS), self.width, count],
            threads: (2 * rows).max(32),
            shared: COMPLEX * COLUMNS * rows,
        };
        let of_rows = Grid {
            blocks: [rows / 2 + 1, self.width, count],
            threads: (columns / 2).max(32),
            shared: 2 * COMPLEX * columns,
        };
        [of_columns, of_rows]
    }

    /// Returns the address of x (B, D, L).
    fn channels(&self, x: &Tensor) -> Result<Argument> {
        self.gpu.floats(x, self.batch * self.width * self.length)
    }

    /// Returns the address of the roots of unity.
    fn roots(&self) -> Result<Argument> {
        self.gpu.floats(&self.roots, 4 * self.plan.size())
    }

    /// Returns memory for the transforms of `count` examples between two passes.
    fn scratch(&self, count: usize) -> Result<Buffer> {
        let shape = (count, self.width, self.plan.size(), 2);
        self.gpu.empty(shape, DType::F32)
    }

    /// Returns the transform of the taps, D times K numbers: (D, M + 1) complex numbers.
    fn spectrum(&self, kernel: &Tensor) -> Result<Buffer> {
        let gpu = &self.gpu;
        let kernel = gpu.floats(kernel, self.width * self.taps)?;
        let roots = self.roots()?;
        let spectrum = gpu.empty((self.width, self.plan.size() + 1, 2), DType::F32)?;
        let [taps, length] = [self.taps, self.length].map(Argument::size);
        let of_taps = [taps?, length?, self.bidirectional.into()];
        match self.plan {
            Plan::Short { size } => {
                let operands = [kernel, roots, spectrum.pointer()];
                let arguments = [&operands[..], &of_taps, &[Argument::size(size)?]].concat();
                gpu.launch(&SHORT, "fft_conv_spectrum", self.short(size, 1), &arguments)?;
            }
            Plan::Long { rows, columns } => {
                let [of_columns, of_rows] = self.long(rows, columns, 1);
                let split = [Argument::size(rows)?, Argument::size(columns)?];
                let scratch = self.scratch(1)?;
                let operands = [kernel, roots, scratch.pointer()];
                let arguments = [&operands[..], &of_taps, &split].concat();
                gpu.launch(&LONG, "fft_long_tap_columns", of_columns, &arguments)?;
                let operands = [scratch.pointer(), roots, spectrum.pointer()];
                let arguments = [&operands[..], &split].concat();
                gpu.launch(&LONG, "fft_long_spectrum", of_rows, &arguments)?;
            }
        }
        Ok(spectrum)
    }

    /// Returns the convolution (B, L, D) of x (B, D, L), or with `adjoint` dx of dy.
    fn apply(&self, x: &Tensor, spectrum: Argument, adjoint: bool) -> Result<Buffer> {
        let (gpu, x) = (&self.gpu, self.channels(x)?);
        let roots = self.roots()?;
        let y = gpu.empty((self.batch, self.width, self.length), DType::F32)?;
        let [length, width] = [self.length, self.width].map(Argument::size);
        let (length, width) = (length?, width?);
        match self.plan {
            Plan::Short { size } => {
                let grid = self.short(size, self.batch);
                let size = Argument::size(size)?;
                let operands = [x, spectrum, roots, y.pointer()];
                let sizes = [length, size, adjoint.into()];
                let arguments = [&operands[..], &sizes].concat();
                gpu.launch(&SHORT, "fft_conv", grid, &arguments)?;
            }
            Plan::Long { rows, columns } => {
                let [of_columns, of_rows] = self.long(rows, columns, self.batch);
                let split = [Argument::size(rows)?, Argument::size(columns)?];
                let scratch = self.columns_of(x, split, of_columns)?;
                let between = scratch.pointer();
                let operands = [between, spectrum, roots, width];
                let arguments = [&operands[..], &split, &[adjoint.into()]].concat();
                gpu.launch(&LONG, "fft_long_product", of_rows, &arguments)?;
                let operands = [between, roots, y.pointer(), length];
                let arguments = [&operands[..], &split].concat();
                gpu.launch(&LONG, "fft_long_sequence", of_columns, &arguments)?;
            }
        }
        transpose(gpu, &y.into_tensor())
    }

    /// Returns the first pass over x (B, D, L).
    fn columns_of(&self, x: Argument, split: [Argument; 2], grid: Grid) -> Result<Buffer> {
        let scratch = self.scratch(self.batch)?;
        let roots = self.roots()?;
        let operands = [x, roots, scratch.pointer(), Argument::size(self.length)?];
        let arguments = [&operands[..], &split].concat();
        self.gpu
            .launch(&LONG, "fft_long_columns", grid, &arguments)?;
        Ok(scratch)
    }

    /// Returns the gradient of the taps (D, K), for x and dy (B, D, L).
    fn taps_gradient(&self, x: &Tensor, dy: &Tensor) -> Result<Tensor> {
        let gpu = &self.gpu;
        let [x, dy] = [self.channels(x)?, self.channels(dy)?];
        let roots = self.roots()?;
        let group = (self.batch * self.width).div_ceil(ENOUGH_BLOCKS);
        let group = group.clamp(1, self.batch);
        let groups = self.batch.div_ceil(group);
        let shape = (groups, self.width, self.taps);
        let [batch, group, length, width, taps] =
            [self.batch, group, self.length, self.width, self.taps].map(Argument::size);
        let (batch, group, length, width, taps) = (batch?, group?, length?, width?, taps?);
        let bidirectional = self.bidirectional.into();
        let part = match self.plan {
            Plan::Short { size } => {
                let part = gpu.empty(shape, DType::F32)?;
                let grid = self.short(size, groups);
                let size = Argument::size(size)?;
                let operands = [x, dy, roots, part.pointer()];
                let sizes = [batch, group, length, taps, bidirectional, size];
                let arguments = [&operands[..], &sizes].concat();
                gpu.launch(&SHORT, "fft_conv_taps", grid, &arguments)?;
                part
            }
            Plan::Long { rows, columns } => {
                let part = gpu.zeros(shape)?;
                let split = [Argument::size(rows)?, Argument::size(columns)?];
                let [of_columns, _] = self.long(rows, columns, self.batch);
                let of_x = self.columns_of(x, split, of_columns)?;
                let of_dy = self.columns_of(dy, split, of_columns)?;
                let sum = self.scratch(groups)?;
                let [of_columns, of_rows] = self.long(rows, columns, groups);
                let operands = [of_x.pointer(), of_dy.pointer(), roots, sum.pointer()];
                let arguments = [&operands[..], &[batch, group, width], &split].concat();
                gpu.launch(&LONG, "fft_long_correlation", of_rows, &arguments)?;
                let operands = [sum.pointer(), roots, part.pointer()];
                let sizes = [width, taps, length, bidirectional];
                let arguments = [&operands[..], &sizes, &split].concat();
                gpu.launch(&LONG, "fft_long_taps", of_columns, &arguments)?;
                part
            }
        };
        sum_parts(gpu, &part, groups, (self.width, self.taps))
    }
}
