//! Product-key memory. Lample et al., 2019, "Large Memory Layers with Product Keys",
//! arXiv:1907.05242.
//!     y = Σ_h Σ_{(i, j) in T} softmax_T(s_ij) v_ij,  s_ij = q₁·a_i + q₂·b_j,  T the k largest of all n² sums
//! For each head h, q₁, q₂ (K / 2) are the two normalised halves of a query x W_h, a and b
//! (n, K / 2) its sub-keys, v (n², D) values shared by all heads. The k largest sums are among
//! those of the k largest products of either half, so a memory of n² values costs 2 n products:
//! time O(H·(D·K + n·K + k²)) for each position, memory O(L·H·k·D). H: `block.heads`, n:
//! `block.product_keys`, k: `block.product_top`, K: D. Ties go to the lower index. Gradients pass
//! through the chosen values and scores. Departure: each half of a query has a LayerNorm. The paper
//! has a batch norm, which makes rows depend on each other.

use candle_core::{D, Tensor};
use candle_nn::Init;

use super::ChannelMixer;
use crate::{
    Pass, Result, VarBuilder,
    layers::{LayerNorm, Linear},
    ops::{Order, embed, matmul, softmax, top_k},
    options::BlockOptions,
    params::xavier_uniform,
};

/// Product-key memory, with its query map, sub-keys and values: (B, L, D) -> (B, L, D).
pub struct ProductKeys {
    query: Linear,
    norm: LayerNorm,
    /// a and b of each head, (2 H, n, K / 2).
    keys: Tensor,
    /// v.
    values: Tensor,
    heads: usize,
    /// n.
    count: usize,
    /// k.
    top: usize,
    /// K / 2.
    half: usize,
    dim: usize,
}

impl ProductKeys {
    /// Creates parameters `query`, `norm`, `keys` (2 H, n, K / 2), uniform up to (K / 2)^-½, and
    /// `values` (n², D), N(0, 1 / D).
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, block: &BlockOptions) -> Result<Self> {
        let (dim, heads, count) = (block.dim, block.heads, block.product_keys);
        let half = dim.div_ceil(2);
        let reach = (half as f64).powf(-0.5);
        let keys = Init::Uniform {
            lo: -reach,
            up: reach,
        };
        let values = Init::Randn {
            mean: 0.0,
            stdev: (dim as f64).powf(-0.5),
        };
        let width = 2 * heads * half;
        let weight = xavier_uniform(dim, width);
        Ok(Self {
            query: Linear::new(&vb.pp("query"), dim, width, weight, None)?,
            norm: LayerNorm::new(&vb.pp("norm"), half, block.norm_epsilon)?,
            keys: vb.get_with_hints((2 * heads, count, half), "keys", keys)?,
            values: vb.get_with_hints((count * count, dim), "values", values)?,
            heads,
            count,
            top: block.product_top.min(count),
            half,
            dim,
        })
    }

    /// Returns the k largest sums of each head, and the numbers of their values: both (B L, H k).
    fn choose(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let rows = x.elem_count() / self.dim;
        let q = self.query.forward(x)?;
        let q = self
            .norm
            .forward(&q.reshape((rows, 2 * self.heads, self.half))?)?;
        let q = q.transpose(0, 1)?.contiguous()?; // (2 H, B L, K / 2)
        let scores = matmul(&q, &self.keys.t()?)?; // (2 H, B L, n)
        let (best, places) = top_k(&scores, self.top, Order::Largest)?; // (2 H, B L, k)
        let halves = |x: &Tensor| -> Result<[Tensor; 2]> {
            let x = x.reshape((self.heads, 2, rows, self.top))?;
            Ok([
                x.narrow(1, 0, 1)?.squeeze(1)?.unsqueeze(3)?,
                x.narrow(1, 1, 1)?.squeeze(1)?.unsqueeze(2)?,
            ])
        };
        let pairs = (self.heads, rows, self.top * self.top);
        let [a, b] = halves(&best)?;
        let sums = a.broadcast_add(&b)?.reshape(pairs)?;
        let [i, j] = halves(&places)?;
        let numbers = i.affine(self.count as f64, 0.0)?.broadcast_add(&j)?;
        let numbers = numbers.reshape(pairs)?;
        let (sums, chosen) = top_k(&sums, self.top, Order::Largest)?; // (H, B L, k)
        let numbers = numbers.gather(&chosen, D::Minus1)?;
        Ok((sums, numbers))
    }
}

impl ChannelMixer for ProductKeys {
    fn forward(&self, x: &Tensor, _pass: &Pass) -> Result<Tensor> {
        let (sums, numbers) = self.choose(x)?; // (H, B L, k)
        let weights = softmax::masked(&sums, None)?;
        let side_by_side = |x: &Tensor| x.transpose(0, 1)?.contiguous()?.flatten_from(1);
        let values = embed(&side_by_side(&numbers)?, &self.values, None, None)?; // (B L, H k, D)
        let weights = side_by_side(&weights)?.unsqueeze(1)?; // (B L, 1, H k)
        Ok(matmul(&weights, &values)?.reshape(x.dims())?)
    }

    fn flops(&self, length: usize) -> u64 {
        let scores = 2 * 2 * self.heads * self.count * self.half;
        let values = 2 * self.heads * self.top * self.dim;
        self.query.flops(length) + (length * (scores + values)) as u64
    }
}
