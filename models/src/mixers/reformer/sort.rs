//! Where positions go when they are sorted by bucket, and what a chunk may see.

use rayon::prelude::*;

use super::Sorting;
use crate::mixer::PADDED;

/// Instead of the score of a position with itself: less than any other, more than what is hidden.
const SELF: f32 = -5e4;
const HIDDEN: f32 = -PADDED as f32;

/// The arrangement of a batch. Rounds follow each other: first all chunks of round 0, then those of round 1.
pub(super) struct Sorted {
    /// Positions per chunk, and chunks per round.
    pub(super) chunk: usize,
    pub(super) chunks: usize,
    /// Chunk times chunks: positions per round, filled up.
    pub(super) slots: usize,
    /// Keys that a chunk sees: its own, and those of the chunk before if there is more than one.
    pub(super) seen: usize,
    /// Rows of (B H L) for queries (B, H, T, slots) and keys (B, H, T, chunks, seen).
    pub(super) queries: Vec<u32>,
    pub(super) keys: Vec<u32>,
    /// Added to the scores (B, H, T, chunks, chunk, seen).
    pub(super) bias: Vec<f32>,
    /// Rows of (B H T slots) for positions (B, H, T, L).
    pub(super) back: Vec<u32>,
}

/// What one slot of one round holds.
#[derive(Clone, Copy, PartialEq)]
struct Slot {
    position: u32,
    /// Its number within the round, and the round above it: buckets of two rounds are never the same.
    bucket: u64,
    real: bool,
}

impl Sorted {
    /// `buckets` is (B, H, T, L); `real` (B, L), none where everything is.
    pub(super) fn new(
        sorting: &Sorting,
        buckets: &[u32],
        (batch, heads, length): (usize, usize, usize),
        real: Option<&[Vec<f32>]>,
    ) -> Self {
        let rounds = sorting.rounds;
        let chunk = sorting.chunk.min(length);
        let chunks = length.div_ceil(chunk);
        let slots = chunk * chunks;
        let seen = if chunks > 1 { 2 * chunk } else { chunk };
        let mut sorted = Self {
            chunk,
            chunks,
            slots,
            seen,
            queries: vec![0; batch * heads * rounds * slots],
            keys: vec![0; batch * heads * rounds * chunks * seen],
            bias: vec![0.0; batch * heads * rounds * slots * seen],
            back: vec![0; batch * heads * rounds * length],
        };
        let per_head = rounds * slots;
        (
            sorted.queries.par_chunks_mut(per_head),
            sorted.keys.par_chunks_mut(rounds * chunks * seen),
            sorted.bias.par_chunks_mut(per_head * seen),
            sorted.back.par_chunks_mut(rounds * length),
            buckets.par_chunks(rounds * length),
        )
            .into_par_iter()
            .enumerate()
            .for_each(|(head, (queries, keys, bias, back, buckets))| {
                let real = real.map(|real| real[head / heads].as_slice());
                let order = order(buckets, length, slots, real);
                for (place, slot) in order.iter().enumerate() {
                    queries[place] = (head * length) as u32 + slot.position;
                    if place % slots < length {
                        let round = place / slots;
                        back[round * length + slot.position as usize] =
                            (head * per_head + place) as u32;
                    }
                }
                let last = last_chunks(&order, slots, chunk);
                for (index, (keys, bias)) in keys
                    .chunks_mut(seen)
                    .zip(bias.chunks_mut(chunk * seen))
                    .enumerate()
                {
                    let before = before(index, chunks, &last);
                    let own = &order[index * chunk..(index + 1) * chunk];
                    let other = &order[before * chunk..(before + 1) * chunk];
                    let visible = own.iter().chain(other).take(seen);
                    for (place, slot) in visible.enumerate() {
                        keys[place] = (head * length) as u32 + slot.position;
                        for (query, row) in own.iter().zip(bias.chunks_mut(seen)) {
                            row[place] = score(query, slot, sorting.across_buckets);
                        }
                    }
                }
            });
        sorted
    }
}

fn score(query: &Slot, key: &Slot, across_buckets: bool) -> f32 {
    if !key.real || (!across_buckets && query.bucket != key.bucket) {
        HIDDEN
    } else if query.position == key.position {
        SELF
    } else {
        0.0
    }
}

/// Slots of one head, round by round, sorted by bucket and position, padding and filling last.
fn order(buckets: &[u32], length: usize, slots: usize, real: Option<&[f32]>) -> Vec<Slot> {
    let mut order = Vec::with_capacity(buckets.len() / length * slots);
    for (round, buckets) in buckets.chunks(length).enumerate() {
        let start = order.len();
        order.extend(buckets.iter().enumerate().map(|(position, &bucket)| Slot {
            position: position as u32,
            bucket: (round as u64) << 32 | u64::from(bucket),
            real: real.is_none_or(|real| real[position] > 0.0),
        }));
        order[start..].sort_by_key(|slot| (!slot.real, slot.bucket, slot.position));
        let filling = Slot {
            position: 0,
            bucket: u64::MAX,
            real: false,
        };
        order.resize(start + slots, filling);
    }
    order
}

/// The last chunk with a real token of each round (its first if there is none).
fn last_chunks(order: &[Slot], slots: usize, chunk: usize) -> Vec<usize> {
    order
        .chunks(slots)
        .enumerate()
        .map(|(round, order)| {
            let real = order.iter().filter(|slot| slot.real).count();
            round * (slots / chunk) + real.saturating_sub(1) / chunk
        })
        .collect()
}

/// The chunk that chunk `index` looks back to. Padding at the end of a round is skipped, so that it changes nothing.
fn before(index: usize, chunks: usize, last: &[usize]) -> usize {
    if !index.is_multiple_of(chunks) {
        return index - 1;
    }
    let round = index / chunks;
    last[(round + last.len() - 1) % last.len()]
}
