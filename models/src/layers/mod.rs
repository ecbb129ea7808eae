//! Differentiable, seeded building blocks, one per file.
//!
//! candle's own LayerNorm, fused softmax and dropout lose gradients or cannot be seeded; these are used instead.
//!
//! Each layer is written in plain tensor operations first, for any device and float type, and tested in f64. Where
//! [`crate::kernels`] has a fused operation for f32 on the CPU, the layer hands over at its first line.

pub mod activation;
pub mod block_lists;
pub mod block_sort;
pub mod checkpoint;
pub mod dropout;
pub mod embedding;
pub mod feed_forward;
pub mod heads;
pub mod interleave;
pub mod linear;
pub mod linear_attention;
pub mod matmul;
pub mod norm;
pub mod partial_softmax;
pub mod patterns;
pub mod pooling;
pub mod softmax;
pub mod terms;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
pub(crate) mod testing_sparse;

pub use block_lists::BlockLists;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use feed_forward::{FeedForward, FusedSublayer};
pub use heads::Projections;
pub use linear::Linear;
pub use matmul::round_to_bfloat16;
pub use norm::LayerNorm;
pub use partial_softmax::WeightDropout;
pub use patterns::StridedPositions;
pub use terms::{Takes, Terms};
