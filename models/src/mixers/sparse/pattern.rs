//! The keys that a query sees: the near set A and the far set, as block masks for attention.

use super::Heads;
use super::Kind;
use crate::{
    ops::attention::{BlockLists, BlockMask, QueryRange, StridedPositions},
    prelude::*,
};

/// The settings of the two sets.
#[derive(Clone, Copy)]
pub struct Pattern {
    pub(super) kind: Kind,
    pub(super) heads: Heads,
    /// l.
    pub(super) block: usize,
    /// c.
    pub(super) summary: usize,
    /// Keys after the query are hidden, and the first of each block is a summary, as in the 2021
    /// code. For `fixed` only.
    pub(super) causal: bool,
    /// Position 0 sees all and is seen by all, and the sets are counted from position 1, as in the
    /// 2021 code with a CLS token.
    pub(super) hub: bool,
    /// Index of the block, from 0.
    pub(super) layer: usize,
}

impl Pattern {
    /// Returns this pattern with or without position 0 as hub.
    pub(in crate::mixers) fn with_hub(self, hub: bool) -> Self {
        Self { hub, ..self }
    }

    /// Returns this pattern in the block of this index.
    pub(super) fn at_layer(self, layer: usize) -> Self {
        Self { layer, ..self }
    }

    /// Returns the block, or the window; without the keys that are also in the far set where one
    /// softmax takes both.
    fn near_lists(&self, length: usize) -> BlockLists {
        let (size, block) = (self.block.min(length), self.block as isize);
        let merged = self.heads == Heads::Merged;
        match self.kind {
            Kind::Fixed => BlockLists::around(length, size, (0, 0), |i, j| {
                !(merged && self.is_summary(j as usize) || self.causal && j > i)
            }),
            Kind::Strided => BlockLists::around(length, size, (1, 1), |i, j| {
                (i - j).abs() <= block && !(merged && (i - j) % block == 0)
            }),
        }
    }

    /// Returns one block mask, or one per head.
    pub(super) fn block_masks(&self, length: usize, heads: usize) -> BlockMasks {
        match self.heads {
            Heads::Merged => BlockMasks::new(vec![self.block_mask(length, true, true)]),
            Heads::Alternate => {
                let near = self.layer.is_multiple_of(2);
                BlockMasks::new(vec![self.block_mask(length, near, !near)])
            }
            Heads::Split => {
                let near = |head| head < heads.div_ceil(2);
                let block_mask = |head| self.block_mask(length, near(head), !near(head));
                BlockMasks::new((0..heads).map(block_mask).collect())
            }
        }
    }

    fn block_mask(&self, length: usize, near: bool, far: bool) -> BlockMask {
        let mut block_mask = BlockMask::new(0.0);
        let all = StridedPositions::every(1, usize::from(self.hub), length);
        let hub = self.hub.then(|| Self::add_hub(&mut block_mask, length));
        if all.count == 0 {
            return block_mask;
        }
        let lists = match near {
            true => self.near_lists(all.count),
            false => {
                let blocks = all.count.div_ceil(self.block);
                BlockLists::new(self.block, 1, &vec![Vec::new(); blocks])
            }
        };
        if self.kind == Kind::Strided && far {
            if near {
                block_mask = block_mask.repeating_queries();
                lists.add_to(&mut block_mask, 0, (all, all), |_, _| {});
            }
            for first in 0..self.block.min(length) {
                let column = StridedPositions::every(self.block, first, length);
                let whole = BlockLists::around(column.count, column.count, (0, 0), |_, _| true);
                whole.add_to(&mut block_mask, 0, (column, column), |_, _| {});
            }
            return block_mask;
        }
        let summaries = match far {
            true => self.summaries(all),
            false => Vec::new(),
        };
        let summaries = block_mask.key_blocks_of(&summaries);
        lists.add_to(&mut block_mask, 0, (all, all), |block_mask, queries| {
            if let Some(hub) = hub {
                block_mask.allow(hub, None);
            }
            for (keys, positions) in &summaries {
                // In the causal form a summary is seen from its own position on.
                let range_of = |&position: &u32| {
                    let hidden = (position as usize).saturating_sub(queries.start);
                    QueryRange::new(hidden.min(queries.len())..queries.len(), None)
                };
                let ranges = self
                    .causal
                    .then(|| block_mask.ranges(positions.iter().map(range_of)));
                block_mask.allow(*keys, ranges.as_ref());
            }
        });
        block_mask
    }

    fn is_summary(&self, position: usize) -> bool {
        let position = position % self.block;
        position >= self.block - self.summary || self.causal && position == 0
    }

    /// Returns positions of the summaries among `all`.
    fn summaries(&self, all: StridedPositions) -> Vec<u32> {
        let indexes = (0..all.count).filter(|&index| self.is_summary(index));
        indexes.map(|index| (all.first + index) as u32).collect()
    }

    /// Lets position 0 see everything, and returns its block of keys.
    fn add_hub(block_mask: &mut BlockMask, length: usize) -> usize {
        let everything: Vec<u32> = (0..length as u32).collect();
        let everything = block_mask.key_blocks_of(&everything);
        block_mask.query_block([0]);
        for (keys, _) in everything {
            block_mask.allow(keys, None);
        }
        block_mask.key_block([0])
    }
}
