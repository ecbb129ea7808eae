//! The 2021 code's linear attention: the authors', with padding summed up like any token, as it takes no mask.

use crate::{
    Encoder, Result,
    context::ModelContext,
    encoder,
    mixers::linear::{Linear, Options},
    model::Variant,
};

pub const VARIANT: Variant = Variant {
    name: "tay2021",
    masks_padding: false,
    ..Variant::paper(build, include_str!("linear.rs"))
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let Options {} = context.options()?;
    encoder::blocks(context, |at| Ok(Box::new(Linear::new(at, false)?)))
}
