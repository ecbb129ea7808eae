//! The backward pass: weights recomputed tile by tile from the saved sums.
//!
//! With weights P = softmax(S), dropout factors M, D = dO Vᵀ and δ = rowsum(dO O):
//! dV = (P M)ᵀ dO, dS = P (M D - δ), dK = dSᵀ Q, dQ = dS K (Dao et al., 2022, arXiv 2205.14135).

use lra_cpu::format::Format;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::tile::StridedRowsMut;
use lra_cpu::tile::{
    Operand, PAD, PANEL, PackedTiles, Rows, SIDE, Source, Tile64, columns_to_rows, pack_columns,
    pack_rows, padded, product,
};
use lra_cpu::zero_rows::are_zero_rows;

use super::args::{AttentionArgs, Head, Widths};
use super::dropout::{Tile, kept_factors};
use super::key_mask::KeyBlock;
use super::packed_kv::{KeyTile, PackedKv};
use super::score_mod::{TermGradients, TileMods};

/// Floats of one operand of the keys that are worked on together, so that they stay in the
/// second-level cache.
const GROUP_FLOATS: usize = 32 * 1024;

/// All queries of one head against some of its keys.
pub(super) struct BackwardTask<'a> {
    pub(super) args: &'a AttentionArgs<'a>,
    pub(super) terms: Option<TermGradients<'a>>,
    /// Number of the part of the head's work.
    pub(super) part: usize,
    pub(super) head: Head,
    pub(super) blocks: &'a [KeyBlock],
    /// The output of the forward pass, and its gradient.
    pub(super) output: Rows<'a>,
    pub(super) doutput: Rows<'a>,
    /// Sums of weights of this head's queries.
    pub(super) sums: &'a [f32],
    pub(super) dqueries: StridedRowsMut<'a>,
    pub(super) dkeys: StridedRowsMut<'a>,
    pub(super) dvalues: StridedRowsMut<'a>,
    /// Working memory: of each block of queries, whether it has no gradient.
    pub(super) idle: &'a mut [bool],
}

/// A block of queries in the layouts that the products want.
pub(super) struct Queries {
    rows: PackedTiles,
    columns: PackedTiles,
    drows: PackedTiles,
    dcolumns: PackedTiles,
    pub(super) sums: [f32; SIDE],
    pub(super) deltas: [f32; SIDE],
}

impl Kernel for BackwardTask<'_> {
    /// The gradient of the bias's factor.
    type Output = f64;

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) -> f64 {
        let args = self.args;
        let widths = args.widths;
        let (width, wide) = (widths.queries, padded(widths.queries));
        let query_blocks = args.queries_len.div_ceil(SIDE);
        let widest = wide.max(padded(widths.values));
        let per_group = (GROUP_FLOATS / (SIDE * widest)).clamp(1, self.blocks.len().max(1));
        let deltas = deltas(s, self.output, self.doutput, args.queries_len);
        for (block, idle) in self.idle.iter_mut().enumerate() {
            let (first, end) = (block * SIDE, args.queries_len.min((block + 1) * SIDE));
            *idle = args.padding(self.head.example, first..end)
                || are_zero_rows(self.doutput.from(first), end - first);
        }
        // Columns are queries, block by block.
        let mut dqueries = Scratch::zeros(query_blocks * SIDE * wide);
        let mut queries = Queries::new(args);
        let mut packed_kv = PackedKv::new(args, (per_group, SIDE));
        let mut tiles = Tiles::new(args);
        let mut mods = args.tile_mods(self.head);
        let mut dfactor = 0.0;
        for blocks in self.blocks.chunks(per_group) {
            let (keys, values) = (args.keys(self.head), args.values(self.head));
            for (slot, block) in blocks.iter().enumerate() {
                let rows = (keys.from(block.first), values.from(block.first));
                packed_kv.load(slot, rows, block.len());
            }
            packed_kv.clear_gradients();
            let all = dqueries.chunks_exact_mut(SIDE * wide).enumerate();
            for (index, dqueries) in all.filter(|(index, _)| !self.idle[*index]) {
                let first = index * SIDE;
                let count = SIDE.min(args.queries_len - first);
                let rows = [args.queries(self.head), self.doutput].map(|rows| rows.from(first));
                queries.load(rows, count, args.scale, |i| {
                    (self.sums[first + i], deltas[first + i])
                });
                for (slot, block) in blocks.iter().enumerate() {
                    let at = (first, count);
                    dfactor += self.step(
                        s,
                        &queries,
                        at,
                        (packed_kv.tile(slot, (block.len(), block.bits)), *block),
                        (&mut mods, &mut tiles),
                        dqueries,
                    );
                }
            }
            for (slot, block) in blocks.iter().enumerate() {
                let (first, count) = (block.first, block.len());
                let [dkeys, dvalues] = packed_kv.gradients(slot);
                // SAFETY: a task alone has its head's columns of its keys' rows.
                unsafe {
                    self.dkeys.write(first, count, widths.keys, 1.0, dkeys);
                    self.dvalues
                        .write(first, count, widths.values, 1.0, dvalues);
                }
            }
        }
        let mut rows = Scratch::zeros(SIDE * wide);
        for (index, dqueries) in dqueries.chunks_exact(SIDE * wide).enumerate() {
            let first = index * SIDE;
            let count = SIDE.min(args.queries_len - first);
            columns_to_rows(dqueries, count, width, &mut rows);
            // SAFETY: each task has its own rows for the gradient of its head's queries.
            unsafe {
                self.dqueries.write(first, count, width, args.scale, &rows);
            }
        }
        dfactor
    }
}

/// Weights and their gradients, (keys, queries), and the factors of dropout.
pub(super) struct Tiles {
    pub(super) format: Format,
    widths: Widths,
    pub(super) weights: Tile64,
    /// Gradients of weights; after a step those of scores, if they are asked for.
    pub(super) gradients: Tile64,
    pub(super) returns_gradients: bool,
    /// Derivatives of scores by the sums that a function bounds; none without one.
    pub(super) slopes: Option<Tile64>,
    pub(super) factors: Tile64,
    /// Room for operands whose format is not plain numbers.
    pub(super) scratch: [Scratch; 3],
}

impl Tiles {
    pub(super) fn new(args: &AttentionArgs) -> Self {
        // Without dropout the factors stay one.
        Tiles {
            format: args.format,
            widths: args.widths,
            weights: Tile64::filled(0.0),
            gradients: Tile64::filled(0.0),
            returns_gradients: args.score_mods.term.is_some(),
            slopes: args.score_mods.have_slopes().then(|| Tile64::filled(0.0)),
            factors: Tile64::filled(1.0),
            scratch: [(); 3].map(|()| Operand::A.scratch(args.format, (SIDE, SIDE))),
        }
    }
}

impl BackwardTask<'_> {
    /// Computes one tile: a block of queries against a block of keys.
    #[inline(always)]
    fn step<S: Lanes>(
        &self,
        s: S,
        queries: &Queries,
        (first, count): (usize, usize),
        (tile, block): (KeyTile, KeyBlock),
        (mods, tiles): (&mut TileMods, &mut Tiles),
        dqueries: &mut [f32],
    ) -> f64 {
        let drawn = |dropout| self.args.tile(dropout, self.head, first, block.first);
        let drawn = self.args.dropout.map(drawn);
        mods.load(first..first + count, block.positions());
        let modify = |scores: &mut _, slopes: Option<&mut Tile64>| {
            mods.apply(s, block.len(), scores, slopes);
        };
        tiles.step(s, (queries, count), tile, modify, drawn, dqueries);
        // SAFETY: a task alone has its part of its head, all of it if the work is undivided, and
        // for a term by pair these keys of all examples.
        unsafe { mods.add_gradients(self.terms.as_ref(), self.part, &tiles.gradients) }
    }
}

impl Tiles {
    /// Adds the gradients of one tile to those of its queries (the columns of `dqueries`), keys and
    /// values. `modify` turns products (keys, queries) into scores, and writes the slopes of the
    /// function that bounds them, if there is one.
    #[inline(always)]
    pub(super) fn step<S: Lanes>(
        &mut self,
        s: S,
        (queries, count): (&Queries, usize),
        keys: KeyTile,
        modify: impl FnOnce(&mut [f32; SIDE * SIDE], Option<&mut Tile64>),
        drawn: Option<Tile>,
        dqueries: &mut [f32],
    ) {
        let (format, widths) = (self.format, self.widths);
        let wide = padded(widths.queries);
        let (key_wide, value_wide) = (padded(widths.keys), padded(widths.values));
        let columns = count.next_multiple_of(PAD);
        let rows = keys.count.next_multiple_of(PANEL);
        product::<S, false>(
            s,
            format,
            keys.key_rows,
            queries.columns.right(0),
            (&mut *self.weights, SIDE),
            (rows, columns, widths.queries),
        );
        modify(&mut self.weights, self.slopes.as_mut());
        product::<S, false>(
            s,
            format,
            keys.value_rows,
            queries.dcolumns.right(0),
            (&mut *self.gradients, SIDE),
            (rows, columns, widths.values),
        );
        let (queries_of, valid) = ((queries, count), (keys.count, keys.bits));
        let operands = if let Some(tile) = drawn {
            kept_factors(s, tile, &mut self.factors);
            self.operands::<S, true>(s, queries_of, valid)
        } else {
            self.operands::<S, false>(s, queries_of, valid)
        };
        product::<S, true>(
            s,
            format,
            operands.weights,
            queries.drows.right(0),
            (keys.dvalues, value_wide),
            (rows, value_wide, count),
        );
        product::<S, true>(
            s,
            format,
            operands.gradients,
            queries.rows.right(0),
            (keys.dkeys, key_wide),
            (rows, key_wide, count),
        );
        product::<S, true>(
            s,
            format,
            keys.key_columns,
            operands.gradients_right,
            (dqueries, SIDE),
            (wide, columns, keys.count),
        );
    }
}

impl Queries {
    pub(super) fn new(args: &AttentionArgs) -> Self {
        let widths = args.widths;
        let held = |size| PackedTiles::new(args.format, Operand::B, 1, size);
        Queries {
            rows: held((SIDE, padded(widths.queries))),
            columns: held((widths.queries, SIDE)),
            drows: held((SIDE, padded(widths.values))),
            dcolumns: held((widths.values, SIDE)),
            sums: [f32::INFINITY; SIDE],
            deltas: [0.0; SIDE],
        }
    }

    /// Takes `count` queries and the gradients of their outputs, and of each its sum of weights and
    /// its delta.
    pub(super) fn load(
        &mut self,
        [queries, doutput]: [impl Source + Copy; 2],
        count: usize,
        scale: f32,
        statistics: impl Fn(usize) -> (f32, f32),
    ) {
        let [width, value_width] = [queries.width(), doutput.width()];
        let of_columns = scale * std::f32::consts::LOG2_E;
        self.rows.pack(0, (count, padded(width)), |rows| {
            pack_rows(queries, count, scale, rows);
        });
        self.columns.pack(0, (width, SIDE), |columns| {
            pack_columns(queries, count, of_columns, columns);
        });
        self.drows.pack(0, (count, padded(value_width)), |rows| {
            pack_rows(doutput, count, 1.0, rows);
        });
        self.dcolumns.pack(0, (value_width, SIDE), |columns| {
            pack_columns(doutput, count, 1.0, columns);
        });
        for i in 0..SIDE {
            // Columns beyond the last query: no weight, no gradient.
            let (sum, delta) = if i < count {
                statistics(i)
            } else {
                (f32::INFINITY, 0.0)
            };
            (self.sums[i], self.deltas[i]) = (sum, delta);
        }
    }
}

/// Returns rowsum(dO O) of every query.
#[inline(always)]
pub(super) fn deltas<S: Lanes>(s: S, output: Rows, doutput: Rows, count: usize) -> Scratch {
    // Loops, not closures, which are not all compiled for these instructions.
    let mut deltas = Scratch::unspecified(count);
    for (i, delta) in deltas.iter_mut().enumerate() {
        let (x, x_tail) = S::as_simd_f32s(output.row(i));
        let (y, y_tail) = S::as_simd_f32s(doutput.row(i));
        let mut sum = s.mul_f32s(s.partial_load_f32s(x_tail), s.partial_load_f32s(y_tail));
        for (x, y) in x.iter().zip(y) {
            sum = s.fma(*x, *y, sum);
        }
        *delta = s.reduce_sum_f32s(sum);
    }
    deltas
}
