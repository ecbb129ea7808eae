//! Clustered attention. Vyas et al., 2020, "Fast Transformers with Clustered Attention",
//! arXiv:2007.04825.
//!     y_i = Σ_j A_cj v_j for the cluster c of i,  A_c = softmax_j(p_c·k_j / √E),  p_c the mean of the q_i of cluster c
//!     `improved`: y_i = Σ_{j not in T_c} A_cj v_j + m_c Σ_{j in T_c} softmax_{j in T_c}(q_i·k_j / √E) v_j,  m_c = Σ_{j in T_c} A_cj
//! B batch, H heads, L length, E width of a head, C clusters, n bits; q, k, v, y (B, H, L, E), A
//! (B, H, C, L), T_c the `topk` keys of largest p_c·k_j. Bit b of a query's hash is [q_i·a_b >
//! t_b], with a_b and t_b standard normal. Queries are clustered by k-means of hashes:
//! `iterations` - 1 rounds of assignment and majority vote, then a last assignment. Time O(L·C·(E +
//! iterations) + L·n·E) per head and O(L·topk·E) if improved, memory O(C·L). All heads and examples
//! share planes and first centroids, drawn per seed, step and layer. The first centroids are C
//! positions, of which a sequence uses its valid ones. An empty cluster gets random bits. Dropout
//! on the weights.
//!
//! # Options
//!
//! `clusters` C, `bits`, `iterations`, `hash_bias` (false: t_b = 0), `improved`, `topk`.
//!
//! # Padding
//!
//! Padded queries are neither hashed nor counted, and padded keys get weight zero.
//!
//! # Departures
//!
//! The clustering has no gradient; m_c has one, where the package stops it. The package draws first
//! centroids among padded positions, too; here a sequence's are those of its own positions. With
//! `improved` and fewer keys than `topk`, padded keys can get weights in the package, never here.
//! Projections begin Xavier-uniform (±0.217 at D = 64), the feed-forward network Xavier-uniform
//! (±0.177 for a width of 128) with biases N(0, 1e-6²); the published code has PyTorch's linear
//! layers, all uniform within inputs^-½ (±0.125, and ±0.088 from a width of 128), biases too
//! (idiap/fast-transformers@2ad36b9 fast_transformers/attention/attention_layer.py:54-57,
//! fast_transformers/transformers.py:47-48). The norms' ε is `block.norm_epsilon` = 1e-6, in the
//! published code 1e-5 (torch.nn.LayerNorm, lines 49-50). Blocks are pre-norm with gelu, there
//! post-norm with relu by default (lines 43, 77-89).

mod lloyd;

use self::lloyd::Lloyd;
use crate::{
    ops::{
        IGNORE_INDEX, Order,
        attention::{BlockMask, partial_softmax::by_head},
        segment_mean, top_k,
    },
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "clustered",
    title: "Clustered Attention",
    paper: "Fast Transformers with Clustered Attention",
    year: 2020,
    arxiv: "2007.04825",
    time: Cost::Linear("O(L·C·E)"),
    memory: Cost::Linear("O(C·L)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Clustered>(include_str!("mod.rs"))],
    ..Model::mixer::<Clustered>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 100, range = int(1, LONGEST))]
    clusters: usize,
    #[option(default = 63, range = int(1, 63))]
    bits: usize,
    #[option(default = 10, range = int(1, 1000))]
    iterations: usize,
    #[option(default = true)]
    hash_bias: bool,
    improved: bool,
    #[option(default = 32, range = int(1, LONGEST))]
    topk: usize,
}

struct Clustered {
    projections: Projections,
    lloyd: Lloyd,
    /// k, if each query looks again at the keys that its cluster looks at most.
    topk: Option<usize>,
    dropout: Dropout,
    /// Dropout of the weights of the other keys that the cluster sees.
    rest_dropout: Dropout,
    heads: usize,
    width: usize,
}

/// Queries, keys and values (B, L, H, E), and the cluster of each query (B, H, L).
struct Operands {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    clusters: Tensor,
    /// C, at most the number of queries.
    count: usize,
}

impl MixerModel for Clustered {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let rate = layer.block.attention_dropout;
        Ok(Self {
            projections: Projections::new(layer)?,
            lloyd: Lloyd {
                clusters: options.clusters,
                bits: options.bits,
                iterations: options.iterations,
                bias: options.hash_bias,
                max_length: layer.max_length,
                path: layer.vb.prefix(),
            },
            topk: options.improved.then_some(options.topk),
            dropout: Dropout::new(&layer.vb.pp("drop"), rate),
            rest_dropout: Dropout::new(&layer.vb.pp("drop").pp("rest"), rate),
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }
}

impl Clustered {
    /// Maps queries, keys and values (B, L, H, E) to (B, L, H, E).
    fn attend(&self, [q, k, v]: [Tensor; 3], pass: &Pass) -> Result<Tensor> {
        let queries = by_head(&q)?;
        let clusters = self.lloyd.assign(&queries, pass)?;
        let clusters = clusters.to_device(q.device())?;
        let count = self.lloyd.clusters.min(q.dim(1)?);
        let means = segment_mean(&queries, &clusters, count)?; // (B, H, C, E)
        let operands = Operands {
            q,
            k,
            v,
            clusters,
            count,
        };
        match self.topk {
            None => self.of_clusters(&means, &operands, pass),
            Some(topk) => self.improved(&means, &operands, topk, pass),
        }
    }

    /// Attends by clusters: every query gets the output of its cluster.
    fn of_clusters(&self, means: &Tensor, operands: &Operands, pass: &Pass) -> Result<Tensor> {
        let y = self.softmax(&by_head(means)?, operands, None, pass)?; // (B, C, H, E)
        by_head(&take(&by_head(&y)?, &operands.clusters)?)
    }

    fn improved(
        &self,
        means: &Tensor,
        operands: &Operands,
        topk: usize,
        pass: &Pass,
    ) -> Result<Tensor> {
        let Operands { q, k, v, .. } = operands;
        let length = q.dim(1)?;
        let (weights, top) = self.weights(means, k, topk.min(length), pass)?; // (B, H, C, L) and (B, H, C, k)
        let inside = indicators(&top, length)?.to_device(weights.device())?;
        let top_weights = (&weights * inside.to_dtype(weights.dtype())?)?;
        let rest = self
            .rest_dropout
            .forward(&(&weights - &top_weights)?, pass)?;
        let rest = take(&matmul(&rest, &by_head(v)?)?, &operands.clusters)?;
        let share = top_weights.sum_keepdim(3)?; // m, (B, H, C, 1)
        let share = take(&share, &operands.clusters)?;
        let block_masks = Some(block_masks(&operands.clusters, operands.count, &top)?);
        let near = by_head(&self.softmax(q, operands, block_masks, pass)?)?;
        by_head(&(rest + near.broadcast_mul(&share)?)?)
    }

    /// Returns A, and for each cluster the numbers of the keys that it weighs most, largest first.
    fn weights(
        &self,
        means: &Tensor,
        k: &Tensor,
        topk: usize,
        pass: &Pass,
    ) -> Result<(Tensor, Tensor)> {
        let means = means.affine((self.width as f64).powf(-0.5), 0.0)?;
        let scores = matmul(&means, &by_head(k)?.t()?)?; // (B, H, C, L)
        let visible = match pass.mask() {
            Some(mask) => {
                let hidden = mask.additive().unsqueeze(1)?.unsqueeze(1)?;
                scores.detach().broadcast_add(&hidden)?
            }
            None => scores.detach(),
        };
        let (_, top) = top_k(&visible.to_dtype(DType::F32)?, topk, Order::Largest)?;
        Ok((softmax::masked(&scores, pass.mask())?, top))
    }

    /// Returns softmax attention of `queries` (B, Q, H, E) to (B, Q, H, E).
    fn softmax(
        &self,
        queries: &Tensor,
        operands: &Operands,
        block_masks: Option<BlockMasks>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let options = AttentionOptions {
            heads: self.heads,
            mask: pass.mask().map(|mask| mask.valid().clone()),
            dropout: self.dropout.of_attention(queries.dim(0)?, pass),
            block_masks,
            ..AttentionOptions::default()
        };
        let flat = |x: &Tensor| x.flatten_from(2);
        let (q, k, v) = (flat(queries)?, flat(&operands.k)?, flat(&operands.v)?);
        Ok(attention::attend(&q, &k, &v, &options)?.reshape(queries.dims())?)
    }
}

/// Returns 1 where a key is among `top` (B, H, C, k), (B, H, C, L).
fn indicators(top: &Tensor, length: usize) -> Result<Tensor> {
    let (batch, heads, clusters, count) = top.dims4()?;
    let chosen = top.flatten_all()?.to_vec1::<u32>()?;
    let mut inside = vec![0f32; batch * heads * clusters * length];
    let rows = inside.chunks_exact_mut(length);
    for (row, chosen) in rows.zip(chosen.chunks_exact(count)) {
        chosen.iter().for_each(|key| row[*key as usize] = 1.0);
    }
    let shape = (batch, heads, clusters, length);
    Ok(Tensor::from_vec(inside, shape, &Device::Cpu)?)
}

/// Returns the block masks of each head of each example: queries of a cluster see the keys in its
/// row of `top` (B, H, C, k).
fn block_masks(clusters: &Tensor, count: usize, top: &Tensor) -> Result<BlockMasks> {
    let (batch, heads, length) = clusters.dims3()?;
    let topk = top.dim(3)?;
    let (clusters, top) = (
        clusters.flatten_all()?.to_vec1::<u32>()?,
        top.flatten_all()?.to_vec1::<u32>()?,
    );
    let block_mask = |head: usize| {
        let mut members = vec![Vec::new(); count];
        let of_head = &clusters[head * length..][..length];
        for (position, &cluster) in of_head
            .iter()
            .enumerate()
            .filter(|(_, it)| **it != IGNORE_INDEX)
        {
            members[cluster as usize].push(position as u32);
        }
        let mut block_mask = BlockMask::new(0.0);
        for (cluster, members) in members.iter().enumerate().filter(|(_, it)| !it.is_empty()) {
            let keys = &top[(head * count + cluster) * topk..][..topk];
            let keys = block_mask.key_blocks_of(keys);
            for queries in members.chunks(SIDE) {
                block_mask.query_block(queries.iter().copied());
                keys.iter()
                    .for_each(|(keys, _)| block_mask.allow(*keys, None));
            }
        }
        block_mask
    };
    Ok(BlockMasks::new(
        (0..batch * heads).map(block_mask).collect(),
    ))
}

/// Most queries of a block of attention.
const SIDE: usize = 64;

impl Mixer for Clustered {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = self.attend(self.projections.split(x)?, pass)?;
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports {
            scores: Err("a cluster of queries is at no position"),
            rotary: Ok(()),
            memory: Err("clusters look at tokens alone"),
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let clusters = self.lloyd.clusters.min(length);
        let hashing = length * self.heads * self.width * self.lloyd.bits;
        let again = length * self.topk.unwrap_or(0).min(length);
        let pairs = self.heads * (length * clusters + again);
        self.projections.flops(length)
            + 2 * hashing as u64
            + partial_softmax::flops(pairs, self.width)
    }
}

#[cfg(test)]
mod tests;
