//! Product-key memory. Lample et al., 2019, "Large Memory Layers with Product Keys",
//! arXiv:1907.05242.
//!     y = Σ_h Σ_{(i, j) in T} softmax_T(q₁·a_i + q₂·b_j) v_ij,  T the k largest of all n² sums
//! in place of the feed-forward network of every second block; otherwise a Transformer. x, y (B, L,
//! D), q₁, q₂ (D/2) the halves of a query per head, a, b (n, D/2) its sub-keys, v (n², D), n =
//! `block.product_keys`, k = `block.product_top`. Time O(L²·E) per head, and O(L·(n + k²)·D) for a
//! memory of n² values; memory O(L·k·D). The paper's memory has 512² values, of which four heads
//! read 32 each, between two of 16 layers. Here it has 32² values, of which heads read 8, for a
//! width of 64. Equations and code: `models/src/block/channel/product_keys.rs`.
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
//! LayerNorm in place of a batch norm on queries, an option of the authors' code with ε = 1e-5
//! (torch.nn.BatchNorm1d, xlm/model/memory/query.py:21). The query's weights begin Xavier-uniform,
//! in the authors' code uniform within inputs^-½ and with biases; keys begin uniform within (K /
//! 2)^-½ and values N(0, 1 / D), as there (xlm/model/memory/memory.py:92, utils.py:27-33). The
//! authors train values by an Adam of their own, at rate 0.001 (memory.py:240). The norms' ε is
//! `block.norm_epsilon` = 1e-6, in the authors' code 1e-12 (facebookresearch/XLM@cd281d3
//! xlm/model/transformer.py). Blocks are pre-norm with tanh's gelu, there post-norm with the error
//! function's (lines 79, 397-412).

use crate::{mixers::transformer, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "product_keys",
    title: "Product-Key Memory",
    paper: "Large Memory Layers with Product Keys",
    year: 2019,
    arxiv: "1907.05242",
    reference: Reference::Shared,
    family: Family::Xformer,
    settings: r#"{"block": {"ffn": "product_keys"}}"#,
    variants: &[Variant {
        source: include_str!("product_keys.rs"),
        ..transformer::PAPER
    }],
    ..transformer::MODEL
};
