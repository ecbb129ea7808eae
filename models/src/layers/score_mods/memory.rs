//! Memory keys and values that belong to no token. Sukhbaatar et al., 2019, "Augmenting
//! Self-attention with Persistent Memory", arXiv:1907.01470.
//!     y_i = Σ_j softmax_j(q_i·[k ; M_k]_j / √E) [v ; M_v]_j,  M_k = √E P_k,  M_v = √n P_v
//! n slots with learned P_k ~ N(0, 1 / E) and P_v ~ N(0, 1 / n) for each head, so that M ~ N(0, 1),
//! while updates have the size of other weights' updates. Slots have no position and are never
//! hidden: a query that sees no token still sees them. With rotary positions queries and keys of
//! tokens are rotated, and slots are not: q_i·(M_k)_j then depends on i, as if the slot were a key
//! at position 0. Under block masks every query of a block sees them, once. Time O(L·n·E) per head.
//! In the paper they replace the feed-forward network (`block.ffn = none`).

use candle_core::Tensor;
use candle_nn::Init;

use crate::{Result, VarBuilder, options::BlockOptions};

/// P_k and P_v, each (n, H E).
pub(super) struct Memory {
    key: Tensor,
    value: Tensor,
    /// √E.
    key_scale: f64,
}

impl Memory {
    /// Creates parameters `key` and `value` (n, H E).
    pub(super) fn new(vb: &VarBuilder, block: &BlockOptions, slots: usize) -> Result<Self> {
        let parameter = |name, over: usize| {
            let init = Init::Randn {
                mean: 0.0,
                stdev: (over as f64).powf(-0.5),
            };
            vb.get_with_hints((slots, block.qkv_dim), name, init)
        };
        Ok(Self {
            key: parameter("key", block.head_dim())?,
            value: parameter("value", slots)?,
            key_scale: (block.head_dim() as f64).sqrt(),
        })
    }

    /// Returns n.
    pub(super) fn slots(&self) -> usize {
        self.key.dims()[0]
    }

    /// Returns keys and values (B, L, H E) with the memory after them, and the mask (B, L)
    /// likewise.
    pub(super) fn beside(
        &self,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor, Option<Tensor>)> {
        let (batch, slots) = (k.dim(0)?, self.slots());
        let beside = |x: &Tensor, memory: &Tensor, scale: f64| -> Result<Tensor> {
            let memory = memory.affine(scale, 0.0)?.unsqueeze(0)?;
            let memory = memory.broadcast_as((batch, slots, x.dim(2)?))?;
            Ok(Tensor::cat(&[x, &memory.contiguous()?], 1)?)
        };
        let mask = match mask {
            Some(mask) => {
                let ones = Tensor::ones((batch, slots), mask.dtype(), mask.device())?;
                Some(Tensor::cat(&[mask, &ones], 1)?)
            }
            None => None,
        };
        Ok((
            beside(k, &self.key, self.key_scale)?,
            beside(v, &self.value, (slots as f64).sqrt())?,
            mask,
        ))
    }
}
