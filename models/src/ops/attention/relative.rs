//! Scores by distance, by tensor operations: a number for every pair of query and key that is
//! computed at all.

use candle_core::{Device, Tensor};

use super::cpu::RelativeScores;
use super::{
    gather::gather,
    score_mod::{Pairs, ScoreMod},
    sparse::Operands,
};
use crate::Result;

impl ScoreMod for &RelativeScores {
    fn apply(&self, scores: &Tensor, pairs: Pairs<'_>) -> Result<Tensor> {
        match pairs {
            Pairs::All => add(self, scores),
            Pairs::Blocks(pairs) => pairs.add(self, scores),
        }
    }
}

/// Returns `scores` (B, H, Lq, Lk) plus the additions of `relative` to each pair.
fn add(relative: &RelativeScores, scores: &Tensor) -> Result<Tensor> {
    let (batch, heads, queries, all_keys) = scores.dims4()?;
    let (first, keys) = (relative.keys.start, relative.keys.len());
    if keys == 0 {
        return Ok(scores.clone());
    }
    let columns = (0..queries).flat_map(|i| (0..keys).map(move |j| column(relative, i, j)));
    let columns: Vec<u32> = columns.collect();
    let shape = (batch, heads, queries, keys);
    let columns = Tensor::from_vec(columns, (1, 1, queries, keys), scores.device())?;
    let mut sum: Option<Tensor> = None;
    let mut more = |term: Tensor| -> Result<()> {
        sum = Some(match sum.take() {
            Some(sum) => sum.broadcast_add(&term)?,
            None => term,
        });
        Ok(())
    };
    if let Some(table) = &relative.of_heads {
        let term = table.index_select(&columns.flatten_all()?, 1)?;
        more(term.reshape((1, heads, queries, keys))?)?;
    }
    if let Some(table) = &relative.of_queries {
        let columns = columns.broadcast_as(shape)?.contiguous()?;
        more(table.contiguous()?.gather(&columns, 3)?)?;
    }
    if let Some(table) = &relative.of_keys {
        let columns = columns.broadcast_as(shape)?.t()?.contiguous()?;
        more(table.contiguous()?.gather(&columns, 3)?.t()?)?;
    }
    let Some(sum) = sum else {
        return Ok(scores.clone());
    };
    let sum = sum.pad_with_zeros(3, first, all_keys - first - keys)?;
    Ok(scores.broadcast_add(&sum)?)
}

/// Returns the column of query i and of key j, counted from the first that has a position.
fn column(relative: &RelativeScores, i: usize, j: usize) -> u32 {
    let reach = relative.reach as i64;
    ((j as i64 - i as i64).clamp(-reach, reach) + reach) as u32
}

/// The pairs of a group of blocks: scores (B or G, H or P', M, Q, K).
pub(super) struct BlockPairs {
    /// Positions of queries, (P' M Q), as [`super::sparse`] counts them.
    pub(super) queries: Vec<u32>,
    /// Positions of keys, (P' M K), or (P' K) where all blocks have the same.
    pub(super) keys: Vec<u32>,
    pub(super) shape: (usize, usize, usize, usize, usize),
    /// P.
    pub(super) mask_count: usize,
    /// Numbers of the P' block masks.
    pub(super) numbers: Vec<usize>,
    /// Lq and Lk.
    pub(super) lengths: (usize, usize),
}

impl BlockPairs {
    /// Returns `scores` plus the additions of `relative`.
    fn add(&self, relative: &RelativeScores, scores: &Tensor) -> Result<Tensor> {
        let (outer, inner, blocks, queries, keys) = self.shape;
        let masks = self.numbers.len();
        let (mut columns, mut there) = (Vec::new(), Vec::new());
        for row in 0..masks * blocks * queries {
            let block = row / queries;
            // One list of keys for each block, or for each block mask.
            let list = match self.keys.len() == masks * keys {
                true => block / blocks,
                false => block,
            };
            let query = self.queries[row] as usize % self.lengths.0;
            for key in &self.keys[list * keys..][..keys] {
                let key = (*key as usize % self.lengths.1).checked_sub(relative.keys.start);
                let key = key.filter(|key| *key < relative.keys.len());
                columns.push(column(relative, query, key.unwrap_or(query)));
                there.push(f32::from(u8::from(key.is_some())));
            }
        }
        let device = scores.device();
        let all_there = there.iter().all(|there| *there == 1.0);
        let own = (1, masks, blocks, queries, keys);
        let tensor = |x: Tensor| x.to_device(device);
        let columns = tensor(Tensor::from_vec(columns, own, &Device::Cpu)?)?;
        let there = tensor(Tensor::from_vec(there, own, &Device::Cpu)?)?;
        let there = there.to_dtype(scores.dtype())?;
        let full = columns.broadcast_as(self.shape)?.contiguous()?;
        let mut sum: Option<Tensor> = None;
        let mut more = |term: Tensor| -> Result<()> {
            sum = Some(match sum.take() {
                Some(sum) => sum.broadcast_add(&term)?,
                None => term,
            });
            Ok(())
        };
        if let Some(table) = &relative.of_heads {
            let heads = table.dim(0)?;
            // With one block mask for all, heads lie beside each other; otherwise each block mask
            // is of one head.
            let rows: Vec<u32> = match self.mask_count {
                1 => (0..inner as u32).collect(),
                _ => self.numbers.iter().map(|n| (n % heads) as u32).collect(),
            };
            let rows = tensor(Tensor::new(rows, &Device::Cpu)?)?;
            let table = table.index_select(&rows, 0)?.reshape((1, inner, ()))?;
            let columns = columns.broadcast_as((1, inner, blocks, queries, keys))?;
            let columns = columns.contiguous()?.reshape((1, inner, ()))?;
            let term = table.contiguous()?.gather(&columns, 2)?;
            more(term.reshape((1, inner, blocks, queries, keys))?)?;
        }
        if let Some(table) = &relative.of_queries {
            let rows = gather(
                &Operands::by_block_mask(table, self.mask_count)?,
                &self.queries,
            )?;
            let rows = rows.reshape((outer, inner, blocks, queries, relative.columns()))?;
            more(rows.contiguous()?.gather(&full, 4)?)?;
        }
        if let Some(table) = &relative.of_keys {
            let (batch, heads, count, width) = table.dims4()?;
            // The rows are as many as the keys: keys without a position have zeros.
            let after = self.lengths.1 - relative.keys.start - count;
            let table = table.pad_with_zeros(2, relative.keys.start, after)?;
            debug_assert_eq!(table.dims(), [batch, heads, self.lengths.1, width]);
            let rows = gather(
                &Operands::by_block_mask(&table, self.mask_count)?,
                &self.keys,
            )?;
            let rows = rows.reshape((outer, inner, (), keys, width))?;
            let rows = rows.broadcast_as((outer, inner, blocks, keys, width))?;
            let columns = full.t()?.contiguous()?;
            more(rows.contiguous()?.gather(&columns, 4)?.t()?)?;
        }
        let Some(sum) = sum else {
            return Ok(scores.clone());
        };
        let sum = match all_there {
            true => sum,
            false => sum.broadcast_mul(&there)?,
        };
        Ok(scores.broadcast_add(&sum)?)
    }
}
