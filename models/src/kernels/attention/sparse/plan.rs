//! Which queries see which keys, cut in tiles of at most 64 keys by 64 queries.

use std::ops::Range;

use crate::kernels::tile::{PANEL, SIDE};

/// Which queries of a tile see one of its keys: those at `from..to` of the tile's queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    from: u8,
    to: u8,
    /// The query whose score with this key gets the plan's bias; `NONE` if none does.
    odd: u8,
}

impl Sight {
    const NONE: u8 = u8::MAX;

    /// Queries `range` of the tile, of which the one at `odd` has [`Plan::odd_bias`] added to its score.
    ///
    /// # Panics
    /// If a query is beyond the 64 of a tile.
    #[must_use]
    pub fn new(range: Range<usize>, odd: Option<usize>) -> Self {
        assert!(
            range.end <= SIDE && odd.is_none_or(|odd| odd < SIDE),
            "a tile has {SIDE} queries"
        );
        Sight {
            from: range.start as u8,
            to: range.end as u8,
            odd: odd.map_or(Self::NONE, |odd| odd as u8),
        }
    }

    /// No query.
    #[must_use]
    pub fn nothing() -> Self {
        Sight::new(0..0, None)
    }

    /// The queries that see the key.
    pub(crate) fn range(self) -> Range<usize> {
        usize::from(self.from)..usize::from(self.to)
    }

    /// The query whose score gets [`Plan::odd_bias`].
    pub(crate) fn odd(self) -> Option<usize> {
        (self.odd != Self::NONE).then(|| usize::from(self.odd))
    }
}

/// One head's pattern: blocks of queries, blocks of keys, and the pairs of them that are computed.
///
/// A pair of query and key that occurs in two tiles counts twice, as if the key were there twice. Queries without a tile
/// get zeros.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Positions of all blocks, one after the other.
    places: Vec<u32>,
    queries: Vec<QueryBlock>,
    keys: Vec<KeyBlock>,
    tiles: Vec<Tile>,
    sights: Vec<Sight>,
    odd_bias: f32,
    revisits: bool,
    /// Packed blocks of keys that are held at once.
    slots: usize,
}

#[derive(Clone, Debug)]
pub(super) struct QueryBlock {
    places: Range<usize>,
    pub(super) tiles: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct KeyBlock {
    places: Range<usize>,
    /// Where it is held while queries need it.
    pub(super) slot: usize,
}

/// A block of keys that a block of queries sees, and how.
#[derive(Clone, Debug)]
pub(super) struct Tile {
    pub(super) keys: usize,
    sights: Option<Range<usize>>,
}

/// A block of queries, at these positions, and what it sees.
#[derive(Clone, Debug)]
pub(crate) struct BlockView<'a> {
    pub(crate) queries: &'a [u32],
    pub(crate) tiles: Vec<TileView<'a>>,
}

impl BlockView<'_> {
    /// Keys of all tiles.
    pub(crate) fn keys(&self) -> usize {
        self.tiles.iter().map(|tile| tile.keys.len()).sum()
    }
}

/// A tile: a block of keys, at these positions, as one block of queries sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileView<'a> {
    /// Its number in the plan, which dropout goes by.
    pub(crate) number: usize,
    /// Number of the block of keys, the same wherever these keys are seen.
    pub(crate) block: usize,
    pub(crate) keys: &'a [u32],
    /// One per key; none if every query sees every key.
    pub(crate) sights: Option<&'a [Sight]>,
}

/// The sights of one block of keys, kept in a plan for use in any of its tiles.
#[derive(Clone, Debug)]
pub struct Sights(Range<usize>);

impl Plan {
    /// An empty plan. `odd_bias` is what [`Sight`] may add to single scores; minus infinity hides them.
    #[must_use]
    pub fn new(odd_bias: f32) -> Self {
        Plan {
            places: Vec::new(),
            queries: Vec::new(),
            keys: Vec::new(),
            tiles: Vec::new(),
            sights: Vec::new(),
            odd_bias,
            revisits: false,
            slots: 0,
        }
    }

    /// Says that a position may be in several blocks of queries; its keys are then those of all of them.
    #[must_use]
    pub fn revisiting(self) -> Self {
        Plan {
            revisits: true,
            ..self
        }
    }

    fn add_places(&mut self, places: impl IntoIterator<Item = u32>) -> Range<usize> {
        let start = self.places.len();
        self.places.extend(places);
        let range = start..self.places.len();
        assert!(
            (1..=SIDE).contains(&range.len()),
            "a block has 1 to {SIDE} positions"
        );
        range
    }

    /// Adds a block of keys at these positions, and returns its number.
    ///
    /// # Panics
    /// If there are none or more than 64.
    pub fn key_block(&mut self, places: impl IntoIterator<Item = u32>) -> usize {
        let places = self.add_places(places);
        self.keys.push(KeyBlock { places, slot: 0 });
        self.keys.len() - 1
    }

    /// Cuts positions in blocks of keys: the number of each, and its positions.
    pub fn key_blocks_of(&mut self, places: &[u32]) -> Vec<(usize, Vec<u32>)> {
        let blocks = places.chunks(SIDE);
        blocks
            .map(|places| (self.key_block(places.iter().copied()), places.to_vec()))
            .collect()
    }

    /// Starts a block of queries at these positions: the tiles that follow are its own.
    ///
    /// # Panics
    /// If there are none or more than 64.
    pub fn query_block(&mut self, places: impl IntoIterator<Item = u32>) {
        let places = self.add_places(places);
        let tiles = self.tiles.len()..self.tiles.len();
        self.queries.push(QueryBlock { places, tiles });
    }

    /// Keeps what is seen of the keys of a block, one entry per key.
    pub fn sights(&mut self, sights: impl IntoIterator<Item = Sight>) -> Sights {
        let start = self.sights.len();
        self.sights.extend(sights);
        Sights(start..self.sights.len())
    }

    /// The present block of queries sees this block of keys: all of it, or what `sights` say.
    ///
    /// # Panics
    /// If there is no such block, or not one sight per key.
    pub fn see(&mut self, keys: usize, sights: Option<&Sights>) {
        let count = self.keys[keys].places.len();
        assert!(
            sights.is_none_or(|sights| sights.0.len() == count),
            "one sight for each of {count} keys"
        );
        let block = self.queries.last_mut();
        let sights = sights.map(|sights| sights.0.clone());
        self.tiles.push(Tile { keys, sights });
        block.expect("a block of queries comes first").tiles.end = self.tiles.len();
    }

    /// Gives each block of keys a slot that no other needs between its first and its last block of queries, so that a pattern
    /// of near keys holds few blocks at once; and gives back what was allocated and not used.
    pub(super) fn finish(&mut self) {
        let mut last = vec![None; self.keys.len()];
        for (number, block) in self.queries.iter().enumerate() {
            for tile in &self.tiles[block.tiles.clone()] {
                last[tile.keys] = Some(number);
            }
        }
        let mut given = vec![false; self.keys.len()];
        let mut free = Vec::new();
        self.slots = 0;
        for (number, block) in self.queries.iter().enumerate() {
            let tiles = &self.tiles[block.tiles.clone()];
            for tile in tiles {
                if !std::mem::replace(&mut given[tile.keys], true) {
                    self.keys[tile.keys].slot = free.pop().unwrap_or_else(|| {
                        self.slots += 1;
                        self.slots - 1
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
        self.places.shrink_to_fit();
        self.queries.shrink_to_fit();
        self.keys.shrink_to_fit();
        self.tiles.shrink_to_fit();
        self.sights.shrink_to_fit();
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

    pub(super) fn query_places(&self, block: &QueryBlock) -> &[u32] {
        &self.places[block.places.clone()]
    }

    pub(super) fn key_places(&self, block: &KeyBlock) -> &[u32] {
        &self.places[block.places.clone()]
    }

    pub(super) fn tile_sights(&self, tile: &Tile) -> Option<&[Sight]> {
        tile.sights.clone().map(|range| &self.sights[range])
    }

    pub(crate) fn odd_bias(&self) -> f32 {
        self.odd_bias
    }

    pub(super) fn revisits(&self) -> bool {
        self.revisits
    }

    /// Blocks of queries, each with its tiles, for whoever computes them by other means than this kernel.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockView<'_>> {
        self.queries.iter().map(|block| BlockView {
            queries: &self.places[block.places.clone()],
            tiles: block
                .tiles
                .clone()
                .map(|number| {
                    let tile = &self.tiles[number];
                    TileView {
                        number,
                        block: tile.keys,
                        keys: self.key_places(&self.keys[tile.keys]),
                        sights: self.tile_sights(tile),
                    }
                })
                .collect(),
        })
    }

    /// Pairs of query and key that are computed, hidden ones within tiles included.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.blocks()
            .map(|block| block.queries.len() * block.keys())
            .sum()
    }

    /// Number of slots, and rows that one needs: the largest block of keys in whole panels.
    pub(super) fn slots(&self) -> (usize, usize) {
        let longest = self.keys.iter().map(|block| block.places.len()).max();
        (self.slots, longest.unwrap_or(0).next_multiple_of(PANEL))
    }

    /// Positions of queries and of keys that the plan needs to exist.
    pub(super) fn lengths(&self) -> (usize, usize) {
        let longest = |ranges: &mut dyn Iterator<Item = &Range<usize>>| {
            ranges
                .flat_map(|range| &self.places[range.clone()])
                .max()
                .map_or(0, |place| *place as usize + 1)
        };
        (
            longest(&mut self.queries.iter().map(|block| &block.places)),
            longest(&mut self.keys.iter().map(|block| &block.places)),
        )
    }
}
