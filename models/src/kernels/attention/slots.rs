//! Blocks of keys and values as the backward pass multiplies them, with the sums of their gradients.

use std::ops::Range;

use super::problem::{Keys, Problem, Widths};
use crate::kernels::factors::Factors;
use crate::kernels::scratch::Scratch;
use crate::kernels::tile::{Source, pack_rows, padded};

/// Places for blocks of keys and values in the layouts that the products want, and for the sums of their gradients.
pub(super) struct Slots {
    factors: Factors,
    widths: Widths,
    /// Keys of a slot.
    rows: usize,
    /// Terms are the columns of keys, in the products that yield scores.
    key_columns: Scratch,
    /// Terms are keys.
    key_rows: Scratch,
    value_columns: Scratch,
    dkeys: Scratch,
    dvalues: Scratch,
}

/// A block of keys in the layouts that the products want, and the sums of their gradients.
pub(super) struct KeyTile<'a> {
    /// What products take of keys whose columns are terms, in rows of padded width.
    pub(super) key_columns: &'a [f32],
    /// The same of keys that are terms.
    pub(super) key_rows: &'a [f32],
    /// What products take of values whose columns are terms.
    pub(super) value_columns: &'a [f32],
    pub(super) dkeys: &'a mut [f32],
    pub(super) dvalues: &'a mut [f32],
    /// Keys up to the last real one.
    pub(super) count: usize,
    /// Bit i: key i is real.
    pub(super) bits: u64,
}

impl Slots {
    /// `slots` of `rows` keys each.
    pub(super) fn new(problem: &Problem, (slots, rows): (usize, usize)) -> Self {
        let widths = problem.widths;
        let zeros = |width| Scratch::zeros(slots * rows * width);
        Slots {
            factors: problem.factors,
            widths,
            rows,
            key_columns: zeros(padded(widths.queries)),
            key_rows: zeros(padded(widths.queries)),
            value_columns: zeros(padded(widths.values)),
            dkeys: zeros(padded(widths.keys)),
            dvalues: zeros(padded(widths.values)),
        }
    }

    /// A slot in a buffer whose rows have `width` elements.
    fn range(&self, slot: usize, width: usize) -> Range<usize> {
        let size = self.rows * width;
        slot * size..(slot + 1) * size
    }

    /// Packs `count` keys and values.
    pub(super) fn load<S: Source + Copy>(
        &mut self,
        slot: usize,
        (keys, values): (Keys<S>, S),
        count: usize,
    ) {
        let (factors, widths) = (self.factors, self.widths);
        let (key_wide, value_wide) = (padded(widths.queries), padded(widths.values));
        let range = self.range(slot, key_wide);
        let key_rows = &mut self.key_rows[range.clone()];
        keys.pack_rows(count, key_rows);
        factors.copied_columns(key_rows, key_wide, &mut self.key_columns[range]);
        factors.rows(&mut key_rows[..count * key_wide], key_wide);
        let range = self.range(slot, value_wide);
        let value_columns = &mut self.value_columns[range];
        pack_rows(values, count, 1.0, value_columns);
        factors.columns(&mut value_columns[..count * value_wide], value_wide);
    }

    /// The block in a slot: how many keys it has, and which of them are real.
    pub(super) fn tile(&mut self, slot: usize, (count, bits): (usize, u64)) -> KeyTile<'_> {
        let widths = self.widths;
        let range = |width: usize| self.range(slot, width);
        let (keys, value_columns) = (range(padded(widths.queries)), range(padded(widths.values)));
        let [dkeys, dvalues] = [widths.keys, widths.values].map(|width| range(padded(width)));
        KeyTile {
            key_columns: match self.factors {
                Factors::F32 => &self.key_rows[keys.clone()],
                _ => &self.key_columns[keys.clone()],
            },
            key_rows: &self.key_rows[keys],
            value_columns: &self.value_columns[value_columns],
            dkeys: &mut self.dkeys[dkeys],
            dvalues: &mut self.dvalues[dvalues],
            count,
            bits,
        }
    }

    /// The sums of gradients of the keys and of the values in a slot, in rows of padded widths.
    pub(super) fn gradients(&mut self, slot: usize) -> [&mut [f32]; 2] {
        let Widths { keys, values, .. } = self.widths;
        let [keys, values] = [keys, values].map(|width| self.range(slot, padded(width)));
        [&mut self.dkeys[keys], &mut self.dvalues[values]]
    }

    /// Starts the sums of all slots anew.
    pub(super) fn clear_gradients(&mut self) {
        self.dkeys.fill(0.0);
        self.dvalues.fill(0.0);
    }
}
