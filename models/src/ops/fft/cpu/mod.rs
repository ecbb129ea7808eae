//! Discrete Fourier transforms along a sequence and operations built on them, for f32 and f64:
//! spectra of real sequences and back, long convolutions, and the two-dimensional transform that
//! mixes tokens.
//!
//! Sequences (B, L, D) are copied to channels of consecutive numbers and back, some channels at a
//! time, and transformed by [`lra_cpu::fft`].

mod convolution;
mod mixing;
mod spectrum;
mod transform;

use candle_core::{DType, Result, Tensor, WithDType, bail};
use lra_cpu::fft::FftNum;

use crate::autograd::{self, CustomOp};

pub use convolution::Lags;
pub(crate) use convolution::long_convolution;
pub(crate) use mixing::mix_tokens;
pub(crate) use spectrum::{sequence, spectrum};

const NAME: &str = "fourier";

/// Floats that can be transformed and are elements of tensors.
trait Real: FftNum + WithDType + Default {}

impl Real for f32 {}
impl Real for f64 {}

/// Converts a number to this type.
fn number<T: Real>(x: f64) -> T {
    <T as WithDType>::from_f64(x)
}

/// Runs `op`, which knows both types, on operands of either.
fn apply<O, const N: usize>(op: O, operands: [&Tensor; N]) -> Result<Tensor>
where
    O: CustomOp<N, f32> + CustomOp<N, f64>,
{
    match operands.first().map(|x| x.dtype()) {
        Some(DType::F32) => autograd::apply::<O, N, f32>(op, operands),
        Some(DType::F64) => autograd::apply::<O, N, f64>(op, operands),
        other => bail!("{NAME}: operand is {other:?}, not f32 or f64"),
    }
}
