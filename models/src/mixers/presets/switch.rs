//! Switch Transformer. Fedus, Zoph & Shazeer, 2021, "Switch Transformers: Scaling to Trillion
//! Parameter Models with Simple and Efficient Sparsity", arXiv:2101.03961.
//!     y = p_e FFN_e(x),  e = arg max p,  p = softmax(x W_r)
//! in place of the feed-forward network of every second block; a Transformer otherwise. x, y (B, L,
//! D), W_r (D, X), X = `block.experts`. Time O(L²·E) per head, and as much for the experts as for
//! one feed-forward network; memory O(L·E); X times the weights in those blocks. An expert takes at
//! most ⌈c n / X⌉ of a sequence's n real tokens in training, c = `block.expert_capacity`; the
//! residual stream carries the rest. Loss `balance`, X Σ_e f_e P_e per sequence, weight 0.01. Of
//! two equal probabilities the lower number wins. Equations and code:
//! `models/src/block/channel/experts.rs`.
//!
//! # Options
//!
//! `attention` and `span` as of the Transformer.
//!
//! # Padding
//!
//! Padded keys get weight zero, and padded tokens are not routed.
//!
//! # Departures
//!
//! Groups are sequences, where the paper's are what one machine holds; in evaluation there is no
//! capacity, where the paper has c = 2; a dense network's initial values.

use crate::{mixers::transformer, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "switch",
    title: "Switch Transformer",
    paper: "Switch Transformers: Scaling to Trillion Parameter Models with Simple and Efficient Sparsity",
    year: 2021,
    arxiv: "2101.03961",
    reference: Reference::Equations,
    family: Family::Xformer,
    settings: r#"{"block": {"ffn": "switch"}}"#,
    variants: &[Variant {
        source: include_str!("switch.rs"),
        ..transformer::PAPER
    }],
    ..transformer::MODEL
};
