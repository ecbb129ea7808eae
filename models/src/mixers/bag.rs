//! Bag of tokens: no mixing at all. The floor under every table.
//!     y_i = x_i
//! x, y (B, L, D). A position never sees another, only pooling sees them all: what a task can be solved to by this
//! needs no attention. With CLS pooling the CLS slot sees nothing and the model can only guess: pool by mean, sum or max.
//! Time O(1), memory O(1). Padding cannot leak, as nothing moves.

use candle_core::Tensor;

use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::ModelContext,
    encoder,
    model::{Cost, Model, Reference, Variant},
    options::{OptionSet, to_json},
};

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
    family: crate::Family::Xformer,
    settings: "",
    variants: &[Variant::paper(build, include_str!("bag.rs"))],
    options: || to_json(&Options::default()),
    ranges: Options::RANGES,
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let Options {} = context.options()?;
    encoder::blocks(context, |_| Ok(Box::new(Bag)))
}

struct Bag;

impl Mixer for Bag {
    fn forward(&self, x: &Tensor, _pass: &Pass) -> Result<Tensor> {
        Ok(x.clone())
    }

    fn flops(&self, _length: usize) -> u64 {
        0
    }
}
