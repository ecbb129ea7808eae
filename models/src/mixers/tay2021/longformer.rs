//! The 2021 code's Longformer: keys i - w / 2 + 1 to i + w / 2, no dilation, and no global
//! positions, since no task sets any (`global` has no effect). That code masks L x L weights, and
//! computes a second such product for global positions that it discards; neither is done here.

use crate::{
    mixers::longformer::{Longformer, Options, Pattern},
    prelude::*,
};

pub const VARIANT: Variant = Variant {
    name: "tay2021",
    ..Variant::paper(build, include_str!("longformer.rs"))
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    options.check()?;
    require(
        options.dilation == 1,
        "model.dilation",
        options.dilation,
        "1 with model.variant = tay2021",
    )?;
    require(
        options.dilated_heads == 0,
        "model.dilated_heads",
        options.dilated_heads,
        "0 with model.variant = tay2021",
    )?;
    let pattern = Pattern {
        before: options.window / 2 - 1,
        after: options.window / 2,
        dilation: 1,
        dilated_heads: context.block.heads,
        global: 0,
    };
    encoder::blocks(context, |layer| {
        Ok(Box::new(Longformer::new(layer, pattern)?))
    })
}
