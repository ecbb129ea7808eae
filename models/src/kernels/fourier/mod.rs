//! Discrete Fourier transforms along a sequence and what is made of them, for f32 and f64: spectra of real sequences
//! and back, long convolutions, and the two-dimensional transform that mixes tokens.
//!
//! Transforms are `realfft`'s and `rustfft`'s: of any length, planned once for each length, with vector instructions
//! that they choose themselves. Sequences (B, L, D) are copied to channels of consecutive numbers and back, some
//! channels at a time.

mod convolution;
mod mixing;
mod spectrum;
mod transform;

use std::sync::{LazyLock, Mutex};

use candle_core::{DType, Result, Tensor, WithDType, bail};
use realfft::{FftNum, RealFftPlanner};
use rustfft::FftPlanner;

use super::custom_op::{self, CustomOp};

pub use convolution::Lags;
pub(crate) use convolution::long_convolution;
pub(crate) use mixing::mix_tokens;
pub(crate) use spectrum::{sequence, spectrum};

const NAME: &str = "fourier";

/// Numbers that can be transformed.
trait Real: FftNum + WithDType + Default {
    /// Plans of transforms of real sequences.
    fn real() -> &'static Mutex<RealFftPlanner<Self>>;
    /// Plans of transforms of complex sequences.
    fn complex() -> &'static Mutex<FftPlanner<Self>>;
}

macro_rules! real {
    ($float:ty) => {
        impl Real for $float {
            fn real() -> &'static Mutex<RealFftPlanner<Self>> {
                static PLANNER: LazyLock<Mutex<RealFftPlanner<$float>>> =
                    LazyLock::new(|| Mutex::new(RealFftPlanner::new()));
                &PLANNER
            }

            fn complex() -> &'static Mutex<FftPlanner<Self>> {
                static PLANNER: LazyLock<Mutex<FftPlanner<$float>>> =
                    LazyLock::new(|| Mutex::new(FftPlanner::new()));
                &PLANNER
            }
        }
    };
}

real!(f32);
real!(f64);

/// A real number of this type.
fn number<T: Real>(x: f64) -> T {
    <T as WithDType>::from_f64(x)
}

/// Runs `op`, which knows both types, on operands of either.
fn apply<O, const N: usize>(op: O, operands: [&Tensor; N]) -> Result<Tensor>
where
    O: CustomOp<N, f32> + CustomOp<N, f64>,
{
    match operands.first().map(|x| x.dtype()) {
        Some(DType::F32) => custom_op::apply::<O, N, f32>(op, operands),
        Some(DType::F64) => custom_op::apply::<O, N, f64>(op, operands),
        other => bail!("{NAME}: operand is {other:?}, not f32 or f64"),
    }
}
