//! The 2021 code's Sparse Transformer: `block` l = 50 and `summary` c = 10 unless they are set,
//! `pattern=fixed`, merged and causal; the first position of each block is a summary too. Position
//! 0 sees and is seen by all if it is a CLS token or `first` is set (as for the 2021 dual encoder).
//! That code masks L x L weights; the blocks computed here give the same numbers.

use crate::{
    mixers::sparse::{Heads, Kind, Options, Sparse},
    prelude::*,
};

pub const VARIANT: Variant = Variant {
    name: "tay2021",
    ..Variant::paper(build, include_str!("sparse.rs"))
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    require(
        options.pattern == Kind::Fixed,
        "model.pattern",
        "strided",
        "fixed with model.variant = tay2021",
    )?;
    require(
        options.heads == Heads::Merged,
        "model.heads",
        "split or alternate",
        "merged with model.variant = tay2021",
    )?;
    let hub = context.cls || options.first;
    let pattern = options.pattern((50, 10), true)?.with_hub(hub);
    encoder::blocks(context, |layer| Ok(Box::new(Sparse::new(layer, pattern)?)))
}
