//! The paper's variant, with heads side by side. Keys are copied only into sorted keys.

use super::SMALLEST;
use crate::{
    layers::ScoreMods,
    mask::PADDED,
    ops::{
        attention::{AttentionDropout, BlockLists},
        exact_matmul, permute_blocks, permute_blocks_beside,
        pooling::weighted_sum,
    },
    prelude::*,
};

/// A sequence with its blocks: heads side by side, and filled up with zeros where it has to be.
pub(super) struct Blocked {
    /// (B, L, H E).
    q: Tensor,
    /// Each (B, n S, H E); padded ones are zeros.
    k: Tensor,
    v: Tensor,
    /// (B n, S): 1 for valid keys.
    valid: Tensor,
    /// Whether all of them are.
    whole: bool,
    heads: usize,
    block: usize,
}

impl Blocked {
    /// Returns queries, keys and values (B, L, H E).
    pub(super) fn new(
        [q, k, v]: [Tensor; 3],
        heads: usize,
        block: usize,
        mask: Option<&Mask>,
    ) -> Result<Self> {
        let (batch, length, _) = q.dims3()?;
        let block = block.min(length);
        let blocks = length.div_ceil(block);
        let filled = blocks * block - length;
        let valid = match mask {
            Some(mask) => mask.valid().clone(),
            None => Tensor::ones((batch, length), q.dtype(), q.device())?,
        };
        let fill = |x: Tensor| -> Result<Tensor> {
            let x = match mask {
                Some(mask) => x.broadcast_mul(&mask.valid().unsqueeze(2)?)?,
                None => x,
            };
            Ok(match filled {
                0 => x,
                _ => x.pad_with_zeros(1, 0, filled)?,
            })
        };
        let valid = valid.pad_with_zeros(1, 0, filled)?;
        Ok(Self {
            q,
            k: fill(k)?,
            v: fill(v)?,
            valid: valid.reshape((batch * blocks, block))?,
            whole: mask.is_none() && filled == 0,
            heads,
            block,
        })
    }

    /// Returns (B, n, E of all heads).
    fn dims(&self) -> Result<(usize, usize, usize)> {
        let (batch, length, row) = self.k.dims3()?;
        Ok((batch, length / self.block, row))
    }

    /// Returns x (B, L, W) summed over the valid tokens of each block, (B, n, W).
    pub(super) fn sums(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, blocks, _) = self.dims()?;
        let (_, length, row) = x.dims3()?;
        let x = x.pad_with_zeros(1, 0, blocks * self.block - length)?;
        let x = x.reshape((batch * blocks, self.block, row))?;
        let sums = weighted_sum(&x, &self.valid)?;
        Ok(sums.reshape((batch, blocks, row))?)
    }

    /// Returns the mask of the blocks that have a valid token, (B, n).
    pub(super) fn in_use(&self) -> Result<Tensor> {
        let (batch, blocks, _) = self.dims()?;
        let in_use = self.valid.max_keepdim(1)?;
        Ok(in_use.reshape((batch, blocks))?)
    }

    /// Returns attention on each block's own keys and on sorted ones, which have no position that
    /// `score_mods` could tell. `order` is P, (B, H, n, n); (B, L, H E).
    pub(super) fn attend(
        &self,
        order: &Tensor,
        sortcut: usize,
        dropout: Option<AttentionDropout>,
        score_mods: &ScoreMods,
    ) -> Result<Tensor> {
        let order = match sortcut {
            0 => order.clone(),
            cut => order.narrow(2, 0, cut.min(order.dim(2)?))?,
        };
        let rows = order.dim(2)?;
        let (heads, width) = (self.heads, self.q.dim(2)? / self.heads);
        let options = AttentionOptions {
            heads,
            scale: Some((width as f64).powf(-0.5)),
            mask: None,
            dropout,
            block_masks: Some(self.block_masks(rows, sortcut == 0)?),
            ..AttentionOptions::default()
        };
        let (others, length) = (rows * self.block, self.k.dim(1)?);
        let positions = others..others + length;
        if self.whole {
            let beside = |x| permute_blocks_beside(&order, x, self.block);
            let (keys, values) = (beside(&self.k)?, beside(&self.v)?);
            return score_mods.attend([&self.q, &keys, &values], options, positions);
        }
        let sort = |x: &Tensor| permute_blocks(&order, x, self.block);
        let (keys, values) = (sort(&self.k)?, sort(&self.v)?); // (B, rows S, H E)
        let (share, bias) = self.shares(&order)?; // each (B, rows S, H, 1)
        let split = |x: &Tensor| -> Result<Tensor> {
            let (batch, length, row) = x.dims3()?;
            Ok(x.reshape((batch, length, heads, row / heads))?)
        };
        let mean = |x: &Tensor| -> Result<Tensor> {
            Ok(split(x)?.broadcast_div(&share)?.flatten_from(2)?)
        };
        let keys = cat(&[&mean(&keys)?, &self.k], 1)?;
        let values = cat(&[&mean(&values)?, &self.v], 1)?;
        let constant = |x: &Tensor, value: f64, length: usize| -> Result<Tensor> {
            let shape = (x.dim(0)?, length, heads, 1);
            let zeros = Tensor::zeros(shape, x.dtype(), x.device())?;
            Ok(zeros.affine(0.0, value)?)
        };
        let with_column = |x: &Tensor, column: &Tensor| -> Result<Tensor> {
            Ok(cat(&[&split(x)?, column], 3)?.flatten_from(2)?)
        };
        // One more column takes the bias: there, queries cancel the scale.
        let attend =
            |q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions| -> Result<Tensor> {
                let (queries, keys, width) = (q.dim(1)?, k.dim(1)?, q.dim(2)? / heads);
                let scale = options.scale.unwrap_or_else(|| (width as f64).powf(-0.5));
                let biases = cat(&[&bias, &constant(k, 0.0, keys - others)?], 1)?;
                let q = with_column(q, &constant(q, scale.recip(), queries)?)?;
                // Columns that all keys share come before it, as in the queries.
                let k = attention::with_columns(k, heads, options.key_columns.as_ref())?;
                let options = AttentionOptions {
                    key_columns: None,
                    ..options.clone()
                };
                attention::attend(&q, &with_column(&k, &biases)?, v, &options)
            };
        let options = AttentionOptions {
            mask: Some(self.keys_in_use(rows)?),
            ..options
        };
        score_mods.attend_with(&attend, [&self.q, &keys, &values], options, positions)
    }

    /// Returns the share of each sorted key that is valid, and the bias that follows from it, each
    /// (B, rows S, H, 1).
    fn shares(&self, order: &Tensor) -> Result<(Tensor, Tensor)> {
        let (batch, heads, rows, blocks) = order.dims4()?;
        let valid = self.valid.reshape((batch, 1, blocks, self.block))?;
        let in_use = valid.max_keepdim(3)?;
        let mixed = |x: &Tensor| -> Result<Tensor> {
            let shape = (batch, heads, blocks, x.dim(3)?);
            exact_matmul(order, &x.broadcast_as(shape)?.contiguous()?)
        };
        // 1 where no padding is mixed in, for any sum of the row.
        let taken = mixed(&in_use)?.maximum(SMALLEST)?; // (B, H, rows, 1)
        let share = mixed(&valid)?.broadcast_div(&taken)?; // (B, H, rows, S)
        let visible = share.ge(SMALLEST)?.to_dtype(share.dtype())?;
        let share = share.maximum(SMALLEST)?;
        // A sorted key is the mean of valid keys. The logarithm of its share is a factor on its
        // weight.
        let bias = (share.log()? + visible.affine(PADDED, -PADDED)?)?;
        let placed = |x: &Tensor| -> Result<Tensor> {
            swap_axes(&x.reshape((batch, heads, rows * self.block, 1))?)
        };
        Ok((placed(&share)?, placed(&bias)?))
    }

    /// Returns (B, rows S + n S): 1 for keys sorted to a block with a valid token, and for valid
    /// keys.
    fn keys_in_use(&self, rows: usize) -> Result<Tensor> {
        let (batch, blocks, _) = self.dims()?;
        let shape = (batch, blocks * self.block);
        let in_use = self
            .valid
            .max_keepdim(1)?
            .broadcast_as(self.valid.shape())?;
        let sorted = in_use.reshape(shape)?.narrow(1, 0, rows * self.block)?;
        Ok(Tensor::cat(&[&sorted, &self.valid.reshape(shape)?], 1)?)
    }

    /// Returns block masks over the sorted keys, which come first (each block's own, or all of them
    /// with SortCut), and then the sequence.
    fn block_masks(&self, rows: usize, one_each: bool) -> Result<BlockMasks> {
        let (length, blocks) = (self.q.dim(1)?, self.dims()?.1);
        let sorted = |block: usize| match one_each {
            true => block..block + 1,
            false => 0..rows,
        };
        let lists: Vec<Vec<usize>> = (0..blocks)
            .map(|block| sorted(block).chain([rows + block]).collect())
            .collect();
        let lists = BlockLists::new(self.block, 1, &lists);
        Ok(lists.block_masks_between(length, (rows + blocks) * self.block))
    }
}
