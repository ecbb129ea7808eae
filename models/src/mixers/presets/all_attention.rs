//! All-attention. Sukhbaatar et al., 2019, "Augmenting Self-attention with Persistent Memory",
//! arXiv:1907.01470.
//!     y_i = Σ_j softmax_j(q_i·[k ; M_k]_j / √E) [v ; M_v]_j
//! q, k, v (B, H, L, E); M_k = √E P_k and M_v = √n P_v (H, n, E) are keys and values that belong to
//! no token, n = `block.memory`. They replace the feed-forward network. P_k and P_v are learned,
//! P_k ~ N(0, 1/E) and P_v ~ N(0, 1/n) at first, so that M ~ N(0, 1): the scales of
//! facebookresearch/adaptive-span, persistent memory. Time O(L·(L + n)·E) per head, memory O((L +
//! n)·E). The paper has n = 1024 for width 512, twice the width; here n is 64 for the default width
//! 64, and should be set with it. One softmax covers tokens and memory, as in the paper. Equations
//! and code: `models/src/layers/score_mods/memory.rs`.
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
//! No adaptive span and no relative positions, which the paper adds. Attention goes both ways in
//! time and includes the query's own position; blocks are pre-norm, in the authors' code post-norm
//! (models.py:188). Projections begin Xavier-uniform, in the authors' code uniform within D^-½
//! (facebookresearch/adaptive-span@27b815f models.py:123-126). The norms' ε is `block.norm_epsilon`
//! = 1e-6, in the authors' code 1e-5 (torch.nn.LayerNorm).

use crate::{mixers::transformer, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "all_attention",
    title: "All-attention",
    paper: "Augmenting Self-attention with Persistent Memory",
    year: 2019,
    arxiv: "1907.01470",
    time: Cost::Quadratic("O(L·(L + n)·E)"),
    reference: Reference::Shared,
    family: Family::Xformer,
    settings: r#"{"block": {"memory": 64, "ffn": "none"}}"#,
    variants: &[Variant {
        source: include_str!("all_attention.rs"),
        ..transformer::PAPER
    }],
    ..transformer::MODEL
};
