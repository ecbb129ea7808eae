//! Conversion of lists of blocks to the tiles of block masks.

use std::{collections::BTreeMap, ops::Range};

use crate::ops::attention::{BlockLists, BlockMask, BlockMasks, QueryRange, QueryRanges};

/// Most positions on a side of a tile.
const SIDE: usize = 64;

/// The positions that the indexes of [`BlockLists`] stand for: every `step`-th of a sequence, from
/// `first` on.
#[derive(Clone, Copy)]
pub(crate) struct StridedPositions {
    /// Position of index 0.
    pub first: usize,
    /// Distance between neighbours.
    pub step: usize,
    /// Number of indexes.
    pub count: usize,
    /// Positions below this are no keys of these lists.
    pub hidden: usize,
}

impl StridedPositions {
    /// Returns all positions of a sequence.
    #[must_use]
    pub fn all(length: usize) -> Self {
        StridedPositions {
            first: 0,
            step: 1,
            count: length,
            hidden: 0,
        }
    }

    /// Returns every `step`-th position of a sequence, from `first` on.
    #[must_use]
    pub fn every(step: usize, first: usize, length: usize) -> Self {
        StridedPositions {
            first,
            step,
            count: length.saturating_sub(first).div_ceil(step),
            hidden: 0,
        }
    }

    /// Returns these positions without the first `hidden` positions of the sequence among the keys.
    #[must_use]
    pub fn without(self, hidden: usize) -> Self {
        StridedPositions { hidden, ..self }
    }

    fn position(&self, index: usize) -> usize {
        self.first + index * self.step
    }

    fn positions(&self, range: Range<usize>) -> impl Iterator<Item = u32> {
        let positions = *self;
        range.map(move |index| positions.position(index) as u32)
    }
}

/// A tile of a pair of blocks: numbers of the pieces that the block of queries and the listed block
/// are cut in.
type Pair = (usize, usize, usize);

impl BlockLists {
    /// Returns the block masks of self-attention over sequences of `length` positions. There is one
    /// for each head that has lists of its own, or one for all heads.
    #[must_use]
    pub fn block_masks(&self, length: usize) -> BlockMasks {
        self.block_masks_between(length, length)
    }

    /// Returns the block masks of attention from `queries` positions to `keys` positions.
    #[must_use]
    pub(crate) fn block_masks_between(&self, queries: usize, keys: usize) -> BlockMasks {
        let block_mask = |head| {
            let mut block_mask = BlockMask::new(0.0);
            let positions = (StridedPositions::all(queries), StridedPositions::all(keys));
            self.add_to(&mut block_mask, head, positions, |_, _| {});
            block_mask
        };
        BlockMasks::new((0..self.heads).map(block_mask).collect())
    }

    /// Adds the tiles that `head` computes to `block_mask`. Calls `also` with the positions of each
    /// block of queries that is started; it may let the block see other keys.
    pub(crate) fn add_to(
        &self,
        block_mask: &mut BlockMask,
        head: usize,
        (queries, keys): (StridedPositions, StridedPositions),
        mut also: impl FnMut(&mut BlockMask, Range<usize>),
    ) {
        let rows = self.rows();
        let key_blocks: Vec<Vec<usize>> = (0..keys.count.div_ceil(self.size))
            .map(|block| {
                let pieces = self.pieces(block, keys.count);
                pieces
                    .map(|piece| block_mask.key_block(keys.positions(piece)))
                    .collect()
            })
            .collect();
        let mut known: BTreeMap<Pair, Vec<QueryRanges>> = BTreeMap::new();
        for row in 0..rows.min(queries.count.div_ceil(self.size)) {
            let first = ((head % self.heads) * rows + row) * self.width;
            let listed = &self.lists[first..first + self.width];
            for (number, piece) in self.pieces(row, queries.count).enumerate() {
                block_mask.query_block(queries.positions(piece.clone()));
                for (position, block) in listed.iter().enumerate() {
                    let Some(block) = block.filter(|block| *block < key_blocks.len()) else {
                        continue;
                    };
                    let others = self.pieces(block, keys.count).zip(&key_blocks[block]);
                    for (other, (other_piece, key_block)) in others.enumerate() {
                        let whole = |range: &Range<usize>| range.len() == self.piece(range.start);
                        let hides = keys.position(other_piece.start) < keys.hidden;
                        let ranges = |block_mask: &mut BlockMask| {
                            let of = (piece.start % self.size, piece.len());
                            let seen = self
                                .ranges((of.0..of.0 + of.1, position, &other_piece), |i| {
                                    keys.position(i) >= keys.hidden
                                });
                            seen.into_iter()
                                .map(|ranges| block_mask.ranges(ranges))
                                .collect::<Vec<_>>()
                        };
                        if self.tile_mask.is_none() && !hides {
                            block_mask.allow(*key_block, None);
                            continue;
                        }
                        let found = if whole(&piece) && whole(&other_piece) && !hides {
                            known
                                .entry((number, position, other))
                                .or_insert_with(|| ranges(block_mask))
                                .clone()
                        } else {
                            ranges(block_mask)
                        };
                        for ranges in &found {
                            block_mask.allow(*key_block, Some(ranges));
                        }
                    }
                }
                also(
                    block_mask,
                    queries.position(piece.start)..queries.position(piece.end),
                );
            }
        }
    }

    /// Returns the length of the pieces that a block is cut in; the one that starts at `start` may
    /// be shorter.
    fn piece(&self, start: usize) -> usize {
        let pieces = self.size.div_ceil(SIDE);
        let piece = self.size.div_ceil(pieces);
        piece.min(self.size - start % self.size)
    }

    /// Indexes of the pieces of a block of a sequence of `count`.
    fn pieces(&self, block: usize, count: usize) -> impl Iterator<Item = Range<usize>> {
        let (start, end) = (block * self.size, ((block + 1) * self.size).min(count));
        let piece = self.piece(start);
        (start..end)
            .step_by(piece)
            .map(move |start| start..(start + piece).min(end))
    }

    /// Returns the queries that see the keys of a piece, for queries `queries` of their block: one
    /// list per key for each run of queries that a key has, and no list if no query sees any of
    /// them.
    fn ranges(
        &self,
        (queries, position, keys): (Range<usize>, usize, &Range<usize>),
        is_key: impl Fn(usize) -> bool,
    ) -> Vec<Vec<QueryRange>> {
        let row = self.width * self.size;
        let sees = |query: usize, key: usize| {
            let column = position * self.size + key % self.size;
            is_key(key)
                && self
                    .tile_mask
                    .as_ref()
                    .is_none_or(|tile_mask| tile_mask[query * row + column])
        };
        let mut per_run: Vec<Vec<QueryRange>> = Vec::new();
        for (index, key) in keys.clone().enumerate() {
            let mut from = None;
            let mut runs = 0;
            for query in queries.start..=queries.end {
                let seen = query < queries.end && sees(query, key);
                match (from, seen) {
                    (None, true) => from = Some(query),
                    (Some(start), false) => {
                        if per_run.len() == runs {
                            per_run.push(vec![QueryRange::nothing(); keys.len()]);
                        }
                        let range = start - queries.start..query - queries.start;
                        per_run[runs][index] = QueryRange::new(range, None);
                        runs += 1;
                        from = None;
                    }
                    _ => {}
                }
            }
        }
        per_run
    }
}
