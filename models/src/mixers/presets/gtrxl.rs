//! GTrXL. Parisotto et al., 2019, "Stabilizing Transformers for Reinforcement Learning",
//! arXiv:1910.06764.
//!     x ← g(x, Attention(norm(x))),  x ← g(x, FFN(norm(x))),  g the gate of a GRU whose input is relu of the sublayer's output
//! x (B, L, D); six (D, D) matrices and a bias per gate. The bias keeps the gates nearly closed at
//! first, so the stack starts near the identity. Time O(L²·E) per head, and 12·L·D² per sublayer
//! for its gate; memory O(L·E). Equations and code: `models/src/block/residual.rs`.
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
//! Relative positions and a memory of the previous segment, which make it a Transformer-XL, are not
//! part of it here: one sequence is one segment, and positions are set by `embed.positions`. A last
//! norm, as after every pre-norm stack. Its authors' code is not public: weights of gates begin
//! Xavier-uniform, biases with 2, as in opendilab/DI-engine@0254a2b
//! ding/torch_utils/network/gtrxl.py:62-68, where weights begin uniform within D^-½. Its LayerNorms
//! have ε = 1e-5 (PyTorch's default, lines 377-378), here `block.norm_epsilon` = 1e-6. Attention
//! and the feed-forward network begin Xavier-uniform here, biases of the latter N(0, 1e-6²), there
//! as PyTorch's linear layers, uniform within inputs^-½.

use crate::{mixers::transformer, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "gtrxl",
    title: "GTrXL",
    paper: "Stabilizing Transformers for Reinforcement Learning",
    year: 2019,
    arxiv: "1910.06764",
    reference: Reference::Equations,
    family: Family::Xformer,
    settings: r#"{"block": {"residual": "gru"}}"#,
    variants: &[Variant {
        source: include_str!("gtrxl.rs"),
        ..transformer::PAPER
    }],
    ..transformer::MODEL
};
