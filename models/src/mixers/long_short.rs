//! Long-Short Transformer. Zhu et al., 2021, "Long-Short Transformer: Efficient Transformers for
//! Language and Vision", arXiv:2107.02192.
//!     y_i = Σ_j a_ij v_j over r summaries of the sequence and the keys near i, a_i = one softmax(q_i·k_j / √E) over both
//!     K̄ = norm_b(Pᵀ K),  V̄ = norm_b(Pᵀ V),  P = softmax over the length of x W_P,  K = norm_a(x W_K),  V = norm_a(x W_V)
//! B batch, H heads, L length, D width, E width of a head, r summaries, w window; x (B, L, D), W_P
//! (D, H r), P (B, H, L, r), q, K, V (B, L, H, E), K̄, V̄ (B, r, H, E). Time O(L·(r + w)·E) per
//! head, memory O(L·(r + w)). Both norms are LayerNorms over all heads together, each shared by
//! keys and values. Dropout on the weights. A CLS token is treated as any other token (in the
//! published code it enters in the last layer only).
//!
//! # Options
//!
//! `rank` r (0: no summaries), `window` w: a block of w queries sees itself and max(w/2, 1)
//! positions on either side; 0: each query sees itself (the authors' code has no such form).
//!
//! # Padding
//!
//! Padded tokens are in no summary and no window.
//!
//! # Departures
//!
//! Projections have no biases. Weights begin Xavier-uniform, biases of the feed-forward network
//! N(0, 1e-6²); in the authors' code both uniform within inputs^-½ (NVIDIA/transformer-ls@1527c5c
//! lra/attention_transformer_ls.py:30-40, lra/model.py:68-74). The norms' ε is `block.norm_epsilon`
//! = 1e-6, in the authors' code 1e-5 (torch.nn.LayerNorm). The causal form, and the convolution of
//! values (`conv_kernel_size`, off unless it is set), are left out.

use crate::{
    layers::LayerNorm,
    ops::attention::{BlockLists, BlockMask, StridedPositions, partial_softmax::by_head},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "long_short",
    title: "Long-Short Transformer",
    paper: "Long-Short Transformer: Efficient Transformers for Language and Vision",
    year: 2021,
    arxiv: "2107.02192",
    time: Cost::Linear("O(L·(r + w)·E)"),
    memory: Cost::Linear("O(L·(r + w))"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<LongShort>(include_str!("long_short.rs"))],
    ..Model::mixer::<LongShort>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 32, range = int(0, LONGEST))]
    rank: usize,
    #[option(default = 8, range = int(0, LONGEST))]
    window: usize,
}

struct LongShort {
    projections: Projections,
    /// norm_a.
    norm: LayerNorm,
    summary: Option<Summary>,
    dropout: Dropout,
    window: usize,
    heads: usize,
    dim: usize,
}

impl MixerModel for LongShort {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let block = layer.block;
        let norm_vb = layer.vb.pp("near_norm");
        Ok(Self {
            projections: Projections::new(layer)?,
            norm: LayerNorm::new(&norm_vb, block.qkv_dim, block.norm_epsilon)?,
            summary: match options.rank {
                0 => None,
                rank => Some(Summary::new(layer, rank)?),
            },
            dropout: Dropout::new(&layer.vb.pp("drop"), block.attention_dropout),
            window: options.window,
            heads: block.heads,
            dim: block.qkv_dim,
        })
    }
}

impl LongShort {
    fn rank(&self) -> usize {
        self.summary.as_ref().map_or(0, |summary| summary.rank)
    }
}

impl Mixer for LongShort {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let length = x.dim(1)?;
        let [q, k, v] = self.projections.qkv(x)?; // (B, L, H E)
        let (mut k, mut v) = (self.norm.forward(&k)?, self.norm.forward(&v)?);
        let mut options = self.projections.options(x, pass, &self.dropout)?;
        options.block_masks = Some(block_masks(length, self.window, self.rank()));
        if let Some(summary) = &self.summary {
            let weights = summary.weights(x, pass.mask())?;
            // Summaries first, then the tokens.
            k = cat(&[&summary.forward(&weights, &k)?, &k], 1)?;
            v = cat(&[&summary.forward(&weights, &v)?, &v], 1)?;
            if let Some(mask) = pass.mask() {
                let any = mask.has_valid();
                let any = any.broadcast_as((any.dim(0)?, summary.rank))?;
                options.mask = Some(Tensor::cat(&[&any, mask.valid()], 1)?);
            }
        }
        self.projections
            .merge(&attention::attend(&q, &k, &v, &options)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let pairs = block_masks(length, self.window, self.rank()).pairs(self.heads);
        let summary = self.summary.as_ref();
        self.projections.flops(length)
            + partial_softmax::flops(pairs, self.dim / self.heads)
            + summary.map_or(0, |summary| summary.flops(length, self.dim))
    }
}

/// Returns the block masks of `rank` summaries, all of which come first, and of `length` tokens:
/// the keys that each of the tokens sees.
fn block_masks(length: usize, window: usize, rank: usize) -> BlockMasks {
    let mut block_mask = BlockMask::new(0.0);
    let summaries: Vec<u32> = (0..rank as u32).collect();
    let summaries = block_mask.key_blocks_of(&summaries);
    let (size, reach) = match window {
        0 => (1, 0),
        _ => (window.min(length), (window / 2).max(1)),
    };
    let neighbours = reach.div_ceil(size);
    let (least, most) = (-(reach as isize), (size + reach) as isize);
    let lists = BlockLists::around(length, size, (neighbours, neighbours), |_, key| {
        (least..most).contains(&key)
    });
    let queries = StridedPositions::all(length);
    let keys = StridedPositions {
        first: rank,
        ..queries
    };
    lists.add_to(&mut block_mask, 0, (queries, keys), |block_mask, _| {
        summaries
            .iter()
            .for_each(|(keys, _)| block_mask.allow(*keys, None));
    });
    BlockMasks::new(vec![block_mask])
}

/// Dynamic projection: weighted means of keys and of values, by weights that the tokens decide.
struct Summary {
    /// W_P.
    weights: Linear,
    /// norm_b.
    norm: LayerNorm,
    rank: usize,
    heads: usize,
}

impl Summary {
    fn new(layer: &LayerContext, rank: usize) -> Result<Self> {
        let (block, vb) = (layer.block, layer.vb.pp("far"));
        let (inputs, outputs) = (block.dim, block.heads * rank);
        let init = xavier_uniform(inputs, outputs);
        let norm_vb = layer.vb.pp("far_norm");
        Ok(Self {
            weights: Linear::new(&vb, inputs, outputs, init, None)?,
            norm: LayerNorm::new(&norm_vb, block.qkv_dim, block.norm_epsilon)?,
            rank,
            heads: block.heads,
        })
    }

    /// Returns Pᵀ (B, H, r, L).
    fn weights(&self, x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let scores = swap_axes(&self.weights.forward(x)?)?; // (B, H r, L)
        let scores = scores.reshape((batch, self.heads, self.rank, length))?;
        softmax::masked(&scores, mask)
    }

    /// Returns norm_b(Pᵀ x) (B, r, H E) of x (B, L, H E).
    fn forward(&self, weights: &Tensor, x: &Tensor) -> Result<Tensor> {
        let (batch, length, row) = x.dims3()?;
        let x = by_head(&x.reshape((batch, length, self.heads, row / self.heads))?)?;
        let means = by_head(&matmul(weights, &x)?)?; // (B, r, H, E)
        self.norm.forward(&means.reshape((batch, self.rank, row))?)
    }

    fn flops(&self, length: usize, dim: usize) -> u64 {
        let means = 2 * 2 * (length * self.rank * dim) as u64;
        self.weights.flops(length) + means
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        RngKey,
        mask::zero_padding,
        ops::attention::AttentionOptions,
        options::BlockOptions,
        reference,
        testing::{DenseReference, check_layer, parameters},
    };

    #[test]
    fn a_window_as_wide_as_the_sequence_is_softmax_attention() {
        let twin = DenseReference::new(reference::softmax, 1.0);
        let apart = twin.compare(|q, k, v, mask| {
            let options = AttentionOptions {
                heads: 2,
                mask: mask.map(|mask| mask.valid().clone()),
                block_masks: Some(block_masks(5, 10, 0)),
                ..AttentionOptions::default()
            };
            let flat = |x: &Tensor| x.flatten_from(2);
            let y = attention::attend(&flat(q)?, &flat(k)?, &flat(v)?, &options)?;
            Ok(y.reshape(q.dims())?)
        });
        assert!(apart.output < 1e-7 && apart.gradient < 1e-7, "{apart:?}");
    }

    /// Values identify their keys: with equal scores a query's output is the share of each key it
    /// sees.
    #[test]
    fn queries_see_all_summaries_and_their_neighbourhood() {
        for (length, window, rank) in [(13, 4, 3), (13, 1, 0), (9, 0, 2), (70, 66, 65), (5, 3, 1)] {
            let keys = rank + length;
            let v = Tensor::eye(keys, DType::F64, &Device::Cpu).unwrap();
            let v = v.unsqueeze(0).unwrap();
            let zeros = v.zeros_like().unwrap();
            let options = AttentionOptions {
                heads: 1,
                block_masks: Some(block_masks(length, window, rank)),
                ..AttentionOptions::default()
            };
            let q = zeros.narrow(1, 0, length).unwrap();
            let y = attention::attend(&q, &zeros, &v, &options).unwrap();
            let y: Vec<Vec<f64>> = y.get(0).unwrap().to_vec2().unwrap();
            for (i, row) in y.iter().enumerate() {
                let sees = |key: usize| {
                    let Some(j) = key.checked_sub(rank) else {
                        return true;
                    };
                    let size = window.max(1);
                    let reach = if window == 0 { 0 } else { (window / 2).max(1) };
                    let first = i / size * size;
                    j + reach >= first && j < first + size + reach
                };
                let seen = (0..keys).filter(|&key| sees(key)).count() as f64;
                for (key, share) in row.iter().enumerate() {
                    let expected = if sees(key) { 1.0 / seen } else { 0.0 };
                    assert!(
                        (share - expected).abs() < 1e-12,
                        "{window} {rank}: {i} on {key}"
                    );
                }
            }
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let valid = [[1.0; 5], [1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 5]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        let parameters = parameters();
        let block = BlockOptions {
            dim: 4,
            qkv_dim: 6,
            heads: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 6);
        let options = Options { rank: 2, window: 2 };
        let mixer = LongShort::new(&layer, &options).unwrap();
        check_layer("long_short", &parameters, &[3, 5, 4], |x| {
            let pass = Pass::new(false, RngKey::new(1, 0, 0));
            // Outputs at padded positions are not compared.
            zero_padding(
                &mixer.forward(x, &pass.with_mask(Some(&mask)))?,
                Some(&mask),
            )
        });
    }
}
