//! Lists of the blocks of keys that each block of queries sees: the work of attention then grows
//! with the listed blocks, not with L².
//!
//! S block size, M blocks of queries, N blocks of keys, W list length. An entry of a list may be
//! empty, and a rule may hide keys within listed blocks (the edges of a window), so that any fixed
//! pattern can be covered by blocks.

/// Lists of the blocks of keys that each block of queries sees. All blocks have the same number of
/// positions.
pub struct BlockLists {
    /// S.
    pub(super) size: usize,
    /// W.
    pub(super) width: usize,
    /// Heads with lists of their own; 1: all heads share.
    pub(super) heads: usize,
    /// (heads, M, W).
    pub(super) lists: Vec<Option<usize>>,
    /// (S, W * S), the same for every block: whether a query sees a key of its list. None: all.
    pub(super) tile_mask: Option<Vec<bool>>,
}

impl BlockLists {
    /// Builds lists from `rows`, in the order (head, block of queries). A row has the numbers, from
    /// 0, of the blocks of keys that the block of queries sees. A block has `size` positions.
    /// `heads` is 1 if all heads share the lists.
    #[must_use]
    pub fn new(size: usize, heads: usize, rows: &[Vec<usize>]) -> Self {
        let width = rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let entry = |row: &Vec<usize>, place| row.get(place).copied();
        Self {
            size,
            width,
            heads,
            lists: rows
                .iter()
                .flat_map(|row| (0..width).map(move |place| entry(row, place)))
                .collect(),
            tile_mask: None,
        }
    }

    /// Builds lists for sequences of `length`, in blocks of `size` positions. Each block of queries
    /// sees `before` blocks before it, itself, and `after` blocks after it. Of these, query i sees
    /// key j only if `sees(i, j)`. Both i and j are counted from the first position of the block of
    /// queries, so j may be negative.
    #[must_use]
    pub fn around(
        length: usize,
        size: usize,
        (before, after): (usize, usize),
        sees: impl Fn(isize, isize) -> bool,
    ) -> Self {
        let blocks = length.div_ceil(size);
        // No list is longer than the sequence.
        let most = blocks.saturating_sub(1);
        let (before, after) = (before.min(most), after.min(most));
        let width = before + 1 + after;
        let lists = (0..blocks)
            .flat_map(|block| (0..width).map(move |place| (block + place).checked_sub(before)))
            .map(|block| block.filter(|&block| block < blocks))
            .collect();
        let first = -((before * size) as isize);
        let tile_mask: Vec<bool> = (0..size as isize)
            .flat_map(|i| (first..first + (width * size) as isize).map(move |j| (i, j)))
            .map(|(i, j)| sees(i, j))
            .collect();
        Self {
            size,
            width,
            heads: 1,
            lists,
            tile_mask: tile_mask.contains(&false).then_some(tile_mask),
        }
    }

    /// Builds lists for a sliding window over sequences of `length`: query i sees the keys from
    /// `i - before` to `i + after`.
    #[must_use]
    pub fn window(length: usize, before: usize, after: usize) -> Self {
        // Blocks as long as the longer side reach one neighbour each way and compute the fewest
        // hidden pairs per copied key.
        let size = before.max(after).min(length).max(1);
        let reach = |side: usize| side.div_ceil(size);
        Self::around(length, size, (reach(before), reach(after)), |i, j| {
            i - j <= before as isize && j - i <= after as isize
        })
    }

    /// Returns M, the number of blocks of queries.
    pub(super) fn rows(&self) -> usize {
        self.lists.len() / self.heads / self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::testing::block_masks_meet_dense;

    #[test]
    fn windows_are_exact_at_every_length() {
        for (before, after) in [(3, 3), (2, 3), (4, 0), (0, 2), (0, 0), (20, 20), (5, 2)] {
            for length in [1, 2, 3, 4, 5, 6, 7, 11, 16] {
                let block_masks = BlockLists::window(length, before, after).block_masks(length);
                block_masks_meet_dense("window", length, 2, &block_masks, |_, i, j| {
                    i <= j + before && j <= i + after
                });
            }
        }
    }

    #[test]
    fn sequences_without_a_position_have_no_pairs() {
        for lists in [
            BlockLists::window(0, 3, 2),
            BlockLists::around(0, 4, (1, 1), |_, _| true),
        ] {
            assert_eq!(lists.block_masks(0).pairs(2), 0);
        }
    }

    #[test]
    fn long_blocks_are_cut_in_tiles() {
        for (length, before, after) in
            [(300, 70, 130), (200, 100, 3), (150, 149, 149), (130, 0, 64)]
        {
            let block_masks = BlockLists::window(length, before, after).block_masks(length);
            block_masks_meet_dense("long window", length, 1, &block_masks, |_, i, j| {
                i <= j + before && j <= i + after
            });
        }
    }

    #[test]
    fn heads_may_have_lists_of_their_own() {
        let rows = [vec![0, 2], vec![1], vec![3, 0], vec![2, 1, 3]];
        let rows = [rows.clone(), [rows[3].clone(), vec![], vec![1], vec![0]]].concat();
        for length in [13, 15, 16] {
            let block_masks = BlockLists::new(4, 2, &rows).block_masks(length);
            block_masks_meet_dense("lists", length, 2, &block_masks, |head, i, j| {
                rows[head * 4 + i / 4].contains(&(j / 4))
            });
        }
    }

    #[test]
    fn work_grows_with_the_listed_blocks() {
        let pairs = |length| {
            BlockLists::window(length, 64, 64)
                .block_masks(length)
                .pairs(2)
        };
        assert_eq!(pairs(1024), 2 * (16 * 3 - 2) * 64 * 64);
        assert!(pairs(8192) < 9 * pairs(1024));
    }
}
