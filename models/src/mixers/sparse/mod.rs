//! Sparse Transformer. Child et al., 2019, "Generating Long Sequences with Sparse Transformers",
//! arXiv:1904.10509.
//!     y_i = Σ_j a_ij v_j over j in A(i), a_i = softmax(q_i·k_j / √E), both ways in time, since sequences are classified whole
//!     `fixed`: A(i) = i's block of l, and the last c positions of every block; `strided`: |i - j| <= l, and j with l | i - j
//! B batch, H heads, L length, E width of a head; q, k, v (B, H, L, E). Time O(L·(l + c·L / l)·E)
//! per head, memory the same without E: O(L·√L·E) with l = √L. Dropout on the weights.
//!
//! # Options
//!
//! `pattern`; `block` l (0: √(longest length), rounded up to a multiple of 8); `summary` c (0: 8);
//! `heads`: `merged`, every head sees both sets in one softmax, `split`, the first half of the
//! heads sees the first set and the others the second, or `alternate`, layers 0, 2, .. see the
//! first set and layers 1, 3, .. the second. `first` is for `variant = tay2021` alone.
//!
//! # Padding
//!
//! Padded keys get weight zero. In a sequence that ends before the first summary column, heads that
//! see only summaries get zeros.
//!
//! # Departures
//!
//! All heads share one c; no recomputation, no causal form. Initial values and the norms' ε are
//! those of the benchmark's 2021 code: weights begin Xavier-uniform, projections have no biases,
//! those of the feed-forward network begin N(0, 1e-6²), and ε is `block.norm_epsilon` = 1e-6. In
//! the authors' example weights begin N(0, 0.02²), biases, of projections too, as 0, and ε is 1e-5
//! (openai/blocksparse@11182e0 examples/transformer/enwik8.py, `conv1d` and `layernorm`).

pub(super) mod pattern;

use self::pattern::Pattern;
use crate::{mixers::tay2021, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "sparse",
    title: "Sparse Transformer",
    paper: "Generating Long Sequences with Sparse Transformers",
    year: 2019,
    arxiv: "1904.10509",
    time: Cost::Sqrt("O(L·√L·E)"),
    memory: Cost::Sqrt("O(L·√L)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[
        Variant::paper(build, include_str!("mod.rs")),
        tay2021::sparse::VARIANT,
    ],
    ..Model::with_options::<Options>()
};

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    #[default]
    Fixed,
    Strided,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Heads {
    #[default]
    Merged,
    Split,
    Alternate,
}

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    pub(super) pattern: Kind,
    pub(super) heads: Heads,
    #[option(range = int(0, LONGEST))]
    block: usize,
    #[option(range = int(0, LONGEST))]
    summary: usize,
    /// Option of `tay2021` only.
    pub(super) first: bool,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    require(
        !options.first,
        "model.first",
        "true",
        "false unless model.variant = tay2021",
    )?;
    require(
        options.heads != Heads::Split || context.block.heads >= 2,
        "model.heads",
        "split",
        "merged or alternate where block.heads = 1",
    )?;
    let root = (context.max_length as f64).sqrt().ceil() as usize;
    let pattern = options.pattern((root.next_multiple_of(8), 8), false)?;
    encoder::blocks(context, |layer| Ok(Box::new(Sparse::new(layer, pattern)?)))
}

impl Options {
    /// Returns the pattern; `defaults` are l and c where they are not set.
    pub(super) fn pattern(&self, defaults: (usize, usize), causal: bool) -> Result<Pattern> {
        let or = |value, default| if value == 0 { default } else { value };
        let block = or(self.block, defaults.0);
        require(
            self.summary <= block,
            "model.summary",
            self.summary,
            format!("at most the block, {block}"),
        )?;
        Ok(Pattern {
            kind: self.pattern,
            heads: self.heads,
            block,
            summary: or(self.summary, defaults.1).min(block),
            causal,
            hub: false,
            layer: 0,
        })
    }
}

pub(super) struct Sparse {
    projections: Projections,
    dropout: Dropout,
    pattern: Pattern,
    heads: usize,
    width: usize,
}

impl Sparse {
    pub(super) fn new(layer: &LayerContext, pattern: Pattern) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(layer)?,
            dropout: Dropout::new(
                &layer.vb.pp("drop").pp("near"),
                layer.block.attention_dropout,
            ),
            pattern: pattern.at_layer(layer.index),
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }
}

impl Mixer for Sparse {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let block_masks = Some(self.pattern.block_masks(x.dim(1)?, self.heads));
        let y = self
            .projections
            .attend(x, pass, &self.dropout, block_masks)?;
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports::ALL
    }

    fn is_causal(&self) -> bool {
        self.pattern.causal && !self.pattern.hub
    }

    fn flops(&self, length: usize) -> u64 {
        let pairs = self
            .pattern
            .block_masks(length, self.heads)
            .pairs(self.heads);
        self.projections.flops(length)
            + partial_softmax::flops(pairs, self.width)
            + self.projections.score_mods().flops(length, pairs)
    }
}

#[cfg(test)]
mod tests;
