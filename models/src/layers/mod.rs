//! Modules with parameters, one per file: each keeps its weights and calls [`crate::ops`].

pub mod block_linear;
pub mod complex_embedding;
pub mod conditional_positions;
pub mod decay_bound;
pub mod direction;
pub mod dropout;
pub mod embedding;
pub mod feed_forward;
pub mod gated_heads;
pub mod glu_output;
pub mod heads;
pub mod linear;
pub mod long_conv;
pub mod mab;
pub mod norm;
pub mod pooling;
pub mod score_mods;
pub mod short_conv;

pub use block_linear::BlockLinear;
pub use complex_embedding::ComplexEmbedding;
pub use conditional_positions::ConditionalPositions;
pub use decay_bound::DecayBound;
pub use direction::Direction;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use feed_forward::{FeedForward, FusedSublayer};
pub use gated_heads::{GatedHeadSizes, GatedHeads, head_decays};
pub use glu_output::{GluOutput, OutputGate, OutputInit};
pub use heads::{Projections, by_head};
pub use linear::Linear;
pub use long_conv::{LongConv, convolve};
pub use mab::Mab;
pub use norm::LayerNorm;
pub use pooling::Pool;
pub use score_mods::{ScoreMods, Supports, TransformerXl};
pub use short_conv::ShortConv;
