//! Differentiable, seeded building blocks, one per file.
//!
//! candle's own LayerNorm, fused softmax and dropout lose gradients or cannot be seeded; these are used instead.
//!
//! Each layer is written in plain tensor operations first, for any device and float type, and tested in f64. Where
//! [`crate::kernels`] has a fused operation for f32 on the CPU, the layer hands over at its first line.

pub mod activation;
pub mod attention;
pub mod block_lists;
pub mod block_sort;
pub mod dropout;
pub mod embedding;
pub mod feed_forward;
pub mod fold;
pub mod heads;
pub mod kernel_attention;
pub mod linear;
pub mod norm;
pub mod parts;
pub mod plans;
pub mod pooling;
pub mod products;
pub mod recompute;
pub mod softmax;
#[cfg(test)]
pub(crate) mod sparse_testing;
#[cfg(test)]
pub(crate) mod testing;

pub use block_lists::BlockLists;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use feed_forward::{Around, FeedForward};
pub use heads::Projections;
pub use linear::Linear;
pub use norm::LayerNorm;
pub use parts::WeightDropout;
pub use plans::Places;
pub use products::round_to_bfloat16;
