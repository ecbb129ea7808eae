//! H-Transformer-1D. Zhu & Soricut, 2021, "H-Transformer-1D: Fast One-Dimensional Hierarchical
//! Attention for Sequences", arXiv:2107.11906.
//!     y_i = Σ_l Σ_J a_IJ V_J / Σ_l Σ_J a_IJ n_J,  a_IJ = exp(Q_I·K_J / √E), I the part of level l that i is in
//!     Q_I, K_J means over the tokens of parts of 2^l positions, V_J the sum of their values, n_J their number
//! B batch, H heads, L length, E width of a head, m block length; Q, K, V (B, H, L/2^l, E) at level
//! l. At level 0 the tokens of a block see that block and its two neighbours. At level l ≥ 1, a
//! part sees the parts of the two neighbouring blocks of m parts, except where level l - 1 has
//! covered the pair already: between the two adjacent halves of neighbouring blocks. The last level
//! has two blocks. So every pair of tokens is covered exactly once. Time O(L·m·E) per head, memory
//! O(L·m). A sequence of at most 2m tokens gets softmax attention. All levels share one maximum in
//! the softmax. Dropout on the weights of each level. No biases. Others ran it on the benchmark
//! with 2 layers, D 64, 2 heads, feed-forward 128.
//!
//! # Options
//!
//! `block` m (even; 16 in the paper).
//!
//! # Padding
//!
//! Means, sums and counts include valid tokens only, and parts without valid tokens are hidden, so
//! padding has no effect.
//!
//! # Departures
//!
//! The package of the same name computes another function, in which a level sees only the sibling
//! block. The paper's code for the benchmark is not public. Initial values and the norms' ε are
//! therefore as in all attention here: weights begin Xavier-uniform (±0.217 at D = 64), biases of
//! the feed-forward network N(0, 1e-6²), and ε is `block.norm_epsilon` = 1e-6. In the package
//! weights begin uniform within inputs^-½, biases, of the output too, likewise, ε is 1e-5
//! (torch.nn.LayerNorm), and 1e-8 is added to the denominator (h-transformer-1d 0.1.9
//! h_transformer_1d.py:50-67, 121-133, 264).

use crate::{
    mask::PADDED,
    ops::attention::{
        WeightDropout,
        partial_softmax::{PartialSoftmax, by_head},
    },
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "h_transformer_1d",
    title: "H-Transformer-1D",
    paper: "H-Transformer-1D: Fast One-Dimensional Hierarchical Attention for Sequences",
    year: 2021,
    arxiv: "2107.11906",
    time: Cost::Linear("O(L·m·E)"),
    memory: Cost::Linear("O(L·m)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Hierarchy>(include_str!(
        "h_transformer_1d.rs"
    ))],
    ..Model::mixer::<Hierarchy>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// m.
    #[option(default = 16, range = int(2, LONGEST))]
    block: usize,
}

struct Hierarchy {
    projections: Projections,
    /// Dropout of each level.
    dropouts: Vec<Dropout>,
    block: usize,
    heads: usize,
    width: usize,
}

/// Sums over parts of a sequence, (B, H, parts, E), and how many tokens each has, (B, 1, parts, 1).
struct Parts {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    count: Tensor,
}

impl MixerModel for Hierarchy {
    type Options = Options;

    fn check(&Options { block }: &Options, _: &ModelContext) -> Result<()> {
        require(
            block.is_multiple_of(2),
            "model.block",
            block,
            "an even number, because halves of blocks are covered by the level below",
        )
    }

    fn new(layer: &LayerContext, &Options { block }: &Options) -> Result<Self> {
        let rate = layer.block.attention_dropout;
        let dropout = |level| Dropout::new(&layer.vb.pp(format!("drop.{level}")), rate);
        Ok(Self {
            projections: Projections::new(layer)?,
            dropouts: (0..levels(layer.max_length, block)).map(dropout).collect(),
            block,
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }
}

impl Hierarchy {
    /// Maps queries, keys and values (B, L, H E) to (B, L, H, E).
    fn attend(&self, qkv: [&Tensor; 3], pass: &Pass) -> Result<Tensor> {
        let length = qkv[0].dim(1)?;
        let tokens = self.tokens(qkv, pass.mask())?;
        let all = self.at_and_above(0, levels(length, self.block), &tokens, pass)?;
        by_head(&all.output()?.narrow(2, 0, length)?)
    }

    /// Returns the sums of `parts` at this level and at all coarser ones of `count`, where both
    /// halves of a coarser part share its sums.
    fn at_and_above(
        &self,
        level: usize,
        count: usize,
        parts: &Parts,
        pass: &Pass,
    ) -> Result<PartialSoftmax> {
        let dropout = self.dropouts[level].of_weights(parts.q.dim(0)?, pass);
        let own = parts.attend(self.block, level == 0, dropout)?;
        if level + 1 == count {
            return Ok(own);
        }
        let above = self.at_and_above(level + 1, count, &parts.halved()?, pass)?;
        PartialSoftmax::merge(&[own, above.arranged(doubled)?])
    }

    /// Returns the level 0: the tokens, and zeros up to a number of blocks that can be halved down
    /// to two.
    fn tokens(&self, qkv: [&Tensor; 3], mask: Option<&Mask>) -> Result<Parts> {
        let (batch, length, _) = qkv[0].dims3()?;
        let missing = self.block * length.div_ceil(self.block).next_power_of_two() - length;
        let parts = |x: &Tensor| -> Result<Tensor> {
            let x = zero_padding(x, mask)?.reshape((batch, length, self.heads, self.width))?;
            Ok(by_head(&x)?.pad_with_zeros(2, 0, missing)?)
        };
        let valid = match mask {
            Some(mask) => mask.valid().clone(),
            None => Tensor::ones((batch, length), qkv[0].dtype(), qkv[0].device())?,
        };
        let count = valid.pad_with_zeros(1, 0, missing)?;
        Ok(Parts {
            q: parts(qkv[0])?,
            k: parts(qkv[1])?,
            v: parts(qkv[2])?,
            count: count.reshape((batch, 1, length + missing, 1))?,
        })
    }
}

/// Returns the number of levels of a sequence of `length`.
fn levels(length: usize, block: usize) -> usize {
    let blocks = length.div_ceil(block).next_power_of_two();
    blocks.ilog2().max(1) as usize
}

/// Returns rows (B, H, parts, W) twice each.
fn doubled(x: &Tensor) -> Result<Tensor> {
    let (batch, heads, parts, width) = x.dims4()?;
    let twice = x
        .unsqueeze(3)?
        .broadcast_as((batch, heads, parts, 2, width))?;
    Ok(twice.reshape((batch, heads, 2 * parts, width))?)
}

impl Parts {
    /// Returns the next level.
    fn halved(&self) -> Result<Self> {
        let pairs = |x: &Tensor| -> Result<Tensor> {
            let (batch, heads, parts, width) = x.dims4()?;
            Ok(x.reshape((batch, heads, parts / 2, 2, width))?.sum(3)?)
        };
        Ok(Self {
            q: pairs(&self.q)?,
            k: pairs(&self.k)?,
            v: pairs(&self.v)?,
            count: pairs(&self.count)?,
        })
    }

    /// Returns the sums of parts over those of the blocks on either side; at level 0 also over
    /// their own block, and without a level below that covers pairs.
    fn attend(&self, block: usize, first: bool, dropout: WeightDropout) -> Result<PartialSoftmax> {
        let blocks = self.q.dim(2)? / block;
        let some = self.count.maximum(&self.count.ones_like()?)?;
        let mean = |x: &Tensor| x.broadcast_div(&some);
        let split = |x: &Tensor| -> Result<Tensor> {
            let (batch, heads, _, width) = x.dims4()?;
            Ok(x.reshape((batch, heads, blocks, block, width))?)
        };
        let around = |x: &Tensor| -> Result<Tensor> {
            let x = split(x)?;
            let before = x.pad_with_zeros(2, 1, 0)?.narrow(2, 0, blocks)?;
            let after = x.pad_with_zeros(2, 0, 1)?.narrow(2, 1, blocks)?;
            Ok(match first {
                true => Tensor::cat(&[&before, &x, &after], 3)?,
                false => Tensor::cat(&[&before, &after], 3)?,
            })
        };
        // A mean of values counts as often as there are values.
        let hidden = around(&self.count)?.ge(0.5)?.to_dtype(some.dtype())?;
        let often = around(&some.log()?)?;
        let bias = (often + hidden.affine(PADDED, -PADDED)?)?;
        let mut bias = bias.transpose(3, 4)?.contiguous()?; // (B, 1, blocks, 1, keys)
        if !first {
            let covered = covered(block);
            let covered = Tensor::from_vec(covered, (1, 1, 1, block, 2 * block), bias.device())?;
            bias = bias.broadcast_add(&covered.to_dtype(bias.dtype())?)?;
        }
        let (k, v) = (around(&mean(&self.k)?)?, around(&mean(&self.v)?)?);
        let q = split(&mean(&self.q)?)?;
        let part = partial_softmax::attend(&q, &k, &v, Some(&bias), dropout)?;
        part.arranged(|x| Ok(x.flatten(2, 3)?))
    }
}

/// Returns the bias that hides the pairs that the level below has covered, (m, 2m): in the block
/// before and in the block behind.
fn covered(block: usize) -> Vec<f32> {
    let half = block / 2;
    let pairs = (0..block).flat_map(|query| (0..2 * block).map(move |key| (query, key)));
    let near = |(query, key): (usize, usize)| match key < block {
        true => query < half && key >= half,
        false => query >= half && key - block < half,
    };
    let bias = |pair| if near(pair) { -PADDED as f32 } else { 0.0 };
    pairs.map(bias).collect()
}

impl Mixer for Hierarchy {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = self.projections.qkv(x)?;
        let y = self.attend([&q, &k, &v], pass)?;
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports {
            rotary: Ok(()),
            ..Supports::none("distant tokens have the score of the parts that they are in")
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let all = self.block * length.div_ceil(self.block).next_power_of_two();
        let pairs = |level: usize| (all >> level) * self.block * if level == 0 { 3 } else { 2 };
        let pairs: usize = (0..levels(length, self.block)).map(pairs).sum();
        self.projections.flops(length) + partial_softmax::flops(self.heads * pairs, self.width)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        RngKey,
        options::BlockOptions,
        reference,
        testing::{DenseReference, check_layer, close, normal, parameters},
    };

    fn mixer(parameters: &crate::Parameters, block: usize, width: usize) -> Hierarchy {
        let options = BlockOptions {
            dim: 2 * width,
            qkv_dim: 2 * width,
            heads: 2,
            attention_dropout: 0.0,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &options, 64);
        Hierarchy::new(&layer, &Options { block }).unwrap()
    }

    fn pass() -> Pass<'static> {
        Pass::new(false, RngKey::new(1, 0, 0))
    }

    /// Maps queries, keys and values (B, L, H, E) to (B, L, H, E).
    fn attend(mixer: &Hierarchy, qkv: [&Tensor; 3], mask: Option<&Mask>) -> Result<Tensor> {
        let [q, k, v] = qkv.map(|x| x.flatten_from(2));
        mixer.attend([&q?, &k?, &v?], &pass().with_mask(mask))
    }

    fn mask(rows: &[&[f64]]) -> Mask {
        let shape = (rows.len(), rows[0].len());
        Mask::new(&Tensor::from_vec(rows.concat(), shape, &Device::Cpu).unwrap()).unwrap()
    }

    #[test]
    fn two_blocks_are_softmax_attention() {
        for block in [4, 6, 16] {
            let mixer = mixer(&parameters(), block, 3);
            let twin = DenseReference::whole(reference::softmax);
            let apart = twin.compare(|q, k, v, mask| attend(&mixer, [q, k, v], mask));
            assert!(apart.output < 1e-7 && apart.gradient < 1e-7, "{apart:?}");
        }
    }

    /// Values identify their keys: with equal scores each valid one has the same share.
    #[test]
    fn every_pair_is_covered_once() {
        for (length, block) in [(1, 2), (7, 2), (16, 2), (33, 4), (64, 4), (50, 6)] {
            let mixer = mixer(&parameters(), block, length);
            let v = Tensor::eye(length, DType::F64, &Device::Cpu).unwrap();
            let v = v.reshape((1, length, 1, length)).unwrap();
            let v = v
                .broadcast_as((2, length, 2, length))
                .unwrap()
                .contiguous()
                .unwrap();
            let zeros = v.zeros_like().unwrap();
            let valid: Vec<f64> = (0..length)
                .map(|i| f64::from(u8::from(i % 3 != 1)))
                .collect();
            let rows = [vec![1.0; length], valid];
            let mask = mask(&[&rows[0], &rows[1]]);
            let y = attend(&mixer, [&zeros, &zeros, &v], Some(&mask)).unwrap();
            for (row, valid) in rows.iter().enumerate() {
                let count = valid.iter().sum::<f64>();
                let shares = y.get(row).unwrap().flatten_to(1).unwrap();
                for shares in shares.to_vec2::<f64>().unwrap() {
                    for (share, valid) in shares.iter().zip(valid) {
                        assert!(
                            (share - valid / count).abs() < 1e-12,
                            "{length} {block}: {share}"
                        );
                    }
                }
            }
        }
    }

    /// If neighbours are equal, their mean equals each of them.
    #[test]
    fn pairs_of_equal_tokens_have_softmax_attention_up_to_four_blocks() {
        let mixer = mixer(&parameters(), 4, 3);
        let [q, k, v] = ["q", "k", "v"].map(|name| normal(name, &[2, 8, 2, 3]));
        let twice = |x: &Tensor| {
            let x = x
                .unsqueeze(2)
                .unwrap()
                .broadcast_as((2, 8, 2, 2, 3))
                .unwrap();
            x.reshape((2, 16, 2, 3)).unwrap()
        };
        let (q, k) = (twice(&q), twice(&k));
        let v = Tensor::cat(&[&v, &normal("more", &[2, 8, 2, 3])], 1).unwrap();
        let rows = [
            [1.0; 16],
            std::array::from_fn(|i| f64::from(u8::from(i < 10))),
        ];
        let mask = mask(&[&rows[0], &rows[1]]);
        let expected = reference::attention(&q, &k, &v, Some(mask.valid()), reference::softmax);
        let actual = attend(&mixer, [&q, &k, &v], Some(&mask)).unwrap();
        let read = |x: &Tensor| zero_padding(&x.flatten_from(2).unwrap(), Some(&mask)).unwrap();
        close(&read(&actual), &read(&expected.unwrap()), 1e-12, "pairs");
    }

    #[test]
    fn gradients_agree_with_differences() {
        let rows = [
            [1.0; 9],
            [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0],
            [0.0; 9],
        ];
        let mask = mask(&[&rows[0], &rows[1], &rows[2]]);
        let parameters = parameters();
        let mixer = mixer(&parameters, 2, 2);
        check_layer("h_transformer_1d", &parameters, &[3, 9, 4], |x| {
            zero_padding(
                &mixer.forward(x, &pass().with_mask(Some(&mask)))?,
                Some(&mask),
            )
        });
    }
}
