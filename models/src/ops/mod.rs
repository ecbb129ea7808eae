//! Operations on tensors that candle lacks, or has without a gradient, one family per file.
//!
//! An operation says what it computes; where and how is decided here and nowhere else. Each has a composed form of
//! candle's own operations, which runs on any device and float type and whose gradient is exact, and hands f32
//! tensors in main memory to a kernel ([`crate::kernels`]) where that pays. Kernel and composed form meet in the tests
//! of each file, on every instruction set; the composed form meets plain loops in f64 and difference quotients.
//!
//! # Errors
//! Shapes that do not fit are errors ([`crate::Error::Input`]) that name the operation and what it was given.

pub mod attention;
pub mod complex;
pub mod conv;
pub mod fft;
pub mod gather;
pub mod rotary;
pub mod scan;
pub mod state_space;
pub mod top_k;

pub use complex::Complex;
pub use conv::{Padding, conv1d, depthwise_conv1d};
pub use fft::{Lags, fft_conv, fft2_real, irfft, rfft};
pub use gather::{NOWHERE, segment_mean, segment_sizes, segment_sum, take};
pub use rotary::rotary;
pub use scan::{ScanOptions, scan};
pub use state_space::{Modes, StateSpaceOptions, state_space};
pub use top_k::{Order, top_k};

use crate::{Error, Result};

/// Refuses input of `operation` unless `fits`.
fn check(fits: bool, operation: &str, what: impl FnOnce() -> String) -> Result<()> {
    match fits {
        true => Ok(()),
        false => Err(Error::Input(format!("{operation}: {}", what()))),
    }
}
