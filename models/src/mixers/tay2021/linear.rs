//! The 2021 code's linear attention: the authors' form, but without a mask, so padding is summed
//! like any token.

use crate::{mixers::linear::Linear, prelude::*};

pub const VARIANT: Variant = Variant {
    name: "tay2021",
    masks_padding: false,
    ..Variant::paper(build, include_str!("linear.rs"))
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: NoOptions = context.options()?;
    encoder::blocks(context, |layer| {
        Ok(Box::new(Linear::new(layer, &options)?.without_mask()))
    })
}
