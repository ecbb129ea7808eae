//! Differentiable, seeded building blocks, one per file.
//!
//! candle's own LayerNorm, fused softmax and dropout lose gradients or cannot be seeded; these are used instead.

pub mod activation;
pub mod dropout;
pub mod embedding;
pub mod feed_forward;
pub mod heads;
pub mod linear;
pub mod norm;
pub mod pooling;
pub mod softmax;
#[cfg(test)]
pub(crate) mod testing;

pub use dropout::Dropout;
pub use embedding::Embedding;
pub use feed_forward::FeedForward;
pub use heads::Projections;
pub use linear::Linear;
pub use norm::LayerNorm;
