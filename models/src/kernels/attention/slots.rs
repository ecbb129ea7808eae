//! Blocks of keys and values as the backward pass multiplies them, with the sums of their gradients.

use std::ops::Range;

use super::problem::{Keys, Problem, Widths};
use crate::kernels::factors::Factors;
use crate::kernels::scratch::Scratch;
use crate::kernels::tile::{PANEL, Source, pack_panels, padded};

/// Places for blocks of keys and values in the layouts that the products want, and for the sums of their gradients.
pub(super) struct Slots {
    factors: Factors,
    widths: Widths,
    /// Keys of a slot.
    rows: usize,
    key_panels: Scratch,
    key_rows: Scratch,
    value_panels: Scratch,
    dkeys: Scratch,
    dvalues: Scratch,
}

/// A block of keys in the layouts that the products want, and the sums of their gradients.
pub(super) struct KeyTile<'a> {
    pub(super) key_panels: &'a [f32],
    pub(super) key_rows: &'a [f32],
    pub(super) value_panels: &'a [f32],
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
            key_panels: zeros(widths.queries),
            key_rows: zeros(padded(widths.queries)),
            value_panels: zeros(widths.values),
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
        let key_panels = self.range(slot, widths.queries);
        keys.pack_panels(count, factors, &mut self.key_panels[key_panels]);
        let key_rows = self.range(slot, padded(widths.queries));
        keys.pack_rows(count, factors, &mut self.key_rows[key_rows]);
        let value_panels = self.range(slot, widths.values);
        let value_panels = &mut self.value_panels[value_panels];
        pack_panels(values, count, value_panels);
        factors.panels(value_panels, (widths.values, PANEL));
    }

    /// The block in a slot: how many keys it has, and which of them are real.
    pub(super) fn tile(&mut self, slot: usize, (count, bits): (usize, u64)) -> KeyTile<'_> {
        let widths = self.widths;
        let range = |width: usize| self.range(slot, width);
        let (key_panels, key_rows) = (range(widths.queries), range(padded(widths.queries)));
        let value_panels = range(widths.values);
        let [dkeys, dvalues] = [widths.keys, widths.values].map(|width| range(padded(width)));
        KeyTile {
            key_panels: &self.key_panels[key_panels],
            key_rows: &self.key_rows[key_rows],
            value_panels: &self.value_panels[value_panels],
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

    /// Sums of zeros in all slots.
    pub(super) fn clear_gradients(&mut self) {
        self.dkeys.fill(0.0);
        self.dvalues.fill(0.0);
    }
}
