//! Pairs of queries and keys that see each other, cut into tiles of at most 64 keys by 64 queries.

use std::collections::BTreeSet;
use std::ops::Range;

use lra_cpu::tile::{PANEL, SIDE};

/// Range of the queries that see a key of a tile. A tile is a pair of a block of queries and a
/// block of keys, each of at most 64 positions (see [`BlockMask`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryRange {
    from: u8,
    to: u8,
    /// The query whose score with this key gets the block mask's bias; `NONE` if none does.
    diagonal: u8,
}

impl QueryRange {
    const NONE: u8 = u8::MAX;

    /// Returns the range of queries that see a key. `range` has the indices of the queries in their
    /// block, from 0; one that ends before it starts is empty. If `diagonal` is one of them, the
    /// score of that query gets the `diagonal_bias` of [`BlockMask::new`] in addition.
    ///
    /// # Panics
    /// If an index is not below 64, the most queries of a block.
    #[must_use]
    pub fn new(range: Range<usize>, diagonal: Option<usize>) -> Self {
        assert!(
            range.end <= SIDE && diagonal.is_none_or(|diagonal| diagonal < SIDE),
            "a tile has {SIDE} queries"
        );
        let range = match range.is_empty() {
            true => 0..0,
            false => range,
        };
        QueryRange {
            from: range.start as u8,
            to: range.end as u8,
            diagonal: diagonal.map_or(Self::NONE, |diagonal| diagonal as u8),
        }
    }

    /// Returns an empty range: no query sees the key.
    #[must_use]
    pub(crate) fn nothing() -> Self {
        QueryRange::new(0..0, None)
    }

    /// Returns the queries that see the key.
    pub(crate) fn range(self) -> Range<usize> {
        usize::from(self.from)..usize::from(self.to)
    }

    /// Returns the query whose score gets [`BlockMask::diagonal_bias`].
    pub(crate) fn diagonal(self) -> Option<usize> {
        (self.diagonal != Self::NONE).then(|| usize::from(self.diagonal))
    }
}

/// Sparse pattern of one head: blocks of queries, blocks of keys, and tiles. A block has at most 64
/// positions. A tile is a pair of a block of queries and a block of keys whose scores are computed.
///
/// A pair of query and key that occurs in two tiles counts twice, as if the key were there twice. A
/// position that is in several blocks of queries sees the keys of all of them. Queries without a
/// tile get zeros.
#[derive(Clone, Debug)]
pub struct BlockMask {
    /// Positions of all blocks, one after the other.
    positions: Vec<u32>,
    queries: Vec<QueryBlock>,
    keys: Vec<KeyBlock>,
    tiles: Vec<Tile>,
    ranges: Vec<QueryRange>,
    diagonal_bias: f32,
    repeats_queries: bool,
    /// Packed blocks of keys that are held at once.
    packed_kv: usize,
}

#[derive(Clone, Debug)]
pub(super) struct QueryBlock {
    positions: Range<usize>,
    pub(super) tiles: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct KeyBlock {
    positions: Range<usize>,
    /// Slot that holds it while queries need it.
    pub(super) slot: usize,
}

/// A block of keys that a block of queries sees, with its query ranges.
#[derive(Clone, Debug)]
pub(super) struct Tile {
    pub(super) keys: usize,
    ranges: Option<Range<usize>>,
}

/// A block of queries, at these positions, and the keys that it sees.
#[derive(Clone, Debug)]
pub(crate) struct BlockView<'a> {
    pub(crate) queries: &'a [u32],
    pub(crate) tiles: Vec<TileView<'a>>,
}

impl BlockView<'_> {
    /// Returns the number of keys of all tiles.
    pub(crate) fn keys(&self) -> usize {
        self.tiles.iter().map(|tile| tile.keys.len()).sum()
    }
}

/// A tile: a block of keys, at these positions, as one block of queries sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileView<'a> {
    /// Number of the tile in the block mask, on which its dropout depends.
    pub(crate) number: usize,
    /// Number of the block of keys, the same wherever these keys are seen.
    pub(crate) block: usize,
    pub(crate) keys: &'a [u32],
    /// Query range of each key; none if every query sees every key.
    pub(crate) ranges: Option<&'a [QueryRange]>,
}

/// Query ranges of one block of keys, one for each key. A block mask keeps them, and any of its
/// tiles can use them.
#[derive(Clone, Debug)]
pub struct QueryRanges(Range<usize>);

impl BlockMask {
    /// Returns a block mask without blocks and tiles. `diagonal_bias` is added to the one score of
    /// a key that its [`QueryRange`] names. Minus infinity hides the pair.
    #[must_use]
    pub fn new(diagonal_bias: f32) -> Self {
        BlockMask {
            positions: Vec::new(),
            queries: Vec::new(),
            keys: Vec::new(),
            tiles: Vec::new(),
            ranges: Vec::new(),
            diagonal_bias,
            repeats_queries: false,
            packed_kv: 0,
        }
    }

    /// Lets one task compute all blocks of queries of a head, as where a position is in several of
    /// them. Gradients of keys are then summed in one order, whether or not a position is.
    #[must_use]
    pub(crate) fn repeating_queries(self) -> Self {
        BlockMask {
            repeats_queries: true,
            ..self
        }
    }

    fn add_positions(&mut self, positions: impl IntoIterator<Item = u32>) -> Range<usize> {
        let start = self.positions.len();
        self.positions.extend(positions);
        let range = start..self.positions.len();
        assert!(
            (1..=SIDE).contains(&range.len()),
            "a block has 1 to {SIDE} positions"
        );
        range
    }

    /// Adds a block of keys at these positions of the sequence. Returns the number of the block,
    /// for [`BlockMask::allow`].
    ///
    /// # Panics
    /// If there are no positions, or more than 64.
    pub fn key_block(&mut self, positions: impl IntoIterator<Item = u32>) -> usize {
        let positions = self.add_positions(positions);
        self.keys.push(KeyBlock { positions, slot: 0 });
        self.keys.len() - 1
    }

    /// Adds blocks of keys, of 64 positions or fewer, that together have `positions`. Returns the
    /// number of each block and its positions.
    pub fn key_blocks_of(&mut self, positions: &[u32]) -> Vec<(usize, Vec<u32>)> {
        let blocks = positions.chunks(SIDE);
        blocks
            .map(|positions| {
                (
                    self.key_block(positions.iter().copied()),
                    positions.to_vec(),
                )
            })
            .collect()
    }

    /// Adds a block of queries at these positions of the sequence. Tiles that [`BlockMask::allow`]
    /// adds from now on are its own.
    ///
    /// # Panics
    /// If there are no positions, or more than 64.
    pub fn query_block(&mut self, positions: impl IntoIterator<Item = u32>) {
        let positions = self.add_positions(positions);
        let tiles = self.tiles.len()..self.tiles.len();
        self.queries.push(QueryBlock { positions, tiles });
    }

    /// Returns this mask with keys that every query sees too, once each; the mask itself has none
    /// of them.
    pub(super) fn beside(&self, keys: &[u32]) -> Self {
        let mut mask = BlockMask {
            queries: Vec::new(),
            tiles: Vec::new(),
            ..self.clone()
        };
        let added: Vec<usize> = mask
            .key_blocks_of(keys)
            .iter()
            .map(|(keys, _)| *keys)
            .collect();
        for block in &self.queries {
            let first = mask.tiles.len();
            mask.tiles
                .extend_from_slice(&self.tiles[block.tiles.clone()]);
            if !self.repeats_queries {
                let tile = |keys: &usize| Tile {
                    keys: *keys,
                    ranges: None,
                };
                mask.tiles.extend(added.iter().map(tile));
            }
            mask.queries.push(QueryBlock {
                positions: block.positions.clone(),
                tiles: first..mask.tiles.len(),
            });
        }
        if self.repeats_queries {
            // In blocks of their own, so that a query of several blocks sees them once.
            let queries = self
                .queries
                .iter()
                .flat_map(|block| self.query_positions(block));
            let queries: BTreeSet<u32> = queries.copied().collect();
            let queries: Vec<u32> = queries.into_iter().collect();
            for queries in queries.chunks(SIDE) {
                mask.query_block(queries.iter().copied());
                added.iter().for_each(|keys| mask.allow(*keys, None));
            }
        }
        mask
    }

    /// Stores query ranges in this mask, one for each key of a block. Returns a handle to them, for
    /// [`BlockMask::allow`].
    pub fn ranges(&mut self, ranges: impl IntoIterator<Item = QueryRange>) -> QueryRanges {
        let start = self.ranges.len();
        self.ranges.extend(ranges);
        QueryRanges(start..self.ranges.len())
    }

    /// Adds a tile: the last block of queries sees the block of keys number `keys`. Each query sees
    /// all of its keys, or only the pairs in `ranges`.
    ///
    /// # Panics
    /// If there is no such block of keys, no block of queries, or not one query range for each key.
    pub fn allow(&mut self, keys: usize, ranges: Option<&QueryRanges>) {
        let count = self.keys[keys].positions.len();
        assert!(
            ranges.is_none_or(|ranges| ranges.0.len() == count),
            "one query range for each of {count} keys"
        );
        let block = self.queries.last_mut();
        let ranges = ranges.map(|ranges| ranges.0.clone());
        self.tiles.push(Tile { keys, ranges });
        block.expect("a block of queries comes first").tiles.end = self.tiles.len();
    }

    /// Returns whether a position is in several blocks of queries, or twice in one.
    fn has_repeated_query(&self) -> bool {
        let mut seen = vec![false; self.lengths().0];
        let blocks = self.queries.iter();
        let mut positions = blocks.flat_map(|block| self.query_positions(block));
        positions.any(|position| std::mem::replace(&mut seen[*position as usize], true))
    }

    /// Gives each block of keys a slot that no other needs between its first and its last block of
    /// queries, so that a pattern of near keys holds few blocks at once; and frees memory that was
    /// allocated and not used. Finds queries that are in several blocks.
    pub(super) fn finish(&mut self) {
        self.repeats_queries = self.repeats_queries || self.has_repeated_query();
        let mut last = vec![None; self.keys.len()];
        for (number, block) in self.queries.iter().enumerate() {
            for tile in &self.tiles[block.tiles.clone()] {
                last[tile.keys] = Some(number);
            }
        }
        let mut given = vec![false; self.keys.len()];
        let mut free = Vec::new();
        self.packed_kv = 0;
        for (number, block) in self.queries.iter().enumerate() {
            let tiles = &self.tiles[block.tiles.clone()];
            for tile in tiles {
                if !std::mem::replace(&mut given[tile.keys], true) {
                    self.keys[tile.keys].slot = free.pop().unwrap_or_else(|| {
                        self.packed_kv += 1;
                        self.packed_kv - 1
                    });
                }
            }
            for tile in tiles {
                // Taken once: a block may be in several tiles.
                if last[tile.keys] == Some(number) {
                    last[tile.keys] = None;
                    free.push(self.keys[tile.keys].slot);
                }
            }
        }
        self.positions.shrink_to_fit();
        self.queries.shrink_to_fit();
        self.keys.shrink_to_fit();
        self.tiles.shrink_to_fit();
        self.ranges.shrink_to_fit();
    }

    pub(super) fn query_blocks(&self) -> &[QueryBlock] {
        &self.queries
    }

    pub(super) fn key_blocks(&self) -> &[KeyBlock] {
        &self.keys
    }

    pub(super) fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    pub(super) fn query_positions(&self, block: &QueryBlock) -> &[u32] {
        &self.positions[block.positions.clone()]
    }

    pub(super) fn key_positions(&self, block: &KeyBlock) -> &[u32] {
        &self.positions[block.positions.clone()]
    }

    /// Returns the keys that these blocks of queries see, of `keys_len`, in order.
    pub(super) fn seen(&self, blocks: Range<usize>, keys_len: usize) -> Vec<u32> {
        let mut seen = vec![false; keys_len];
        for tile in self.queries[blocks]
            .iter()
            .flat_map(|block| block.tiles.clone())
        {
            for position in self.key_positions(&self.keys[self.tiles[tile].keys]) {
                seen[*position as usize] = true;
            }
        }
        let keys = (0..).zip(seen);
        keys.filter_map(|(key, seen)| seen.then_some(key)).collect()
    }

    pub(super) fn tile_sights(&self, tile: &Tile) -> Option<&[QueryRange]> {
        tile.ranges.clone().map(|range| &self.ranges[range])
    }

    pub(crate) fn diagonal_bias(&self) -> f32 {
        self.diagonal_bias
    }

    pub(super) fn repeats_queries(&self) -> bool {
        self.repeats_queries
    }

    /// Returns blocks of queries, each with its tiles, for code that computes them by other means
    /// than this kernel.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockView<'_>> {
        self.queries.iter().map(|block| BlockView {
            queries: &self.positions[block.positions.clone()],
            tiles: block
                .tiles
                .clone()
                .map(|number| {
                    let tile = &self.tiles[number];
                    TileView {
                        number,
                        block: tile.keys,
                        keys: self.key_positions(&self.keys[tile.keys]),
                        ranges: self.tile_sights(tile),
                    }
                })
                .collect(),
        })
    }

    /// Returns the number of pairs of query and key whose scores are computed. Pairs that are
    /// hidden within a tile count, too.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.blocks()
            .map(|block| block.queries.len() * block.keys())
            .sum()
    }

    /// Returns the number of slots, and rows that one needs: the largest block of keys in whole
    /// panels.
    pub(super) fn packed_kv(&self) -> (usize, usize) {
        let longest = self.keys.iter().map(|block| block.positions.len()).max();
        (self.packed_kv, longest.unwrap_or(0).next_multiple_of(PANEL))
    }

    /// Returns positions of queries and of keys that the block mask needs to exist.
    pub(super) fn lengths(&self) -> (usize, usize) {
        let longest = |ranges: &mut dyn Iterator<Item = &Range<usize>>| {
            ranges
                .flat_map(|range| &self.positions[range.clone()])
                .max()
                .map_or(0, |position| *position as usize + 1)
        };
        (
            longest(&mut self.queries.iter().map(|block| &block.positions)),
            longest(&mut self.keys.iter().map(|block| &block.positions)),
        )
    }
}
