//! The keys of blocks of queries, and attention of the queries on them.

use std::collections::BTreeSet;

use super::cpu::{BlockView, TileView, first_weight};
use candle_core::{Device, Tensor};
use rayon::prelude::*;

use super::{
    gather::{filled_up, gather},
    relative::BlockPairs,
    score_mod::{self, Pairs},
    sparse::{Group, Operands},
};
use crate::{
    Result,
    mask::PADDED,
    ops::{
        attention::{AttentionDropout, QueryRange, partial_softmax::PartialSoftmax},
        matmul,
    },
};

/// Keys of a group's blocks: those that all blocks of a block mask see, or those that each sees
/// beside them.
pub(super) struct Keys<'a> {
    /// Tiles of each of the P' block masks and each of its blocks.
    tiles: Vec<Vec<Vec<TileView<'a>>>>,
    /// True if all blocks of a block mask see the same keys.
    common: bool,
    /// K, the most keys of a block.
    count: usize,
}

impl<'a> Keys<'a> {
    /// Returns the common keys and the others, as far as there are any.
    pub(super) fn of(group: &Group<'a>) -> Vec<Self> {
        let (mut common, mut others) = (Vec::new(), Vec::new());
        for (_, blocks) in &group.block_masks {
            let seen_by_all = common_blocks(blocks);
            let (mut common_tiles, mut other_tiles) = (Vec::new(), Vec::new());
            for block in blocks {
                let tiles = block.tiles.iter();
                let (mut common, others): (Vec<_>, Vec<_>) =
                    tiles.partition(|tile| seen_by_all.contains(&tile.block));
                common.sort_by_key(|tile: &TileView| tile.block);
                common_tiles.push(common);
                other_tiles.push(others);
            }
            common.push(common_tiles);
            others.push(other_tiles);
        }
        let keys = |(tiles, common): (Vec<Vec<Vec<TileView<'a>>>>, bool)| {
            let keys = |tiles: &Vec<TileView>| tiles.iter().map(|tile| tile.keys.len()).sum();
            let count = tiles.iter().flatten().map(keys).max().unwrap_or(0);
            Self {
                tiles,
                common,
                count,
            }
        };
        let both = [(common, true), (others, false)].map(keys);
        both.into_iter().filter(|keys| keys.count > 0).collect()
    }

    /// Returns scores, weights and weighted values of `q` (G, P' M Q, E) on these keys; (G, P' M Q,
    /// ..).
    pub(super) fn attend(
        &self,
        group: &Group,
        q: &Tensor,
        operands: &Operands,
    ) -> Result<PartialSoftmax> {
        let (batch, heads, length, width) = operands.k.dims4()?;
        let (blocks, queries, keys) = (group.count, group.queries, self.count);
        // One block mask for all heads keeps examples and heads in separate dimensions, as its mask
        // needs.
        let (outer, inner) = match group.mask_count {
            1 => (batch, heads),
            block_masks => (batch * heads / block_masks, group.block_masks.len()),
        };
        let shape = (outer, inner, blocks, queries, keys);
        // One product for all queries of a head on common keys, one for each block on its own.
        let products = match self.common {
            true => (outer * inner, blocks * queries, keys),
            false => (outer * inner * blocks, queries, keys),
        };
        let positions = self.positions(group, length);
        let of = |x: &Tensor| -> Result<Tensor> {
            let (width, x) = (x.dim(3)?, Operands::by_block_mask(x, group.mask_count)?);
            Ok(gather(&x, &positions)?.reshape((products.0, keys, width))?)
        };
        let q = q.reshape((products.0, products.1, width))?;
        let scores = matmul(&q, &of(operands.k)?.t()?)?.reshape(shape)?;
        let scores = match operands.score_mods {
            [] => scores,
            steps => {
                let numbers = group.block_masks.iter().map(|(number, _)| *number);
                let pairs = BlockPairs {
                    queries: group.positions(operands.q.dim(2)?),
                    keys: positions.clone(),
                    shape,
                    mask_count: group.mask_count,
                    numbers: numbers.collect(),
                    lengths: (operands.q.dim(2)?, length),
                };
                score_mod::apply(steps, scores, Pairs::Blocks(&pairs))?
            }
        };
        let padding = self.padding(group, operands, &positions)?;
        let bias = match (self.hidden(group, operands.q)?, padding) {
            (Some(hidden), Some(padding)) => Some(hidden.broadcast_add(&padding)?),
            (hidden, padding) => hidden.or(padding),
        };
        let scores = match bias {
            Some(bias) => scores.broadcast_add(&bias)?,
            None => scores,
        };
        let part = PartialSoftmax::new(&scores, |weights| {
            let weights = match operands.dropout {
                Some(dropout) => {
                    let factors = self.factors(group, dropout, (batch, heads));
                    let factors = Tensor::from_vec(factors, shape, &Device::Cpu)?;
                    let factors = factors.to_device(q.device())?.to_dtype(q.dtype())?;
                    (weights * factors)?
                }
                None => weights.clone(),
            };
            let y = matmul(&weights.reshape(products)?, &of(operands.v)?)?;
            Ok(y.reshape((outer, inner, blocks, queries, operands.v.dim(3)?))?)
        })?;
        let shared = batch * heads / group.mask_count;
        part.arranged(|x| Ok(x.reshape((shared, group.rows(), ()))?))
    }

    /// Returns positions of the keys, once for each block mask if they are common, else once for
    /// each of M blocks.
    fn positions(&self, group: &Group, length: usize) -> Vec<u32> {
        let count = if self.common { 1 } else { group.count };
        let block_masks = self.tiles.iter().zip(&group.block_masks);
        let positions = block_masks.flat_map(|(blocks, (block_mask, _))| {
            let keys = blocks.iter().take(count).map(|tiles| -> Vec<u32> {
                tiles.iter().flat_map(|tile| tile.keys).copied().collect()
            });
            let keys: Vec<Vec<u32>> = keys.collect();
            let keys = keys.iter().map(Vec::as_slice);
            filled_up(keys, count, self.count, block_mask * length)
        });
        positions.collect()
    }

    /// Returns the bias that hides padded keys, (B, 1, 1 or M, 1, K) if all heads have one block
    /// mask, else (G, P', 1 or M, 1, K).
    fn padding(
        &self,
        group: &Group,
        operands: &Operands,
        positions: &[u32],
    ) -> Result<Option<Tensor>> {
        let Some(mask) = operands.mask else {
            return Ok(None);
        };
        let (batch, heads, length, _) = operands.k.dims4()?;
        let heads = if group.mask_count == 1 { 1 } else { heads };
        let bias = mask.additive().reshape((batch, 1, length, 1))?;
        let bias = bias.broadcast_as((batch, heads, length, 1))?.contiguous()?;
        let bias = gather(
            &Operands::by_block_mask(&bias, group.mask_count)?,
            positions,
        )?;
        let shape = (bias.dim(0)?, group.block_masks.len(), (), 1, self.count);
        Ok(Some(bias.reshape(shape)?))
    }

    /// Returns the bias that hides keys which the block masks hide or which only fill up, plus the
    /// addition to diagonal scores: (1, 1 or P', 1 or M, 1 or Q, K), as small as it can be; none if
    /// there is neither.
    fn hidden(&self, group: &Group, like: &Tensor) -> Result<Option<Tensor>> {
        let all = QueryRange::new(0..group.queries, None);
        let ranges = |tiles: &Vec<TileView>| -> Vec<QueryRange> {
            let mut ranges = Vec::with_capacity(self.count);
            for tile in tiles {
                match tile.ranges {
                    Some(seen) => ranges.extend_from_slice(seen),
                    None => ranges.extend(std::iter::repeat_n(all, tile.keys.len())),
                }
            }
            ranges.resize(self.count, QueryRange::nothing());
            ranges
        };
        // Each with the addition to diagonal scores, which hides them if it is minus infinity.
        let mut blocks: Vec<(f32, Vec<QueryRange>)> = Vec::new();
        for (block_mask, diagonal_bias) in self.tiles.iter().zip(&group.diagonal_biases) {
            let diagonal_bias = diagonal_bias.max(-PADDED as f32);
            let missing = group.count - block_mask.len();
            // Outputs of blocks that only fill up are never read, so they are copies of the first.
            let filling = block_mask.iter().take(1).cycle().take(missing);
            let filled = block_mask.iter().chain(filling);
            blocks.extend(filled.map(|tiles| (diagonal_bias, ranges(tiles))));
        }
        let (mut block_masks, mut count, mut rows) = (self.tiles.len(), group.count, group.queries);
        if blocks.iter().all(|block| *block == blocks[0]) {
            (block_masks, count) = (1, 1);
            blocks.truncate(1);
        }
        let hides = |range: &QueryRange| range.range().is_empty();
        let mut of_blocks = blocks.iter().flat_map(|(_, ranges)| ranges);
        if of_blocks.clone().all(|range| *range == all || hides(range)) {
            rows = 1;
        }
        if of_blocks.all(|range| *range == all) {
            return Ok(None);
        }
        let bias = |diagonal_bias: f32, range: &QueryRange, query: usize| match (
            range.range().contains(&query),
            range.diagonal(),
        ) {
            (false, _) => -PADDED as f32,
            (true, Some(diagonal)) if diagonal == query => diagonal_bias,
            (true, _) => 0.0,
        };
        let mut biases = vec![0.0; blocks.len() * rows * self.count];
        let each = biases.par_chunks_mut((rows * self.count).max(1));
        each.zip(&blocks)
            .for_each(|(biases, (diagonal_bias, ranges))| {
                for (query, biases) in biases.chunks_mut(self.count).enumerate() {
                    for (out, range) in biases.iter_mut().zip(ranges) {
                        *out = bias(*diagonal_bias, range, query);
                    }
                }
            });
        let bias = Tensor::from_vec(
            biases,
            (1, block_masks, count, rows, self.count),
            &Device::Cpu,
        )?;
        Ok(Some(bias.to_device(like.device())?.to_dtype(like.dtype())?))
    }

    /// Factors of the weights, P' heads of each of G or, with one block mask for all, B H heads:
    /// (.., M, Q, K). They are the numbers that the kernel draws for the same pairs.
    fn factors(
        &self,
        group: &Group,
        dropout: &AttentionDropout,
        (batch, heads): (usize, usize),
    ) -> Vec<f32> {
        let block = group.queries * self.count;
        let shared = batch * heads / group.mask_count;
        let mut factors = vec![0.0; shared * group.block_masks.len() * group.count * block];
        let each = factors.par_chunks_mut(block).enumerate();
        each.for_each(|(index, factors)| {
            let (position, number) = (index / group.count, index % group.count);
            let (turn, index) = (
                position / group.block_masks.len(),
                position % group.block_masks.len(),
            );
            let (block_mask, blocks) = &group.block_masks[index];
            let head = turn * group.mask_count + block_mask;
            let Some(block) = blocks.get(number) else {
                return;
            };
            let mut column = 0;
            for tile in &self.tiles[index][number] {
                let columns = column..column + tile.keys.len();
                let rows = factors.chunks_exact_mut(self.count).enumerate();
                for (query, row) in rows.take(block.queries.len()) {
                    let first = first_weight((head % heads, heads), (tile.number, query));
                    dropout.fill(head / heads, first, &mut row[columns.clone()]);
                }
                column = columns.end;
            }
        });
        factors
    }
}

/// Numbers of the blocks of keys that each of several blocks of queries sees in one tile.
fn common_blocks(blocks: &[BlockView]) -> BTreeSet<usize> {
    if blocks.len() < 2 {
        return BTreeSet::new();
    }
    let once = |block: &BlockView| {
        let (mut once, mut more) = (BTreeSet::new(), BTreeSet::new());
        for tile in &block.tiles {
            if !once.insert(tile.block) {
                more.insert(tile.block);
            }
        }
        &once - &more
    };
    let sets = blocks.iter().map(once);
    sets.reduce(|one, other| &one & &other).unwrap_or_default()
}
