//! The 2021 code's linear attention: the authors', with padding summed up like any token, as it takes no mask.

use crate::{
    Encoder, Result,
    encoder::{self, Build},
    mixers::{
        Variant,
        linear::{Linear, Options},
    },
};

pub const VARIANT: Variant = Variant {
    name: "tay2021",
    masks_padding: false,
    build,
    source: include_str!("linear.rs"),
};

fn build(build: &Build) -> Result<Box<dyn Encoder>> {
    let Options {} = build.options()?;
    encoder::blocks(build, |site| Ok(Box::new(Linear::new(site, false)?)))
}
