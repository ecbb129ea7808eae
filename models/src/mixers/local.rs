//! Local attention. Parmar et al., 2018, "Image Transformer", arXiv:1802.05751; the benchmark's
//! simplest baseline.
//!     y_i = Σ_j a_ij v_j over the keys j of i's block, a_i = softmax(q_i·k_j / √E)
//! B batch, H heads, L length, E width of a head, S block length; q, k, v (B, H, L, E), a (B, H, L
//! / S, S, S). Time O(L·S·E) per head, memory O(L·S). Dropout on the weights.
//!
//! # Options
//!
//! `block` S (0: 64); `neighbours` n: each block also sees n blocks on either side (0: no
//! information leaves a block); with `exact`, only keys at most n·S positions away, which is a
//! sliding window.
//!
//! # Padding
//!
//! Padded keys get weight zero; a block of padding gives zeros.
//!
//! # Departures
//!
//! Initial values and the norms' ε, `block.norm_epsilon` = 1e-6, are those of the benchmark's 2021
//! code (google-research/long-range-arena@cd31e5c lra_benchmarks/models/local/local.py:62-84):
//! weights begin Xavier-uniform, projections have no biases, those of the feed-forward network
//! begin N(0, 1e-6²). In lucidrains/local-attention, zeros that fill the last block count as keys
//! unless there is a mask (`autopad`); here they never do. The causal form is left out.

use crate::{mixers::tay2021, ops::attention::BlockLists, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "local",
    title: "Local Attention",
    paper: "Image Transformer",
    year: 2018,
    arxiv: "1802.05751",
    time: Cost::Linear("O(L·S·E)"),
    memory: Cost::Linear("O(L·S)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[
        Variant::mixer::<Local>(include_str!("local.rs")),
        tay2021::local::VARIANT,
    ],
    ..Model::mixer::<Local>()
};

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    #[option(range = int(0, LONGEST))]
    pub(super) block: usize,
    #[option(range = int(0, LONGEST))]
    pub(super) neighbours: usize,
    #[option(default = true)]
    exact: bool,
}

struct Local {
    projections: Projections,
    dropout: Dropout,
    groups: Contiguous,
    heads: usize,
    width: usize,
}

/// Blocks of neighbours, and blocks near them.
struct Contiguous {
    block: usize,
    neighbours: usize,
    exact: bool,
}

impl MixerModel for Local {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(layer)?,
            dropout: Dropout::new(&layer.vb.pp("drop"), layer.block.attention_dropout),
            groups: Contiguous {
                block: match options.block {
                    0 => 64,
                    block => block,
                },
                neighbours: options.neighbours,
                exact: options.exact,
            },
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }
}

impl Mixer for Local {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let block_masks = Some(self.groups.block_masks(x.dim(1)?));
        let y = self
            .projections
            .attend(x, pass, &self.dropout, block_masks)?;
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports::ALL
    }

    fn flops(&self, length: usize) -> u64 {
        let pairs = self.groups.block_masks(length).pairs(self.heads);
        self.projections.flops(length)
            + partial_softmax::flops(pairs, self.width)
            + self.projections.score_mods().flops(length, pairs)
    }
}

impl Contiguous {
    fn block_masks(&self, length: usize) -> BlockMasks {
        let reach = self.neighbours;
        let lists = if self.exact && reach > 0 {
            BlockLists::window(length, reach * self.block, reach * self.block)
        } else {
            let size = self.block.min(length);
            BlockLists::around(length, size, (reach, reach), |_, _| true)
        };
        lists.block_masks(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::testing::block_masks_meet_dense;

    #[test]
    fn equals_dense_attention_under_the_mask_of_its_definition() {
        for length in [1, 3, 4, 5, 8, 13] {
            for (block, neighbours, exact) in [
                (64, 0, true),
                (4, 0, true),
                (4, 1, true),
                (2, 2, true),
                (4, 1, false),
            ] {
                let groups = Contiguous {
                    block,
                    neighbours,
                    exact,
                };
                block_masks_meet_dense(
                    "local",
                    length,
                    2,
                    &groups.block_masks(length),
                    |_, i, j| match exact && neighbours > 0 {
                        true => i.abs_diff(j) <= block * neighbours,
                        false => (i / block).abs_diff(j / block) <= neighbours,
                    },
                );
            }
        }
    }
}
