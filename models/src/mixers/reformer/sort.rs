//! The order of positions sorted by bucket, and the positions that a chunk sees.

use std::ops::Range;

use rayon::prelude::*;

use super::Sorting;
use crate::{
    ops::{
        Workspaces,
        attention::{BlockMask, QueryRange},
    },
    prelude::*,
};

/// Replaces the score of a position with itself: less than any other score, more than that of a
/// hidden key.
const SELF: f32 = -1e3;
/// The bucket of slots that hold no position.
const FILLING: u64 = u64::MAX;
/// Most positions of a block of the attention kernel.
const TILE: usize = 64;

/// Contents of one slot of one round.
#[derive(Clone, Copy, PartialEq)]
struct Slot {
    position: u32,
    /// Number of the bucket within the round, and the round above it: buckets of two rounds are
    /// never the same.
    bucket: u64,
    valid: bool,
}

impl Slot {
    /// Returns the sort key of the slot within its round, positions aside: padding and filling come
    /// last.
    fn rank(&self) -> (bool, u64) {
        (!self.valid, self.bucket)
    }
}

/// Returns a block mask for each head of each example: chunks are blocks of queries and of keys.
/// Rounds follow each other: first all chunks of round 0, then those of round 1. `buckets` is (B,
/// H, T, L); `valid` (B, L), none where everything is.
pub(super) fn block_masks(
    sorting: &Sorting,
    buckets: &[u32],
    (heads, length): (usize, usize),
    valid: Option<&[Vec<f32>]>,
) -> BlockMasks {
    let chunk = sorting.chunk.min(length);
    let chunks = length.div_ceil(chunk);
    let per_head = buckets.par_chunks(sorting.rounds * length).enumerate();
    let slots = sorting.rounds * chunk * chunks;
    let orders = Workspaces::new(per_head.len(), || Vec::with_capacity(slots));
    let block_masks = per_head.map(|(head, buckets)| {
        let valid = valid.map(|valid| valid[head / heads].as_slice());
        orders.lend(|slots| {
            order(buckets, length, chunk * chunks, valid, slots);
            let last = last_chunks(slots, chunk * chunks, chunk);
            block_mask(slots, (chunk, chunks), &last, sorting.across_buckets)
        })
    });
    BlockMasks::new(block_masks.collect())
}

fn block_mask(
    order: &[Slot],
    (chunk, chunks): (usize, usize),
    last: &[usize],
    across_buckets: bool,
) -> BlockMask {
    let mut block_mask = BlockMask::new(SELF).repeating_queries();
    // Without the slots that only fill up the last chunk of a round.
    let pieces: Vec<(&[Slot], Range<usize>)> = order
        .chunks(chunk)
        .map(|slots| {
            let count = slots.partition_point(|slot| slot.bucket != FILLING);
            let slots = &slots[..count];
            let blocks = slots.chunks(TILE).map(|slots| {
                let positions = slots.iter().map(|slot| slot.position);
                block_mask.key_block(positions)
            });
            let blocks: Vec<usize> = blocks.collect();
            (slots, blocks[0]..blocks[blocks.len() - 1] + 1)
        })
        .collect();
    for (index, (own, _)) in pieces.iter().enumerate() {
        let before = before(index, chunks, last);
        let seen = if chunks > 1 {
            vec![index, before]
        } else {
            vec![index]
        };
        // Chunks of one round share no position.
        let same_round = before != index && before / chunks == index / chunks;
        for queries in own.chunks(TILE) {
            block_mask.query_block(queries.iter().map(|slot| slot.position));
            for &other in &seen {
                let may_meet_itself = other == index || !same_round;
                let (slots, blocks) = &pieces[other];
                for (keys, block) in slots.chunks(TILE).zip(blocks.clone()) {
                    let range_of =
                        |key: &Slot| range_of(queries, key, across_buckets, may_meet_itself);
                    let ranges: Vec<QueryRange> = keys.iter().map(range_of).collect();
                    if ranges.iter().any(|range| *range != QueryRange::nothing()) {
                        let ranges = block_mask.ranges(ranges);
                        block_mask.allow(block, Some(&ranges));
                    }
                }
            }
        }
    }
    block_mask
}

/// Returns the range of the sorted `queries` that see `key`.
fn range_of(
    queries: &[Slot],
    key: &Slot,
    across_buckets: bool,
    may_meet_itself: bool,
) -> QueryRange {
    if !key.valid {
        return QueryRange::nothing();
    }
    let range = if across_buckets {
        0..queries.len()
    } else {
        let start = queries.partition_point(|query| query.rank() < key.rank());
        let end = queries.partition_point(|query| query.rank() <= key.rank());
        start..end
    };
    if range.is_empty() {
        return QueryRange::nothing();
    }
    let same = |query: &Slot| query.position == key.position;
    let own = may_meet_itself.then(|| queries[range.clone()].iter().position(same));
    QueryRange::new(range.clone(), own.flatten().map(|own| range.start + own))
}

/// Lists the slots of one head, round by round, sorted by bucket and position, padding and filling
/// last.
fn order(
    buckets: &[u32],
    length: usize,
    slots: usize,
    valid: Option<&[f32]>,
    order: &mut Vec<Slot>,
) {
    order.clear();
    for (round, buckets) in buckets.chunks(length).enumerate() {
        let start = order.len();
        order.extend(buckets.iter().enumerate().map(|(position, &bucket)| Slot {
            position: position as u32,
            bucket: (round as u64) << 32 | u64::from(bucket),
            valid: valid.is_none_or(|valid| valid[position] > 0.0),
        }));
        order[start..].sort_unstable_by_key(|slot| (slot.rank(), slot.position));
        let filling = Slot {
            position: 0,
            bucket: FILLING,
            valid: false,
        };
        order.resize(start + slots, filling);
    }
}

/// Returns the last chunk with a valid token of each round (its first if there is none).
fn last_chunks(order: &[Slot], slots: usize, chunk: usize) -> Vec<usize> {
    order
        .chunks(slots)
        .enumerate()
        .map(|(round, order)| {
            let valid = order.iter().filter(|slot| slot.valid).count();
            round * (slots / chunk) + valid.saturating_sub(1) / chunk
        })
        .collect()
}

/// Returns the chunk that chunk `index` looks back to. Padding at the end of a round is skipped, so
/// that it has no effect.
fn before(index: usize, chunks: usize, last: &[usize]) -> usize {
    if !index.is_multiple_of(chunks) {
        return index - 1;
    }
    let round = index / chunks;
    last[(round + last.len() - 1) % last.len()]
}
