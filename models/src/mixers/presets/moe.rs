//! Mixture of experts, two per token. Shazeer et al., 2017, "Outrageously Large Neural Networks",
//! arXiv:1701.06538, in the Transformer of Lepikhin et al., 2020, "GShard: Scaling Giant Models
//! with Conditional Computation and Automatic Sharding", arXiv:2006.16668.
//!     y = Σ_{e in the two largest p} p_e / (p_e1 + p_e2) FFN_e(x),  p = softmax(x W_r)
//! in place of the feed-forward network of every second block; otherwise a Transformer. x, y (B, L,
//! D), W_r (D, X), X = `block.experts`. Time O(L²·E) per head, and twice the time of one
//! feed-forward network for the experts; memory O(L·E); X times the weights in those blocks. In
//! training an expert takes at most ⌈c n / X⌉ of a sequence's n valid tokens, first choices before
//! second ones. c = `block.expert_capacity` is twice the value for one expert per token. Losses per
//! sequence: `balance`, X Σ_e f_e P_e, weight 0.01, where f counts first choices, and `router_z`,
//! the mean (log Σ exp(x W_r))² of ST-MoE (arXiv:2202.08906), weight 0: it is logged, and trained
//! if `train.aux.router_z` is more. Equations and code: `models/src/block/channel/experts.rs`.
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
//! Groups are sequences, where GShard groups the tokens of one machine; evaluation has no capacity
//! limit; the second expert is always used, where GShard draws. Weights begin Xavier-uniform; in
//! its code router and experts uniform within (3 / inputs)^½, experts without biases, keys, values
//! and outputs of attention N(0, 1 / inputs) and queries N(0, 1 / (D E)), whose scores are not
//! divided by √E (tensorflow/lingvo@e0be5dc lingvo/core/gshard_builder.py:1988-2042, 2097-2166 and
//! 1134). 1e-9 is added there to p_e1 + p_e2 (gshard_layers.py:2219). Its norms are RMSNorm, with
//! the same ε, 1e-6 (gshard_builder.py:139, 1833-1844). The capacity is rounded up, without a least
//! one; tensor2tensor and lucidrains/mixture-of-experts round down and have at least 4, lingvo
//! rounds up to a multiple of 4.

use crate::{mixers::transformer, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "moe",
    title: "Mixture of experts",
    paper: "GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding",
    year: 2020,
    arxiv: "2006.16668",
    reference: Reference::Equations,
    family: Family::Xformer,
    settings: r#"{"block": {"ffn": "moe", "expert_capacity": 2.5}}"#,
    variants: &[Variant {
        source: include_str!("moe.rs"),
        ..transformer::PAPER
    }],
    ..transformer::MODEL
};
