//! ALiBi. Press, Smith & Lewis, 2021, "Train Short, Test Long: Attention with Linear Biases Enables
//! Input Length Extrapolation", arXiv:2108.12409.
//!     y_i = Σ_j softmax_j(q_i·k_j / √E - s_h |j - i|) v_j
//! q, k, v (B, H, L, E); s_h = 2^(-8 h / H) for heads h = 1 … H (if H is not a power of two: the
//! slopes of the next lower power, then every second slope of its double). Nothing is learned, and
//! there is no other position encoding. Time O(L²·E) per head, memory O(L·E). LayerNorm's ε is
//! 1e-6; in the authors' fairseq it is 1e-5. Equations and code:
//! `models/src/layers/score_mods/distance.rs`.
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
//! The paper's model reads from left to right; here distance counts the same in both directions, as
//! its authors advise for encoders. Weights begin Xavier-uniform; in their code queries, keys and
//! values √½ times that and with biases, the feed-forward network uniform within inputs^-½.

use crate::{mixers::transformer, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "alibi",
    title: "ALiBi",
    paper: "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
    year: 2021,
    arxiv: "2108.12409",
    reference: Reference::Shared,
    family: Family::Xformer,
    settings: r#"{"embed": {"positions": "none"}, "block": {"bias": "alibi"}}"#,
    variants: &[Variant {
        source: include_str!("alibi.rs"),
        ..transformer::PAPER
    }],
    ..transformer::MODEL
};
