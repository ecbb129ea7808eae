//! Fused f32 operations for CPU training, each with its own backward pass.
//!
//! candle's own operations are correct and slow to train with: one pass over memory per elementary
//! step, most of them on one thread, and a tensor kept for each. A kernel here is one candle custom
//! operation that does the whole step in one pass, keeps as little as possible for its backward pass,
//! and recomputes the rest.
//!
//! Three rules hold for all of them. Where a split decides the order of a sum, it depends on shapes and never on the
//! number of threads, and partial sums are added in index order, so a result has the same bits on any number of threads. The
//! instruction set is chosen at run time (`isa.rs`). Every kernel meets its composed form, made of
//! candle's operations in f64, in outputs and gradients (tests in `ops/`). What is between a kernel and
//! candle's graph is in `custom_op/`.
//!
//! What runs on registers is loops and `#[inline(always)]` functions. A closure there may be compiled for the least instruction set instead, and
//! then every operation on a register is a call.
//!
//! [`crate::ops`] calls these for f32 tensors in main memory, and the composed form elsewhere.

mod activation;
mod adamw;
mod add;
mod attention;
mod batch_norm;
mod block_permutation;
mod cat;
mod channel_attention;
mod channel_scale;
mod columns;
mod convolution;
mod cross_entropy;
mod custom_op;
mod dropout;
mod embedding;
mod feed_forward;
mod fourier;
mod gated_linear;
mod gather;
mod glu;
mod hamming_k_means;
mod l2_normalize;
mod length_projection;
mod linear;
mod linear_attention;
mod lsh;
mod norm;
mod pooling;
mod pseudo_inverse;
#[cfg(test)]
pub(crate) mod reference;
mod relative_queries;
mod roll;
mod rotary;
mod scan;
mod selective_scan;
mod shared_state_space;
mod sinkhorn_normalize;
mod softmax;
mod squared_distance;
mod state_space;
mod swap_axes;
mod variable_gradients;

pub use activation::{Activation, activate};
pub use adamw::{AdamW, sum_of_squares};
pub use add::add;
pub use attention::{
    AttentionDropout, AttentionOptions, BlockMask, BlockMasks, QueryRange, QueryRanges,
    RelativeScores, attention, attention_biased, attention_kept, attention_packed,
};
pub(crate) use attention::{BlockView, TileView, first_weight};
pub use batch_norm::{channel_moments, channel_norm};
pub use block_permutation::{permute_blocks, permute_blocks_packed};
pub use cat::cat;
pub use channel_attention::{channel_cosines, mix_channels};
pub use channel_scale::scale_channels;
pub use columns::columns;
pub(crate) use convolution::depthwise_conv1d;
pub use cpu::fetch_buffers;
pub use cpu::format::round_to_bfloat16;
pub use cpu::isa::{instruction_set, rounds_to_bfloat16};
pub use cross_entropy::{cross_entropies, cross_entropy};
pub use custom_op::{Tied, record};
pub use dropout::{DropoutOptions, add_dropped, dropout};
pub use embedding::embed;
pub use feed_forward::{FeedForwardOptions, Normalised, feed_forward};
pub use fourier::Lags;
pub(crate) use fourier::{long_convolution, mix_tokens, sequence, spectrum};
pub use gated_linear::{GatedLinearOptions, GatedValue, gated_linear};
pub(crate) use gather::{add_rows, move_rows, take_rows};
pub(crate) use hamming_k_means::HammingKMeans;
pub use l2_normalize::l2_normalize;
pub use length_projection::project_length;
pub use linear::linear;
pub use linear_attention::{
    FeatureMap, LinearAttentionOptions, linear_attention, linear_attention_packed,
};
pub use lsh::lsh;
pub use norm::layer_norm;
pub use pooling::weighted_sum;
pub use pseudo_inverse::pseudo_inverse;
pub use relative_queries::relative_queries;
pub(crate) use roll::add_rolled;
pub use roll::{Rings, Track};
pub(crate) use rotary::rotate;
pub(crate) use scan::{Scan, scan};
pub(crate) use selective_scan::selective_scan;
pub(crate) use shared_state_space::shared_state_space;
pub use sinkhorn_normalize::sinkhorn_normalize;
pub use softmax::softmax;
pub use squared_distance::squared_distance;
pub(crate) use state_space::{Rows, StateSpace, Walk, state_space};
pub(crate) use swap_axes::{merge_heads, split_heads, swap_axes};
pub use variable_gradients::backward;

/// Whether the kernels can take this tensor: f32, in main memory.
pub fn supports(x: &candle_core::Tensor) -> bool {
    x.device().is_cpu() && x.dtype() == candle_core::DType::F32
}
