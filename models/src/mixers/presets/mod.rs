//! Models that are the Transformer with other axes: a card, its settings, no equations of their own. What an axis computes is said, and tested,
//! where its code stands.

pub mod admin;
pub mod alibi;
pub mod all_attention;
pub mod deberta;
pub mod gtrxl;
pub mod moe;
pub mod product_keys;
pub mod rezero;
pub mod roformer;
pub mod switch;
pub mod t5;
