//! Sparse Sinkhorn attention. Tay et al., 2020, "Sparse Sinkhorn Attention", arXiv:2002.11296.
//!     y_i = softmax attention of q_i on block b(i) and on the block that is sorted to its place,
//!     k̃_us = Σ_w P_uw k_ws,  ṽ_us = Σ_w P_uw v_ws,  P = Sinkhorn((relu([Σ_s q_us ; Σ_s k_us] W) + g) / τ)
//! Sinkhorn(R): exp(R), with rows and columns divided by their sums in turn, `iterations` times, in
//! the log domain: nearly a permutation of the n blocks. B batch, H heads, L length, S block, n =
//! ⌈L / S⌉ blocks, E width of a head; q, k, v (B, L, H, E), W (H, 2E, n of the largest length), P
//! (B, H, n, n). Time O(L·S·E + (L/S)²·S·E) per head, memory O(L·S + (L/S)²). Encoder only. A
//! sorted key is a mixture of positions and has no position: `block.bias` by distance applies only
//! to a block's own keys, and `block.soft_cap` is refused. Up to S tokens there is one block, and
//! without `block.bias` and `block.memory` this is softmax attention; W then has no effect.
//!
//! # Options
//!
//! `block` S (0: √N rounded up to a power of two, N the largest length); `iterations`;
//! `temperature` τ; `noise` (Gumbel g, only in training); `sortcut` c: 0, or every block sees the
//! first c sorted blocks and its own, in O(L·c·S).
//!
//! # Padding
//!
//! Padded keys are left out of sums, blocks and sorting: a block without a valid token is not
//! sorted, and a sorted key is weighted by its share of valid keys.
//!
//! # Departures
//!
//! The sorting network has one layer, as in the sinkhorn-transformer package, for each head;
//! SortCut keeps a block's own keys, as in that package. W begins Xavier-uniform divided by S,
//! since a sum over a block is S times its mean; in the 2021 code Xavier-uniform, in the package
//! N(0, 1). The package takes ln(relu(·) + 1e-6) in place of relu(·) before g is added, which it
//! draws in evaluation, too (sinkhorn-transformer 0.11.4 sinkhorn_transformer.py:100-110, 237). All
//! other initial values and the norms' ε, `block.norm_epsilon` = 1e-6, are those of the 2021 code:
//! weights begin Xavier-uniform, projections have no biases, those of the feed-forward network
//! begin N(0, 1e-6²).

mod blocked;

use self::blocked::Blocked;
use crate::{
    mixers::tay2021,
    ops::{activation::relu, sinkhorn_normalize},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "sinkhorn",
    title: "Sinkhorn Transformer",
    paper: "Sparse Sinkhorn Attention",
    year: 2020,
    arxiv: "2002.11296",
    time: Cost::Mixed("O(L·S·E + L²·E/S)"),
    memory: Cost::Mixed("O(L·S + L²/S²)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[
        Variant::mixer::<Sinkhorn>(include_str!("mod.rs")),
        tay2021::sinkhorn::VARIANT,
    ],
    ..Model::mixer::<Sinkhorn>()
};

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    #[option(range = int(0, LONGEST))]
    pub(super) block: usize,
    #[option(default = 7, range = int(1, 1000))]
    iterations: usize,
    #[option(default = 0.75, range = positive(1e6))]
    temperature: f64,
    #[option(default = true)]
    noise: bool,
    #[option(range = int(0, LONGEST))]
    sortcut: usize,
}

impl Options {
    pub(super) fn check(&self) -> Result<()> {
        let (iterations, temperature) = (self.iterations, self.temperature);
        require(
            iterations >= 1,
            "model.iterations",
            iterations,
            "at least 1",
        )?;
        require(
            temperature > 0.0 && temperature.is_finite(),
            "model.temperature",
            temperature,
            "more than 0",
        )
    }
}

/// Shares of valid keys below this count as none.
const SMALLEST: f64 = 1e-6;

struct Sinkhorn {
    projections: Projections,
    sorting: Sorting,
    dropout: Dropout,
    sortcut: usize,
    heads: usize,
    width: usize,
}

/// Returns √N rounded up to a power of two: sorting n blocks then costs about as much as attending
/// within them.
fn default_block(longest: usize) -> usize {
    ((longest as f64).sqrt().ceil() as usize).next_power_of_two()
}

/// The network that orders the blocks.
struct Sorting {
    /// W, (H, 2E, n).
    weight: Tensor,
    block: usize,
    iterations: usize,
    temperature: f64,
    noise: Option<StreamKey>,
}

impl MixerModel for Sinkhorn {
    type Options = Options;

    fn check(options: &Options, context: &ModelContext) -> Result<()> {
        options.check()?;
        let soft_cap = context.block.soft_cap;
        require(
            soft_cap == 0.0,
            "block.soft_cap",
            soft_cap,
            "0, because shares of sorted blocks are added to the scores, and a bound would change them",
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (heads, width) = (layer.block.heads, layer.block.head_dim());
        let block = match options.block {
            0 => default_block(layer.max_length),
            block => block,
        };
        let blocks = layer.max_length.div_ceil(block);
        let vb = layer.vb.pp("sorting");
        // Xavier-uniform for the mean of a block; for its sum the order would be sharp, and hard to
        // change, from the start.
        let bound = (6.0 / (2 * width + blocks) as f64).sqrt() / block as f64;
        let init = Init::Uniform {
            lo: -bound,
            up: bound,
        };
        Ok(Self {
            projections: Projections::new(layer)?,
            sorting: Sorting {
                weight: vb.get_with_hints((heads, 2 * width, blocks), "weight", init)?,
                block,
                iterations: options.iterations,
                temperature: options.temperature,
                noise: options
                    .noise
                    .then(|| StreamKey::new(&vb.pp("noise").prefix())),
            },
            dropout: Dropout::new(&layer.vb.pp("drop"), layer.block.attention_dropout),
            sortcut: options.sortcut,
            heads,
            width,
        })
    }
}

impl Mixer for Sinkhorn {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let noise = self.sorting.noise(x, self.heads, pass)?;
        let qkv = self.projections.qkv(x)?; // (B, L, H E)
        let blocked = Blocked::new(qkv, self.heads, self.sorting.block, pass.mask())?;
        // The projections have no biases, so projections of sums are sums of projections.
        let [q, k, _] = self.projections.unrotated(&blocked.sums(x)?)?; // (B, n, H E)
        let (batch, blocks, _) = q.dims3()?;
        let by_head = |x: Tensor| x.reshape((batch, blocks, self.heads, self.width));
        let sums = Tensor::cat(&[by_head(q)?, by_head(k)?], 3)?.transpose(1, 2)?;
        let in_use = blocked.in_use()?;
        let order = self.sorting.order(&sums, &in_use, noise.as_ref())?;
        let dropout = self.dropout.of_attention(x.dim(0)?, pass);
        let y = blocked.attend(&order, self.sortcut, dropout, self.projections.score_mods())?;
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports::ALL
    }

    fn flops(&self, length: usize) -> u64 {
        let (block, width) = (self.sorting.block.min(length), self.width);
        let blocks = length.div_ceil(block);
        let seen = match self.sortcut {
            0 => 2,
            cut => 1 + cut.min(blocks),
        };
        let pairs = blocks * block * seen * block * self.heads;
        let sorting = 2 * self.heads * blocks * blocks * (2 * width + 2 * block * width);
        self.projections.flops(length)
            + partial_softmax::flops(pairs, width)
            + self.projections.score_mods().flops(length, pairs)
            + sorting as u64
    }
}

impl Sorting {
    /// Returns Gumbel noise (B, H, n, n) for x (B, L, D), in training.
    fn noise(&self, x: &Tensor, heads: usize, pass: &Pass) -> Result<Option<Tensor>> {
        if let Some(given) = pass.fixed("gumbel") {
            return Ok(Some(given.clone()));
        }
        let (batch, length, _) = x.dims3()?;
        let blocks = length.div_ceil(self.block.min(length));
        let most = self.weight.dim(2)?;
        Ok(match self.noise {
            Some(key) if pass.train => {
                let stream = pass.rng.per_example(key);
                let uniform = stream.uniform(batch, heads * most * most);
                let gumbel: Vec<f64> = uniform.iter().map(|u| -(-u.ln()).ln()).collect();
                // Drawn for the largest length, so that padding does not change the noise of a
                // block.
                let gumbel = Tensor::from_vec(gumbel, (batch, heads, most, most), &Device::Cpu)?
                    .narrow(2, 0, blocks)?
                    .narrow(3, 0, blocks)?
                    .contiguous()?
                    .to_dtype(x.dtype())?;
                Some(gumbel.to_device(x.device())?)
            }
            _ => None,
        })
    }

    /// Returns P, (B, H, n, n): row u says which blocks are sorted to place u. From sums (B, H, n,
    /// 2E) of queries and keys, and which blocks have a valid token, (B, n).
    fn order(&self, sums: &Tensor, in_use: &Tensor, noise: Option<&Tensor>) -> Result<Tensor> {
        let (batch, heads, blocks, inputs) = sums.dims4()?;
        // The batch beside the blocks: one product per head.
        let sums = sums
            .transpose(0, 1)?
            .reshape((heads, batch * blocks, inputs))?;
        let weight = self.weight.narrow(2, 0, blocks)?.contiguous()?;
        let scores = relu(&matmul(&sums, &weight)?, 0.0)?
            .reshape((heads, batch, blocks, blocks))?
            .transpose(0, 1)?
            .contiguous()?;
        let scores = match noise {
            Some(noise) => (scores + noise)?,
            None => scores,
        };
        let scores = scores.affine(self.temperature.recip(), 0.0)?;
        // Blocks without a valid token take no part: neither as rows nor as columns.
        sinkhorn_normalize(&scores, in_use, self.iterations)
    }
}

#[cfg(test)]
mod tests;
