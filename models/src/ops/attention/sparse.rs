//! Attention under block masks by tensor operations: time and memory grow with the pairs that the
//! block masks list, as in the kernel.
//!
//! Blocks of queries that see about as many keys are computed together, as a batch of M blocks of Q
//! queries. Keys that all blocks of such a group see are taken once, for all its queries; the
//! others side by side, K for each block. A query's result from either set of keys, in each block
//! that it is in, is one part of its softmax.
//!
//! P block masks for B H heads: head i has block mask i mod P, and G = B H / P heads share one.
//! Positions of all block masks count on, so that those of block mask p begin at p L. A group has
//! the blocks of P' block masks, which may be fewer. Blocks with fewer queries or keys than others
//! are filled up with rows that are never read, and with keys that are hidden.

use std::collections::BTreeMap;

use candle_core::Tensor;

use super::cpu::BlockView;
use super::{
    gather::{filled_up, gather},
    keys::Keys,
    score_mod::ScoreMod,
};
use crate::{
    Mask, Result,
    ops::attention::{AttentionDropout, BlockMask, partial_softmax::PartialSoftmax},
};

/// Operands of attention: scaled queries (B, H, Lq, E), keys (B, H, Lk, E) and values (B, H, Lk,
/// Ev).
pub(super) struct Operands<'a> {
    pub(super) q: &'a Tensor,
    pub(super) k: &'a Tensor,
    pub(super) v: &'a Tensor,
    pub(super) mask: Option<&'a Mask>,
    pub(super) dropout: Option<&'a AttentionDropout>,
    pub(super) score_mods: &'a [Box<dyn ScoreMod + 'a>],
}

impl Operands<'_> {
    /// Returns x (B, H, L, W) as (G, P L, W).
    pub(super) fn by_block_mask(x: &Tensor, block_masks: usize) -> Result<Tensor> {
        let (batch, heads, length, width) = x.dims4()?;
        Ok(x.reshape((batch * heads / block_masks, block_masks * length, width))?)
    }
}

/// Returns attention (B, H, Lq, Ev) under `block_masks`. A query that sees no key gets zeros.
pub(super) fn attend(operands: &Operands, block_masks: &[BlockMask]) -> Result<Tensor> {
    let ((batch, heads, length, _), width) = (operands.q.dims4()?, operands.v.dim(3)?);
    let groups = Group::all(block_masks);
    if groups.is_empty() {
        let like = operands.q;
        let shape = (batch, heads, length, width);
        return Ok(Tensor::zeros(shape, like.dtype(), like.device())?);
    }
    let parts = groups.iter().map(|group| group.attend(operands));
    let mut parts = parts.collect::<Result<Vec<_>>>()?; // each (G, P' M Q, ..)
    let (passes, complete) = passes(&groups, block_masks.len(), length);
    if !complete {
        let shared = batch * heads / block_masks.len();
        parts.push(PartialSoftmax::nothing(shared, width, operands.q)?);
    }
    let all = PartialSoftmax::cat(&parts)?;
    let parts = passes
        .iter()
        .map(|rows| all.arranged(|x| gather(x, rows))) // (G, P Lq, ..)
        .collect::<Result<Vec<_>>>()?;
    let y = PartialSoftmax::merge(&parts)?.output()?;
    Ok(y.reshape((batch, heads, length, width))?)
}

/// Returns the row of each query in the groups' results, (P Lq): one list for each time that a
/// query is in a block, and whether every query is in as many. If not, missing entries have the row
/// after the last.
fn passes(groups: &[Group], block_masks: usize, length: usize) -> (Vec<Vec<u32>>, bool) {
    let missing: usize = groups.iter().map(Group::rows).sum();
    let mut passes = vec![vec![missing as u32; block_masks * length]];
    let mut seen = vec![0; block_masks * length];
    let mut first = 0;
    for group in groups {
        for (index, (block_mask, blocks)) in group.block_masks.iter().enumerate() {
            for (number, block) in blocks.iter().enumerate() {
                let start = first + (index * group.count + number) * group.queries;
                for (row, &query) in (start..).zip(block.queries) {
                    let position = block_mask * length + query as usize;
                    if passes.len() == seen[position] {
                        passes.push(vec![missing as u32; block_masks * length]);
                    }
                    passes[seen[position]][position] = row as u32;
                    seen[position] += 1;
                }
            }
        }
        first += group.rows();
    }
    let complete = seen.iter().all(|seen| *seen == passes.len());
    (passes, complete)
}

/// Blocks of queries that see about as many keys.
pub(super) struct Group<'a> {
    /// P.
    pub(super) mask_count: usize,
    /// The P' block masks that have such blocks: number and blocks of each.
    pub(super) block_masks: Vec<(usize, Vec<BlockView<'a>>)>,
    /// M, the most blocks that a block mask has here.
    pub(super) count: usize,
    /// Q, the most queries of a block.
    pub(super) queries: usize,
    /// Addition to the diagonal scores of each of the P' block masks.
    pub(super) diagonal_biases: Vec<f32>,
}

impl<'a> Group<'a> {
    /// Groups blocks by powers of two of the number of keys, so that no block is filled up to more
    /// than twice its keys. Blocks that see no key are in no group.
    fn all(block_masks: &'a [BlockMask]) -> Vec<Self> {
        let mut groups: BTreeMap<usize, Self> = BTreeMap::new();
        for (number, block_mask) in block_masks.iter().enumerate() {
            for block in block_mask.blocks().filter(|block| block.keys() > 0) {
                let group = groups.entry(block.keys().next_power_of_two());
                let group = group.or_insert_with(|| Self {
                    mask_count: block_masks.len(),
                    block_masks: Vec::new(),
                    count: 0,
                    queries: 0,
                    diagonal_biases: Vec::new(),
                });
                group.add((number, block_mask.diagonal_bias()), block);
            }
        }
        groups.into_values().collect()
    }

    fn add(&mut self, (block_mask, diagonal_bias): (usize, f32), block: BlockView<'a>) {
        if self
            .block_masks
            .last()
            .is_none_or(|(last, _)| *last != block_mask)
        {
            self.block_masks.push((block_mask, Vec::new()));
            self.diagonal_biases.push(diagonal_bias);
        }
        self.queries = self.queries.max(block.queries.len());
        if let Some((_, blocks)) = self.block_masks.last_mut() {
            blocks.push(block);
            self.count = self.count.max(blocks.len());
        }
    }

    /// Returns the number of rows of the result, P' M Q.
    pub(super) fn rows(&self) -> usize {
        self.block_masks.len() * self.count * self.queries
    }

    /// Returns positions of the queries of M blocks of each block mask, for sequences of `length`.
    pub(super) fn positions(&self, length: usize) -> Vec<u32> {
        let positions = self.block_masks.iter().flat_map(|(block_mask, blocks)| {
            let blocks = blocks.iter().map(|block| block.queries);
            filled_up(blocks, self.count, self.queries, block_mask * length)
        });
        positions.collect()
    }

    /// Returns the sums of the queries of all blocks over their keys, (G, P' M Q, ..).
    fn attend(&self, operands: &Operands) -> Result<PartialSoftmax> {
        let q = Operands::by_block_mask(operands.q, self.mask_count)?;
        let q = gather(&q, &self.positions(operands.q.dim(2)?))?; // (G, P' M Q, E)
        let parts = Keys::of(self)
            .iter()
            .map(|keys| keys.attend(self, &q, operands))
            .collect::<Result<Vec<_>>>()?;
        PartialSoftmax::merge(&parts)
    }
}
