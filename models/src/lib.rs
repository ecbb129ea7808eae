//! Efficient Transformers on candle, behind one seam: a mixer maps (B, L, D) to (B, L, D).
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod kernels;
