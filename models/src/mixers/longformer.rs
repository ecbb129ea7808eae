//! Longformer. Beltagy et al., 2020, "Longformer: The Long-Document Transformer", arXiv:2004.05150.
//!     y_i = Σ_j a_ij v_j,  a_i = softmax(q_i·k_j / √E) over the keys |i - j| = m·d, m <= w / 2, and over the global keys j < g
//!     y_i = Σ_j b_ij v'_j, b_i = softmax(q'_i·k'_j / √E) over all j, for the global positions i < g
//! B batch, H heads, L length, E width of a head; q, k, v and, from projections of their own, q',
//! k', v' (B, H, L, E). Time O(L·(w + g)·E) per head, memory O(L·(w + g)). Dropout on the weights.
//! With CLS pooling, only a global position of the last layer is read: its q, k and v have no
//! influence, and their projections in that layer keep their initial values.
//!
//! # Options
//!
//! `window` w, even; `dilation` d of the first `dilated_heads` heads, with d = 1 for the others (0:
//! of every head; the paper dilates two heads of upper layers, here all layers are alike); `global`
//! g, the first g positions: the CLS token if there is one, else the first token. Without global
//! positions there are no projections for them.
//!
//! # Padding
//!
//! Padded keys get weight zero.
//!
//! # Departures
//!
//! Initial values and the norms' ε are those of the benchmark's 2021 code: weights begin
//! Xavier-uniform, projections have no biases, those of the feed-forward network begin N(0, 1e-6²),
//! and ε is `block.norm_epsilon` = 1e-6. The authors' code has projections of q, k, v and q', k',
//! v' with biases, all uniform within inputs^-½ (allenai/longformer@caefee6
//! longformer/longformer.py:66-72), in a RoBERTa of the transformers library, whose trained weights
//! it loads (scripts/convert_model_to_long.ipynb); its other matrices begin there N(0, 0.02²),
//! biases as 0, and ε is 1e-12 by default, 1e-5 in roberta-base (transformers 5.24
//! modeling_utils.py:2304-2324, models/roberta/configuration_roberta.py:54-55).

use crate::{
    layers::ScoreMods,
    mixers::tay2021,
    ops::attention::{BlockLists, BlockMask, StridedPositions},
    params::xavier_uniform_with_gain,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "longformer",
    title: "Longformer",
    paper: "Longformer: The Long-Document Transformer",
    year: 2020,
    arxiv: "2004.05150",
    time: Cost::Linear("O(L·w·E)"),
    memory: Cost::Linear("O(L·w)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[
        Variant::paper(build, include_str!("longformer.rs")),
        tay2021::longformer::VARIANT,
    ],
    ..Model::with_options::<Options>()
};

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    #[option(default = 512, range = int(2, 2 * LONGEST))]
    pub(super) window: usize,
    #[option(default = 1, range = int(1, LONGEST))]
    pub(super) dilation: usize,
    #[option(range = int(0, WIDEST))]
    pub(super) dilated_heads: usize,
    #[option(default = 1, range = int(0, LONGEST))]
    global: usize,
}

impl Options {
    pub(super) fn check(&self) -> Result<()> {
        require(
            self.window >= 2 && self.window.is_multiple_of(2),
            "model.window",
            self.window,
            "an even number, at least 2",
        )?;
        require(
            self.dilation >= 1,
            "model.dilation",
            self.dilation,
            "at least 1",
        )
    }
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    options.check()?;
    let heads = context.block.heads;
    require(
        options.dilated_heads <= heads,
        "model.dilated_heads",
        options.dilated_heads,
        format!("at most block.heads = {heads}"),
    )?;
    let pattern = Pattern {
        before: options.window / 2,
        after: options.window / 2,
        dilation: options.dilation,
        dilated_heads: match options.dilated_heads {
            0 => heads,
            count => count,
        },
        global: options.global,
    };
    encoder::blocks(context, |layer| {
        Ok(Box::new(Longformer::new(layer, pattern)?))
    })
}

pub(super) struct Longformer {
    projections: Projections,
    global: Option<Global>,
    dropout: Dropout,
    pattern: Pattern,
    heads: usize,
    width: usize,
}

/// The window, and the number of first positions that are global.
#[derive(Clone, Copy)]
pub(super) struct Pattern {
    pub(super) before: usize,
    pub(super) after: usize,
    pub(super) dilation: usize,
    /// Number of heads with the dilation; these are the first ones, and the others have none.
    pub(super) dilated_heads: usize,
    pub(super) global: usize,
}

impl Longformer {
    pub(super) fn new(layer: &LayerContext, pattern: Pattern) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(layer)?,
            global: match pattern.global {
                0 => None,
                count => Some(Global::new(layer, count)?),
            },
            dropout: Dropout::new(
                &layer.vb.pp("drop").pp("near"),
                layer.block.attention_dropout,
            ),
            pattern,
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }
}

impl Mixer for Longformer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let length = x.dim(1)?;
        let block_masks = Some(self.pattern.block_masks(length, self.heads));
        let mut y = self
            .projections
            .attend(x, pass, &self.dropout, block_masks)?; // (B, L, H E)
        if let Some(global) = &self.global {
            let first = global.forward(x, pass, self.projections.score_mods())?;
            let count = first.dim(1)?;
            y = Tensor::cat(&[first, y.narrow(1, count, length - count)?], 1)?;
        }
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports::ALL
    }

    fn flops(&self, length: usize) -> u64 {
        let global = match &self.global {
            Some(global) => global.flops(length),
            None => 0,
        };
        let block_masks = self.pattern.block_masks(length, self.heads);
        let pairs = block_masks.pairs(self.heads);
        self.projections.flops(length)
            + partial_softmax::flops(pairs, self.width)
            + self.projections.score_mods().flops(length, pairs)
            + global
    }
}

impl Pattern {
    /// Returns the window and global keys in one block mask, which all heads of one dilation share.
    fn block_masks(&self, length: usize, heads: usize) -> BlockMasks {
        let dilated = self.block_mask(length, self.dilation);
        if self.dilated_heads >= heads || self.dilation == 1 {
            return BlockMasks::new(vec![dilated]);
        }
        let mut all = vec![dilated; self.dilated_heads];
        all.resize(heads, self.block_mask(length, 1));
        BlockMasks::new(all)
    }

    fn block_mask(&self, length: usize, dilation: usize) -> BlockMask {
        let mut block_mask = BlockMask::new(0.0);
        let first: Vec<u32> = (0..self.global.min(length) as u32).collect();
        let first = block_mask.key_blocks_of(&first);
        let lists = BlockLists::window(length.div_ceil(dilation), self.before, self.after);
        for start in 0..dilation.min(length) {
            let queries = StridedPositions::every(dilation, start, length);
            let keys = queries.without(self.global);
            lists.add_to(&mut block_mask, 0, (queries, keys), |block_mask, _| {
                first
                    .iter()
                    .for_each(|(keys, _)| block_mask.allow(*keys, None));
            });
        }
        block_mask
    }
}

/// Attention of the first positions on all, with projections of their own.
struct Global {
    query: Linear,
    key: Linear,
    value: Linear,
    dropout: Dropout,
    count: usize,
    heads: usize,
    width: usize,
}

impl Global {
    fn new(layer: &LayerContext, count: usize) -> Result<Self> {
        let (dim, inner) = (layer.block.dim, layer.block.qkv_dim);
        let vb = layer.vb.pp("global");
        let linear = |name, gain| {
            let init = xavier_uniform_with_gain(dim, inner, gain);
            Linear::new(&vb.pp(name), dim, inner, init, None)
        };
        Ok(Self {
            query: linear("query", ScoreMods::query_gain(layer.block))?,
            key: linear("key", 1.0)?,
            value: linear("value", 1.0)?,
            dropout: Dropout::new(&vb.pp("drop"), layer.block.attention_dropout),
            count,
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }

    /// Returns the outputs of the first positions of x (B, L, D), (B, min(g, L), H E), with the
    /// modifications of the window's scores.
    fn forward(&self, x: &Tensor, pass: &Pass, score_mods: &ScoreMods) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let first = x.narrow(1, 0, self.count.min(length))?.contiguous()?;
        let q = self.query.forward(&first)?;
        let (k, v) = (self.key.forward(x)?, self.value.forward(x)?);
        let rotate = |x: Tensor| score_mods.rotate(&x, x.dim(2)?);
        let (q, k) = (rotate(q)?, rotate(k)?);
        let options = AttentionOptions {
            heads: self.heads,
            mask: pass.mask().map(|mask| mask.valid().clone()),
            dropout: self.dropout.of_attention(batch, pass),
            ..AttentionOptions::default()
        };
        score_mods.attend([&q, &k, &v], options, 0..length)
    }

    fn flops(&self, length: usize) -> u64 {
        let first = self.count.min(length);
        let projections =
            self.query.flops(first) + self.key.flops(length) + self.value.flops(length);
        projections + partial_softmax::flops(self.heads * first * length, self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::testing::block_masks_meet_dense;

    #[test]
    fn equals_dense_attention_under_the_mask_of_its_definition() {
        for (before, after, dilation, dilated_heads, global) in [
            (2, 2, 1, 2, 0),
            (1, 2, 1, 2, 0),
            (2, 2, 1, 1, 2),
            (1, 1, 3, 2, 0),
            (1, 1, 3, 1, 0),
            (2, 2, 2, 2, 1),
            (2, 2, 2, 1, 1),
            (1, 1, 1, 2, 5),
            (13, 13, 1, 2, 0),
        ] {
            let pattern = Pattern {
                before,
                after,
                dilation,
                dilated_heads,
                global,
            };
            for length in [1, 2, 3, 4, 5, 8, 13] {
                let sees = |head: usize, i: usize, j: usize| {
                    let dilation = if head < dilated_heads { dilation } else { 1 };
                    let near = if j <= i {
                        (i - j).is_multiple_of(dilation) && (i - j) / dilation <= before
                    } else {
                        (j - i).is_multiple_of(dilation) && (j - i) / dilation <= after
                    };
                    near || j < global
                };
                block_masks_meet_dense(
                    "longformer",
                    length,
                    2,
                    &pattern.block_masks(length, 2),
                    sees,
                );
            }
        }
    }
}
