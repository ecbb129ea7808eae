//! Operations on tensors that candle lacks, has without a gradient, or computes slowly. Each is a
//! module, most of them folders.
//!
//! `mod.rs` of an operation documents it, has its form composed of candle's operations, and chooses
//! between its forms; no code outside this folder does (`models/tests/structure.rs`). The composed
//! form runs on any device and float type, and its gradient is exact. `cpu.rs` is the fused form
//! for f32 in main memory: forward and backward in one pass over memory each, keeping as little as
//! possible in between. `tests.rs` compares both forms in outputs and gradients, and the composed
//! form with difference quotients.
//!
//! Three rules hold for all fused forms. Where a split decides the order of a sum, it depends on
//! shapes and never on the number of threads, and partial sums are added in index order, so a
//! result has the same bits on any number of threads. The instruction set is chosen at run time
//! ([`instruction_set`]). Code on registers is loops and `#[inline(always)]` functions: a closure
//! there may be compiled for the least instruction set, and then every operation on a register is a
//! call.
//!
//! # Errors
//! Shapes that do not fit are errors ([`crate::Error::Input`]) that name the operation and its
//! arguments.

pub mod activation;
pub mod adamw;
pub mod add;
pub mod attention;
pub mod batch_norm;
pub mod block_permutation;
pub mod block_scan;
pub mod cat;
pub mod channel_attention;
pub mod channel_scale;
pub mod checkpoint;
pub mod collision_probability;
pub mod columns;
pub mod complex;
pub mod conv;
pub mod cross_entropy;
pub mod cumsum;
pub mod dplr_scan;
pub mod dplr_spectrum;
pub mod dropout;
pub mod embedding;
pub mod feed_forward;
pub mod fft;
pub mod flip;
pub mod gated_linear;
pub mod gated_linear_attention;
pub mod gather;
pub(crate) mod gradient_hook;
pub(crate) mod hamming_k_means;
pub mod interleave;
pub mod l2_normalize;
pub mod length_projection;
pub mod linear;
pub mod linear_attention;
pub mod lsh;
pub mod matmul;
pub mod norm;
pub mod packing;
pub mod pair_scan;
pub mod pooling;
pub mod pseudo_inverse;
pub mod recurrent;
pub mod relative_queries;
pub mod rms_norm;
pub mod roll;
pub mod rotary;
pub mod running_max;
pub mod scan;
pub mod selective_scan;
pub mod shared_state_space;
pub mod sinkhorn_normalize;
pub mod slstm;
pub mod softmax;
pub mod squared_distance;
pub mod state_space;
pub mod swap_axes;
#[cfg(test)]
pub(crate) mod testing;
pub mod top_k;

pub use adamw::{AdamW, sum_of_squares};
pub use add::add;
pub use batch_norm::{Moments, batch_norm, batch_norm_by};
pub use block_permutation::permute_blocks;
pub(crate) use block_permutation::permute_blocks_beside;
pub use block_scan::{BlockScan, block_scan};
pub use cat::cat;
pub use channel_attention::{channel_cosines, mix_channels};
pub use channel_scale::{add_scaled_channels, scale_channels};
pub use collision_probability::collision_probability;
pub use columns::columns;
pub use complex::Complex;
pub use conv::{Padding, conv1d, depthwise_conv1d};
pub(crate) use cross_entropy::cross_entropies;
pub use cross_entropy::cross_entropy;
pub use cumsum::cumsum;
pub use dplr_scan::{DplrScan, dplr_scan};
pub use dplr_spectrum::dplr_spectrum;
pub use dropout::{DropoutMask, add_dropped, dropout};
pub use embedding::embed;
pub use feed_forward::{Affine, FeedForwardOptions, feed_forward};
pub use fft::{Lags, fft_conv, fft2_real, irfft, rfft};
pub use flip::flip;
pub use gated_linear::{GatedValue, gated_linear};
pub use gated_linear_attention::{GatedLinearAttentionOptions, gated_linear_attention};
pub(crate) use gather::move_rows;
pub use gather::{IGNORE_INDEX, segment_mean, segment_sum, take};
pub(crate) use gradient_hook::gradient_hook;
pub(crate) use hamming_k_means::{Centroids, HammingKMeans};
pub use l2_normalize::l2_normalize;
pub(crate) use l2_normalize::l2_normalize_above;
pub use length_projection::project_length;
pub use linear::linear;
pub use lsh::lsh;
pub(crate) use matmul::count_products;
pub use matmul::{exact_matmul, matmul, round_to_bfloat16};
pub use norm::{Normalised, layer_norm};
pub use pair_scan::pair_scan;
pub use pseudo_inverse::pseudo_inverse;
pub use recurrent::{Cell, recurrent};
pub use relative_queries::relative_queries;
pub use rms_norm::rms_norm;
pub use roll::{Rings, Track, add_rolled};
pub use rotary::rotary;
pub use running_max::running_max;
pub(crate) use scan::scan_packed;
pub use scan::{ScanOptions, scan};
pub use selective_scan::selective_scan;
pub use shared_state_space::{SharedStates, shared_state_space};
pub use sinkhorn_normalize::sinkhorn_normalize;
pub use slstm::slstm;
pub use squared_distance::squared_distance;
pub use state_space::{Modes, StateSpaceOptions, state_space, state_space_sum};
pub use swap_axes::{merge_heads, split_heads, swap_axes};
pub use top_k::{Order, top_k};

pub use crate::autograd::backward;
use crate::{Error, Result};
pub(crate) use lra_cpu::workspaces::Workspaces;
pub use lra_cpu::{fetch_buffers, isa::instruction_set};

/// Refuses input of `operation` unless `fits`.
fn check(fits: bool, operation: &str, what: impl FnOnce() -> String) -> Result<()> {
    match fits {
        true => Ok(()),
        false => Err(Error::Input(format!("{operation}: {}", what()))),
    }
}

/// Returns whether the fused operations of this crate take x, of any shape: it must be f32 in main
/// memory.
pub fn supports(x: &candle_core::Tensor) -> bool {
    x.device().is_cpu() && x.dtype() == candle_core::DType::F32
}
