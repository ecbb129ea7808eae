//! DeBERTa's encoder. He et al., 2020, "DeBERTa: Decoding-enhanced BERT with Disentangled
//! Attention", arXiv:2006.03654.
//!     z_ij = (q_i·k_j + q_i·K_r[δ(i, j)] + k_j·Q_r[δ(i, j)]) / √(3 E),  y_i = Σ_j softmax_j(z_ij) v_j
//! q, k, v (B, H, L, E); K_r, Q_r (H, 2 K, E) are the keys and queries that each layer computes
//! from learned vectors of distances (2 K, D), shared by all layers; δ(i, j) = i - j + K clipped to
//! 0 … 2 K - 1, K = `block.bias_distance` (512 in the paper), or N if the longest length N is less.
//! Post-norm, gelu. The third term is that of the authors' code (microsoft/DeBERTa,
//! DeBERTa/deberta/disentangled_attention.py, commit 4d7fe0b) and of `transformers`. The paper
//! prints δ(j, i) in that term (its equation 4), which is `model.variant = paper`, or `block.bias =
//! deberta_paper` around any model. Time O(L²·E + L·K·E) per head, memory O(L·(E + K)). Vectors of
//! distances start as N(0, 0.02²), as in that code. Equations and code:
//! `models/src/layers/score_mods/content.rs`.
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
//! No absolute positions before the softmax of a masked language model, since there is none here;
//! projections have no biases and begin Xavier-uniform, in that code as N(0, 0.02²); the
//! feed-forward network begins Xavier-uniform (±0.177 at D = 64 and a width of 128) with biases
//! N(0, 1e-6²), in that code as N(0, 0.02²) with biases of 0 (DeBERTa/deberta/nnmodule.py:50-53);
//! LayerNorm's ε is `block.norm_epsilon` = 1e-6, in that code 1e-7. Its gelu is the error
//! function's (DeBERTa/deberta/ops.py:226), here `gelu` is tanh's, at most 5e-4 from it. That code
//! also drops elements of the vectors of distances (disentangled_attention.py:53), by one mask for
//! all positions, which is not done here, and has a LayerNorm behind the embedding
//! (DeBERTa/deberta/bert.py:239), which is left out.

use crate::{mixers::transformer, options::PairBias, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "deberta",
    title: "DeBERTa encoder",
    paper: "DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
    year: 2020,
    arxiv: "2006.03654",
    time: Cost::Quadratic("O(L²·E + L·K·E)"),
    reference: Reference::Shared,
    family: Family::Xformer,
    settings: r#"{"embed": {"positions": "none"}, "block": {"bias": "deberta", "norm_place": "post"}}"#,
    variants: &[
        Variant {
            name: "he2020",
            build,
            source: include_str!("deberta.rs"),
            ..transformer::PAPER
        },
        Variant {
            build: build_paper,
            source: include_str!("deberta.rs"),
            ..transformer::PAPER
        },
    ],
    ..transformer::MODEL
};

/// Builds the encoder with any bias but the paper's, which is the other variant.
fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let bias = context.block.bias;
    require(
        bias != PairBias::DebertaPaper,
        "block.bias",
        "deberta_paper",
        "another, because the form of the paper is model.variant = paper",
    )?;
    (transformer::PAPER.build)(context)
}

/// Builds the encoder with the paper's third term.
fn build_paper(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let bias = context.block.bias;
    require(
        matches!(bias, PairBias::Deberta | PairBias::DebertaPaper),
        "model.variant",
        "paper",
        "he2020 with another block.bias than deberta and deberta_paper",
    )?;
    let block = BlockOptions {
        bias: PairBias::DebertaPaper,
        ..context.block.clone()
    };
    (transformer::PAPER.build)(&ModelContext {
        vb: context.vb.clone(),
        block: &block,
        positions: context.positions.clone(),
        ..*context
    })
}
