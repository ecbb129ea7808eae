//! The 2021 code's Linformer: `rank` K = 16 unless it is set, A and F start Xavier-uniform instead
//! of N(0, 1/K). Keys and values share one projection of the length; other forms of `sharing` are
//! the paper's. It has no mask, so padding is projected like any token.

use crate::{
    mixers::linformer::{self, Form},
    prelude::*,
};

pub const VARIANT: Variant = Variant {
    name: "tay2021",
    masks_padding: false,
    ..Variant::paper(build, include_str!("linformer.rs"))
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let form = Form {
        rank: 16,
        init: xavier_uniform,
        masks: false,
    };
    linformer::encoder(context, form)
}
