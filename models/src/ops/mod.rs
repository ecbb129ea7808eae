//! Operations on tensors that candle lacks, or has without a gradient, or computes slowly, one family per file.
//!
//! An operation says what it computes, and chooses where and how. No other folder names the
//! kernels (`models/tests/structure.rs`). Each operation has a composed form, made of candle's own
//! operations: it runs on any device and float type, and its gradient is exact. It hands f32
//! tensors in main memory to a kernel ([`crate::kernels`]) where that pays. The tests of each file
//! compare kernel and composed form on every instruction set, and the composed form with plain
//! loops in f64 and with difference quotients.
//!
//! # Errors
//! Shapes that do not fit are errors ([`crate::Error::Input`]) that name the operation and what it was given.

pub mod activation;
mod adamw;
mod add;
pub mod attention;
mod batch_norm;
mod block_permutation;
mod cat;
mod channel_attention;
mod channel_scale;
pub mod checkpoint;
mod columns;
pub mod complex;
pub mod conv;
mod cross_entropy;
mod dropout;
mod embedding;
mod feed_forward;
pub mod fft;
mod gated_linear;
pub mod gather;
mod gradient_hook;
mod hamming_k_means;
pub mod interleave;
mod l2_normalize;
mod length_projection;
mod linear;
pub mod linear_attention;
mod lsh;
mod matmul;
mod norm;
pub mod packing;
pub mod pooling;
mod pseudo_inverse;
mod relative_queries;
pub mod roll;
pub mod rotary;
pub mod scan;
pub mod selective_scan;
mod shared_state_space;
mod sinkhorn_normalize;
pub mod softmax;
mod squared_distance;
pub mod state_space;
mod swap_axes;
#[cfg(test)]
pub(crate) mod testing;
pub mod top_k;

pub use adamw::{AdamW, sum_of_squares};
pub use add::add;
pub use batch_norm::{Moments, batch_norm, batch_norm_by};
pub use block_permutation::{permute_blocks, permute_blocks_beside};
pub use cat::cat;
pub use channel_attention::{channel_cosines, mix_channels};
pub use channel_scale::{add_scaled_channels, scale_channels};
pub use columns::columns;
pub use complex::Complex;
pub use conv::{Padding, conv1d, depthwise_conv1d};
pub use cross_entropy::{cross_entropies, cross_entropy};
pub use dropout::{DropoutMask, add_dropped, dropout};
pub use embedding::embed;
pub use feed_forward::{Affine, FeedForwardOptions, feed_forward};
pub use fft::{Lags, fft_conv, fft2_real, irfft, rfft};
pub use gated_linear::{GatedValue, gated_linear};
pub(crate) use gather::move_rows;
pub use gather::{NOWHERE, segment_mean, segment_sizes, segment_sum, take};
pub use gradient_hook::gradient_hook;
pub(crate) use hamming_k_means::HammingKMeans;
pub use l2_normalize::l2_normalize;
pub use length_projection::project_length;
pub use linear::linear;
pub use lsh::lsh;
pub use matmul::{count_products, exact_matmul, matmul, round_to_bfloat16};
pub use norm::{Normalised, layer_norm};
pub use pseudo_inverse::pseudo_inverse;
pub use relative_queries::relative_queries;
pub use roll::{Rings, Track, add_rolled};
pub use rotary::rotary;
pub use scan::{ScanOptions, scan, scan_packed};
pub use selective_scan::selective_scan;
pub use shared_state_space::{SharedStates, shared_state_space};
pub use sinkhorn_normalize::sinkhorn_normalize;
pub use squared_distance::squared_distance;
pub use state_space::{Modes, StateSpaceOptions, state_space, state_space_sum};
pub use swap_axes::{merge_heads, split_heads, swap_axes};
pub use top_k::{Order, top_k};

pub use crate::autograd::backward;
use crate::{Error, Result};
pub use lra_cpu::{fetch_buffers, isa::instruction_set};

/// Refuses input of `operation` unless `fits`.
fn check(fits: bool, operation: &str, what: impl FnOnce() -> String) -> Result<()> {
    match fits {
        true => Ok(()),
        false => Err(Error::Input(format!("{operation}: {}", what()))),
    }
}

/// Returns whether the fused form takes this tensor: f32, in main memory.
pub fn supports(x: &candle_core::Tensor) -> bool {
    x.device().is_cpu() && x.dtype() == candle_core::DType::F32
}
