//! Attention of blocks of queries on lists of blocks of keys: the work grows with the listed blocks, not with L².
//!
//! S block size, M blocks of queries, N blocks of keys, W list length. Scores are (B, H, M, S, W * S). An entry of a list may
//! be empty, and a rule may hide keys within listed blocks (the edges of a window), so that any fixed pattern can be
//! covered by blocks. This is the composed form: listed blocks are copied side by side and attended to at once.

use candle_core::{Device, Tensor};

use crate::{
    Mask, Result,
    layers::parts::{self, Part, WeightDropout},
    mixer::PADDED,
};

/// Which blocks of keys each block of queries sees.
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
    pub(super) within: Option<Vec<bool>>,
}

impl BlockLists {
    /// Lists as given, `rows` in the order (head, block of queries), with `heads` 1 where all heads share them.
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
            within: None,
        }
    }

    /// Each of the blocks of a sequence sees itself, `before` blocks before it and `after` after it, but only pairs for which
    /// `sees(i, j)`: both count from the first position of the block of queries, so j may be negative.
    #[must_use]
    pub fn around(
        length: usize,
        size: usize,
        (before, after): (usize, usize),
        sees: impl Fn(isize, isize) -> bool,
    ) -> Self {
        let blocks = length.div_ceil(size);
        // No list is longer than the sequence.
        let (before, after) = (before.min(blocks - 1), after.min(blocks - 1));
        let width = before + 1 + after;
        let lists = (0..blocks)
            .flat_map(|block| (0..width).map(move |place| (block + place).checked_sub(before)))
            .map(|block| block.filter(|&block| block < blocks))
            .collect();
        let first = -((before * size) as isize);
        let within: Vec<bool> = (0..size as isize)
            .flat_map(|i| (first..first + (width * size) as isize).map(move |j| (i, j)))
            .map(|(i, j)| sees(i, j))
            .collect();
        Self {
            size,
            width,
            heads: 1,
            lists,
            within: within.contains(&false).then_some(within),
        }
    }

    /// A sliding window: query i sees keys i - `before` to i + `after`.
    #[must_use]
    pub fn window(length: usize, before: usize, after: usize) -> Self {
        // Blocks as long as the longer side reach one neighbour each way and compute the fewest hidden pairs per copied key.
        let size = before.max(after).clamp(1, length);
        let reach = |side: usize| side.div_ceil(size);
        Self::around(length, size, (reach(before), reach(after)), |i, j| {
            i - j <= before as isize && j - i <= after as isize
        })
    }

    /// Pairs of query and key that one sequence with `heads` heads computes.
    #[must_use]
    pub fn pairs(&self, heads: usize) -> usize {
        let listed = self.lists.iter().flatten().count();
        listed * (heads / self.heads) * self.size * self.size
    }

    /// M.
    pub(super) fn rows(&self) -> usize {
        self.lists.len() / self.heads / self.width
    }

    /// Indexes of listed blocks (heads * M * W) for a source with `heads` heads side by side; empty entries point at block 0.
    fn index(&self, heads: usize, blocks: usize, device: &Device) -> Result<Tensor> {
        let per_head = self.rows() * self.width;
        let index: Vec<u32> = (0..heads)
            .flat_map(|head| {
                let start = (head % self.heads) * per_head;
                let lists = &self.lists[start..start + per_head];
                lists
                    .iter()
                    .map(move |block| (head * blocks + block.unwrap_or(0)) as u32)
            })
            .collect();
        Ok(Tensor::new(index, device)?)
    }

    /// (B, H, L, E) to the listed blocks side by side (B, H, M, W * S, E).
    fn gather(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, heads, length, width) = x.dims4()?;
        let blocks = length.div_ceil(self.size);
        let shape = (batch, heads, self.rows(), self.width * self.size, width);
        let x = x.pad_with_zeros(2, 0, blocks * self.size - length)?;
        let own = self.width == 1
            && self.heads == 1
            && self.lists.iter().enumerate().all(|(i, b)| *b == Some(i));
        if own && blocks == self.rows() {
            return Ok(x.reshape(shape)?);
        }
        let x = x.reshape((batch, heads * blocks, self.size * width))?;
        let index = self.index(heads, blocks, x.device())?;
        Ok(x.index_select(&index, 1)?.reshape(shape)?)
    }

    /// What is added to the scores (B, H, M, S, W * S) to hide padding, empty entries, what lies beyond the sequence and what `within` hides.
    fn bias(&self, length: usize, mask: Option<&Mask>, like: &Tensor) -> Result<Option<Tensor>> {
        let (heads, rows, keys) = (self.heads, self.rows(), self.width * self.size);
        let blocks = length.div_ceil(self.size);
        let constant = |hidden: Vec<bool>, shape: &[usize]| -> Result<Option<Tensor>> {
            if !hidden.contains(&true) {
                return Ok(None);
            }
            let bias = |hidden: bool| if hidden { -PADDED } else { 0.0 };
            let bias: Vec<f64> = hidden.into_iter().map(bias).collect();
            let bias = Tensor::from_vec(bias, shape, &Device::Cpu)?;
            Ok(Some(bias.to_dtype(like.dtype())?.to_device(like.device())?))
        };
        let beyond = self.lists.iter().flat_map(|block| {
            (0..self.size)
                .map(move |place| block.is_none_or(|block| block * self.size + place >= length))
        });
        let beyond = constant(beyond.collect(), &[1, heads, rows, 1, keys])?;
        let within = match &self.within {
            Some(sees) => constant(sees.iter().map(|sees| !sees).collect(), &[self.size, keys])?,
            None => None,
        };
        let padding = match mask {
            Some(mask) => {
                let batch = mask.real().dim(0)?;
                let index = self.index(heads, 0, like.device())?;
                let bias = mask
                    .additive()
                    .pad_with_zeros(1, 0, blocks * self.size - length)?
                    .reshape((batch, blocks, self.size))?
                    .index_select(&index, 1)?
                    .reshape((batch, heads, rows, 1, keys))?;
                Some(bias)
            }
            None => None,
        };
        [padding, beyond, within]
            .into_iter()
            .flatten()
            .map(Ok)
            .reduce(|sum, bias| Ok(sum?.broadcast_add(&bias?)?))
            .transpose()
    }
}

/// Queries (B, H, Lq, E) on the blocks of keys and values (B, H, L, E) that `lists` names for each of the ⌈Lq / S⌉ blocks of queries.
///
/// # Errors
/// If shapes do not fit `lists`.
pub fn attend(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    lists: &BlockLists,
    mask: Option<&Mask>,
    dropout: WeightDropout,
) -> Result<Part> {
    let (batch, heads, queries, width) = q.dims4()?;
    let bias = lists.bias(k.dim(2)?, mask, k)?;
    let (rows, size) = (lists.rows(), lists.size);
    let q = q
        .pad_with_zeros(2, 0, (rows * size).saturating_sub(queries))?
        .reshape((batch, heads, rows, size, width))?;
    let (k, v) = (lists.gather(k)?, lists.gather(v)?);
    let part = parts::attend(&q, &k, &v, bias.as_ref(), dropout)?;
    part.arranged(|x| Ok(x.flatten(2, 3)?.narrow(2, 0, queries)?.contiguous()?))
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;
    use crate::layers::{
        parts::merge,
        sparse_testing::{meets_dense, plans_meet_dense, undropped},
        testing::check_gradient,
    };

    fn run(
        lists: &BlockLists,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Mask>,
    ) -> Result<Tensor> {
        undropped(q, |drop| merge(&[attend(q, k, v, lists, mask, drop)?]))
    }

    #[test]
    fn windows_are_exact_at_every_length() {
        for (before, after) in [(3, 3), (2, 3), (4, 0), (0, 2), (0, 0), (20, 20), (5, 2)] {
            for length in [1, 2, 3, 4, 5, 6, 7, 11, 16] {
                let lists = BlockLists::window(length, before, after);
                meets_dense(
                    &format!("window {before} {after}"),
                    length,
                    2,
                    |q, k, v, mask| run(&lists, q, k, v, mask),
                    |_, i, j| i <= j + before && j <= i + after,
                );
                plans_meet_dense("window plan", length, 2, lists.plans(length), |_, i, j| {
                    i <= j + before && j <= i + after
                });
            }
        }
    }

    #[test]
    fn long_blocks_are_cut_in_tiles() {
        for (length, before, after) in
            [(300, 70, 130), (200, 100, 3), (150, 149, 149), (130, 0, 64)]
        {
            let lists = BlockLists::window(length, before, after);
            plans_meet_dense("long window", length, 1, lists.plans(length), |_, i, j| {
                i <= j + before && j <= i + after
            });
        }
    }

    #[test]
    fn heads_may_have_lists_of_their_own() {
        let rows = [vec![0, 2], vec![1], vec![3, 0], vec![2, 1, 3]];
        let rows = [rows.clone(), [rows[3].clone(), vec![], vec![1], vec![0]]].concat();
        for length in [13, 15, 16] {
            let lists = BlockLists::new(4, 2, &rows);
            meets_dense(
                "lists",
                length,
                2,
                |q, k, v, mask| run(&lists, q, k, v, mask),
                |head, i, j| rows[head * 4 + i / 4].contains(&(j / 4)),
            );
            plans_meet_dense("plans", length, 2, lists.plans(length), |head, i, j| {
                rows[head * 4 + i / 4].contains(&(j / 4))
            });
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let lists = BlockLists::window(5, 2, 1);
        let shape: &[usize] = &[1, 2, 5, 3];
        check_gradient("block attention", &[shape, shape, shape], |inputs| {
            run(&lists, &inputs[0], &inputs[1], &inputs[2], None)
        });
    }

    #[test]
    fn work_grows_with_the_listed_blocks() {
        let pairs = |length| BlockLists::window(length, 64, 64).pairs(2);
        assert_eq!(pairs(1024), 2 * (16 * 3 - 2) * 64 * 64);
        assert!(pairs(8192) < 9 * pairs(1024));
        // And nothing of the size of L² is made: 65,536 positions would take 32 GiB.
        let x = Tensor::zeros((1, 1, 65_536, 1), DType::F32, &Device::Cpu).unwrap();
        let lists = BlockLists::window(65_536, 4, 4);
        assert_eq!(
            run(&lists, &x, &x, &x, None).unwrap().dims(),
            [1, 1, 65_536, 1]
        );
    }
}
