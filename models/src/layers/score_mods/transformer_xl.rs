//! Transformer-XL's scores. Dai et al., 2019, arXiv:1901.02860, in both directions as in XLNet
//! (Yang et al., 2019, arXiv:1906.08237).
//!     z_ij = ((q_i + u)·k_j + (q_i + w)·W_R r_{i - j}) / √E,  r_δ = [sin(ω_c δ) ; cos(ω_c δ)],  ω_c = 10000^{-2 c / D}
//! u, w (H, E) belong to each layer (`untie_r`) or are shared by all; each layer has its own W_R (D
//! to H E). Distances are not clipped.
//!
//! r_{i - j} is r_{-j} rotated by i. With g_i = W_Rᵀ (q_i + w) = [g^s ; g^c] of each head,
//!     g_i·r_{i - j} = (pairs (g^c, -g^s) rotated by ωi)·(pairs (cos ωj, sin ωj))
//! is a product of D more columns of queries and keys. Every form of attention can compute it,
//! whichever pairs it covers, and nothing is stored per pair. A score costs (E + D) / E times as
//! much; weighted values cost the same.

use candle_core::{Device, Tensor};
use candle_nn::Init;

use super::Attend;
use crate::{
    Result, VarBuilder,
    ops::{attention::AttentionOptions, relative_queries, rotary::turns},
    options::BlockOptions,
    params::{Attributes, xavier_uniform},
};

/// Scores of Transformer-XL, with their parameters u, w and W_R.
pub struct TransformerXl {
    content: Tensor,
    position: Tensor,
    /// W_R, (H E, 2 ⌊D / 2⌋).
    relative: Tensor,
    heads: usize,
    width: usize,
    /// ⌊D / 2⌋ frequencies.
    frequencies: usize,
}

impl TransformerXl {
    /// Creates parameters `content` and `position` (H, E), N(0, 0.02²), at `biases`, and `relative`
    /// (H E, 2 ⌊D / 2⌋), Xavier-uniform, at `vb`.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, biases: &VarBuilder, block: &BlockOptions) -> Result<Self> {
        let (heads, width) = (block.heads, block.head_dim());
        let small = Init::Randn {
            mean: 0.0,
            stdev: 0.02,
        };
        let frequencies = block.dim / 2;
        let init = xavier_uniform(block.dim, block.qkv_dim);
        let bias =
            |name| biases.get_with_attributes((heads, width), name, small, Attributes::NO_DECAY);
        Ok(Self {
            content: bias("content")?,
            position: bias("position")?,
            relative: vb.get_with_hints((block.qkv_dim, 2 * frequencies), "relative", init)?,
            heads,
            width,
            frequencies,
        })
    }

    /// Returns attention of queries (B, Lq, H E) at positions 0, 1, .. on keys and values (B, Lk, H
    /// E), whose `places` are those of [`TransformerXl::places`]; (B, Lq, H E). `attend` is given
    /// wider heads of queries, and the places as columns of all keys.
    ///
    /// # Errors
    /// Errors of `attend`.
    pub fn attend(
        &self,
        attend: Attend<'_>,
        [q, k, v]: [&Tensor; 3],
        options: AttentionOptions,
        places: &Tensor,
    ) -> Result<Tensor> {
        let q = self.queries(q, 0)?;
        let usual = || (self.width as f64).powf(-0.5);
        let options = AttentionOptions {
            scale: Some(options.scale.unwrap_or_else(usual)),
            key_columns: Some(places.clone()),
            ..options
        };
        attend(&q, k, v, &options)
    }

    /// Returns queries (B, Lq, H E), the first of which is at position `start`, as (B, Lq, H (E +
    /// C)) for C = 2 ⌊D / 2⌋. Their products with keys that have [`TransformerXl::places`] as
    /// further columns are √E z.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn queries(&self, q: &Tensor, start: usize) -> Result<Tensor> {
        let relative = self.relative.reshape((self.heads, self.width, ()))?;
        let [of_sines, of_cosines] =
            [0, self.frequencies].map(|first| relative.narrow(2, first, self.frequencies));
        let pairs = Tensor::stack(&[of_cosines?, of_sines?.neg()?], 3)?.flatten_from(2)?;
        relative_queries(q, [&self.content, &self.position], &pairs, start)
    }

    /// Returns the pairs (cos ωj, sin ωj) of each of n positions j, (n, 2 ⌊D / 2⌋), in the type and
    /// on the device of `like`. They are computed in f64, and rounded at the end. A missing
    /// position has zeros, which add 0 to scores.
    ///
    /// # Errors
    /// If the device refuses the table.
    pub fn places(
        &self,
        positions: impl Iterator<Item = Option<i64>>,
        like: &Tensor,
    ) -> Result<Tensor> {
        let wide = 2 * self.frequencies;
        let positions: Vec<Option<i64>> = positions.collect();
        let table = turns(positions.iter().copied(), wide).into_flattened();
        let table = Tensor::from_vec(table, (positions.len(), wide), &Device::Cpu)?;
        Ok(table.to_dtype(like.dtype())?.to_device(like.device())?)
    }

    /// Counts the operations for `length` queries, and the cost of `pairs` of query and key, over
    /// all heads, beside their product.
    #[must_use]
    pub fn flops(&self, length: usize, pairs: usize) -> u64 {
        let wide = 2 * self.frequencies;
        2 * (length * self.heads * self.width * wide + pairs * wide) as u64
    }
}
