//! The forward pass over a block mask: as the dense one, with packed blocks of keys looked up by
//! number.

use std::ops::Range;

use lra_cpu::buffers::Shared;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::tile::{
    Lhs, Operand, PAD, PANEL, PackedTiles, SIDE, pack_columns, pack_rows, padded, product,
};

use super::super::args::{AttentionArgs, Head};
use super::super::weighted_sums::{WeightedSums, finalize};
use super::block_mask::BlockMask;
use super::{KeySlot, apply_ranges, drawn, indices};

/// Some blocks of queries of one head.
pub(in super::super) struct ForwardTask<'a> {
    pub(super) args: &'a AttentionArgs<'a>,
    pub(super) block_mask: &'a BlockMask,
    pub(super) head: Head,
    pub(super) blocks: Range<usize>,
    /// Output (B, Lq, H Ev), zeros.
    pub(super) output: &'a Shared<'a>,
    /// Base-2 logarithms of the sums of weights (B, H, Lq), infinite.
    pub(super) sums: &'a Shared<'a>,
    /// Working memory of [`Keys`].
    pub(super) held: &'a mut Vec<KeySlot>,
    /// Working memory of [`Revisited`].
    pub(super) revisited: &'a mut Vec<(f32, f32)>,
}

impl Kernel for ForwardTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let ForwardTask {
            args,
            block_mask,
            head,
            output,
            sums,
            ..
        } = self;
        let to = Output {
            args,
            head,
            output,
            sums,
        };
        let (width, wide) = (args.widths.queries, padded(args.widths.values));
        let format = args.format;
        let mut keys = Keys::new((args, block_mask, head), self.held);
        let revisited = block_mask.repeats_queries();
        let mut revisited = revisited.then(|| Revisited::new(args, self.revisited));
        let mut queries = PackedTiles::new(format, Operand::B, 1, (width, SIDE));
        let mut weighted = WeightedSums::new(args);
        let mut mods = args.tile_mods(head);
        for block in &block_mask.query_blocks()[self.blocks.clone()] {
            let positions = block_mask.query_positions(block);
            let count = positions.len();
            if args.padding(head.example, indices(positions)) {
                continue;
            }
            let columns = count.next_multiple_of(PAD);
            let scale = args.scale * std::f32::consts::LOG2_E;
            let rows = args.queries(head).at(positions);
            queries.pack(0, (width, SIDE), |columns| {
                pack_columns(rows, count, scale, columns);
            });
            weighted.clear();
            for number in block.tiles.clone() {
                let tile = &block_mask.tiles()[number];
                let bits = keys.load(tile.keys);
                if bits == 0 {
                    continue;
                }
                let (count_keys, of_keys, of_values) = keys.block(tile.keys);
                let scores = &mut weighted.scores;
                product::<S, false>(
                    s,
                    format,
                    of_keys,
                    queries.right(0),
                    (&mut **scores, SIDE),
                    (count_keys.next_multiple_of(PANEL), columns, width),
                );
                let key_positions = block_mask.key_positions(&block_mask.key_blocks()[tile.keys]);
                mods.load(indices(positions), indices(key_positions));
                mods.apply(s, count_keys, scores, None);
                apply_ranges(s, block_mask, tile, columns, scores);
                let drawn = args
                    .dropout
                    .map(|dropout| drawn(args, dropout, head, number));
                weighted.add(s, (count_keys, bits), columns, of_values, drawn);
            }
            let rows = weighted.rows(count).zip(positions);
            for ((top, sum, row), position) in rows {
                let position = *position as usize;
                match &mut revisited {
                    Some(revisited) => revisited.add(position, top, sum, row),
                    None => to.write(position, top, sum, row),
                }
            }
        }
        if let Some(revisited) = revisited {
            for position in 0..args.queries_len {
                let (top, sum) = revisited.sums[position];
                let row = &revisited.rows[position * wide..][..wide];
                to.write(position, top, sum, row);
            }
        }
    }
}

/// The output of a head.
struct Output<'a> {
    args: &'a AttentionArgs<'a>,
    head: Head,
    output: &'a Shared<'a>,
    sums: &'a Shared<'a>,
}

impl Output<'_> {
    fn write(&self, query: usize, top: f32, sum: f32, row: &[f32]) {
        let (args, head) = (self.args, self.head);
        let (inverse, log) = finalize(top, sum);
        // SAFETY: this task alone writes its head's columns of the rows of its queries, and their
        // sums.
        let (output, logs) = unsafe {
            (
                self.output
                    .slice(args.output_start(head, query), args.widths.values),
                self.sums.slice(args.sum_index(head, query), 1),
            )
        };
        for (y, x) in output.iter_mut().zip(row) {
            *y = x * inverse;
        }
        logs[0] = log;
    }
}

/// Sums of queries over the blocks that they were in so far.
struct Revisited<'a> {
    /// Running maximum, and the sum of weights relative to it.
    sums: &'a mut [(f32, f32)],
    /// Weighted values.
    rows: Scratch,
    wide: usize,
}

impl<'a> Revisited<'a> {
    fn new(args: &AttentionArgs, sums: &'a mut Vec<(f32, f32)>) -> Self {
        sums.clear();
        sums.resize(args.queries_len, (f32::NEG_INFINITY, 0.0));
        let wide = padded(args.widths.values);
        Revisited {
            sums,
            rows: Scratch::zeros(args.queries_len * wide),
            wide,
        }
    }

    fn add(&mut self, position: usize, top: f32, sum: f32, row: &[f32]) {
        let (before, total) = &mut self.sums[position];
        let highest = before.max(top);
        let (old, new) = ((*before - highest).exp2(), (top - highest).exp2());
        *before = highest;
        *total = *total * old + sum * new;
        let rows = &mut self.rows[position * self.wide..][..self.wide];
        for (x, y) in rows.iter_mut().zip(row) {
            *x = *x * old + y * new;
        }
    }
}

/// Blocks of keys and values of one head, packed when they are needed and not held.
struct Keys<'a> {
    args: &'a AttentionArgs<'a>,
    block_mask: &'a BlockMask,
    head: Head,
    /// The block that each slot holds, and its valid keys.
    held: &'a mut [KeySlot],
    key_blocks: PackedTiles,
    value_blocks: PackedTiles,
}

impl<'a> Keys<'a> {
    fn new(
        (args, block_mask, head): (&'a AttentionArgs<'a>, &'a BlockMask, Head),
        held: &'a mut Vec<KeySlot>,
    ) -> Self {
        let (packed_kv, rows) = block_mask.packed_kv();
        held.clear();
        held.resize(packed_kv, None);
        let widths = args.widths;
        let blocks =
            |role, width| PackedTiles::new(args.format, role, packed_kv, (rows, padded(width)));
        Keys {
            args,
            block_mask,
            head,
            held,
            key_blocks: blocks(Operand::A, widths.queries),
            value_blocks: blocks(Operand::ATransposed, widths.values),
        }
    }

    /// Packs a block if that has not been done, and returns the mask of its valid keys.
    fn load(&mut self, block: usize) -> u64 {
        let key_block = &self.block_mask.key_blocks()[block];
        let slot = key_block.slot;
        if let Some((_, bits)) = self.held[slot].filter(|(held, _)| *held == block) {
            return bits;
        }
        let (args, head) = (self.args, self.head);
        let widths = args.widths;
        let positions = self.block_mask.key_positions(key_block);
        let count = positions.len();
        self.key_blocks.pack(slot, (count, widths.queries), |rows| {
            args.keys(head).at(positions).pack_rows(count, rows);
        });
        let values = args.values(head).at(positions);
        let size = (count, padded(widths.values));
        self.value_blocks
            .pack(slot, size, |rows| pack_rows(values, count, 1.0, rows));
        let bits = args.valid.bits(head.example, indices(positions));
        self.held[slot] = Some((block, bits));
        bits
    }

    /// Returns the number of keys of a block that has been loaded, and its keys and values as left
    /// operands.
    #[inline(always)]
    fn block(&self, block: usize) -> (usize, Lhs<'_>, Lhs<'_>) {
        let key_block = &self.block_mask.key_blocks()[block];
        let (slot, positions) = (key_block.slot, self.block_mask.key_positions(key_block));
        let operands = [&self.key_blocks, &self.value_blocks].map(|held| held.left(slot));
        (positions.len(), operands[0], operands[1])
    }
}
