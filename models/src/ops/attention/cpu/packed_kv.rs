//! Blocks of keys and values as the backward pass multiplies them, with the sums of their
//! gradients.

use std::ops::Range;

use lra_cpu::format::Format;
use lra_cpu::scratch::Scratch;
use lra_cpu::tile::{Lhs, Operand, PackedTiles, Source, pack_rows, padded};

use super::args::{AttentionArgs, Keys, Widths};

/// Places for blocks of keys and values in the layouts that the products want, and for the sums of
/// their gradients.
pub(super) struct PackedKv {
    widths: Widths,
    /// Keys of a slot.
    rows: usize,
    /// Keys as operand of the products that yield scores; none where those read `key_columns`.
    key_rows: Option<PackedTiles>,
    /// Keys as operand of the products whose terms are keys.
    key_columns: PackedTiles,
    value_rows: PackedTiles,
    dkeys: Scratch,
    dvalues: Scratch,
}

/// A block of keys in the layouts that the products want, and the sums of their gradients.
pub(super) struct KeyTile<'a> {
    /// Lhs operand of products whose terms are the columns of keys.
    pub(super) key_rows: Lhs<'a>,
    /// Lhs operand of products whose terms are keys.
    pub(super) key_columns: Lhs<'a>,
    /// Lhs operand of products whose terms are the columns of values.
    pub(super) value_rows: Lhs<'a>,
    pub(super) dkeys: &'a mut [f32],
    pub(super) dvalues: &'a mut [f32],
    /// Keys up to the last valid one.
    pub(super) count: usize,
    /// Bit i: key i is valid.
    pub(super) bits: u64,
}

impl PackedKv {
    /// Allocates `packed_kv` slots of `rows` keys each.
    pub(super) fn new(args: &AttentionArgs, (packed_kv, rows): (usize, usize)) -> Self {
        let (format, widths) = (args.format, args.widths);
        let held = |role, width| PackedTiles::new(format, role, packed_kv, (rows, padded(width)));
        let zeros = |width| Scratch::zeros(packed_kv * rows * padded(width));
        PackedKv {
            widths,
            rows,
            key_rows: (format != Format::F32).then(|| held(Operand::A, widths.queries)),
            key_columns: held(Operand::ATransposed, widths.queries),
            value_rows: held(Operand::A, widths.values),
            dkeys: zeros(widths.keys),
            dvalues: zeros(widths.values),
        }
    }

    /// Returns a slot in a buffer whose rows have `width` elements.
    fn range(&self, slot: usize, width: usize) -> Range<usize> {
        let size = self.rows * width;
        slot * size..(slot + 1) * size
    }

    /// Packs `count` keys and values.
    #[inline(always)]
    pub(super) fn load<S: Source + Copy>(
        &mut self,
        slot: usize,
        (keys, values): (Keys<S>, S),
        count: usize,
    ) {
        let widths = self.widths;
        let write = |rows: &mut [f32]| keys.pack_rows(count, rows);
        if let Some(key_rows) = &mut self.key_rows {
            key_rows.pack(slot, (count, widths.queries), write);
        }
        let size = (count, padded(widths.queries));
        self.key_columns.pack(slot, size, write);
        self.value_rows.pack(slot, (count, widths.values), |rows| {
            pack_rows(values, count, 1.0, rows);
        });
    }

    /// Returns the block in a slot: how many keys it has, and which of them are valid.
    #[inline(always)]
    pub(super) fn tile(&mut self, slot: usize, (count, bits): (usize, u64)) -> KeyTile<'_> {
        let widths = self.widths;
        let [dkeys, dvalues] =
            [widths.keys, widths.values].map(|width| self.range(slot, padded(width)));
        let key_rows = match &self.key_rows {
            Some(key_rows) => key_rows.operand(slot),
            None => self.key_columns.operand(slot).transposed(),
        };
        KeyTile {
            key_rows: key_rows.left(),
            key_columns: self.key_columns.left(slot),
            value_rows: self.value_rows.left(slot),
            dkeys: &mut self.dkeys[dkeys],
            dvalues: &mut self.dvalues[dvalues],
            count,
            bits,
        }
    }

    /// Returns the sums of gradients of the keys and of the values in a slot, in rows of padded
    /// widths.
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
