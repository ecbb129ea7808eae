//! Admin. Liu, Liu, Gao, Chen & Han, 2020, "Understanding the Difficulty of Training Transformers",
//! arXiv:2004.08249.
//!     x ← norm(ω ⊙ x + Attention(x)),  x ← norm(ω ⊙ x + FFN(x))
//! x (B, L, D), ω (D) per sublayer, √((n + 1)/ln(n + 1) - 1) at first for n sublayers, so that deep
//! post-norm stacks depend less on any one branch. Time O(L²·E) per head, memory O(L·E). Equations
//! and code: `models/src/block/residual.rs`.
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
//! This initial ω is the closed form of the authors' later package, admin-torch, where the paper
//! measures variances in a first pass. Queries, keys and values begin Xavier-uniform, in the
//! authors' code √½ times that; attention has biases there, which begin as 0
//! (LiyuanLucasLiu/Transformer-Clinic@70f72b7
//! fairseq/fairseq/modules/multihead_attention.py:76-87). Biases of the feed-forward network begin
//! N(0, 1e-6²), there as 0 (transformer_layer.py:688-693). The norms' ε is `block.norm_epsilon` =
//! 1e-6, there 1e-5 (layer_norm.py:8).

use crate::{mixers::transformer, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "admin",
    title: "Admin",
    paper: "Understanding the Difficulty of Training Transformers",
    year: 2020,
    arxiv: "2004.08249",
    reference: Reference::Equations,
    family: Family::Xformer,
    settings: r#"{"block": {"residual": "admin", "norm_place": "post"}}"#,
    variants: &[Variant {
        source: include_str!("admin.rs"),
        ..transformer::PAPER
    }],
    ..transformer::MODEL
};
