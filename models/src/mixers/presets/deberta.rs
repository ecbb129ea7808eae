//! DeBERTa's encoder. He et al., 2020, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", arXiv:2006.03654.
//!     z_ij = (q_i·k_j + q_i·K_r[δ(i, j)] + k_j·Q_r[δ(j, i)]) / √(3 E),  y_i = Σ_j softmax_j(z_ij) v_j
//! q, k, v (B, H, L, E); K_r, Q_r (H, 2 K, E) are the keys and queries that learned vectors of distances (2 K, D), shared by all layers, have in each
//! layer; δ(i, j) = i - j + K clipped to 0 … 2 K - 1, K = `block.bias_distance` (512 in the paper). Post-norm, gelu.
//! Time O(L²·E + L·K·E) per head, memory O(L·(E + K)).
//! Departures: no absolute positions before the softmax of a masked language model, as there is none here; projections without biases.
//! Equations and code: `models/src/layers/terms/content.rs`.

use crate::{
    mixers::transformer,
    model::{Cost, Model, Reference, Variant},
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "deberta",
    title: "DeBERTa encoder",
    paper: "DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
    year: 2020,
    arxiv: "2006.03654",
    time: Cost::Quadratic("O(L²·E + L·K·E)"),
    reference: Reference::Shared,
    settings: r#"{"embed": {"positions": "none"}, "block": {"bias": "deberta", "norm_place": "post"}}"#,
    variants: &[Variant {
        source: include_str!("deberta.rs"),
        ..transformer::PAPER
    }],
    ..transformer::MODEL
};
