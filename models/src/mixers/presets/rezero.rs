//! ReZero. Bachlechner et al., 2020, "ReZero is All You Need: Fast Convergence at Large Depth",
//! arXiv:2003.04887.
//!     x ← x + α Attention(x),  x ← x + α FFN(x),  α = 0 at first
//! x (B, L, D), α one number per block, for both sublayers. No norms. Time O(L²·E) per head, memory
//! O(L·E). The stack starts as the identity: in the first step only α has a gradient, and no weight
//! of a sublayer has one. Equations and code: `models/src/block/residual.rs`.
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
//! Weights begin Xavier-uniform; in the authors' code those of queries, keys and values √½ times
//! that, all others uniform within inputs^-½, biases of the feed-forward network too, which here
//! begin N(0, 1e-6²), and attention has biases (majumderb/rezero@e2c94a8
//! rezero/transformer/rztx.py:40-44).

use crate::{mixers::transformer, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "rezero",
    title: "ReZero",
    paper: "ReZero is All You Need: Fast Convergence at Large Depth",
    year: 2020,
    arxiv: "2003.04887",
    reference: Reference::Equations,
    family: Family::Xformer,
    settings: r#"{"block": {"residual": "rezero", "norm": "none"}}"#,
    variants: &[Variant {
        source: include_str!("rezero.rs"),
        ..transformer::PAPER
    }],
    ..transformer::MODEL
};
