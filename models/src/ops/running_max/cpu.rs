//! The running maximum in main memory: one position after the other, sequences side by side.

use candle_core::{Device, Result, Tensor, WithDType};
use rayon::prelude::*;

use crate::autograd::read_as;

const NAME: &str = "running maximum";

/// Returns m (B, L, W) of x (B, L, W) and steps (B, L, W) or (W), which have no history.
///
/// # Errors
/// If a tensor is not in main memory or of another type.
pub(crate) fn running_max<T: WithDType>(x: &Tensor, step: &Tensor) -> Result<Tensor> {
    let (x, step) = (x.contiguous()?, step.contiguous()?);
    let (_, length, width) = x.dims3()?;
    let varies = step.rank() == 3;
    let mut m = read_as::<T>(NAME, &x)?.to_vec();
    let steps = read_as::<T>(NAME, &step)?;
    let steps: &[T] = &steps;
    if !m.is_empty() {
        let sequences = m.par_chunks_mut(length * width).enumerate();
        sequences.for_each(|(sequence, m)| {
            for t in 1..length {
                let (before, at) = m[(t - 1) * width..][..2 * width].split_at_mut(width);
                let row = if varies { sequence * length + t } else { 0 };
                let steps = &steps[row * width..][..width];
                for ((at, before), step) in at.iter_mut().zip(before).zip(steps) {
                    let moved = *before + *step;
                    if moved > *at {
                        *at = moved;
                    }
                }
            }
        });
    }
    Tensor::from_vec(m, x.shape(), &Device::Cpu)
}
