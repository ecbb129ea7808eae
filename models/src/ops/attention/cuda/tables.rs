//! Block masks as the kernels of `cuda.cu` read them: for each side its blocks of rows, and the
//! tiles of each block, in one array.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::ops::attention::{BlockMasks, QueryRange, cpu::BlockView};

/// A tile that has all its pairs.
const NONE: u32 = u32::MAX;
/// The diagonal of a key without one.
const NO_DIAGONAL: u32 = 255;

/// The lists of structure `Blocks` of `tile.cuh`.
pub(super) struct Tables {
    /// All lists, one after the other.
    pub(super) words: Vec<u32>,
    pub(super) masks: usize,
    /// Queries and keys as own rows.
    pub(super) sides: [Side; 2],
    /// Place of all positions, and distance from there to the rows of gradients.
    pub(super) positions: usize,
    pub(super) targets: usize,
    pub(super) ranges: usize,
    /// Sums that make gradients of rows, if keys are in several blocks.
    pub(super) sums: Option<Sums>,
    pub(super) diagonal: f32,
    /// True if the positions of each block are neighbours.
    pub(super) neighbours: bool,
}

/// One side's lists.
#[derive(Clone, Copy, Default)]
pub(super) struct Side {
    /// Places of the first block of each mask, of blocks, and of tiles.
    pub(super) starts: usize,
    pub(super) own: usize,
    pub(super) tiles: usize,
    /// Most blocks of a mask.
    pub(super) most: usize,
}

/// Rows of gradients of keys, which are summed by position.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    /// Rows of an example.
    pub(super) rows: usize,
    /// Places of the first slot of each key of each mask, and of the slots.
    pub(super) starts: usize,
    pub(super) slots: usize,
}

/// Lists of one side as they are made.
#[derive(Default)]
struct Lists {
    starts: Vec<u32>,
    own: Vec<u32>,
    tiles: Vec<u32>,
}

impl Lists {
    fn add(&mut self, block: Block, tiles: &[[u32; 4]]) {
        let first = (self.tiles.len() / 4) as u32;
        self.tiles.extend(tiles.iter().flatten());
        let end = (self.tiles.len() / 4) as u32;
        self.own.extend([block.place, block.count, first, end]);
    }

    fn end_mask(&mut self) {
        self.starts.push((self.own.len() / 4) as u32);
    }

    fn most(&self) -> usize {
        let counts = self.starts.windows(2).map(|pair| pair[1] - pair[0]);
        counts.max().unwrap_or(0) as usize
    }
}

/// Place and number of the positions of a block.
#[derive(Clone, Copy)]
struct Block {
    place: u32,
    count: u32,
}

/// Positions of all blocks, and the ranges of tiles.
#[derive(Default)]
struct Shared {
    positions: Vec<u32>,
    ranges: Vec<u32>,
    /// Places of lists of ranges, by address and length in their mask.
    known: HashMap<(*const QueryRange, usize), u32>,
    apart: bool,
}

impl Shared {
    fn block(&mut self, positions: &[u32]) -> Block {
        let place = self.positions.len() as u32;
        self.positions.extend_from_slice(positions);
        self.apart |= positions.windows(2).any(|pair| pair[0] + 1 != pair[1]);
        let count = positions.len() as u32;
        Block { place, count }
    }

    fn ranges(&mut self, ranges: Option<&[QueryRange]>) -> u32 {
        let Some(ranges) = ranges else {
            return NONE;
        };
        let all = &mut self.ranges;
        let place = self.known.entry((ranges.as_ptr(), ranges.len()));
        *place.or_insert_with(|| {
            let place = all.len() as u32;
            all.extend(ranges.iter().map(|range| {
                let seen = range.range();
                let diagonal = range.diagonal().map_or(NO_DIAGONAL, |query| query as u32);
                seen.start as u32 | (seen.end as u32) << 8 | diagonal << 16
            }));
            place
        })
    }
}

impl Tables {
    /// Returns the lists of `masks` for `keys` keys; none if the kernels do not take them, because
    /// a query is in several blocks, or additions to diagonals differ.
    pub(super) fn new(masks: &BlockMasks, keys: usize) -> Option<Self> {
        let all = masks.all();
        let diagonal = all.first()?.diagonal_bias();
        let bits = |bias: f32| bias.to_bits();
        if all
            .iter()
            .any(|mask| bits(mask.diagonal_bias()) != bits(diagonal))
        {
            return None;
        }
        let mut shared = Shared::default();
        let mut lists = [Lists::default(), Lists::default()];
        lists.iter_mut().for_each(Lists::end_mask);
        // Key blocks of each mask.
        let mut key_blocks: Vec<Vec<Block>> = Vec::with_capacity(all.len());
        for mask in all {
            let blocks: Vec<BlockView> = mask.blocks().collect();
            let mut queries = BTreeSet::new();
            let mut positions = blocks.iter().flat_map(|block| block.queries);
            if !positions.all(|query| queries.insert(*query)) {
                return None;
            }
            let mut of_keys: BTreeMap<usize, (Block, Vec<[u32; 4]>)> = BTreeMap::new();
            for block in &blocks {
                let own = shared.block(block.queries);
                let mut tiles = Vec::with_capacity(block.tiles.len());
                for tile in &block.tiles {
                    let entry = of_keys.entry(tile.block);
                    let (keys, others) =
                        entry.or_insert_with(|| (shared.block(tile.keys), Vec::new()));
                    let (ranges, number) = (shared.ranges(tile.ranges), tile.number as u32);
                    tiles.push([keys.place, keys.count, ranges, number]);
                    others.push([own.place, own.count, ranges, number]);
                }
                lists[0].add(own, &tiles);
            }
            for (block, tiles) in of_keys.values() {
                lists[1].add(*block, tiles);
            }
            key_blocks.push(of_keys.into_values().map(|(block, _)| block).collect());
            lists.iter_mut().for_each(Lists::end_mask);
        }
        let slots = Slots::of(&key_blocks, &shared.positions, keys);
        let mut tables = Tables {
            words: Vec::new(),
            masks: all.len(),
            sides: [Side::default(); 2],
            positions: 0,
            targets: 0,
            ranges: 0,
            sums: None,
            diagonal,
            neighbours: !shared.apart,
        };
        for (side, lists) in lists.iter().enumerate() {
            tables.sides[side] = Side {
                starts: tables.add(&lists.starts),
                own: tables.add(&lists.own),
                tiles: tables.add(&lists.tiles),
                most: lists.most(),
            };
        }
        tables.positions = tables.add(&shared.positions);
        let targets = match slots.repeated {
            true => tables.add(&slots.targets),
            false => tables.positions,
        };
        tables.targets = targets - tables.positions;
        tables.ranges = tables.add(&shared.ranges);
        if slots.repeated {
            tables.sums = Some(Sums {
                rows: slots.rows,
                starts: tables.add(&slots.starts),
                slots: tables.add(&slots.slots),
            });
        }
        Some(tables)
    }

    /// Adds a list, and returns its place.
    fn add(&mut self, list: &[u32]) -> usize {
        let place = self.words.len();
        self.words.extend_from_slice(list);
        place
    }
}

/// Rows of gradients: one for each key of each block.
struct Slots {
    /// True if a key is in several blocks of a mask.
    repeated: bool,
    rows: usize,
    /// The row of each position of a block of keys.
    targets: Vec<u32>,
    /// The rows of each key of each mask.
    starts: Vec<u32>,
    slots: Vec<u32>,
}

impl Slots {
    fn of(key_blocks: &[Vec<Block>], positions: &[u32], keys: usize) -> Self {
        let mut slots = Slots {
            repeated: false,
            rows: 0,
            targets: vec![0; positions.len()],
            starts: Vec::with_capacity(key_blocks.len() * (keys + 1)),
            slots: Vec::new(),
        };
        for blocks in key_blocks {
            let mut of_keys: Vec<Vec<u32>> = vec![Vec::new(); keys];
            let mut row = 0;
            for place in blocks
                .iter()
                .flat_map(|block| block.place..block.place + block.count)
            {
                slots.targets[place as usize] = row;
                of_keys[positions[place as usize] as usize].push(row);
                row += 1;
            }
            slots.rows = slots.rows.max(row as usize);
            for rows in &of_keys {
                slots.repeated |= rows.len() > 1;
                slots.starts.push(slots.slots.len() as u32);
                slots.slots.extend_from_slice(rows);
            }
            slots.starts.push(slots.slots.len() as u32);
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::{BlockLists, BlockMask, StridedPositions};

    /// A pair that a mask computes: query, key, number of the tile, and whether it is diagonal.
    type Pairs = BTreeSet<(u32, u32, u32, bool)>;

    /// Returns the pairs of the blocks of one side of a mask, as the kernels find them.
    fn pairs(tables: &Tables, mask: usize, by_key: bool) -> Pairs {
        let side = tables.sides[usize::from(by_key)];
        let words = |place: usize, count: usize| &tables.words[place..place + count];
        let starts = words(side.starts + mask, 2);
        let mut pairs = Pairs::new();
        for block in starts[0]..starts[1] {
            let block = words(side.own + 4 * block as usize, 4);
            let own = words(tables.positions + block[0] as usize, block[1] as usize);
            for tile in block[2]..block[3] {
                let tile = words(side.tiles + 4 * tile as usize, 4);
                let other = words(tables.positions + tile[0] as usize, tile[1] as usize);
                for (i, own) in own.iter().enumerate() {
                    for (j, other) in other.iter().enumerate() {
                        let (i, j, query, key) = match by_key {
                            false => (i, j, own, other),
                            true => (j, i, other, own),
                        };
                        let range = match tile[2] {
                            NONE => 64 << 8 | NO_DIAGONAL << 16,
                            place => words(tables.ranges + place as usize, j + 1)[j],
                        };
                        let seen = (range & 255)..(range >> 8 & 255);
                        if seen.contains(&(i as u32)) {
                            pairs.insert((*query, *key, tile[3], range >> 16 == i as u32));
                        }
                    }
                }
            }
        }
        pairs
    }

    fn expected(mask: &BlockMask) -> Pairs {
        let mut pairs = Pairs::new();
        for block in mask.blocks() {
            for tile in &block.tiles {
                for (j, key) in tile.keys.iter().enumerate() {
                    for (i, query) in block.queries.iter().enumerate() {
                        let range = tile.ranges.map(|ranges| ranges[j]);
                        let diagonal = range.is_some_and(|range| range.diagonal() == Some(i));
                        if range.is_none_or(|range| range.range().contains(&i)) {
                            pairs.insert((*query, *key, tile.number as u32, diagonal));
                        }
                    }
                }
            }
        }
        pairs
    }

    /// Returns a mask whose keys 0 to 9 are in two blocks.
    fn overlapping(length: usize) -> BlockMask {
        let mut mask = BlockMask::new(0.0);
        let column = StridedPositions::every(3, 1, length);
        let first = mask.key_block(0..10);
        let ranges = (0..10).map(|j| QueryRange::new(j..20, Some(j)));
        let ranges = mask.ranges(ranges);
        BlockLists::window(column.count, 9, 3).add_to(
            &mut mask,
            0,
            (column, StridedPositions::all(length)),
            |mask, _| mask.allow(first, Some(&ranges)),
        );
        mask
    }

    #[test]
    fn both_sides_have_the_pairs_of_the_masks() {
        let length = 150;
        let lists = BlockLists::around(length, 50, (1, 1), |i, j| j <= i);
        for (masks, neighbours, repeated) in [
            (lists.block_masks(length), true, false),
            (
                BlockMasks::new(vec![overlapping(length), overlapping(length)]),
                false,
                true,
            ),
        ] {
            let tables = Tables::new(&masks, length).unwrap();
            assert_eq!(tables.neighbours, neighbours);
            assert_eq!(tables.sums.is_some(), repeated);
            for (number, mask) in masks.all().iter().enumerate() {
                for by_key in [false, true] {
                    assert_eq!(pairs(&tables, number, by_key), expected(mask));
                }
            }
        }
    }

    #[test]
    fn rows_of_gradients_belong_to_their_keys() {
        let length = 70;
        let masks = BlockMasks::new(vec![overlapping(length)]);
        let tables = Tables::new(&masks, length).unwrap();
        let sums = tables.sums.unwrap();
        let mut rows = 0;
        for key in 0..length {
            let range = &tables.words[sums.starts + key..][..2];
            for slot in range[0]..range[1] {
                let row = tables.words[sums.slots + slot as usize];
                let targets = &tables.words[tables.positions + tables.targets..tables.ranges];
                let side = tables.sides[1];
                let blocks = tables.words[side.own..side.tiles].chunks(4);
                let place = blocks
                    .flat_map(|block| block[0]..block[0] + block[1])
                    .find(|place| targets[*place as usize] == row);
                let place = tables.positions + place.unwrap() as usize;
                assert_eq!(tables.words[place], key as u32);
                rows += 1;
            }
        }
        assert_eq!(rows, sums.rows);
    }

    #[test]
    fn a_query_in_several_blocks_is_not_taken() {
        let mut mask = BlockMask::new(0.0).repeating_queries();
        let keys = mask.key_block(0..4);
        for _ in 0..2 {
            mask.query_block(0..4);
            mask.allow(keys, None);
        }
        assert!(Tables::new(&BlockMasks::new(vec![mask]), 4).is_none());
    }
}
