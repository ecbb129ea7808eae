//! Reformer. Kitaev, Kaiser, Levskaya, 2020, "Reformer: The Efficient Transformer",
//! arXiv:2001.04451.
//!     y_i = Σ_r exp(z_ri - z_i) Σ_{j in P_ri} exp(q_i·k_j / √E - z_ri) v_j,  k_j = q_j / |q_j|,  z_i = ln Σ_r exp(z_ri)
//! P_ri: positions whose vector falls into the bucket of q_i in round r, h_r(x) = argmax([x R_r ;
//! -x R_r]), restricted to the chunk of i and the one before it, after positions are sorted by
//! bucket and split into chunks. A position sees itself only if it sees no other. Chunk 0 of a
//! round looks back to the last chunk of the previous round. B batch, H heads, L length, S chunk, E
//! width of a head, T rounds, N largest length, n = N / S rounded up to even: buckets (1 if N <=
//! S); q, v (B, L, H, E), R_r (E, n / 2). Queries serve as keys. Time O(T·L·S·E) per head and
//! O(T·L·n·E) for hashing, memory O(T·L·S). R is drawn per seed, step and layer and shared by heads
//! and examples. Pairs that meet in several rounds count once in each, as in trax by default.
//! Dropout on the weights. The paper's reversible blocks are an option of every model,
//! `block.residual = reversible`: memory then does not grow with the number of layers. Recomputed
//! vectors differ by rounding, so a vector between two buckets may fall into the other one.
//!
//! # Options
//!
//! `chunk` S, `rounds` T, `across_buckets`: chunks attend regardless of buckets.
//!
//! # Padding
//!
//! Padding is sorted to the end and hidden, so it takes no position in the chunks of valid tokens.
//!
//! # Departures
//!
//! With n = N / S, a chunk is as long as the average bucket, as in the reformer-pytorch package; in
//! the paper and in trax chunks are twice as long as buckets (n = 2 N / S). The paper concatenates
//! the two streams at the end; here they are averaged. Not here: the causal form. In trax keys have
//! length √E before the product is divided by √E, so its scores are √E times ours, and 1e-6 is
//! added to their mean square (google/trax@7c189c2
//! trax/layers/research/efficient_attention.py:54-57, 229-231). Initial values and the norms' ε are
//! those of trax and of the 2021 code: weights begin Xavier-uniform, projections have no biases,
//! those of the feed-forward network begin N(0, 1e-6²), and ε is `block.norm_epsilon` = 1e-6
//! (trax/layers/research/efficient_attention.py:1801-1808, trax/layers/core.py:50-51,
//! trax/layers/normalization.py:124).

mod sort;

use std::sync::{Mutex, PoisonError};

use crate::{
    RngKey,
    layers::ScoreMods,
    mixers::tay2021,
    ops::{l2_normalize, lsh},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "reformer",
    title: "Reformer",
    paper: "Reformer: The Efficient Transformer",
    year: 2020,
    arxiv: "2001.04451",
    time: Cost::Mixed("O(T·L·(S + L/S)·E)"),
    memory: Cost::Linear("O(T·L·S)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[
        Variant::mixer::<Reformer>(include_str!("mod.rs")),
        tay2021::reformer::VARIANT,
    ],
    ..Model::mixer::<Reformer>()
};

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    #[option(default = 32, range = int(1, LONGEST))]
    chunk: usize,
    #[option(default = 2, range = int(1, 64))]
    rounds: usize,
    across_buckets: bool,
}

impl Options {
    pub(super) fn check(&self) -> Result<()> {
        for (key, value) in [("model.chunk", self.chunk), ("model.rounds", self.rounds)] {
            require(value >= 1, key, value, "at least 1")?;
        }
        Ok(())
    }
}

struct Reformer {
    query: Linear,
    value: Linear,
    output: Linear,
    hash: Hash,
    chunk: usize,
    across_buckets: bool,
    dropout: Dropout,
    score_mods: ScoreMods,
    heads: usize,
}

impl MixerModel for Reformer {
    type Options = Options;

    fn check(options: &Options, _: &ModelContext) -> Result<()> {
        options.check()
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let block = layer.block;
        let [query, value] = inward(&layer.vb, block, block.qkv_dim)?;
        let init = xavier_uniform(block.dim, block.qkv_dim);
        Ok(Self {
            query,
            value,
            output: Linear::new(&layer.vb.pp("output"), block.qkv_dim, block.dim, init, None)?,
            hash: Hash {
                rounds: options.rounds,
                buckets: buckets(layer.max_length, options.chunk),
                width: block.head_dim(),
                key: StreamKey::new(&layer.vb.pp("rotations").prefix()),
                drawn: Mutex::default(),
            },
            chunk: options.chunk,
            across_buckets: options.across_buckets,
            dropout: Dropout::new(&layer.vb.pp("drop"), block.attention_dropout),
            score_mods: ScoreMods::new(layer)?,
            heads: block.heads,
        })
    }
}

/// Returns the projections that there are: `query`, which is also the key, and `value`.
pub(super) fn inward(vb: &VarBuilder, block: &BlockOptions, width: usize) -> Result<[Linear; 2]> {
    let init = xavier_uniform(block.dim, width);
    let linear = |name| Linear::new(&vb.pp(name), block.dim, width, init, None);
    Ok([linear("query")?, linear("value")?])
}

/// Returns the number of buckets: as many as there are chunks in the longest sequence, but an even
/// number, since each direction has an opposite.
fn buckets(longest: usize, chunk: usize) -> usize {
    if longest <= chunk {
        return 1;
    }
    longest.div_ceil(chunk).next_multiple_of(2)
}

impl Mixer for Reformer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (q, v) = (self.query.forward(x)?, self.value.forward(x)?);
        let rotations = match pass.fixed("rotations") {
            Some(rotations) => rotations.clone(),
            None => self.hash.rotations(&pass.rng, &q)?,
        };
        let sorting = Sorting {
            rounds: self.hash.rounds,
            chunk: self.chunk,
            across_buckets: self.across_buckets,
        };
        // Buckets depend on contents; the later rotation keeps lengths.
        let buckets = self.hash.buckets(&q, &rotations)?;
        let q = self.score_mods.rotate(&q, q.dim(2)?)?;
        let options = AttentionOptions {
            heads: self.heads,
            dropout: self.dropout.of_attention(x.dim(0)?, pass),
            ..AttentionOptions::default()
        };
        let y = sorting.attend(&self.score_mods, [&q, &v], &buckets, pass.mask(), options)?;
        self.output.forward(&y)
    }

    fn supports(&self) -> Supports {
        Supports::ALL
    }

    fn flops(&self, length: usize) -> u64 {
        let chunk = self.chunk.min(length);
        let seen = if length > chunk { 2 * chunk } else { chunk };
        let rounds = self.hash.rounds;
        let pairs = rounds * length.next_multiple_of(chunk) * seen * self.heads;
        let hashing = length * self.heads * self.hash.width * rounds * self.hash.buckets / 2;
        [&self.query, &self.value, &self.output]
            .iter()
            .map(|linear| linear.flops(length))
            .sum::<u64>()
            + partial_softmax::flops(pairs, self.hash.width)
            + self.score_mods.flops(length, pairs)
            + 2 * hashing as u64
    }
}

/// Locality-sensitive hashing by random rotations (Andoni et al., 2015, arXiv:1509.02897).
pub(super) struct Hash {
    pub(super) rounds: usize,
    pub(super) buckets: usize,
    pub(super) width: usize,
    pub(super) key: StreamKey,
    /// The rotations in use and the key of their draws.
    pub(super) drawn: Mutex<Option<(RngKey, Tensor)>>,
}

impl Hash {
    /// Returns R (E, T, n / 2), standard normal.
    pub(super) fn rotations(&self, rng: &RngKey, like: &Tensor) -> Result<Tensor> {
        let position = RngKey::new(rng.seed(), rng.step(), 0);
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, rotations)) = drawn.as_ref()
            && *known == position
        {
            return Ok(rotations.clone());
        }
        let shape = (self.width, self.rounds, self.buckets / 2);
        let count = self.rounds * (self.buckets / 2);
        let values = position.shared(self.key).normal(self.width, count);
        let rotations = Tensor::from_vec(values, shape, &Device::Cpu)?
            .to_dtype(like.dtype())?
            .to_device(like.device())?;
        *drawn = Some((position, rotations.clone()));
        Ok(rotations)
    }

    /// Returns the bucket of every vector of `x` (B, L, H E) in every round, (B, H, T, L)
    /// flattened.
    pub(super) fn buckets(&self, x: &Tensor, rotations: &Tensor) -> Result<Vec<u32>> {
        lsh(x, rotations)
    }
}

/// Attention within chunks of the sorted sequence.
struct Sorting {
    rounds: usize,
    chunk: usize,
    across_buckets: bool,
}

impl Sorting {
    /// Maps q, v (B, L, H E) and buckets (B, H, T, L) to (B, L, H E).
    fn attend(
        &self,
        score_mods: &ScoreMods,
        [q, v]: [&Tensor; 2],
        buckets: &[u32],
        mask: Option<&Mask>,
        options: AttentionOptions,
    ) -> Result<Tensor> {
        let ((_, length, row), heads) = (q.dims3()?, options.heads);
        let valid = mask
            .map(|mask| mask.valid().to_dtype(DType::F32)?.to_vec2::<f32>())
            .transpose()?;
        let options = AttentionOptions {
            mask: mask.map(|mask| mask.valid().clone()),
            block_masks: Some(sort::block_masks(
                self,
                buckets,
                (heads, length),
                valid.as_deref(),
            )),
            ..options
        };
        score_mods.attend([q, &l2_normalize(q, row / heads)?, v], options, 0..length)
    }
}

#[cfg(test)]
mod tests;
