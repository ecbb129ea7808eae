//! MRA-2. Zeng et al., 2022, "Multi Resolution Analysis (MRA) for Approximate Self-Attention",
//! arXiv:2207.10284.
//!     y_i = Σ_j a_ij v_j / Σ_j a_ij,  a_ij = exp(q_i·k_j / √E) in the chosen pairs (I, J) of blocks,  exp(low_IJ) in all others
//!     low_IJ = q̃_I·k̃_J / √E;  q̃_I, k̃_J, ṽ_J means over the valid tokens of a block
//! B batch, H heads, L length, N longest length, E width of a head, S block length, M = L/S blocks;
//! q, k, v, y (B, L, H, E), q̃, k̃, ṽ (B, M, H, E), low (B, H, M, M). For each head,
//! `blocks_per_row` ⌈N/S⌉ pairs are chosen from the whole matrix, those of largest low_IJ - max_J
//! low_IJ. Pairs in the first `first` rows and columns of blocks, and pairs at most `diagonal`/2
//! blocks from the diagonal, take precedence. Time O(L·r·S·E + (L/S)²·E) per head, r pairs per row;
//! memory O(L·E + (L/S)²). The choice of pairs has no gradient; low_IJ of the others has one. Ties
//! go to the lower index. A query without any pair gets zeros. No dropout on the weights, as in the
//! published code. Published on the benchmark: 2 layers, D 64, 2 heads, feed-forward 128, `block`
//! 32, `blocks_per_row` 8.
//!
//! # Options
//!
//! `block` S (32 in the paper's code); `blocks_per_row` (8); `first` (1); `diagonal` (0; in that
//! code 1 for Retrieval and Text); `mode`: `full`, or `sparse`, where unchosen pairs have weight
//! zero (MRA-2-s).
//!
//! # Padding
//!
//! Blocks without a valid token are never chosen and have weight zero, and so has padding within a
//! block.
//!
//! # Departures
//!
//! The maximum of a row is over blocks with valid tokens; 1e-6 is not added to counts and sums; the
//! blocks of an image are runs of pixels, not the 4 x 8 patches of the published code. No biases in
//! projections. Projections begin Xavier-uniform (±0.217 at D = 64), the feed-forward network
//! Xavier-uniform (±0.177 for a width of 128) with biases N(0, 1e-6²); the published code has
//! PyTorch's linear layers, all uniform within inputs^-½ (±0.125, and ±0.088 from a width of 128),
//! biases too (mlpen/mra-attention@7e08afe old_code/LRA/encoders/mra2.py:21-25, 110-113). The
//! norms' ε is `block.norm_epsilon` = 1e-6, in the published code 1e-5 (torch.nn.LayerNorm).

use crate::{
    mask::PADDED,
    ops::{
        Order,
        attention::{BlockMask, partial_softmax::by_head},
        top_k,
    },
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "mra",
    title: "MRA-2",
    paper: "Multi Resolution Analysis (MRA) for Approximate Self-Attention",
    year: 2022,
    arxiv: "2207.10284",
    time: Cost::Linear("O(L·r·S·E + L²/S²)"),
    memory: Cost::Mixed("O(L·E + L²/S²)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Mra>(include_str!("mra.rs"))],
    ..Model::mixer::<Mra>()
};

/// Contribution of pairs of blocks that are not chosen.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// Attention by their means.
    Full,
    /// No contribution.
    Sparse,
}

#[derive(Clone, Copy, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// S.
    #[option(default = 32, range = int(1, 64))]
    block: usize,
    #[option(default = 8, range = int(0, LONGEST))]
    blocks_per_row: usize,
    #[option(default = 1, range = int(0, LONGEST))]
    first: usize,
    #[option(range = int(0, LONGEST))]
    diagonal: usize,
    #[option(default = Mode::Full)]
    mode: Mode,
}

struct Mra {
    projections: Projections,
    options: Options,
    /// Number of pairs of blocks that a head chooses.
    chosen: usize,
    heads: usize,
    width: usize,
}

/// The pairs of blocks that one head of one sequence chooses.
struct Chosen {
    /// Blocks of keys for each block of queries, in order.
    keys: Vec<Vec<usize>>,
    /// Blocks of keys that have a valid token.
    valid: Vec<bool>,
}

impl MixerModel for Mra {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let options = *options;
        let blocks = layer.max_length.div_ceil(options.block);
        Ok(Self {
            projections: Projections::new(layer)?,
            options,
            chosen: options.blocks_per_row.saturating_mul(blocks),
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }
}

impl Mra {
    /// Maps queries, keys and values (B, L, H E) to (B, L, H E).
    fn attend(&self, qkv: [&Tensor; 3], mask: Option<&Mask>) -> Result<Tensor> {
        let (batch, length, _) = qkv[0].dims3()?;
        let counts = self.counts(qkv[0], mask)?; // (B, M)
        let means = |x: &Tensor| self.means(&zero_padding(x, mask)?, &counts);
        let (q, k) = (means(qkv[0])?, means(qkv[1])?);
        let low = attention::scores(&q, &k)?; // (B, H, M, M)
        let chosen = self.choose(&low, &counts)?;
        let full = self.options.mode == Mode::Full;
        let mut options = AttentionOptions {
            heads: self.heads,
            scale: Some((self.width as f64).powf(-0.5)),
            mask: mask.map(|mask| mask.valid().clone()),
            block_masks: Some(self.block_masks(&chosen, length)),
            ..AttentionOptions::default()
        };
        if !full {
            return attention::attend(qkv[0], qkv[1], qkv[2], &options);
        }
        let (sums, values) = rest(&low, &means(qkv[2])?, &counts, &chosen)?;
        // All keys that a block of queries has not chosen form one more key, with a column of its
        // own for a score that no query decides.
        let blocks = values.dim(1)?;
        let split = |x: &Tensor| x.reshape((batch, length, self.heads, self.width));
        let (dtype, device) = (qkv[0].dtype(), qkv[0].device());
        let ones = Tensor::ones((batch, length, self.heads, 1), dtype, device)?;
        let q = cat(&[&split(qkv[0])?, &ones], 3)?;
        let own = sums.affine((self.width as f64).sqrt(), 0.0)?;
        let own = own.pad_with_zeros(3, self.width, 0)?; // (B, M, H, E + 1)
        let keys = cat(&[&split(qkv[1])?.pad_with_zeros(3, 0, 1)?, &own], 1)?;
        let values = cat(&[&split(qkv[2])?, &values], 1)?;
        if let Some(valid) = options.mask.take() {
            let ones = Tensor::ones((batch, blocks), valid.dtype(), device)?;
            options.mask = Some(Tensor::cat(&[valid, ones], 1)?);
        }
        let [q, keys, values] = [q, keys, values].map(|x| x.flatten_from(2));
        attention::attend(&q?, &keys?, &values?, &options)
    }

    /// Returns valid tokens of each block, (B, M).
    fn counts(&self, x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        let ((batch, length, _), size) = (x.dims3()?, self.options.block);
        let valid = match mask {
            Some(mask) => mask.valid().clone(),
            None => Tensor::ones((batch, length), x.dtype(), x.device())?,
        };
        let missing = length.next_multiple_of(size) - length;
        let valid = valid.pad_with_zeros(1, 0, missing)?;
        Ok(valid.reshape((batch, (), size))?.sum(D::Minus1)?)
    }

    /// Returns means over the tokens of blocks, (B, M, H, E), of x (B, L, H E), which is zero at
    /// padding.
    fn means(&self, x: &Tensor, counts: &Tensor) -> Result<Tensor> {
        let ((batch, length, row), size) = (x.dims3()?, self.options.block);
        let x = x.pad_with_zeros(1, 0, length.next_multiple_of(size) - length)?;
        let sums = x.reshape((batch, (), size, row))?.sum(2)?; // (B, M, H E)
        let counts = counts.maximum(&counts.ones_like()?)?.unsqueeze(2)?;
        let means = sums.broadcast_div(&counts)?;
        Ok(means.reshape((batch, (), self.heads, self.width))?)
    }

    /// Returns the choice of each head of each sequence, in the order (example, head).
    fn choose(&self, low: &Tensor, counts: &Tensor) -> Result<Vec<Chosen>> {
        let (batch, heads, blocks, _) = low.dims4()?;
        let low = low.detach().to_dtype(DType::F64)?;
        let counts: Vec<Vec<f64>> = counts.to_dtype(DType::F64)?.to_vec2()?;
        let hidden =
            |pair: usize, counts: &[f64]| counts[pair / blocks] * counts[pair % blocks] < 0.5;
        let pairs = 0..blocks * blocks;
        let hide = |counts: &Vec<f64>| -> Vec<f64> {
            let hide = |pair| if hidden(pair, counts) { -PADDED } else { 0.0 };
            pairs.clone().map(hide).collect()
        };
        let hide: Vec<f64> = counts.iter().flat_map(hide).collect();
        let hide = Tensor::from_vec(hide, (batch, 1, blocks, blocks), low.device())?;
        let prior: Vec<f64> = pairs
            .map(|pair| self.prior(pair / blocks, pair % blocks))
            .collect();
        let prior = Tensor::from_vec(prior, (blocks, blocks), low.device())?;
        let low = low.broadcast_add(&hide)?;
        let merit = low.broadcast_sub(&low.max_keepdim(D::Minus1)?)?;
        // In a row without a valid block, the hidden scores are their own maximum, so that they have
        // to be hidden again.
        let merit = merit.broadcast_add(&prior)?.broadcast_add(&hide)?;
        let most = self.chosen.min(blocks * blocks);
        let mut chosen: Vec<Chosen> = (0..batch * heads)
            .map(|index| Chosen {
                keys: vec![Vec::new(); blocks],
                valid: counts[index / heads]
                    .iter()
                    .map(|count| *count > 0.0)
                    .collect(),
            })
            .collect();
        if most == 0 {
            return Ok(chosen);
        }
        let (_, best) = top_k(&merit.flatten_from(2)?, most, Order::Largest)?;
        for (index, best) in best.flatten(0, 1)?.to_vec2::<u32>()?.iter().enumerate() {
            let mut best: Vec<usize> = best.iter().map(|pair| *pair as usize).collect();
            best.retain(|pair| !hidden(*pair, &counts[index / heads]));
            best.sort_unstable();
            for pair in best {
                chosen[index].keys[pair / blocks].push(pair % blocks);
            }
        }
        Ok(chosen)
    }

    /// Returns the lead that a pair of blocks has over all others, which is larger than any score.
    fn prior(&self, queries: usize, keys: usize) -> f64 {
        let Options {
            first, diagonal, ..
        } = self.options;
        let near = diagonal > 0 && queries.abs_diff(keys) <= diagonal / 2;
        let reasons = [near, queries < first, keys < first];
        5e3 * reasons.iter().filter(|holds| **holds).count() as f64
    }

    /// Returns block masks in which tokens see those of the chosen blocks, and, in mode `full`, the
    /// key number L + I that stands for the rest if there is one.
    fn block_masks(&self, chosen: &[Chosen], length: usize) -> BlockMasks {
        let size = self.options.block;
        let tokens = |block: usize| (block * size) as u32..((block + 1) * size).min(length) as u32;
        let masks = chosen.iter().map(|chosen| {
            let mut mask = BlockMask::new(0.0);
            let keys: Vec<usize> = (0..chosen.keys.len())
                .map(|block| mask.key_block(tokens(block)))
                .collect();
            for (queries, seen) in chosen.keys.iter().enumerate() {
                let rest = self.options.mode == Mode::Full && chosen.has_rest(queries);
                if seen.is_empty() && !rest {
                    continue;
                }
                let rest = rest.then(|| mask.key_block([(length + queries) as u32]));
                mask.query_block(tokens(queries));
                let seen = seen.iter().map(|block| keys[*block]);
                seen.chain(rest).for_each(|keys| mask.allow(keys, None));
            }
            mask
        });
        BlockMasks::new(masks.collect())
    }
}

impl Chosen {
    /// Returns whether a block of queries has valid tokens, and valid blocks of keys that it has not
    /// chosen.
    fn has_rest(&self, queries: usize) -> bool {
        let valid = self.valid.iter().filter(|valid| **valid).count();
        self.valid[queries] && self.keys[queries].len() < valid
    }
}

/// Returns the sums of blocks of queries over the keys that they have not chosen: the logarithm of
/// the sum of weights, (B, M, H, 1), and the mean of values (B, M, H, E); any finite numbers where
/// there are none.
fn rest(
    low: &Tensor,
    values: &Tensor,
    counts: &Tensor,
    chosen: &[Chosen],
) -> Result<(Tensor, Tensor)> {
    let shape = low.dims4()?;
    let mut hidden = Vec::with_capacity(low.elem_count());
    for chosen in chosen {
        for keys in &chosen.keys {
            let hide = |valid: &bool| if *valid { 0.0 } else { -PADDED as f32 };
            let first = hidden.len();
            hidden.extend(chosen.valid.iter().map(hide));
            keys.iter()
                .for_each(|block| hidden[first + block] = -PADDED as f32);
        }
    }
    let hidden = Tensor::from_vec(hidden, shape, low.device())?.to_dtype(low.dtype())?;
    let counts = counts.maximum(&counts.ones_like()?)?;
    let counts = counts.log()?.unsqueeze(1)?.unsqueeze(1)?; // (B, 1, 1, M)
    let scores = (low.broadcast_add(&counts)? + hidden)?;
    let most = scores.detach().max_keepdim(D::Minus1)?;
    let weights = scores.broadcast_sub(&most)?.exp()?;
    let sums = weights.sum_keepdim(D::Minus1)?; // (B, H, M, 1)
    let values = matmul(&weights, &by_head(values)?)?.broadcast_div(&sums)?;
    Ok((by_head(&(sums.log()? + most)?)?, by_head(&values)?))
}

impl Mixer for Mra {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = self.projections.qkv(x)?;
        let y = self.attend([&q, &k, &v], pass.mask())?;
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports {
            rotary: Ok(()),
            ..Supports::none("pairs that are not chosen have the score of their blocks")
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let size = self.options.block;
        let blocks = length.div_ceil(size);
        let chosen = self.chosen.min(blocks * blocks) * size.min(length) * size.min(length);
        let low = match self.options.mode {
            Mode::Full => 2,
            Mode::Sparse => 1,
        };
        let low = 2 * low * (self.heads * blocks * blocks * self.width) as u64;
        self.projections.flops(length)
            + low
            + partial_softmax::flops(self.heads * chosen, self.width)
    }
}

#[cfg(test)]
mod tests;
