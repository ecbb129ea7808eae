//! Convolutions along a sequence. (candle's `conv1d` has a wrong gradient of its weight for more than one example.)
//!
//! As everywhere in neural networks these are cross-correlations: w_j meets the position j - left away.

use candle_core::Tensor;

use super::exact_matmul;
use crate::{Result, kernels};

/// Zeros around a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// ⌊(W - 1) / 2⌋ before it and the rest of W - 1 behind it: ⌈L / stride⌉ outputs, as PyTorch's `same`.
    Same,
    /// W - 1 before it: an output sees its own position and those before.
    Causal,
    /// As many as given; none at all is PyTorch's `valid`.
    Zeros {
        /// Before the first position.
        left: usize,
        /// Behind the last position.
        right: usize,
    },
}

/// How a kernel of `width` walks over a sequence.
struct Walk {
    left: usize,
    right: usize,
    width: usize,
    stride: usize,
    /// T.
    outputs: usize,
}

impl Walk {
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

    /// For each tap the rows of x (B, L, D) that it meets: W tensors (B, T, D).
    fn taps(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        let (batch, length, width) = x.dims3()?;
        let x = x.pad_with_zeros(1, self.left, self.right)?;
        // Whole strides, the last of which may lack positions that no tap meets, or have some too many.
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

/// Each channel by a kernel of its own: `y_td = bias_d + Σ_j weight_dj x_{stride t + j - left, d}`.
///
/// x is (B, L, D), `weight` (D, W), `bias` (D), y (B, T, D) with T = ⌊(L + left + right - W) / stride⌋ + 1. PyTorch's
/// `conv1d` with `groups = D`, channels last. O(B T D W) time; the fused form (stride 1) keeps nothing but x.
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
    if kernels::supports(x) && stride == 1 {
        let y = kernels::depthwise_conv1d(x, weight, bias, walk.left, walk.outputs)?;
        return Ok(y);
    }
    depthwise_composed(x, weight, bias, &walk)
}

fn depthwise_composed(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    walk: &Walk,
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

/// All channels by one kernel: `y_t = bias + Σ_j weight_{..j} x_{stride t + j - left}`.
///
/// x is (B, L, D), `weight` (O, D, W) as in PyTorch, `bias` (O), y (B, T, O) with T as in [`depthwise_conv1d`]. A product
/// of the W D numbers under the kernel with the weight, so O(B T O D W) time. Where kernel and stride are the same, as
/// for a sequence shortened by groups, the numbers lie side by side already; otherwise they are copied W / stride times.
/// For a last group that is filled up with zeros, `right` is what L lacks of a multiple of W.
///
/// # Errors
/// As [`depthwise_conv1d`].
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
    if kernels::supports(x) {
        return Ok(kernels::linear(&patches, &weight, bias)?);
    }
    let y = exact_matmul(&patches, &weight.t()?)?;
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
) -> Result<Walk> {
    let walk = Walk::new(length, width, padding, stride).filter(|_| fits && width > 0);
    walk.ok_or_else(|| {
        let (x, weight, bias) = (x.dims(), weight.dims(), bias.map(Tensor::dims));
        crate::Error::Input(format!(
            "{operation}: x {x:?}, weight {weight:?} and bias {bias:?} do not fit with {padding:?} and stride {stride}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::{check_gradient, close, normal};

    const PADDINGS: [Padding; 4] = [
        Padding::Same,
        Padding::Causal,
        Padding::Zeros { left: 0, right: 0 },
        Padding::Zeros { left: 1, right: 4 },
    ];

    /// The definition, for a weight (O, D, W).
    fn loops(
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        padding: Padding,
        stride: usize,
    ) -> Tensor {
        let (_, length, channels) = x.dims3().unwrap();
        let (outputs, _, width) = weight.dims3().unwrap();
        let (left, right) = match padding {
            Padding::Same => ((width - 1) / 2, width - 1 - (width - 1) / 2),
            Padding::Causal => (width - 1, 0),
            Padding::Zeros { left, right } => (left, right),
        };
        let (data, weight) = (
            x.to_vec3::<f64>().unwrap(),
            weight.to_vec3::<f64>().unwrap(),
        );
        let bias = bias.to_vec1::<f64>().unwrap();
        let at = |x: &Vec<Vec<f64>>, t: usize, o: usize| {
            let mut y = bias[o];
            for (d, j) in (0..channels).flat_map(|d| (0..width).map(move |j| (d, j))) {
                let position = (stride * t + j).wrapping_sub(left);
                y += weight[o][d][j] * x.get(position).map_or(0.0, |x| x[d]);
            }
            y
        };
        let starts = (0..=length + left + right - width).step_by(stride);
        let rows = 0..starts.count();
        let example = |x: &Vec<Vec<f64>>| -> Vec<Vec<f64>> {
            let row = |t| (0..outputs).map(|o| at(x, t, o)).collect();
            rows.clone().map(row).collect()
        };
        let y: Vec<Vec<Vec<f64>>> = data.iter().map(example).collect();
        Tensor::new(y, &Device::Cpu).unwrap()
    }

    #[test]
    fn convolutions_are_what_the_definition_says() {
        for (length, padding) in (1..38).flat_map(|l| PADDINGS.map(|p| (l, p))) {
            for (width, stride) in [(1, 1), (2, 1), (5, 1), (3, 3), (4, 2), (2, 3)] {
                let x = normal("x", &[2, length, 3]);
                let [weight, bias] = [normal("weight", &[2, 3, width]), normal("bias", &[2])];
                let place = format!("{length} {padding:?} {width} {stride}");
                if Walk::new(length, width, padding, stride).is_none() {
                    assert!(
                        conv1d(&x, &weight, None, padding, stride).is_err(),
                        "{place}"
                    );
                    continue;
                }
                let found = conv1d(&x, &weight, Some(&bias), padding, stride).unwrap();
                close(
                    &found,
                    &loops(&x, &weight, &bias, padding, stride),
                    1e-12,
                    &place,
                );

                let [own, bias] = [normal("own", &[3, width]), normal("bias", &[3])];
                let identity = Tensor::eye(3, DType::F64, &Device::Cpu).unwrap();
                let full = identity.unsqueeze(2).unwrap();
                let full = full.broadcast_mul(&own.unsqueeze(0).unwrap()).unwrap();
                let wanted = loops(&x, &full, &bias, padding, stride);
                let found = depthwise_conv1d(&x, &own, Some(&bias), padding, stride).unwrap();
                close(&found, &wanted, 1e-12, &format!("depthwise {place}"));
            }
        }
    }

    #[test]
    fn kernels_meet_their_composed_form() {
        let mut sampler = Sampler::new(101);
        for ([batch, length, channels], width) in [
            ([1, 7, 1], 1),
            ([2, 37, 5], 4),
            ([3, 70, 35], 35),
            ([2, 300, 64], 9),
            ([1, 9, 16], 12),
        ] {
            for padding in PADDINGS {
                let Some(walk) = Walk::new(length, width, padding, 1) else {
                    continue;
                };
                let inputs = [
                    sampler.normal(&[batch, length, channels], 1.0),
                    sampler.normal(&[channels, width], 0.5),
                    sampler.normal(&[channels], 1.0),
                ];
                agree(
                    &format!("depthwise {padding:?}"),
                    &inputs,
                    |x| Ok(depthwise_conv1d(&x[0], &x[1], Some(&x[2]), padding, 1)?),
                    |x| Ok(depthwise_composed(&x[0], &x[1], Some(&x[2]), &walk)?),
                );
                agree(
                    "depthwise without bias",
                    &inputs[..2],
                    |x| Ok(depthwise_conv1d(&x[0], &x[1], None, padding, 1)?),
                    |x| Ok(depthwise_composed(&x[0], &x[1], None, &walk)?),
                );
            }
        }
        for (width, stride) in [(4, 4), (5, 2)] {
            let weight = sampler.normal(&[6, 3, width], 0.5);
            let inputs = [
                sampler.normal(&[2, 41, 3], 1.0),
                weight,
                sampler.normal(&[6], 1.0),
            ];
            let padding = Padding::Zeros { left: 0, right: 3 };
            let f = |x: &[Tensor]| Ok(conv1d(&x[0], &x[1], Some(&x[2]), padding, stride)?);
            agree("convolution", &inputs, f, f);
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        for (width, stride) in [(3, 1), (2, 2), (3, 2)] {
            let padding = Padding::Zeros { left: 1, right: 2 };
            check_gradient("depthwise", &[&[2, 5, 3], &[3, width], &[3]], |x| {
                depthwise_conv1d(&x[0], &x[1], Some(&x[2]), padding, stride)
            });
            check_gradient("convolution", &[&[2, 5, 3], &[2, 3, width], &[2]], |x| {
                conv1d(&x[0], &x[1], Some(&x[2]), padding, stride)
            });
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let x = normal("x", &[2, 5, 3]);
        let valid = Padding::Zeros { left: 0, right: 0 };
        for (weight, bias, padding, stride) in [
            ([4, 2], 3, Padding::Same, 1),
            ([3, 2], 2, Padding::Same, 1),
            ([3, 0], 3, valid, 1),
            ([3, 0], 3, Padding::Same, 1),
            ([3, 6], 3, valid, 1),
            ([3, 2], 3, valid, 0),
        ] {
            let (weight, bias) = (normal("weight", &weight), normal("bias", &[bias]));
            let message = depthwise_conv1d(&x, &weight, Some(&bias), padding, stride);
            let message = message.unwrap_err().to_string();
            assert!(message.contains("do not fit"), "{message}");
        }
    }
}
