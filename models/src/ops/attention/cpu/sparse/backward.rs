//! The backward pass over a block mask: weights recomputed tile by tile, blocks of queries in
//! order.

use std::ops::Range;

use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::tile::StridedRowsMut;
use lra_cpu::tile::{PAD, Rows, SIDE, Tile64, columns_to_rows, padded};
use lra_cpu::zero_rows::are_zero_rows;

use super::super::args::{AttentionArgs, Head};
use super::super::backward::{Queries, Tiles, deltas};
use super::super::packed_kv::{KeyTile, PackedKv};
use super::super::score_mod::TermGradients;
use super::block_mask::BlockMask;
use super::{KeySlot, apply_ranges, drawn, indices};

/// Some blocks of queries of one head.
pub(super) struct BackwardTask<'a> {
    pub(super) args: &'a AttentionArgs<'a>,
    pub(super) block_mask: &'a BlockMask,
    pub(super) terms: Option<TermGradients<'a>>,
    /// Number of the part of the head's work.
    pub(super) part: usize,
    pub(super) head: Head,
    pub(super) blocks: Range<usize>,
    /// Sums of weights of this head's queries.
    pub(super) sums: &'a [f32],
    /// The output of the forward pass, and its gradient.
    pub(super) output: Rows<'a>,
    pub(super) doutput: Rows<'a>,
    pub(super) dqueries: StridedRowsMut<'a>,
    /// Gradients of the keys that `key_rows` names, or of all keys.
    pub(super) dkeys: StridedRowsMut<'a>,
    pub(super) dvalues: StridedRowsMut<'a>,
    /// The row of each key in its gradient, if the gradient has rows only for keys that are seen
    /// here.
    pub(super) key_rows: Option<&'a [u32]>,
    /// Working memory of [`Keys`].
    pub(super) held: &'a mut Vec<KeySlot>,
}

impl Kernel for BackwardTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let BackwardTask {
            args,
            block_mask,
            terms,
            part,
            head,
            blocks,
            sums,
            output,
            doutput,
            dqueries: dqueries_out,
            dkeys,
            dvalues,
            key_rows,
            held,
        } = self;
        let width = args.widths.queries;
        let deltas = deltas(s, output, doutput, args.queries_len);
        let mut keys = Keys::new((args, block_mask, head), [dkeys, dvalues], key_rows, held);
        let mut queries = Queries::new(args);
        // Columns are queries.
        let mut dqueries = Scratch::zeros(SIDE * padded(width));
        let mut dquery_rows = Scratch::zeros(SIDE * padded(width));
        let mut tiles = Tiles::new(args);
        let mut mods = args.tile_mods(head);
        for block in &block_mask.query_blocks()[blocks] {
            let positions = block_mask.query_positions(block);
            let count = positions.len();
            let columns = count.next_multiple_of(PAD);
            let rows = [args.queries(head), doutput].map(|rows| rows.at(positions));
            if args.padding(head.example, indices(positions)) || are_zero_rows(rows[1], count) {
                continue;
            }
            queries.load(rows, count, args.scale, |i| {
                let position = positions[i] as usize;
                (sums[position], deltas[position])
            });
            dqueries.fill(0.0);
            for number in block.tiles.clone() {
                let tile = &block_mask.tiles()[number];
                // SAFETY: this task alone has its rows of the gradients of keys and values.
                let Some(keys) = (unsafe { keys.load(tile.keys) }) else {
                    continue;
                };
                let drawn = args
                    .dropout
                    .map(|dropout| drawn(args, dropout, head, number));
                let key_positions = block_mask.key_positions(&block_mask.key_blocks()[tile.keys]);
                mods.load(indices(positions), indices(key_positions));
                let modify = |scores: &mut _, slopes: Option<&mut Tile64>| {
                    mods.apply(s, key_positions.len(), scores, slopes);
                    apply_ranges(s, block_mask, tile, columns, scores);
                };
                tiles.step(s, (&queries, count), keys, modify, drawn, &mut dqueries);
                // SAFETY: a task alone has its part of its head, and all of it if the work is
                // undivided. There is no term by pair under block masks.
                unsafe { mods.add_gradients(terms.as_ref(), part, &tiles.gradients) };
            }
            columns_to_rows(&dqueries, count, width, &mut dquery_rows);
            // SAFETY: this task alone has its head's columns of the rows of its queries.
            unsafe {
                dqueries_out.add(positions, width, args.scale, &dquery_rows);
            }
        }
        // SAFETY: as above.
        unsafe { keys.give_all() };
    }
}

/// Blocks of keys and values of one head, packed when they are needed and not held, with the sums
/// of their gradients.
struct Keys<'a> {
    args: &'a AttentionArgs<'a>,
    block_mask: &'a BlockMask,
    head: Head,
    dtargets: [StridedRowsMut<'a>; 2],
    /// The row of each key in these.
    target_rows: Option<&'a [u32]>,
    /// The block that each slot holds, and its valid keys.
    held: &'a mut [KeySlot],
    packed_kv: PackedKv,
}

impl<'a> Keys<'a> {
    fn new(
        (args, block_mask, head): (&'a AttentionArgs<'a>, &'a BlockMask, Head),
        dtargets: [StridedRowsMut<'a>; 2],
        target_rows: Option<&'a [u32]>,
        held: &'a mut Vec<KeySlot>,
    ) -> Self {
        let (packed_kv, rows) = block_mask.packed_kv();
        held.clear();
        held.resize(packed_kv, None);
        Keys {
            args,
            block_mask,
            head,
            dtargets,
            target_rows,
            held,
            packed_kv: PackedKv::new(args, (packed_kv, rows)),
        }
    }

    /// Returns a block of keys, packed now if it is not held; none if no key of it is valid.
    ///
    /// # Safety
    /// No other task may touch the rows of the targets.
    unsafe fn load(&mut self, block: usize) -> Option<KeyTile<'_>> {
        let (args, head) = (self.args, self.head);
        let key_block = &self.block_mask.key_blocks()[block];
        let (slot, positions) = (key_block.slot, self.block_mask.key_positions(key_block));
        let count = positions.len();
        let held = self.held[slot].filter(|(held, _)| *held == block);
        let bits = match held {
            Some((_, bits)) => bits,
            None => {
                // SAFETY: by this function's contract.
                unsafe { self.give(slot) };
                let (keys, values) = (args.keys(head), args.values(head));
                let (keys, values) = (keys.at(positions), values.at(positions));
                self.packed_kv.load(slot, (keys, values), count);
                let bits = args.valid.bits(head.example, indices(positions));
                self.held[slot] = Some((block, bits));
                bits
            }
        };
        (bits != 0).then(|| self.packed_kv.tile(slot, (count, bits)))
    }

    /// Adds the gradients in a slot to those of the positions that its keys stand for, and starts
    /// new sums.
    ///
    /// # Safety
    /// No other task may touch the rows of the targets.
    unsafe fn give(&mut self, slot: usize) {
        let Some((block, _)) = self.held[slot].take() else {
            return;
        };
        let positions = self
            .block_mask
            .key_positions(&self.block_mask.key_blocks()[block]);
        let mut rows = [0; SIDE];
        let positions = match self.target_rows {
            Some(target_rows) => {
                for (row, position) in rows.iter_mut().zip(positions) {
                    *row = target_rows[*position as usize];
                }
                &rows[..positions.len()]
            }
            None => positions,
        };
        let widths = self.args.widths;
        let [dkeys, dvalues] = self.packed_kv.gradients(slot);
        // SAFETY: by this function's contract.
        unsafe {
            self.dtargets[0].add(positions, widths.keys, 1.0, dkeys);
            self.dtargets[1].add(positions, widths.values, 1.0, dvalues);
        }
        dkeys.fill(0.0);
        dvalues.fill(0.0);
    }

    /// Empties all slots.
    ///
    /// # Safety
    /// No other task may touch the rows of the targets.
    unsafe fn give_all(&mut self) {
        for slot in 0..self.held.len() {
            // SAFETY: by this function's contract.
            unsafe { self.give(slot) };
        }
    }
}
