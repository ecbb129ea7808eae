//! A convolution with a kernel as long as the sequence, which replaces attention; [`GluOutput`]
//! follows it.
//!     y = k * x + D x,   y_t = Σ_{j≤t} k_{t-j} x_j + Σ_{j>t} k'_{j-t-1} x_j + D x_t
//! The second kernel k' looks ahead and does not include the position itself, as in S4.

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    LayerContext, Pass, Result,
    layers::{GluOutput, OutputGate, OutputInit},
    mask::zero_padding,
    ops::{Lags, fft_conv},
};

/// The parts around the kernel, which a model makes anew for each pass.
pub struct LongConv {
    /// D (H); none if the kernel includes it.
    skip: Option<Tensor>,
    /// Number of kernels, 1 or 2, which lie one after the other.
    directions: usize,
    output: GluOutput,
}

impl LongConv {
    /// Creates parameters `d` (H) N(0, 1), if it `skips`, and those of [`GluOutput`] as PyTorch
    /// begins them.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(layer: &LayerContext, directions: usize, skips: bool) -> Result<Self> {
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        let d = || layer.vb.get_with_hints(layer.block.dim, "d", normal);
        Ok(Self {
            skip: skips.then(d).transpose()?,
            directions,
            output: GluOutput::new(&layer.vb, layer.block, OutputGate::Full, OutputInit::Torch)?,
        })
    }

    /// Maps x (B, L, H) and kernels (H, directions · K) to (B, L, H). Padded positions are zeros to
    /// the kernels.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn forward(&self, x: &Tensor, kernel: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = pass.padded(x, |x, pass| {
            let u = zero_padding(x, pass.mask())?;
            convolve(&u, kernel, self.directions, self.skip.as_ref())
        })?;
        self.output.forward(&y, pass)
    }

    /// Returns whether no kernel looks ahead.
    #[must_use]
    pub fn is_causal(&self) -> bool {
        self.directions == 1
    }

    /// Counts the operations for one sequence: transforms of twice the length, 5 n log₂ n for n
    /// numbers, and the output.
    #[must_use]
    pub fn flops(&self, length: usize, dim: usize) -> u64 {
        let transforms = 20.0 * (length * dim) as f64 * (2.0 * length as f64).log2();
        transforms as u64 + self.output.flops(length)
    }
}

/// Returns u (B, L, H) convolved with `directions` kernels (H, directions · K), plus `skip` (H)
/// times u, a position's view of itself.
///
/// # Errors
/// If shapes do not fit.
pub fn convolve(
    u: &Tensor,
    kernel: &Tensor,
    directions: usize,
    skip: Option<&Tensor>,
) -> Result<Tensor> {
    let taps = kernel.dim(1)? / directions;
    let lags = match directions {
        1 => Lags::Causal,
        _ => Lags::Bidirectional,
    };
    // Taps beyond the sequence have no effect.
    let taps_used = taps.min(u.dim(1)?);
    let parts = (0..directions).map(|at| kernel.narrow(1, at * taps, taps_used));
    let mut parts = parts.collect::<candle_core::Result<Vec<_>>>()?;
    if let Some(skip) = skip {
        let own = (parts[0].narrow(1, 0, 1)? + skip.unsqueeze(1)?)?;
        let others = parts[0].narrow(1, 1, taps_used - 1)?;
        parts[0] = Tensor::cat(&[own, others], 1)?;
    }
    fft_conv(u, &Tensor::cat(&parts, 1)?.contiguous()?, lags)
}

/// Returns parameters (S, M) that S sets of channels share as those of `channels` channels,
/// (channels, M): channel h has set h mod S.
///
/// # Errors
/// If S is no divisor of the channels.
pub fn channels_of_sets(x: &Tensor, channels: usize) -> Result<Tensor> {
    let (sets, modes) = x.dims2()?;
    let x = x.unsqueeze(0)?;
    let x = x.broadcast_as((channels / sets, sets, modes))?;
    Ok(x.reshape((channels, modes))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_gradient, close, normal};

    #[test]
    fn a_skip_is_a_tap_and_long_kernels_are_cut() {
        let (x, d) = (normal("x", &[2, 5, 3]), normal("d", &[3]));
        for directions in [1, 2] {
            let kernel = normal("kernel", &[3, directions * 9]);
            let actual = convolve(&x, &kernel, directions, Some(&d)).unwrap();
            let plain = convolve(&x, &kernel, directions, None).unwrap();
            let expected = (plain + x.broadcast_mul(&d).unwrap()).unwrap();
            close(&actual, &expected, 1e-12, "skip");
            let longer = x.pad_with_zeros(1, 0, 20).unwrap();
            let longer = convolve(&longer, &kernel, directions, Some(&d)).unwrap();
            close(&actual, &longer.narrow(1, 0, 5).unwrap(), 1e-12, "cut");
            check_gradient("convolve", &[&[2, 4, 3], &[3, directions * 6], &[3]], |x| {
                convolve(&x[0], &x[1], directions, Some(&x[2]))
            });
        }
    }
}
