//! Convolutions along a sequence. (candle's `conv1d` has a wrong gradient of its weight for more
//! than one example.)
//!
//! As everywhere in neural networks these are cross-correlations: w_j meets the position j - left
//! away.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::matmul;
use crate::Result;
use crate::ops::supports;

/// Numbers of zeros before and behind a sequence of length L that is convolved with a kernel of
/// width W.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// ⌊(W - 1) / 2⌋ zeros before the sequence, and the rest of W - 1 behind it. There are ⌈L /
    /// stride⌉ outputs. For stride 1 it is PyTorch's `same`, which has no other stride.
    Same,
    /// W - 1 zeros before the sequence. An output depends on its own position and those before it.
    Causal,
    /// Given numbers of zeros. No zeros at all is PyTorch's `valid`.
    Zeros {
        /// Number of zeros before the first position.
        left: usize,
        /// Number of zeros behind the last position.
        right: usize,
    },
}

/// Positions of a kernel of `width` on a sequence.
struct Taps {
    left: usize,
    right: usize,
    width: usize,
    stride: usize,
    /// T.
    outputs: usize,
}

impl Taps {
    fn new(length: usize, width: usize, padding: Padding, stride: usize) -> Option<Self> {
        let (left, right) = match padding {
            Padding::Same => (width.checked_sub(1)? / 2, width / 2),
            Padding::Causal => (width.checked_sub(1)?, 0),
            Padding::Zeros { left, right } => (left, right),
        };
        let starts = (length + left + right).checked_sub(width)?;
        Some(Self {
            left,
            right,
            width,
            stride,
            outputs: starts.checked_div(stride)? + 1,
        })
    }

    /// Returns for each tap the rows of x (B, L, D) that it meets: W tensors (B, T, D).
    fn taps(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        let (batch, length, width) = x.dims3()?;
        let x = x.pad_with_zeros(1, self.left, self.right)?;
        // Whole strides, the last of which may lack positions that no tap meets, or have some too
        // many.
        let strides = self.outputs + (self.width - 1) / self.stride;
        let (rows, padded) = (strides * self.stride, self.left + length + self.right);
        let x = match rows.checked_sub(padded) {
            Some(missing) => x.pad_with_zeros(1, 0, missing)?,
            None => x.narrow(1, 0, rows)?,
        };
        let x = x.reshape((batch, strides, self.stride, width))?;
        let tap = |tap: usize| {
            let x = x.narrow(1, tap / self.stride, self.outputs)?;
            Ok(x.narrow(2, tap % self.stride, 1)?.squeeze(2)?)
        };
        (0..self.width).map(tap).collect()
    }
}

/// Returns the convolution of each channel with its own kernel:
/// `y_td = bias_d + Σ_j weight_dj x_{stride t + j - left, d}`.
///
/// x is (B, L, D), and y is (B, T, D). `weight` is (D, W) for kernels of width W, and `bias` is
/// (D). The number T of outputs is ⌊(L + left + right - W) / stride⌋ + 1, where left and right are
/// the numbers of zeros that `padding` says. This is PyTorch's `conv1d` with `groups = D` and
/// channels last.
///
/// It takes O(B T D W) time. The fused form, for stride 1, keeps only x.
///
/// # Errors
/// If shapes do not fit, the stride is 0, or the kernel is wider than the padded sequence.
pub fn depthwise_conv1d(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    padding: Padding,
    stride: usize,
) -> Result<Tensor> {
    let ((_, length, channels), (rows, width)) = (x.dims3()?, weight.dims2()?);
    let fits = rows == channels && bias.is_none_or(|bias| bias.dims() == [channels]);
    let walk = walk(
        "depthwise convolution",
        (x, weight, bias),
        fits,
        length,
        width,
        padding,
        stride,
    )?;
    if supports(x) && stride == 1 {
        let y = cpu::depthwise_conv1d(x, weight, bias, walk.left, walk.outputs)?;
        return Ok(y);
    }
    depthwise_composed(x, weight, bias, &walk)
}

fn depthwise_composed(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    walk: &Taps,
) -> Result<Tensor> {
    let weight = weight.t()?;
    let mut sum = bias.cloned();
    for (tap, x) in walk.taps(x)?.iter().enumerate() {
        let term = x.broadcast_mul(&weight.get(tap)?)?;
        sum = Some(match sum {
            Some(sum) => term.broadcast_add(&sum)?,
            None => term,
        });
    }
    sum.ok_or_else(|| crate::Error::Input("depthwise convolution without taps".into()))
}

/// Returns the convolution over all channels:
/// `y_t = bias + Σ_j weight_{..j} x_{stride t + j - left}`.
///
/// x is (B, L, D), and y is (B, T, O) with O output channels. `weight` is (O, D, W) for a kernel of
/// width W, as in PyTorch, and `bias` is (O). The number T of outputs and `left` are those of
/// [`depthwise_conv1d`].
///
/// It is a product of the W D numbers under the kernel with the weight, and takes O(B T O D W)
/// time. If kernel and stride are the same, as for a sequence shortened by groups, these numbers
/// lie side by side already. Otherwise they are copied W / stride times. For a last group that is
/// filled up with zeros, `right` is the difference from L to the next multiple of W.
///
/// # Errors
/// Errors of [`depthwise_conv1d`].
pub fn conv1d(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    padding: Padding,
    stride: usize,
) -> Result<Tensor> {
    let ((batch, length, channels), (outputs, inputs, width)) = (x.dims3()?, weight.dims3()?);
    let fits = inputs == channels && bias.is_none_or(|bias| bias.dims() == [outputs]);
    let walk = walk(
        "convolution",
        (x, weight, bias),
        fits,
        length,
        width,
        padding,
        stride,
    )?;
    let patches = if stride == width {
        let x = x.pad_with_zeros(1, walk.left, walk.right)?;
        let x = x.narrow(1, 0, walk.outputs * width)?;
        x.reshape((batch, walk.outputs, width * channels))?
    } else {
        Tensor::cat(&walk.taps(x)?, 2)?
    };
    let weight = weight
        .transpose(1, 2)?
        .reshape((outputs, width * channels))?;
    if supports(x) {
        return Ok(super::linear::cpu::linear(&patches, &weight, bias)?);
    }
    let y = matmul(&patches, &weight.t()?)?;
    Ok(match bias {
        Some(bias) => y.broadcast_add(bias)?,
        None => y,
    })
}

fn walk(
    operation: &str,
    (x, weight, bias): (&Tensor, &Tensor, Option<&Tensor>),
    fits: bool,
    length: usize,
    width: usize,
    padding: Padding,
    stride: usize,
) -> Result<Taps> {
    let walk = Taps::new(length, width, padding, stride).filter(|_| fits && width > 0);
    walk.ok_or_else(|| {
        let (x, weight, bias) = (x.dims(), weight.dims(), bias.map(Tensor::dims));
        crate::Error::Input(format!(
            "{operation}: x {x:?}, weight {weight:?} and bias {bias:?} do not fit with {padding:?} and stride {stride}"
        ))
    })
}
