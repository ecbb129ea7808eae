//! One call of attention: the location of its operands, and the division of its work.

use candle_core::Shape;
use lra_cpu::buffers::{Shared, unspecified};
use lra_cpu::format::Format;
use lra_cpu::isa::Isa;
use lra_cpu::tile::StridedRowsMut;
use lra_cpu::tile::{GatheredRows, PANEL, RowMajor, Rows, SIDE, Source, padded};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use super::AttentionDropout;
use super::backward::BackwardTask;
use super::forward::ForwardTask;
use super::key_mask::{KeyBlock, KeyMask};
use super::score_mod::{ScoreMods, TermGradients, TileMods};
use super::sparse::BlockMasks;

/// Tasks that a pass is split into where the heads alone are fewer.
pub(super) const TASKS: usize = 16;
/// Blocks of queries below which a forward task does not pay for packing its keys.
const LEAST_QUERY_BLOCKS: usize = 4;
/// Blocks of keys below which a backward task does not pay for packing its queries.
const LEAST_KEY_BLOCKS: usize = 8;

/// A head of an example.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Head {
    pub(super) example: usize,
    pub(super) number: usize,
}

/// Columns of a head.
#[derive(Clone, Copy)]
pub(super) struct Widths {
    /// E + P, of queries, and of keys with the columns that all heads have in common.
    pub(super) queries: usize,
    /// E, of keys.
    pub(super) keys: usize,
    /// Ev, of values and outputs.
    pub(super) values: usize,
}

/// One call of attention, with its operands.
pub(super) struct AttentionArgs<'a> {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) queries_len: usize,
    pub(super) keys_len: usize,
    pub(super) widths: Widths,
    pub(super) scale: f32,
    /// Number format of queries, keys, values, weights and gradients in products.
    pub(super) format: Format,
    pub(super) operands: [RowMajor<'a>; 3],
    /// (Lk, P).
    pub(super) key_columns: Option<Rows<'a>>,
    pub(super) valid: &'a KeyMask,
    /// True if queries and keys are those of one sequence.
    pub(super) self_attention: bool,
    pub(super) dropout: Option<&'a AttentionDropout>,
    /// Block masks of the queries; without them every query sees every key.
    pub(super) block_masks: Option<&'a BlockMasks>,
    pub(super) score_mods: ScoreMods<'a>,
}

impl<'a> AttentionArgs<'a> {
    /// Returns the number of elements of a row of the output: all heads.
    pub(super) fn row(&self) -> usize {
        self.heads * self.widths.values
    }

    /// Returns (B, Lq, H Ev).
    pub(super) fn output_shape(&self) -> Shape {
        (self.batch, self.queries_len, self.row()).into()
    }

    /// Returns the width of a head in queries (0), keys (1) or values (2).
    pub(super) fn width_of(&self, which: usize) -> usize {
        match which {
            0 => self.widths.queries,
            1 => self.widths.keys,
            _ => self.widths.values,
        }
    }

    fn operand(&self, which: usize, length: usize, head: Head) -> Rows<'a> {
        let width = self.width_of(which);
        let place = (head.example * length, head.number * width);
        self.operands[which].rows(place, width)
    }

    pub(super) fn queries(&self, head: Head) -> Rows<'a> {
        self.operand(0, self.queries_len, head)
    }

    pub(super) fn keys(&self, head: Head) -> Keys<Rows<'a>> {
        Keys {
            own: self.operand(1, self.keys_len, head),
            columns: self.key_columns,
        }
    }

    pub(super) fn values(&self, head: Head) -> Rows<'a> {
        self.operand(2, self.keys_len, head)
    }

    pub(super) fn output_start(&self, head: Head, query: usize) -> usize {
        (head.example * self.queries_len + query) * self.row() + head.number * self.widths.values
    }

    /// Returns a head's rows of the output or of its gradient.
    pub(super) fn output_rows<'b>(&self, data: &'b [f32], head: Head) -> Rows<'b> {
        Rows {
            data,
            start: self.output_start(head, 0),
            stride: self.row(),
            width: self.widths.values,
        }
    }

    /// Returns the rows of one head in `targets`, the gradients of queries (0), keys (1) or values
    /// (2).
    pub(super) fn of_head<'b>(
        &self,
        targets: &[StridedRowsMut<'b>; 3],
        which: usize,
        head: Head,
    ) -> StridedRowsMut<'b> {
        let length = match which {
            0 => self.queries_len,
            _ => self.keys_len,
        };
        let (target, column) = (targets[which], head.number * self.width_of(which));
        let start = target.start + head.example * length * target.stride + column;
        StridedRowsMut { start, ..target }
    }

    /// Returns the modifications of a head's scores, at no tile yet.
    pub(super) fn tile_mods(&self, head: Head) -> TileMods<'a> {
        TileMods::new(self.score_mods, head)
    }

    /// Returns whether at most [`SIDE`] queries are known to be padding.
    pub(super) fn padding(&self, example: usize, queries: impl Iterator<Item = usize>) -> bool {
        self.self_attention && self.valid.bits(example, queries) == 0
    }

    pub(super) fn sum_index(&self, head: Head, query: usize) -> usize {
        (head.example * self.heads + head.number) * self.queries_len + query
    }

    pub(super) fn head(&self, index: usize) -> Head {
        Head {
            example: index / self.heads,
            number: index % self.heads,
        }
    }

    /// Returns the output (B, Lq, H Ev) and sums (B, H, Lq).
    pub(super) fn forward(&self) -> (Vec<f32>, Vec<f32>) {
        match self.block_masks {
            Some(block_masks) => self.sparse_forward(block_masks),
            None => self.dense_forward(),
        }
    }

    /// Adds the gradients of queries, keys and values to `targets`, which hold zeros.
    pub(super) fn backward(
        &self,
        sums: &[f32],
        outputs: [&[f32]; 2],
        targets: [StridedRowsMut; 3],
        terms: Option<TermGradients>,
    ) {
        match self.block_masks {
            Some(block_masks) => self.sparse_backward(block_masks, sums, outputs, targets, terms),
            None => {
                self.dense_backward(sums, outputs, targets, terms);
            }
        }
    }

    fn dense_forward(&self) -> (Vec<f32>, Vec<f32>) {
        let heads = self.batch * self.heads;
        let mut output = unspecified(self.batch * self.queries_len * self.row());
        let mut sums = unspecified(heads * self.queries_len);
        let (shared_output, shared_sums) = (Shared::new(&mut output), Shared::new(&mut sums));
        let query_blocks = self.queries_len.div_ceil(SIDE);
        let parts = TASKS
            .div_ceil(heads.max(1))
            .min(query_blocks / LEAST_QUERY_BLOCKS)
            .max(1);
        let part = query_blocks.div_ceil(parts) * SIDE;
        let blocks = self.key_blocks();
        let isa = Isa::current();
        let workspaces = Workspaces::new(heads * parts, || ());
        (0..heads * parts).into_par_iter().for_each(|task| {
            let first = (task % parts * part).min(self.queries_len);
            let head = self.head(task / parts);
            let task = ForwardTask {
                args: self,
                head,
                first,
                count: part.min(self.queries_len - first),
                output: &shared_output,
                blocks: &blocks[head.example],
                sums: &shared_sums,
            };
            workspaces.lend(|()| isa.run(task));
        });
        (output, sums)
    }

    /// Returns the blocks of keys of each example.
    fn key_blocks(&self) -> Vec<Vec<KeyBlock>> {
        (0..self.batch)
            .map(|example| self.valid.blocks(example).collect())
            .collect()
    }

    /// Computes all gradients. Rows of keys without a valid one are left alone. Returns the gradient
    /// of the bias's factor, if there is one.
    pub(super) fn dense_backward(
        &self,
        sums: &[f32],
        [output, doutput]: [&[f32]; 2],
        targets: [StridedRowsMut; 3],
        terms: Option<TermGradients>,
    ) -> f64 {
        let heads = self.batch * self.heads;
        let key_blocks = self.keys_len.div_ceil(SIDE);
        // The gradient of a bias is summed over examples: one task has the same keys of all of
        // them.
        let of_pairs = matches!(terms, Some(TermGradients::ByPair(_)));
        let apart = if of_pairs { self.heads } else { heads };
        let parts = match self.score_mods.undivided() {
            true => 1,
            false => TASKS
                .div_ceil(apart.max(1))
                .min(key_blocks / LEAST_KEY_BLOCKS)
                .max(1),
        };
        let blocks = self.key_blocks();
        // The gradient of the queries from every part but the first, (B, H, parts - 1, Lq, E + P).
        let partial = self.queries_len * self.widths.queries;
        let mut partials = unspecified(heads * (parts - 1) * partial);
        let shared = Shared::new(&mut partials);
        let isa = Isa::current();
        let query_blocks = self.queries_len.div_ceil(SIDE);
        let workspaces = Workspaces::new(apart * parts, || vec![false; query_blocks]);
        let run = |idle: &mut Vec<bool>, index: usize, part: usize| {
            let head = self.head(index);
            let blocks = &blocks[head.example];
            let share = |part| match of_pairs {
                false => blocks.len() * part / parts,
                true => {
                    let first = key_blocks * part / parts * SIDE;
                    blocks.partition_point(|block| block.first < first)
                }
            };
            let to = |which| self.of_head(&targets, which, head);
            let dqueries = if part == 0 {
                to(0)
            } else {
                let start = (index * (parts - 1) + part - 1) * partial;
                StridedRowsMut {
                    buffer: &shared,
                    start,
                    stride: self.widths.queries,
                }
            };
            let sums = &sums[self.sum_index(head, 0)..][..self.queries_len];
            isa.run(BackwardTask {
                args: self,
                terms,
                part,
                head,
                blocks: &blocks[share(part)..share(part + 1)],
                output: self.output_rows(output, head),
                doutput: self.output_rows(doutput, head),
                sums,
                dqueries,
                dkeys: to(1),
                dvalues: to(2),
                idle,
            })
        };
        let dfactors: Vec<f64> = match of_pairs {
            false => (0..heads * parts)
                .into_par_iter()
                .map(|task| workspaces.lend(|idle| run(idle, task / parts, task % parts)))
                .collect(),
            true => (0..self.heads * parts)
                .into_par_iter()
                .map(|task| {
                    let index = |example| example * self.heads + task / parts;
                    workspaces.lend(|idle| {
                        (0..self.batch)
                            .map(|example| run(idle, index(example), task % parts))
                            .sum()
                    })
                })
                .collect(),
        };
        if parts > 1 {
            (0..heads).into_par_iter().for_each(|index| {
                let target = self.of_head(&targets, 0, self.head(index));
                let partials = &partials[index * (parts - 1) * partial..][..(parts - 1) * partial];
                for partial in partials.chunks_exact(partial.max(1)) {
                    for (i, partial) in partial.chunks_exact(self.widths.queries).enumerate() {
                        // SAFETY: this task alone has its head's columns of its example's rows, and
                        // the tasks above are done.
                        let row = unsafe {
                            let start = target.start + i * target.stride;
                            target.buffer.slice(start, self.widths.queries)
                        };
                        row.iter_mut().zip(partial).for_each(|(x, y)| *x += y);
                    }
                }
            });
        }
        dfactors.iter().sum()
    }
}

/// Keys of a head: columns of their own, and those that the keys of all heads have.
#[derive(Clone, Copy)]
pub(super) struct Keys<S> {
    own: S,
    columns: Option<S>,
}

impl<'a> Keys<Rows<'a>> {
    /// Returns the keys from `first` on.
    pub(super) fn from(self, first: usize) -> Self {
        Keys {
            own: self.own.from(first),
            columns: self.columns.map(|columns| columns.from(first)),
        }
    }

    /// Returns the keys at `places`.
    pub(super) fn at(self, places: &'a [u32]) -> Keys<GatheredRows<'a>> {
        Keys {
            own: self.own.at(places),
            columns: self.columns.map(|columns| columns.at(places)),
        }
    }
}

impl<S: Source + Copy> Keys<S> {
    /// Returns each source with the number of its first column, and of all columns.
    fn sources(self) -> (impl Iterator<Item = (S, usize)>, usize) {
        let own = self.own.width();
        let width = own + self.columns.map_or(0, |columns| columns.width());
        let columns = self.columns.map(|columns| (columns, own));
        ([(self.own, 0)].into_iter().chain(columns), width)
    }

    /// Copies `count` keys into rows of padded width; those that a last panel lacks become zero.
    pub(super) fn pack_rows(self, count: usize, packed: &mut [f32]) {
        let (sources, width) = self.sources();
        let wide = padded(width);
        for (source, column) in sources {
            for (i, packed) in packed.chunks_exact_mut(wide).take(count).enumerate() {
                packed[column..column + source.width()].copy_from_slice(source.row(i));
            }
        }
        packed[count * wide..count.next_multiple_of(PANEL) * wide].fill(0.0);
    }
}
