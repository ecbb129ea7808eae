//! Softmax attention over a block mask: one softmax per query over the keys of all its tiles.

mod backward;
mod block_mask;
mod forward;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use candle_core::{Result, bail};
use lra_cpu::buffers::Shared;
use lra_cpu::isa::Isa;
use lra_cpu::simd::Lanes;
use lra_cpu::tile::SIDE;
use lra_cpu::tile::StridedRowsMut;
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use self::backward::BackwardTask;
use self::block_mask::Tile;
pub use self::block_mask::{BlockMask, QueryRange, QueryRanges};
pub(crate) use self::block_mask::{BlockView, TileView};
use self::forward::ForwardTask;
use super::AttentionDropout;
use super::args::{AttentionArgs, Head, TASKS};
use super::dropout;
use super::score_mod::TermGradients;

/// Blocks of queries below which a part of a head is not worth its own sums.
const LEAST_BLOCKS: usize = 8;

/// Block masks of all heads of a batch: one for all of them, one for each head, or one for each
/// head of each example.
#[derive(Clone, Debug)]
pub struct BlockMasks(Arc<[BlockMask]>);

impl BlockMasks {
    /// Builds the masks of a batch from `block_masks`, in the order (example, head). If there are
    /// fewer than all examples have heads, they are used again from the first: one mask serves all
    /// heads.
    #[must_use]
    pub fn new(mut block_masks: Vec<BlockMask>) -> Self {
        block_masks.iter_mut().for_each(BlockMask::finish);
        BlockMasks(block_masks.into())
    }

    /// Returns one block mask for all heads, one for each head, or one for each head of each
    /// example.
    pub(crate) fn all(&self) -> &[BlockMask] {
        &self.0
    }

    /// Returns these masks with the keys at the positions `keys` in addition. Every query sees each
    /// of them once. The masks themselves must not have them.
    #[must_use]
    pub(crate) fn beside(&self, keys: Range<u32>) -> Self {
        let keys: Vec<u32> = keys.collect();
        let masks = self.0.iter().map(|mask| mask.beside(&keys));
        BlockMasks::new(masks.collect())
    }

    /// Returns the number of pairs of query and key whose scores are computed for one sequence with
    /// `heads` heads.
    #[must_use]
    pub fn pairs(&self, heads: usize) -> usize {
        match self.all() {
            [block_mask] => block_mask.pairs() * heads,
            block_masks => block_masks.iter().take(heads).map(BlockMask::pairs).sum(),
        }
    }

    fn of(&self, index: usize) -> &BlockMask {
        &self.0[index % self.0.len()]
    }

    /// Tiles of the longest block mask.
    fn tiles(&self) -> usize {
        self.0
            .iter()
            .map(|block_mask| block_mask.tiles().len())
            .max()
            .unwrap_or(0)
    }

    /// Refuses block masks for other numbers of heads, or for longer sequences, and dropout of more
    /// weights than it has numbers for.
    pub(crate) fn check(
        &self,
        (batch, heads): (usize, usize),
        (queries, keys): (usize, usize),
        dropped: bool,
    ) -> Result<()> {
        if ![1, heads, batch * heads].contains(&self.0.len()) {
            let block_masks = self.0.len();
            bail!("attention: {block_masks} block_masks for {batch} examples of {heads} heads");
        }
        for block_mask in self.0.iter() {
            let (least_queries, least_keys) = block_mask.lengths();
            if least_queries > queries || least_keys > keys {
                bail!(
                    "attention: a block_mask for {least_queries} queries and {least_keys} keys, given {queries} and {keys}"
                );
            }
        }
        if dropped && self.tiles() > NUMBERED / heads {
            let tiles = self.tiles();
            bail!("attention: {heads} heads of {tiles} tiles exceed a dropout stream");
        }
        Ok(())
    }
}

/// Tiles that the dropout stream of an example has numbers for: 2^22, of 64 x 64 words each.
const NUMBERED: usize = 1 << 22;

/// Returns the number of the weight of a query of a tile, counted within it, on the tile's first
/// key, in the dropout stream of the example; those on the keys after it follow. Heads have equal
/// shares of the numbers. All forms of attention under a block mask use these numbers, so that the
/// same weights are dropped.
pub(crate) fn first_weight((head, heads): (usize, usize), (tile, query): (usize, usize)) -> usize {
    ((head * (NUMBERED / heads) + tile) * SIDE + query) * SIDE
}

/// Returns the position of a tile in the dropout stream.
fn drawn<'a>(
    args: &AttentionArgs,
    dropout: &'a AttentionDropout,
    head: Head,
    number: usize,
) -> dropout::Tile<'a> {
    dropout::Tile {
        dropout,
        example: head.example,
        first: first_weight((head.number, args.heads), (number, 0)),
        row: SIDE,
    }
}

/// Returns positions as indices.
fn indices(positions: &[u32]) -> impl ExactSizeIterator<Item = usize> {
    positions.iter().map(|position| *position as usize)
}

/// Hides the pairs that a tile's query ranges leave out, and adds the bias to diagonal scores
/// (keys, queries).
#[inline(always)]
fn apply_ranges<S: Lanes>(
    s: S,
    block_mask: &BlockMask,
    tile: &Tile,
    columns: usize,
    scores: &mut [f32; SIDE * SIDE],
) {
    let Some(ranges) = block_mask.tile_sights(tile) else {
        return;
    };
    let numbers: [f32; SIDE] = std::array::from_fn(|i| i as f32);
    let (numbers, _) = S::as_simd_f32s(&numbers);
    let hidden = s.splat_f32s(f32::NEG_INFINITY);
    let bias = s.splat_f32s(block_mask.diagonal_bias() * std::f32::consts::LOG2_E);
    for (row, range) in scores.chunks_exact_mut(SIDE).zip(ranges) {
        let (row, _) = S::as_mut_simd_f32s(&mut row[..columns]);
        let seen = range.range();
        let (from, to) = (
            s.splat_f32s(seen.start as f32),
            s.splat_f32s(seen.end as f32),
        );
        for (scores, number) in row.iter_mut().zip(numbers) {
            let visible = s.select_f32s(s.less_than_f32s(*number, from), hidden, *scores);
            *scores = s.select_f32s(s.less_than_f32s(*number, to), visible, hidden);
        }
        if let Some(diagonal) = range.diagonal() {
            let diagonal = s.splat_f32s(diagonal as f32);
            for (scores, number) in row.iter_mut().zip(numbers) {
                let biased = s.add_f32s(*scores, bias);
                *scores = s.select_f32s(s.equal_f32s(*number, diagonal), biased, *scores);
            }
        }
    }
}

/// Splits the blocks of queries of a head of `args` into parts that are worked on apart.
fn parts(args: &AttentionArgs, block_mask: &BlockMask) -> Vec<Range<usize>> {
    let heads = args.batch * args.heads;
    let blocks = block_mask.query_blocks().len();
    // Queries that are in several blocks are summed up by one task.
    let count = if block_mask.repeats_queries() || args.score_mods.undivided() {
        1
    } else {
        TASKS
            .div_ceil(heads.max(1))
            .min(blocks / LEAST_BLOCKS)
            .max(1)
    };
    let edge = |part: usize| blocks * part / count;
    (0..count).map(|part| edge(part)..edge(part + 1)).collect()
}

/// Block of keys in a slot of packed keys, with the bits of its valid keys.
type KeySlot = Option<(usize, u64)>;

/// Returns the largest number of slots of a mask.
fn most_slots(block_masks: &BlockMasks) -> usize {
    let slots = block_masks.all().iter().map(|mask| mask.packed_kv().0);
    slots.max().unwrap_or(0)
}

impl AttentionArgs<'_> {
    /// Returns all tasks: heads, and parts of each, numbered.
    fn tasks<'p>(
        &self,
        block_masks: &'p BlockMasks,
    ) -> Vec<(Head, &'p BlockMask, Range<usize>, usize)> {
        let heads = 0..self.batch * self.heads;
        let tasks = heads.flat_map(|index| {
            let block_mask = block_masks.of(index);
            let head = self.head(index);
            parts(self, block_mask)
                .into_iter()
                .enumerate()
                .map(move |(part, blocks)| (head, block_mask, blocks, part))
        });
        tasks.collect()
    }

    /// Returns the output (B, Lq, H Ev) and sums (B, H, Lq).
    pub(super) fn sparse_forward(&self, block_masks: &BlockMasks) -> (Vec<f32>, Vec<f32>) {
        let mut output = vec![0.0; self.batch * self.queries_len * self.row()];
        let mut sums = vec![f32::INFINITY; self.batch * self.heads * self.queries_len];
        let (shared_output, shared_sums) = (Shared::new(&mut output), Shared::new(&mut sums));
        let isa = Isa::current();
        let tasks = self.tasks(block_masks).into_par_iter();
        let slots = most_slots(block_masks);
        let revisits = block_masks.all().iter().any(BlockMask::repeats_queries);
        let revisited = if revisits { self.queries_len } else { 0 };
        let workspaces = Workspaces::new(tasks.len(), || {
            (Vec::with_capacity(slots), Vec::with_capacity(revisited))
        });
        tasks.for_each(|(head, block_mask, blocks, _)| {
            workspaces.lend(|(held, revisited)| {
                isa.run(ForwardTask {
                    args: self,
                    block_mask,
                    head,
                    blocks,
                    output: &shared_output,
                    sums: &shared_sums,
                    held,
                    revisited,
                });
            });
        });
        (output, sums)
    }

    /// Adds the gradients of queries, keys and values to `targets`, which hold zeros.
    pub(super) fn sparse_backward(
        &self,
        block_masks: &BlockMasks,
        sums: &[f32],
        [output, doutput]: [&[f32]; 2],
        targets: [StridedRowsMut; 3],
        terms: Option<TermGradients>,
    ) {
        let isa = Isa::current();
        let tasks = self.tasks(block_masks);
        // Gradients of keys and values from every part of a head but the first, of the keys that it
        // sees: (keys, E) and (keys, Ev) each.
        let mut numbers = 0;
        let partials: Vec<Option<Partial>> = tasks
            .iter()
            .map(|(_, block_mask, blocks, part)| {
                let partial = (*part > 0).then(|| {
                    let keys = block_mask.seen(blocks.clone(), self.keys_len);
                    Partial::new(keys, self.keys_len, numbers)
                });
                let keys = partial.as_ref().map_or(0, |partial| partial.keys.len());
                numbers += keys * (self.widths.keys + self.widths.values);
                partial
            })
            .collect();
        let mut buffer = vec![0.0; numbers];
        let shared = Shared::new(&mut buffer);
        let slots = most_slots(block_masks);
        let workspaces = Workspaces::new(tasks.len(), || Vec::with_capacity(slots));
        tasks
            .par_iter()
            .zip(&partials)
            .for_each(|((head, block_mask, blocks, part), partial)| {
                let to = |which: usize| match partial {
                    Some(partial) => StridedRowsMut {
                        buffer: &shared,
                        start: partial.start(self, which),
                        stride: self.width_of(which),
                    },
                    None => self.of_head(&targets, which, *head),
                };
                workspaces.lend(|held| {
                    isa.run(BackwardTask {
                        args: self,
                        block_mask,
                        terms,
                        part: *part,
                        head: *head,
                        blocks: blocks.clone(),
                        sums: &sums[self.sum_index(*head, 0)..][..self.queries_len],
                        output: self.output_rows(output, *head),
                        doutput: self.output_rows(doutput, *head),
                        dqueries: self.of_head(&targets, 0, *head),
                        dkeys: to(1),
                        dvalues: to(2),
                        key_rows: partial.as_ref().map(|partial| &*partial.rows),
                        held,
                    })
                });
            });
        let heads: Vec<_> = tasks.iter().zip(&partials).collect();
        let heads: Vec<_> = heads
            .chunk_by(|((a, ..), _), ((b, ..), _)| a == b)
            .collect();
        heads.into_par_iter().for_each(|parts| {
            // In the order of the parts, the first of which has none.
            for ((head, ..), partial) in parts {
                let Some(partial) = partial else { continue };
                for which in [1, 2] {
                    let to = self.of_head(&targets, which, *head);
                    let width = self.width_of(which);
                    let start = partial.start(self, which);
                    // SAFETY: the tasks above are done.
                    let rows = unsafe { shared.slice(start, partial.keys.len() * width) };
                    for (key, row) in partial.keys.iter().zip(rows.chunks_exact(width)) {
                        let start = to.start + *key as usize * to.stride;
                        // SAFETY: this task alone has its head's columns of its example's rows.
                        let out = unsafe { to.buffer.slice(start, width) };
                        out.iter_mut().zip(row).for_each(|(x, y)| *x += y);
                    }
                }
            }
        });
    }
}

/// Gradients of keys and values from one part of a head's work: rows for the keys that it sees, in
/// their order.
struct Partial {
    keys: Vec<u32>,
    /// The row of each key of all.
    rows: Vec<u32>,
    /// Start of the first row.
    start: usize,
}

impl Partial {
    fn new(keys: Vec<u32>, keys_len: usize, start: usize) -> Self {
        let mut rows = vec![u32::MAX; keys_len];
        for (row, key) in keys.iter().enumerate() {
            rows[*key as usize] = row as u32;
        }
        Self { keys, rows, start }
    }

    /// Returns the first element of the rows of keys (1) or values (2).
    fn start(&self, args: &AttentionArgs, which: usize) -> usize {
        match which {
            1 => self.start,
            _ => self.start + self.keys.len() * args.widths.keys,
        }
    }
}
