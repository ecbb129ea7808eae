//! Routing Transformer. Roy et al., 2020, "Efficient Content-Based Sparse Attention with Routing
//! Transformers", arXiv:2003.05997.
//!     y_i = mean over the clusters c that took query i of Σ_{j in K_c} a_ij v_j,  a_i = softmax_{j in K_c}(q_i·k_j / √E)
//!     Q_c, K_c: the w queries and the w keys with the largest q̂_i·μ_c and k̂_j·μ_c, two lists;  x̂ = x / |x|
//! B batch, H heads, L length, N longest length, E width of a head, k clusters, w window; q, k, v
//! (B, H, L, E), centroids μ (H, k, E) of length 1. A query chosen by no cluster gets zeros. Half
//! the heads route. The others see their block of w positions and its neighbours. Time O(L·(k +
//! w)·E) per head, memory O(L·(k + E)), where k and w are about √N. Centroids are not trained by
//! gradients. Once per training step, m ← λ m + (1 - λ) (Σ q̂ + Σ k̂), summed over the queries and
//! keys whose nearest centroid is μ_c = m_c / |m_c|. A cluster without any stays unchanged. Ties go
//! to the lower position. Choices are made in f32. Dropout on the weights.
//!
//! # Options
//!
//! `clusters` k (0: ⌈√N⌉), `window` w (0: ⌈N / k⌉), `routed_heads` (0: half), `local_window` (0:
//! w), `decay` λ. Loss `commit`, in training: the mean of (x̂ - μ_c(x))² over valid queries and
//! keys, heads and width. Reversible blocks keep no states, so they have no such loss.
//!
//! # Padding
//!
//! Padding is in no list: each list has min(w, length of the row) members.
//!
//! # Departures
//!
//! Attention goes both ways in time; vectors are scaled to length 1, where the paper has LayerNorm;
//! centroids start as random directions; the paper's rotation of queries and keys and its relative
//! positions are left out. Weights begin Xavier-uniform (±0.217 at D = 64, ±0.177 of a feed-forward
//! network of a width of 128, with biases N(0, 1e-6²)); in the authors' code times √0.2 (±0.097 and
//! ±0.079), without biases (google-research/google-research@0c1bbe5
//! routing_transformer/sparse_transformer.py, initializer_gain, and utils.py, geglu). In heads that
//! route, its weights are made of the normalized queries and keys, whose products are not divided
//! by √E (utils.py, clustered_local_attention_helper); the number of clusters that took a query has
//! 1e-2 added in the mean (scatter_cluster_items); and centroids are averaged sums over averaged
//! counts, smoothed by 1e-5, not scaled to length 1 (online_kmeans). The norms' ε is 1e-6 in both
//! (tensorflow/tensor2tensor@bafdc1b tensor2tensor/layers/common_hparams.py:144).

use std::sync::Arc;

use crate::{
    mask::PADDED,
    ops::{
        IGNORE_INDEX, Order,
        attention::{AttentionDropout, BlockLists, partial_softmax::by_head},
        columns, l2_normalize, segment_mean, segment_sum, squared_distance, top_k,
    },
    params::Buffer,
    prelude::*,
};

/// Loss by the distance of vectors from their centroids.
const COMMIT: Loss = Loss::new("commit", 1e-4);

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "routing",
    title: "Routing Transformer",
    paper: "Efficient Content-Based Sparse Attention with Routing Transformers",
    year: 2020,
    arxiv: "2003.05997",
    time: Cost::Sqrt("O(L·√N·E)"),
    memory: Cost::Sqrt("O(L·(√N + E))"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Routing>(include_str!("routing.rs")).with_losses(&[COMMIT])],
    ..Model::mixer::<Routing>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(range = int(0, LONGEST))]
    clusters: usize,
    #[option(range = int(0, LONGEST))]
    window: usize,
    #[option(range = int(0, WIDEST))]
    routed_heads: usize,
    #[option(range = int(0, LONGEST))]
    local_window: usize,
    #[option(default = 0.999, range = probability)]
    decay: f64,
}

struct Routing {
    projections: Projections,
    clusters: Clusters,
    /// Dropout of local heads, and of heads that route.
    dropouts: [Dropout; 2],
    local_heads: usize,
    local_window: usize,
}

/// The heads that route.
struct Clusters {
    /// m, (H, k, E).
    sums: Buffer,
    heads: usize,
    count: usize,
    window: usize,
    width: usize,
    /// Whether there is a loss.
    commits: bool,
}

impl MixerModel for Routing {
    type Options = Options;

    fn check(options: &Options, context: &ModelContext) -> Result<()> {
        require(
            options.routed_heads <= context.block.heads,
            "model.routed_heads",
            options.routed_heads,
            format!("at most block.heads = {}", context.block.heads),
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (block, vb, longest) = (layer.block, &layer.vb, layer.max_length);
        let or = |given, derived| if given == 0 { derived } else { given };
        let heads = or(options.routed_heads, block.heads.div_ceil(2));
        let count = or(options.clusters, (longest as f64).sqrt().ceil() as usize);
        let window = or(options.window, longest.div_ceil(count));
        let dropout = |name| Dropout::new(&vb.pp(name), block.attention_dropout);
        Ok(Self {
            projections: Projections::new(layer)?,
            clusters: Clusters::new(layer, (heads, count, window), options.decay)?,
            dropouts: [dropout("local_drop"), dropout("drop")],
            local_heads: block.heads - heads,
            local_window: or(options.local_window, window),
        })
    }
}

impl Routing {
    /// Returns blocks of neighbours, each of which sees those beside it too.
    fn blocks(&self, length: usize) -> BlockLists {
        BlockLists::around(length, self.local_window.min(length), (1, 1), |_, _| true)
    }
}

impl Mixer for Routing {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let qkv = self.projections.qkv(x)?; // (B, L, H E)
        let near = self.local_heads * self.clusters.width;
        let of_heads = |first, count| -> Result<[Tensor; 3]> {
            let [q, k, v] = [&qkv[0], &qkv[1], &qkv[2]].map(|x| columns(x, first, count));
            Ok([q?, k?, v?])
        };
        let [local, routed] = &self.dropouts;
        let all = of_heads(near, self.clusters.heads * self.clusters.width)?;
        let routed = routed.of_attention(batch, pass);
        let far = self
            .clusters
            .attend([&all[0], &all[1], &all[2]], routed, pass)?;
        if near == 0 {
            return self.projections.merge(&far);
        }
        let [q, k, v] = of_heads(0, near)?;
        let options = AttentionOptions {
            heads: self.local_heads,
            mask: pass.mask().map(|mask| mask.valid().clone()),
            dropout: local.of_attention(batch, pass),
            block_masks: Some(self.blocks(length).block_masks(length)),
            ..AttentionOptions::default()
        };
        let near = attention::attend(&q, &k, &v, &options)?;
        self.projections.merge(&cat(&[&near, &far], 2)?)
    }

    fn supports(&self) -> Supports {
        Supports {
            rotary: Ok(()),
            ..Supports::none("members of a cluster are not in the order of positions")
        }
    }

    fn losses(&self) -> &'static [Loss] {
        match self.clusters.commits {
            true => &[COMMIT],
            false => &[],
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let local = self.blocks(length).block_masks(length);
        let local = partial_softmax::flops(local.pairs(self.local_heads), self.clusters.width);
        self.projections.flops(length) + local + self.clusters.flops(length)
    }
}

impl Clusters {
    fn new(
        layer: &LayerContext,
        (heads, count, window): (usize, usize, usize),
        decay: f64,
    ) -> Result<Self> {
        let width = layer.block.head_dim();
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        let average = move |old: &Tensor, seen: &Tensor| {
            Ok((old.affine(decay, 0.0)? + seen.affine(1.0 - decay, 0.0)?)?)
        };
        let shape = (heads, count, width);
        let average = Arc::new(average);
        Ok(Self {
            sums: layer.vb.buffer(shape, "means", normal, average)?,
            heads,
            count,
            window,
            width,
            commits: layer.block.residual != Residual::Reversible,
        })
    }

    /// Maps queries, keys and values (B, L, H E) to (B, L, H E).
    fn attend(
        &self,
        qkv: [&Tensor; 3],
        dropout: Option<AttentionDropout>,
        pass: &Pass,
    ) -> Result<Tensor> {
        let (batch, length, row) = qkv[0].dims3()?;
        let split = |x: &Tensor| by_head(&x.reshape((batch, (), self.heads, self.width))?);
        let [q, k, v] = qkv.map(split);
        let (q, k, v) = (q?, k?, v?); // (B, H, L, E)
        let centroids = match pass.fixed("means") {
            Some(centroids) => centroids.clone(),
            None => l2_normalize(self.sums.value(), self.width)?,
        };
        let vectors = [l2_normalize(&q, self.width)?, l2_normalize(&k, self.width)?];
        let [to_queries, to_keys] = [&vectors[0], &vectors[1]].map(|x| affinities(x, &centroids)); // (B, H, k, L)
        let affinities = [to_queries?, to_keys?];
        let members = self.window.min(length);
        let [queries, keys] =
            [&affinities[0], &affinities[1]].map(|x| largest(x, members, pass.mask()));
        let (queries, keys) = (queries?, keys?); // (B, H, k w)
        if pass.train {
            self.follow(&vectors, &affinities, &centroids, pass)?;
        }
        // Clusters one after the other, as blocks of a sequence.
        let gathered = |x: &Tensor, members: &Tensor| -> Result<Tensor> {
            Ok(by_head(&take(x, members)?)?.reshape((batch, (), row))?)
        };
        let own: Vec<Vec<usize>> = (0..self.count).map(|cluster| vec![cluster]).collect();
        let options = AttentionOptions {
            heads: self.heads,
            // All lists of a row have the same number of members.
            mask: match pass.mask() {
                Some(_) => {
                    let valid = keys.narrow(1, 0, 1)?.squeeze(1)?.ne(IGNORE_INDEX)?;
                    Some(valid.to_dtype(q.dtype())?)
                }
                None => None,
            },
            dropout,
            block_masks: Some(BlockLists::new(members, 1, &own).block_masks(self.count * members)),
            ..AttentionOptions::default()
        };
        let (q, k, v) = (
            gathered(&q, &queries)?,
            gathered(&k, &keys)?,
            gathered(&v, &keys)?,
        );
        let y = split(&attention::attend(&q, &k, &v, &options)?)?; // (B, H, k w, E)
        let y = segment_mean(&y, &queries, length)?;
        Ok(by_head(&y)?.reshape((batch, length, row))?)
    }

    /// Moves centroids to the vectors (B, H, L, E) that are nearest, and adds the loss by which
    /// these commit to them.
    fn follow(
        &self,
        vectors: &[Tensor; 2],
        affinities: &[Tensor; 2],
        centroids: &Tensor,
        pass: &Pass,
    ) -> Result<()> {
        let (batch, heads, length, width) = vectors[0].dims4()?;
        let centroids = centroids.to_dtype(vectors[0].dtype())?.unsqueeze(0)?;
        let shape = (batch, heads, self.count, width);
        let centroids = centroids.broadcast_as(shape)?.contiguous()?;
        let commits = self.commits && pass.wants_losses();
        let mut apart = Tensor::zeros(batch, vectors[0].dtype(), vectors[0].device())?;
        for (x, affinities) in vectors.iter().zip(affinities) {
            let by_position = swap_axes(&affinities.flatten_to(1)?)?; // (B H, L, k)
            let (_, nearest) = top_k(&by_position, 1, Order::Largest)?;
            let nearest = nearest.reshape((batch, heads, length))?;
            let nearest = of_valid(&nearest, pass.mask())?;
            let seen = segment_sum(&x.detach(), &nearest, self.count)?.sum(0)?;
            self.sums.add(&seen, pass)?;
            if commits {
                let distances = squared_distance(x, &take(&centroids, &nearest)?)?.sum(1)?; // (B, L)
                let distances = match pass.mask() {
                    Some(mask) => (distances * mask.valid())?,
                    None => distances,
                };
                apart = (apart + distances.sum(1)?)?;
            }
        }
        if !commits {
            return Ok(());
        }
        let apart = (apart / (2 * heads * width) as f64)?;
        let per_row = match pass.mask() {
            Some(mask) => {
                let valid = mask.valid().sum(1)?;
                (apart / valid.maximum(&valid.ones_like()?)?)?
            }
            None => (apart / length as f64)?,
        };
        pass.add_loss(&COMMIT, &per_row)
    }

    fn flops(&self, length: usize) -> u64 {
        let members = self.window.min(length);
        let pairs = self.heads * self.count * members * members;
        let affinities = 2 * 2 * (self.heads * length * self.count * self.width) as u64;
        affinities + partial_softmax::flops(pairs, self.width)
    }
}

/// Returns x (B, H, L, E) times centroids (H, k, E), (B, H, k, L) in f32; constants.
fn affinities(x: &Tensor, centroids: &Tensor) -> Result<Tensor> {
    let (batch, heads, length, width) = x.dims4()?;
    let count = centroids.dim(1)?;
    let single = |x: &Tensor| x.detach().to_dtype(DType::F32);
    let centroids = single(centroids)?.unsqueeze(0)?;
    let centroids = centroids.broadcast_as((batch, heads, count, width))?;
    let flat = |x: Tensor| x.contiguous()?.flatten_to(1);
    let y = matmul(&flat(centroids)?, &flat(single(x)?)?.t()?)?;
    Ok(y.reshape((batch, heads, count, length))?)
}

/// Returns the positions of the largest of each row of affinities (B, H, k, L), (B, H, k members);
/// no padded ones.
fn largest(affinities: &Tensor, members: usize, mask: Option<&Mask>) -> Result<Tensor> {
    let (batch, heads, count, _) = affinities.dims4()?;
    let shape = (batch, heads, count * members);
    let Some(mask) = mask else {
        let (_, indices) = top_k(affinities, members, Order::Largest)?;
        return Ok(indices.reshape(shape)?);
    };
    let hidden = mask.additive().to_dtype(DType::F32)?;
    let hidden = hidden.unsqueeze(1)?.unsqueeze(1)?;
    let (values, indices) = top_k(&affinities.broadcast_add(&hidden)?, members, Order::Largest)?;
    let valid = values.gt(-PADDED / 2.0)?;
    Ok(nowhere_unless(&valid, &indices)?.reshape(shape)?)
}

/// Returns indices (B, H, L), nowhere at padded positions.
fn of_valid(indices: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    let Some(mask) = mask else {
        return Ok(indices.clone());
    };
    let valid = mask.valid().gt(0.5)?.unsqueeze(1)?;
    let valid = valid.broadcast_as(indices.shape())?.contiguous()?;
    nowhere_unless(&valid, indices)
}

fn nowhere_unless(valid: &Tensor, indices: &Tensor) -> Result<Tensor> {
    let nowhere = Tensor::full(IGNORE_INDEX, indices.shape(), indices.device())?;
    Ok(valid.where_cond(indices, &nowhere)?)
}

#[cfg(test)]
mod tests;
