//! Scores that depend on the contents and on distances up to K, by a table for each query or key:
//! time O(L·K·E) and memory O(L·K) per head, in addition to attention's own. Nothing is stored per
//! pair.
//!
//! | value | z_ij | source |
//! |---|---|---|
//! | `shaw` | q_i·(k_j + a_δ) / √E, δ = clip(j - i, ±K), a shared by heads | Shaw, Uszkoreit, Vaswani, 2018, arXiv:1803.02155 |
//! | `deberta` | (q_i·k_j + q_i·(W_K r_δ(i, j)) + k_j·(W_Q r_δ(i, j))) / √(3 E), δ(i, j) = i - j + K in [0, 2 K) | microsoft/DeBERTa, DeBERTa/deberta/disentangled_attention.py, commit 4d7fe0b, and `transformers` |
//! | `deberta_paper` | the same with δ(j, i) in the third term | He et al., 2020, arXiv:2006.03654, equation 4 |
//!
//! K is `block.bias_distance`. If the longest length N is less than K, it is N - 1 for Shaw and N
//! for DeBERTa (`att_span` in `transformers`); two distances then share a row only if K would merge
//! them too. Shaw's second table, of values, is left out: the paper found no gain from it (its
//! table 3). DeBERTa's r (2 K, D) is shared by all layers; W_K and W_Q belong to each layer.

use candle_core::Tensor;
use candle_nn::Init;

use super::Operands;
use crate::{
    LayerContext, Result, VarBuilder,
    layers::Linear,
    ops::{
        attention::{AttentionOptions, partial_softmax::by_head},
        matmul, swap_axes,
    },
    options::BlockOptions,
    params::xavier_uniform,
};

/// a.
pub(super) struct Shaw {
    /// (2 K + 1, E), from -K to K.
    table: Tensor,
    reach: usize,
}

impl Shaw {
    /// Creates parameter `shaw` (2 K + 1, E), Xavier-uniform, for sequences of up to `longest`.
    pub(super) fn new(vb: &VarBuilder, block: &BlockOptions, longest: usize) -> Result<Self> {
        // Distances that do not occur would be parameters that are never trained.
        let reach = block.bias_distance.min(longest.saturating_sub(1));
        let (columns, width) = (2 * reach + 1, block.head_dim());
        let init = xavier_uniform(columns, width);
        Ok(Self {
            table: vb.get_with_hints((columns, width), "shaw", init)?,
            reach,
        })
    }

    pub(super) fn apply(&self, operands: Operands) -> Result<Operands> {
        let (batch, queries, row) = operands.q.dims3()?;
        let (columns, width) = self.table.dims2()?;
        let heads = row / width;
        let q = operands.q.affine(operands.scale(width), 0.0)?;
        let q = by_head(&q.reshape((batch, queries, heads, width))?)?; // (B, H, Lq, E)
        let q = q.reshape((batch * heads * queries, width))?;
        let scores = matmul(&q, &self.table.t()?)?.reshape((batch, heads, queries, columns))?;
        let mut relative = operands.by_distance(self.reach);
        relative.of_queries = Some(scores);
        Ok(Operands {
            options: AttentionOptions {
                relative: Some(relative),
                ..operands.options
            },
            ..operands
        })
    }

    pub(super) fn flops(&self, length: usize, row: usize) -> u64 {
        2 * (length * row * (2 * self.reach + 1)) as u64
    }
}

/// r, W_K and W_Q.
pub(super) struct Deberta {
    /// r, (2 K, D).
    distances: Tensor,
    /// W_K and W_Q, (D to H E).
    key: Linear,
    query: Linear,
    /// Distance that the third term uses.
    third: ThirdTerm,
    reach: usize,
    width: usize,
}

/// The distance in DeBERTa's third term, of a key's content with a position.
#[derive(Clone, Copy)]
pub(super) enum ThirdTerm {
    /// δ(i, j), of the query from the key.
    FromKey,
    /// δ(j, i), of the key from the query.
    FromQuery,
}

impl Deberta {
    /// Creates parameter `bias.deberta` (2 K, D) of the model, N(0, 0.02²), and `key` and `query`
    /// (H E, D), Xavier-uniform.
    pub(super) fn new(layer: &LayerContext, third: ThirdTerm) -> Result<Self> {
        let (vb, block) = (layer.vb.pp("bias"), layer.block);
        // The last of the 2 K rows is for distances of K - 1 and more, so K has to be more than any
        // distance that occurs.
        let reach = block.bias_distance.min(layer.max_length);
        let init = Init::Randn {
            mean: 0.0,
            stdev: 0.02,
        };
        let shared = layer.shared.pp("bias");
        let linear = |name| {
            let init = xavier_uniform(block.dim, block.qkv_dim);
            Linear::new(&vb.pp(name), block.dim, block.qkv_dim, init, None)
        };
        Ok(Self {
            distances: shared.get_with_hints((2 * reach, block.dim), "deberta", init)?,
            key: linear("key")?,
            query: linear("query")?,
            third,
            reach,
            width: block.head_dim(),
        })
    }

    pub(super) fn apply(&self, operands: Operands) -> Result<Operands> {
        // Three terms of about the same size.
        let scale = operands.scale(self.width) * 3f64.powf(-0.5);
        let (reach, last) = (self.reach as i64, 2 * self.reach as i64 - 1);
        // Rows of r by distance j - i: the row number is δ(i, j) for a sign of -1, or δ(j, i).
        let numbers = |sign: i64| -> Result<Tensor> {
            let numbers =
                (-reach..=reach).map(|distance| (sign * distance + reach).clamp(0, last) as u32);
            Ok(Tensor::new(
                numbers.collect::<Vec<_>>(),
                self.distances.device(),
            )?)
        };
        let table = |linear: &Linear, sign: i64, x: &Tensor| -> Result<Tensor> {
            let rows = linear.forward(&self.distances)?; // (2 K, H E)
            let rows = rows.index_select(&numbers(sign)?, 0)?;
            let rows = rows.reshape((rows.dim(0)?, (), self.width))?;
            let rows = rows.permute((1, 2, 0))?.contiguous()?; // (H, E, 2 K + 1)
            let scores = by_head_times(&x.affine(scale, 0.0)?, &rows)?;
            Ok(scores.transpose(0, 1)?.contiguous()?) // (B, H, L, 2 K + 1)
        };
        let positions = &operands.positions;
        let keys = operands.k.narrow(1, positions.start, positions.len())?;
        let mut relative = operands.by_distance(self.reach);
        relative.of_queries = Some(table(&self.key, -1, &operands.q)?);
        let sign = match self.third {
            ThirdTerm::FromKey => -1,
            ThirdTerm::FromQuery => 1,
        };
        relative.of_keys = Some(table(&self.query, sign, &keys)?);
        Ok(Operands {
            options: AttentionOptions {
                scale: Some(scale),
                relative: Some(relative),
                ..operands.options
            },
            ..operands
        })
    }

    pub(super) fn flops(&self, length: usize, row: usize) -> u64 {
        let tables = 4 * length * row * (2 * self.reach + 1);
        let projections = self.key.flops(2 * self.reach) + self.query.flops(2 * self.reach);
        tables as u64 + projections
    }
}

/// Returns x (B, L, H E) of each head times w (H, E, C), heads first: (H, B, L, C).
fn by_head_times(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let ((batch, length, _), (heads, width, columns)) = (x.dims3()?, w.dims3()?);
    // Examples side by side: one product for each head.
    let x = swap_axes(&x.reshape((1, batch * length, heads, width))?)?.squeeze(0)?;
    let y = matmul(&x, w)?;
    Ok(y.reshape((heads, batch, length, columns))?)
}
