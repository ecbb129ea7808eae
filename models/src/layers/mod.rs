//! Modules with parameters, one per file: each keeps its weights and calls [`crate::ops`].

pub mod dropout;
pub mod embedding;
pub mod feed_forward;
pub mod heads;
pub mod linear;
pub mod norm;
pub mod terms;

pub use dropout::Dropout;
pub use embedding::Embedding;
pub use feed_forward::{FeedForward, FusedSublayer};
pub use heads::Projections;
pub use linear::Linear;
pub use norm::LayerNorm;
pub use terms::{Takes, Terms};
