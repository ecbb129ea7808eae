//! Transformers with other block options: a card and settings, without equations of their own. Each
//! option is documented and tested beside its code.

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
