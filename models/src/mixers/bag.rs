//! Bag of tokens: no mixing at all. The baseline of every table.
//!     y_i = x_i
//! x, y (B, L, D). No position sees another; only pooling combines them. Accuracy that this model
//! reaches needs no attention. CLS pooling is refused, because the CLS token sees nothing. Time O(1),
//! memory O(1).
//!
//! # Options
//!
//! None.
//!
//! # Padding
//!
//! Padding cannot leak, as nothing moves.
//!
//! # Departures
//!
//! None known.

use crate::prelude::*;

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "bag",
    title: "Bag of tokens",
    paper: "none: a Transformer's blocks without the mixing",
    year: 2026,
    arxiv: "",
    time: Cost::Linear("O(1)"),
    memory: Cost::Linear("O(1)"),
    reference: Reference::None,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Bag>(include_str!("bag.rs"))],
    ..Model::mixer::<Bag>()
};

struct Bag;

impl MixerModel for Bag {
    type Options = NoOptions;

    fn check(_: &NoOptions, context: &ModelContext) -> Result<()> {
        require(
            !context.cls,
            "head.pooling",
            "cls",
            "mean or another value: no token sees another, so the CLS token sees nothing",
        )
    }

    fn new(_: &LayerContext, _: &NoOptions) -> Result<Self> {
        Ok(Self)
    }
}

impl Mixer for Bag {
    fn forward(&self, x: &Tensor, _pass: &Pass) -> Result<Tensor> {
        Ok(x.clone())
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, _length: usize) -> u64 {
        0
    }
}
