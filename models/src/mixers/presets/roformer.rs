//! RoFormer. Su et al., 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding",
//! arXiv:2104.09864.
//!     y_i = Σ_j softmax_j((R_i q_i)·(R_j k_j) / √E) v_j
//! q, k, v (B, H, L, E); R_t rotates the columns 2 c and 2 c + 1 by t·10000^(-2 c / E), so that the
//! product depends on j - i. Nothing is learned, and there is no other position encoding. Time
//! O(L²·E) per head, memory O(L·E). Around a mixer of features (`linear`, `performer`),
//! `block.rotary` rotates before the features. Equations and code:
//! `models/src/layers/score_mods/rotary.rs`.
//!
//! # Options
//!
//! `attention` and `span` as of the Transformer.
//!
//! # Padding
//!
//! Padded keys get weight zero.
//!
//! # Departures
//!
//! Pre-norm blocks with a LayerNorm of ε 1e-6, where the paper has BERT's blocks with 1e-12.
//! Weights begin Xavier-uniform, in the authors' code N(0, 0.02²) cut at two deviations, with
//! biases in attention.

use crate::{mixers::transformer, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "roformer",
    title: "RoFormer",
    paper: "RoFormer: Enhanced Transformer with Rotary Position Embedding",
    year: 2021,
    arxiv: "2104.09864",
    reference: Reference::Shared,
    family: Family::Xformer,
    settings: r#"{"embed": {"positions": "none"}, "block": {"rotary": true}}"#,
    variants: &[Variant {
        source: include_str!("roformer.rs"),
        ..transformer::PAPER
    }],
    ..transformer::MODEL
};
