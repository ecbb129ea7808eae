//! Tests of the Sparse Transformer.

use super::*;
use crate::{
    Draws,
    layers::{
        sparse_testing::{by_position, meets_dense, plans_meet_dense, undropped},
        testing::{meets_oracle, parameters},
    },
    options::BlockOptions,
    oracle,
};

fn pattern(kind: Kind, heads: Heads, block: usize, summary: usize) -> Pattern {
    Pattern {
        kind,
        heads,
        block,
        summary,
        causal: false,
    }
}

fn run(pattern: Pattern) -> impl Fn(&Tensor, &Tensor, &Tensor, Option<&Mask>) -> Result<Tensor> {
    move |q, k, v, mask| {
        let qkv = [q.clone(), k.clone(), v.clone()];
        undropped(q, |drop| pattern.attend(&qkv, mask, [drop, drop]))
    }
}

#[test]
fn patterns_that_reach_everything_are_softmax_attention() {
    for pattern in [
        pattern(Kind::Fixed, Heads::Merged, 2, 2), // summaries only
        pattern(Kind::Fixed, Heads::Merged, 8, 1), // one block
        pattern(Kind::Strided, Heads::Merged, 1, 1), // every column
        pattern(Kind::Strided, Heads::Merged, 4, 1), // the window
    ] {
        meets_oracle("sparse", 1e-7, oracle::softmax, by_position(run(pattern)));
    }
}

#[test]
fn equals_dense_attention_under_the_mask_of_its_definition() {
    for length in [1, 3, 4, 5, 9, 14] {
        let (block, summary) = (4, 2);
        let own = |i: usize, j: usize| i / block == j / block;
        let column = |j: usize| j % block >= block - summary;
        let near = |i: usize, j: usize| i.abs_diff(j) <= block;
        let stride = |i: usize, j: usize| i.abs_diff(j).is_multiple_of(block);
        let of = |kind, heads| run(pattern(kind, heads, block, summary));
        let (fixed, strided) = (Kind::Fixed, Kind::Strided);
        meets_dense("fixed", length, 2, of(fixed, Heads::Merged), |_, i, j| {
            own(i, j) || column(j)
        });
        meets_dense(
            "strided",
            length,
            2,
            of(strided, Heads::Merged),
            |_, i, j| near(i, j) || stride(i, j),
        );
        // Three heads: two near, one far. Too short for a summary there is nothing to differentiate in the far head.
        if length > block - summary {
            meets_dense(
                "fixed split",
                length,
                3,
                of(fixed, Heads::Split),
                |head, i, j| {
                    if head < 2 { own(i, j) } else { column(j) }
                },
            );
        }
        meets_dense(
            "strided split",
            length,
            3,
            of(strided, Heads::Split),
            |head, i, j| {
                if head < 2 { near(i, j) } else { stride(i, j) }
            },
        );
    }
}

#[test]
fn plans_equal_dense_attention_too() {
    let (block, summary) = (4, 2);
    let own = |i: usize, j: usize| i / block == j / block;
    let column = |j: usize| j % block >= block - summary;
    let near = |i: usize, j: usize| i.abs_diff(j) <= block;
    let stride = |i: usize, j: usize| i.abs_diff(j).is_multiple_of(block);
    type Sees<'a> = &'a dyn Fn(usize, usize, usize) -> bool;
    let all: [(Kind, Heads, bool, Sees); 5] = [
        (Kind::Fixed, Heads::Merged, false, &|_, i, j| {
            own(i, j) || column(j)
        }),
        (Kind::Fixed, Heads::Merged, true, &|_, i, j| {
            j <= i && (own(i, j) || column(j) || j % block == 0)
        }),
        (Kind::Strided, Heads::Merged, false, &|_, i, j| {
            near(i, j) || stride(i, j)
        }),
        (Kind::Fixed, Heads::Split, false, &|head, i, j| match head {
            2 => column(j),
            _ => own(i, j),
        }),
        (
            Kind::Strided,
            Heads::Split,
            false,
            &|head, i, j| match head {
                2 => stride(i, j),
                _ => near(i, j),
            },
        ),
    ];
    for (kind, heads, causal, sees) in all {
        for length in [1, 3, 4, 5, 14, 140] {
            let pattern = Pattern {
                causal,
                ..pattern(kind, heads, block, summary)
            };
            plans_meet_dense("plans", length, 3, pattern.plans(length, 3), sees);
        }
    }
}

#[test]
fn the_2021_variant_is_the_2021_code() {
    let options = Options {
        block: 5,
        summary: 2,
        ..Options::default()
    };
    let vb = parameters().builder();
    let block = BlockOptions {
        attention_dropout: 0.0,
        ..BlockOptions::default()
    };
    for (hub, length) in [(false, 1), (false, 13), (true, 1), (true, 2), (true, 14)] {
        let site = Site {
            vb: vb.pp(hub.to_string()),
            block: &block,
            max_length: 14,
            cls: hub,
            layer: 0,
        };
        let sparse = Sparse::new(&site, options.pattern((50, 10), true).unwrap(), hub).unwrap();
        let context = Context::new(false, Draws::new(0, 0, 0));
        meets_dense(
            "2021",
            length,
            2,
            |q, k, v, mask| {
                let qkv = [q.clone(), k.clone(), v.clone()];
                if hub {
                    sparse.attend_with_hub(&qkv, &context.with_mask(mask))
                } else {
                    undropped(q, |drop| sparse.pattern.attend(&qkv, mask, [drop, drop]))
                }
            },
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
