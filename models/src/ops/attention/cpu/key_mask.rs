//! Mask of the keys of an example: one bit per key, in blocks of [`SIDE`].

use std::ops::Range;

use candle_core::{Result, Tensor, bail};
use lra_cpu::tile::{PANEL, SIDE};

use crate::autograd::read;

/// The valid keys of a batch.
pub(super) struct KeyMask {
    /// (examples, blocks), or (1, blocks) if all examples have the same keys.
    bits: Vec<u64>,
    blocks: usize,
    /// True if all keys are valid.
    all: bool,
}

/// A block with at least one valid key.
#[derive(Clone, Copy)]
pub(super) struct KeyBlock {
    /// Position of its first key.
    pub(super) first: usize,
    /// Bit i: the key at `first + i` is valid.
    pub(super) bits: u64,
}

impl KeyBlock {
    /// Returns the positions of the keys up to the last valid one.
    pub(super) fn positions(&self) -> Range<usize> {
        self.first..self.first + self.len()
    }

    /// Returns the number of keys up to the last valid one.
    pub(super) fn len(&self) -> usize {
        SIDE - self.bits.leading_zeros() as usize
    }

    /// Returns the number of keys up to the last valid one, in whole panels.
    pub(super) fn rows(&self) -> usize {
        self.len().next_multiple_of(PANEL)
    }
}

impl KeyMask {
    /// Returns the keys of `batch` examples of `length` keys, of which `mask` (batch, length) marks
    /// the valid ones with 1.
    pub(super) fn new(batch: usize, length: usize, mask: Option<&Tensor>) -> Result<Self> {
        let blocks = length.div_ceil(SIDE);
        let block = |marks: &mut dyn Iterator<Item = bool>| {
            marks
                .take(SIDE)
                .enumerate()
                .fold(0, |bits, (i, valid)| bits | u64::from(valid) << i)
        };
        let bits: Vec<u64> = match mask {
            None => (0..blocks)
                .map(|b| block(&mut (b * SIDE..length).map(|_| true)))
                .collect(),
            Some(mask) => {
                if mask.dims() != [batch, length] {
                    bail!(
                        "attention: mask {:?} for {batch} examples of {length} keys",
                        mask.shape()
                    );
                }
                let mask = mask.contiguous()?;
                let mask = read("attention", &mask)?;
                let rows = mask.chunks(length.max(1)).flat_map(|row| row.chunks(SIDE));
                rows.map(|keys| block(&mut keys.iter().map(|m| *m != 0.0)))
                    .collect()
            }
        };
        let valid: usize = bits.iter().map(|bits| bits.count_ones() as usize).sum();
        let examples = if mask.is_some() { batch } else { 1 };
        Ok(KeyMask {
            all: valid == examples * length,
            bits,
            blocks,
        })
    }

    /// Returns whether all keys of all examples are valid.
    pub(super) fn all(&self) -> bool {
        self.all
    }

    /// Returns one bit for each of at most [`SIDE`] keys of `example`: whether it is valid.
    pub(super) fn bits(&self, example: usize, places: impl Iterator<Item = usize>) -> u64 {
        let row = self.row(example);
        let valid = |place: usize| row[place / SIDE] >> (place % SIDE) & 1;
        let bits = places.enumerate();
        bits.fold(0, |bits, (i, place)| bits | valid(place) << i)
    }

    fn row(&self, example: usize) -> &[u64] {
        // All examples may share one row.
        let row = if self.bits.len() == self.blocks {
            0
        } else {
            example
        };
        &self.bits[row * self.blocks..][..self.blocks]
    }

    /// Returns blocks of `example` that have a valid key, in order.
    pub(super) fn blocks(&self, example: usize) -> impl Iterator<Item = KeyBlock> + '_ {
        let bits = self.row(example).iter();
        let blocks = bits.enumerate().map(|(b, bits)| KeyBlock {
            first: b * SIDE,
            bits: *bits,
        });
        blocks.filter(|block| block.bits != 0)
    }
}
