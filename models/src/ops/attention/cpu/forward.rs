//! The forward pass: blocks of queries on all blocks of keys.

use lra_cpu::buffers::Shared;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::tile::{Operand, PAD, PackedTiles, SIDE, pack_columns, pack_rows, padded, product};

use super::args::{AttentionArgs, Head};
use super::dropout::{Tile, row_length};
use super::key_mask::KeyBlock;
use super::weighted_sums::{WeightedSums, finalize};

/// The queries `first..first + count` of one head (whole blocks, except at the end).
pub(super) struct ForwardTask<'a> {
    pub(super) args: &'a AttentionArgs<'a>,
    pub(super) head: Head,
    pub(super) first: usize,
    pub(super) count: usize,
    /// Output (B, Lq, H Ev).
    pub(super) output: &'a Shared<'a>,
    /// Blocks of keys of the head's example.
    pub(super) blocks: &'a [KeyBlock],
    /// Base-2 logarithms of the sums of weights, (B, H, Lq).
    pub(super) sums: &'a Shared<'a>,
}

impl Kernel for ForwardTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let ForwardTask {
            args,
            head,
            first,
            count,
            output,
            blocks,
            sums,
        } = self;
        let (width, value_width) = (args.widths.queries, args.widths.values);
        let (key_wide, wide) = (padded(width), padded(value_width));
        let format = args.format;
        let (keys, values) = (args.keys(head), args.values(head));
        let held = |role, row| PackedTiles::new(format, role, blocks.len(), (SIDE, row));
        let mut key_blocks = held(Operand::A, key_wide);
        let mut value_blocks = held(Operand::ATransposed, wide);
        for (i, block) in blocks.iter().enumerate() {
            let count = block.len();
            key_blocks.pack(i, (count, width), |rows| {
                keys.from(block.first).pack_rows(count, rows);
            });
            value_blocks.pack(i, (count, wide), |rows| {
                pack_rows(values.from(block.first), count, 1.0, rows);
            });
        }

        let mut queries = PackedTiles::new(format, Operand::B, 1, (width, SIDE));
        let mut weighted = WeightedSums::new(args);
        let mut mods = args.tile_mods(head);
        for first in (first..first + count).step_by(SIDE) {
            let count = SIDE.min(args.queries_len - first);
            // Queries that see no key yield zeros.
            let seen = match args.padding(head.example, first..first + count) {
                true => &[],
                false => blocks,
            };
            let columns = count.next_multiple_of(PAD);
            let scale = args.scale * std::f32::consts::LOG2_E;
            queries.pack(0, (width, SIDE), |columns| {
                pack_columns(args.queries(head).from(first), count, scale, columns);
            });
            weighted.clear();
            for (i, block) in seen.iter().enumerate() {
                let scores = &mut weighted.scores;
                product::<S, false>(
                    s,
                    format,
                    key_blocks.left(i),
                    queries.right(0),
                    (&mut **scores, SIDE),
                    (block.rows(), columns, width),
                );
                mods.load(first..first + count, block.positions());
                mods.apply(s, block.len(), scores, None);
                let drawn = args
                    .dropout
                    .map(|dropout| args.tile(dropout, head, first, block.first));
                let keys = (block.len(), block.bits);
                weighted.add(s, keys, columns, value_blocks.left(i), drawn);
            }
            for (i, (top, sum, row)) in weighted.rows(count).enumerate() {
                let (inverse, log) = finalize(top, sum);
                // SAFETY: this task alone writes its head's columns of its queries' rows, and their
                // sums.
                let (output, logs) = unsafe {
                    let start = args.output_start(head, first + i);
                    (
                        output.slice(start, value_width),
                        sums.slice(args.sum_index(head, first + i), 1),
                    )
                };
                for (y, x) in output.iter_mut().zip(row) {
                    *y = x * inverse;
                }
                logs[0] = log;
            }
        }
    }
}

impl AttentionArgs<'_> {
    /// Returns the place of a tile in the dropout stream.
    pub(super) fn tile<'a>(
        &self,
        dropout: &'a super::AttentionDropout,
        head: Head,
        query: usize,
        key: usize,
    ) -> Tile<'a> {
        let row = row_length(self.keys_len);
        let first = (head.number * self.queries_len + query) * row + key;
        Tile {
            dropout,
            example: head.example,
            first,
            row,
        }
    }
}
