//! The linear map y = x Wᵀ + b over the last dimension.

pub(in crate::ops) mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::{check, matmul};
use crate::Result;
use crate::cuda::Gpu;
use crate::ops::supports;

/// Returns y = x Wᵀ + b, (.., N), for x (.., K): N outputs of K inputs. `weight` is W (N, K), as
/// PyTorch keeps it, and `bias` is b (N), or absent for 0.
///
/// # Errors
/// If shapes do not fit.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    if supports(x) {
        return Ok(cpu::linear(x, weight, bias)?);
    }
    let (outputs, inputs) = weight.dims2()?;
    let mut dims = x.dims().to_vec();
    check(dims.last() == Some(&inputs), "linear", || {
        format!(
            "x {:?} and weight {:?} do not fit",
            x.shape(),
            weight.shape()
        )
    })?;
    let rows = x.elem_count() / inputs.max(1);
    if let Some(last) = dims.last_mut() {
        *last = outputs;
    }
    if let (Some(gpu), Some(bias)) = (Gpu::of(x).filter(|_| cuda::takes(rows)), bias) {
        return cuda::linear(&gpu, x, weight, bias, dims);
    }
    // One tall product instead of one per example: the weight's gradient is then one product too.
    let y = matmul(&x.reshape((rows, inputs))?, &weight.t()?)?;
    let y = match bias {
        Some(bias) => y.broadcast_add(bias)?,
        None => y,
    };
    Ok(y.reshape(dims)?)
}
