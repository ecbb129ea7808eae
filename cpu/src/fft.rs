//! Plans of Fourier transforms of any length, made once for each length.
//!
//! Transforms are those of `rustfft` and `realfft`, which choose their own vector instructions.
//! They are compiled here, in concrete types, so that no dependent crate compiles them again.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use realfft::RealFftPlanner;
use rustfft::FftPlanner;

pub use realfft::num_complex::Complex;
pub use realfft::{ComplexToReal, RealToComplex};
pub use rustfft::Fft;

/// Floats that can be transformed.
pub trait FftNum: realfft::FftNum {
    /// Returns the plan of the transform of n complex numbers, in place: X_k = Σ_j x_j exp(-2πi jk
    /// / n).
    fn plan_fft(n: usize) -> Arc<dyn Fft<Self>>;

    /// Returns the plan of the transform of n real numbers to ⌊n/2⌋ + 1 complex ones, X_0 to
    /// X_⌊n/2⌋.
    fn plan_rfft(n: usize) -> Arc<dyn RealToComplex<Self>>;

    /// Returns the plan of the transform of ⌊n/2⌋ + 1 complex numbers to n real ones: n times the
    /// inverse of [`plan_rfft`](FftNum::plan_rfft).
    fn plan_irfft(n: usize) -> Arc<dyn ComplexToReal<Self>>;
}

/// Runs `plan` on the planner of a type. The planner stays valid if another thread panicked while
/// it held the lock.
fn with<P, Q>(planner: &Mutex<P>, plan: impl FnOnce(&mut P) -> Q) -> Q {
    plan(&mut planner.lock().unwrap_or_else(PoisonError::into_inner))
}

macro_rules! fft_num {
    ($float:ty) => {
        const _: () = {
            static COMPLEX: LazyLock<Mutex<FftPlanner<$float>>> =
                LazyLock::new(|| Mutex::new(FftPlanner::new()));
            static REAL: LazyLock<Mutex<RealFftPlanner<$float>>> =
                LazyLock::new(|| Mutex::new(RealFftPlanner::new()));

            impl FftNum for $float {
                fn plan_fft(n: usize) -> Arc<dyn Fft<Self>> {
                    with(&COMPLEX, |planner| planner.plan_fft_forward(n))
                }

                fn plan_rfft(n: usize) -> Arc<dyn RealToComplex<Self>> {
                    with(&REAL, |planner| planner.plan_fft_forward(n))
                }

                fn plan_irfft(n: usize) -> Arc<dyn ComplexToReal<Self>> {
                    with(&REAL, |planner| planner.plan_fft_inverse(n))
                }
            }
        };
    };
}

fft_num!(f32);
fft_num!(f64);
