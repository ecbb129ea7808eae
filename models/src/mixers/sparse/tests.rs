//! Tests of the Sparse Transformer.

use super::*;
use crate::ops::attention::testing::block_masks_meet_dense;

fn pattern(kind: Kind, heads: Heads, block: usize, summary: usize) -> Pattern {
    Pattern {
        kind,
        heads,
        block,
        summary,
        causal: false,
        hub: false,
        layer: 0,
    }
}

#[test]
fn equals_dense_attention_under_the_mask_of_its_definition() {
    let (block, summary) = (4, 2);
    let own = |i: usize, j: usize| i / block == j / block;
    let column = |j: usize| j % block >= block - summary;
    let near = |i: usize, j: usize| i.abs_diff(j) <= block;
    let stride = |i: usize, j: usize| i.abs_diff(j).is_multiple_of(block);
    type Sees<'a> = &'a dyn Fn(usize, usize, usize) -> bool;
    let all: [(Kind, Heads, bool, usize, Sees); 9] = [
        (Kind::Fixed, Heads::Merged, false, 0, &|_, i, j| {
            own(i, j) || column(j)
        }),
        (Kind::Fixed, Heads::Merged, true, 0, &|_, i, j| {
            j <= i && (own(i, j) || column(j) || j % block == 0)
        }),
        (Kind::Strided, Heads::Merged, false, 0, &|_, i, j| {
            near(i, j) || stride(i, j)
        }),
        (
            Kind::Fixed,
            Heads::Split,
            false,
            0,
            &|head, i, j| match head {
                2 => column(j),
                _ => own(i, j),
            },
        ),
        (
            Kind::Strided,
            Heads::Split,
            false,
            0,
            &|head, i, j| match head {
                2 => stride(i, j),
                _ => near(i, j),
            },
        ),
        (Kind::Fixed, Heads::Alternate, false, 2, &|_, i, j| {
            own(i, j)
        }),
        (Kind::Fixed, Heads::Alternate, false, 1, &|_, _, j| {
            column(j)
        }),
        (Kind::Strided, Heads::Alternate, false, 0, &|_, i, j| {
            near(i, j)
        }),
        (Kind::Strided, Heads::Alternate, false, 3, &|_, i, j| {
            stride(i, j)
        }),
    ];
    for (kind, heads, causal, layer, sees) in all {
        for length in [1, 3, 4, 5, 14, 140] {
            let pattern = Pattern {
                causal,
                layer,
                ..pattern(kind, heads, block, summary)
            };
            // A sequence too short for a summary gives no gradient in the far head.
            if length > block - summary || kind == Kind::Strided || heads == Heads::Merged {
                block_masks_meet_dense("sparse", length, 3, &pattern.block_masks(length, 3), sees);
            }
        }
    }
}

#[test]
fn the_2021_variant_is_the_2021_code() {
    let lengths = [
        (false, 1),
        (false, 13),
        (true, 1),
        (true, 2),
        (true, 14),
        (true, 150),
    ];
    for (hub, length) in lengths {
        let pattern = Pattern {
            causal: true,
            hub,
            ..pattern(Kind::Fixed, Heads::Merged, 5, 2)
        };
        block_masks_meet_dense(
            "2021",
            length,
            2,
            &pattern.block_masks(length, 2),
            |_, i, j| {
                let first = usize::from(hub);
                if i < first || j < first {
                    return true;
                }
                let (i, j) = (i - first, j - first);
                j <= i && (i / 5 == j / 5 || j % 5 == 0 || j % 5 >= 3)
            },
        );
    }
}
