//! Tests of BigBird.

use super::*;
use crate::{
    ops::attention::{partial_softmax::by_head, testing::block_masks_meet_dense},
    options::BlockOptions,
    testing::{close, normal, parameters},
};

fn rows(pattern: &Pattern, heads: usize, seed: u64) -> Vec<Vec<usize>> {
    pattern.rows(heads, &RngKey::new(seed, 7, 3), StreamKey::new("blocks"))
}

fn paper(size: usize, blocks: usize, random: usize) -> Pattern {
    Pattern {
        size,
        blocks,
        random,
        extra: 0,
        tay2021: false,
    }
}

#[test]
fn external_tokens_see_everything_and_are_seen_by_everything() {
    for extra in [1, 3, 70] {
        let pattern = Pattern {
            extra,
            ..paper(2, 9, 2)
        };
        let drawn = rows(&pattern, 2, 1);
        for length in [1, 2, 5, 17, 18] {
            let sees = |head: usize, i: usize, j: usize| {
                let (Some(i), Some(j)) = (i.checked_sub(extra), j.checked_sub(extra)) else {
                    return true;
                };
                let (i, j) = (i / 2, j / 2);
                i.abs_diff(j) <= 1 || drawn[head * 9 + i].contains(&j)
            };
            let block_masks = pattern.block_masks(2, extra + length, &drawn);
            block_masks_meet_dense("external", extra + length, 2, &block_masks, sees);
        }
    }
}

/// The table of positions that every layer adds has zeros for external tokens.
#[test]
fn tokens_behind_external_ones_keep_their_positions() {
    let (block, options) = (BlockOptions::default(), MODEL.defaults());
    let parameters = parameters();
    let table = normal("positions", &[5, block.dim]);
    let context = ModelContext {
        positions: Some(table.clone()),
        ..ModelContext::new(parameters.builder(), &block, &MODEL, &options, 5)
    };
    external::around(&context, 2, |wider| {
        let positions = wider.positions.as_ref().unwrap();
        let of_tokens = positions.narrow(0, 2, 5).unwrap();
        close(&of_tokens, &table, 1e-15, "tokens");
        let before = positions.narrow(0, 0, 2).unwrap();
        let zeros = before.zeros_like().unwrap();
        close(&before, &zeros, 1e-15, "external tokens");
        build(wider)
    })
    .unwrap();
}

#[test]
fn equals_dense_attention_under_the_mask_of_its_definition() {
    let pattern = paper(2, 9, 2);
    let drawn = rows(&pattern, 3, 1);
    // Lengths up to the longest, 18: the last block is there from 17 on.
    for length in [1, 2, 3, 5, 12, 16, 17, 18] {
        let sees = |head: usize, i: usize, j: usize| {
            let (i, j) = (i / 2, j / 2);
            let global = [i, j].iter().any(|block| [0, 8].contains(block));
            global || i.abs_diff(j) <= 1 || drawn[head * 9 + i].contains(&j)
        };
        block_masks_meet_dense(
            "bigbird",
            length,
            3,
            &pattern.block_masks(3, length, &drawn),
            sees,
        );
    }
    // Every block listed.
    for pattern in [
        paper(8, 1, 3),
        paper(3, 2, 3),
        paper(1, 5, 2),
        paper(1, 5, 9),
    ] {
        let block_masks = pattern.block_masks(2, 5, &rows(&pattern, 2, 1));
        block_masks_meet_dense("everything", 5, 2, &block_masks, |_, _, _| true);
    }
}

#[test]
fn random_blocks_are_others_and_depend_on_seed_head_and_row_only() {
    let pattern = paper(64, 32, 3);
    let drawn = rows(&pattern, 4, 1);
    for (index, row) in drawn.iter().enumerate() {
        let block = index % 32;
        if pattern.is_global(block) {
            assert!(row.is_empty());
            continue;
        }
        let mut distinct = row.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), row.len());
        let near = [0, block - 1, block, block + 1, 31];
        let random = row.iter().filter(|other| !near.contains(other));
        assert_eq!(random.count(), 3);
        assert!(near.iter().all(|other| row.contains(other)));
    }
    let elsewhere = RngKey::new(1, 90, 5).with_branch(1);
    assert_eq!(pattern.rows(4, &elsewhere, StreamKey::new("blocks")), drawn);
    assert_ne!(rows(&pattern, 4, 2), drawn);
    assert_ne!(drawn[5], drawn[32 + 5]);
    // Each of the 27 others of row 15 is as likely as any: 3 of 27 in 2,000 draws, three standard
    // errors being 42.
    let mut counts = [0; 32];
    for row in (0..500).flat_map(|seed| rows(&pattern, 4, seed).into_iter().skip(15).step_by(32)) {
        row[5..].iter().for_each(|&other| counts[other] += 1);
    }
    let others = (1..31).filter(|other| !(14..=16).contains(other));
    assert!(
        others
            .map(|other| counts[other])
            .all(|count: i32| (count - 222).abs() < 56)
    );
}

/// Slices of the list 1 to N - 2, as the 2021 code takes them.
fn pool_2021(block: usize, blocks: usize, last: usize) -> Vec<usize> {
    let list: Vec<usize> = (1..blocks - 1).collect();
    let slice = |from: usize, to: usize| -> Vec<usize> {
        let to = to.min(list.len());
        list[from.min(to)..to].to_vec()
    };
    match block {
        1 => slice(2, last),
        2 => slice(3, last),
        _ if block == blocks - 3 => slice(0, last - 4),
        _ if block == blocks - 2 => slice(0, last - 3),
        _ if block - 2 > last => slice(0, last),
        _ if block + 1 == last => slice(0, block - 2),
        _ => [slice(0, block - 2), slice(block + 1, last)].concat(),
    }
}

#[test]
fn the_2021_variant_draws_from_the_2021_pools() {
    for blocks in [16, 17, 32, 63] {
        let pattern = Pattern {
            size: 64,
            blocks,
            random: 3,
            extra: 0,
            tay2021: true,
        };
        for block in 1..blocks - 1 {
            let pool = pool_2021(block, blocks, 15);
            let actual: Vec<usize> = (1..blocks - 1)
                .filter(|other| other.abs_diff(block) > 1 && pattern.may_draw(block, *other))
                .collect();
            assert_eq!(actual, pool, "{block} of {blocks}");
        }
    }
}

#[test]
fn the_2021_variant_has_zeros_at_the_end_as_keys() {
    let options = Options {
        block: 2,
        random: 1,
        global_extra: 0,
    };
    let vb = parameters().builder();
    let block = BlockOptions::default();
    let layer = LayerContext::new(vb, &block, 10);
    let bigbird = BigBird::new(&layer, &options, true).unwrap();
    assert_eq!(bigbird.pattern.blocks, 6);
    let drawn = rows(&bigbird.pattern, 2, 1);
    let x = |name: &str| normal(name, &[1, 2, 9, 3]);
    let (q, k) = (x("q"), x("k"));
    let flat = |x: &Tensor| by_head(x).unwrap().flatten_from(2).unwrap(); // (B, L, H E)
    let options = AttentionOptions {
        heads: 2,
        block_masks: Some(bigbird.pattern.block_masks(2, 9, &drawn)),
        ..AttentionOptions::default()
    };
    let ones = Tensor::ones((1, 9, 6), q.dtype(), q.device()).unwrap();
    let y = bigbird.attend_2021([&flat(&q), &flat(&k), &ones], options);
    let y = y
        .unwrap()
        .reshape((9, 2, 3))
        .unwrap()
        .to_vec3::<f64>()
        .unwrap();
    let (q, k) = (
        q.flatten(0, 2).unwrap().to_vec2::<f64>().unwrap(),
        k.flatten(0, 2).unwrap().to_vec2::<f64>().unwrap(),
    );
    for (head, i) in (0..2).flat_map(|head: usize| (0..9usize).map(move |i| (head, i))) {
        let seen = |j: usize| {
            let (from, to) = (i / 2, j / 2);
            let global = from == 0 || to == 0 || to == 5;
            global || from.abs_diff(to) <= 1 || drawn[head * 6 + from].contains(&to)
        };
        let weight = |j: usize| -> f64 {
            let pairs = q[head * 9 + i].iter().zip(&k[head * 9 + j]);
            (pairs.map(|(a, b)| a * b).sum::<f64>() / 3f64.sqrt()).exp()
        };
        // Position 9 is padding, 10 and 11 are keys with score 0 and value 0.
        let valid: f64 = (0..9).filter(|&j| seen(j)).map(weight).sum();
        let expected = valid / (valid + 2.0);
        assert!((y[i][head][0] - expected).abs() < 1e-9, "{head} {i}");
    }
}
