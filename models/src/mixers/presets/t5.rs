//! T5's encoder. Raffel et al., 2019, "Exploring the Limits of Transfer Learning with a Unified
//! Text-to-Text Transformer", arXiv:1910.10683.
//!     y_i = Σ_j softmax_j(q_i·k_j + b_{h, bucket(j - i)}) v_j
//! q, k, v (B, H, L, E); b (32, H), learned and shared by all layers. Half of the buckets is for
//! each sign: one for each distance below 8, then by the logarithm of the distance up to 128. With
//! `attention` = causal, all are for earlier keys, as in T5's decoder: one for each distance below
//! 16, then up to 128. RMSNorm before each sublayer, relu in the feed-forward network, no other
//! position encoding. Time O(L²·E) per head, memory O(L·E): the bias is looked up by distance and
//! never stored per pair. Products are not scaled, as in T5. Instead, query weights start
//! Xavier-uniform times E^-½, which is T5's standard deviation (D E)^-½ where `block.qkv_dim` is D,
//! and b starts with D^-½ (`_init_weights` of `T5PreTrainedModel` in `transformers`). RMSNorm's ε
//! is `block.norm_epsilon` = 1e-6, as in T5. Equations and code:
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
//! Feed-forward layers keep their biases. Weights begin Xavier-uniform; in T5 they begin normal, of
//! variance 1 / (number of inputs), which is the same where all widths are equal.

use crate::{mixers::transformer, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "t5",
    title: "T5 encoder",
    paper: "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    year: 2019,
    arxiv: "1910.10683",
    reference: Reference::Shared,
    family: Family::Xformer,
    settings: r#"{"embed": {"positions": "none"}, "block": {"bias": "t5", "norm": "rms", "activation": "relu"}}"#,
    variants: &[Variant {
        source: include_str!("t5.rs"),
        ..transformer::PAPER
    }],
    ..transformer::MODEL
};
