//! The 2021 code's BigBird: random blocks from the first 1,024 positions only (our draws, not
//! NumPy's), zero padding to a multiple of S (a whole block if it fits already) that counts as valid
//! keys, no dropout on the weights. This equals the 2021 code only if batches are padded to the
//! longest length.

use crate::{mixers::bigbird, prelude::*};

pub const VARIANT: Variant = Variant {
    name: "tay2021",
    ..Variant::paper(build, include_str!("bigbird.rs"))
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    bigbird::encoder(context, true)
}
