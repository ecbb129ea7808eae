//! Segments as in the published code of the benchmark's runs: N is rounded up to a power of two P,
//! and the M segments are those of P positions. Padded queries and keys are zeros that count in the
//! means, and a landmark of only padding is a zero vector like any other in F and A. Padded keys
//! get weight 0 in G, and padded values are zeros in the convolution. Sequences are not padded to
//! P, since those positions would be zeros. With as many landmarks as positions it is softmax
//! attention itself, without the pseudo-inverse.

use super::Segments;
use super::build_with;
use crate::prelude::*;

pub(super) const VARIANT: Variant = Variant {
    name: "xiong2021",
    ..Variant::paper(build, include_str!("xiong2021.rs"))
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    build_with(context, |longest| {
        Segments::OfPositions(longest.next_power_of_two())
    })
}
