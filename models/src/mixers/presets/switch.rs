//! Switch Transformer. Fedus, Zoph & Shazeer, 2021, "Switch Transformers: Scaling to Trillion
//! Parameter Models with Simple and Efficient Sparsity", arXiv:2101.03961.
//!     y = p_e FFN_e(x),  e = arg max p,  p = softmax(x W_r)
//! in place of the feed-forward network of every second block; otherwise a Transformer. x, y (B, L,
//! D), W_r (D, X), X = `block.experts`. Time O(L²·E) per head, and the time of one feed-forward
//! network for the experts; memory O(L·E); X times the weights in those blocks. In training an
//! expert takes at most ⌈c n / X⌉ of a sequence's n valid tokens, c = `block.expert_capacity`; the
//! other tokens pass only through the residual stream. Losses per sequence: `balance`, X Σ_e f_e
//! P_e, weight 0.01, and `router_z`, the mean (log Σ exp(x W_r))² of ST-MoE (arXiv:2202.08906),
//! weight 0: it is logged, and trained if `train.aux.router_z` is more. If two probabilities are
//! equal, the lower index wins. Equations and code: `models/src/block/channel/experts.rs`.
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
//! Groups are sequences, where the paper groups the tokens of one machine; evaluation has no
//! capacity limit, where the paper has c = 2; initial values are those of a dense network,
//! Xavier-uniform, where the authors' code has normal ones of variance 0.1 / inputs, N(0, 0.02²)
//! for the router, and no biases (google/flaxformer@399ea3a
//! flaxformer/t5x/configs/moe/architectures/moe.gin:189-197, 212-226, 260-290 and
//! models/tokens_choose_base.gin). Its feed-forward networks are gated, GELU(x W) ⊙ (x V), and its
//! norms are RMSNorm, with the same ε, 1e-6 (flaxformer/components/layer_norm.py:46). The capacity
//! is rounded up, without a least one; tensor2tensor and lucidrains/mixture-of-experts round down
//! and have at least 4.

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
