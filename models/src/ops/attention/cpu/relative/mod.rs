//! Scores by distance: z_ij += t_h[c] + a_i[c] + b_j[c] with c = K + min(max(j - i, -K), K).
//!
//! No tensor has the size of the scores: tables have 2 K + 1 columns, of each head (t), of each
//! query (a) or of each key (b), and tiles of scores read the entries of their positions. Distances
//! beyond K count as K.

mod tile;

use std::ops::Range;

use candle_core::{Result, Tensor, bail};
use lra_cpu::buffers::Shared;

pub(super) use self::tile::Places;
use super::NAME;
use super::args::{AttentionArgs, Head, TASKS};
use super::score_mod::Term;
use crate::autograd::{Gradient, View};

/// Numbers that are added to attention scores by the distance of key j from query i. In head h the
/// sum is `t_h[c] + a_i[c] + b_j[c]`, where absent tables count as zeros. Column c is K plus the
/// distance j - i, which is limited to the range from -K to K. The queries are at positions 0, 1
/// and so on. The keys in `keys` are at positions 0, 1 and so on, too.
#[derive(Clone, Debug)]
pub struct RelativeScores {
    /// K, the largest distance that has a column of its own in the tables.
    pub reach: usize,
    /// Indices of the N keys that have a position. The scores of other keys stay as they are.
    pub keys: Range<usize>,
    /// Table t (H, 2 K + 1): a row for each of the H heads, with a column for each distance from -K
    /// to K.
    pub of_heads: Option<Tensor>,
    /// Table a (B, H, Lq, 2 K + 1): a row for each of the Lq queries in each example and head, with
    /// a column for each distance from -K to K.
    pub of_queries: Option<Tensor>,
    /// Table b (B, H, N, 2 K + 1): a row for each of the N keys in `keys` in each example and head,
    /// with a column for each distance from -K to K.
    pub of_keys: Option<Tensor>,
}

impl RelativeScores {
    /// Returns the number of columns of a table.
    pub(crate) fn columns(&self) -> usize {
        2 * self.reach + 1
    }

    /// Refuses tables that do not fit.
    pub(crate) fn check(
        &self,
        (batch, heads): (usize, usize),
        (queries, keys): (usize, usize),
    ) -> Result<()> {
        let columns = self.columns();
        let fits = |table: &Option<Tensor>, expected: &[usize]| {
            table.as_ref().is_none_or(|table| table.dims() == expected)
        };
        if self.keys.start <= self.keys.end
            && self.keys.end <= keys
            && fits(&self.of_heads, &[heads, columns])
            && fits(&self.of_queries, &[batch, heads, queries, columns])
            && fits(&self.of_keys, &[batch, heads, self.keys.len(), columns])
        {
            return Ok(());
        }
        let shapes = self.tables().map(|table| table.map(Tensor::dims));
        bail!(
            "{NAME}: tables {shapes:?} of scores by distances up to {} do not fit {batch} x {heads} heads of {queries} queries and keys {:?} of {keys}",
            self.reach,
            self.keys
        )
    }

    pub(super) fn tables(&self) -> [Option<&Tensor>; 3] {
        [&self.of_heads, &self.of_queries, &self.of_keys].map(Option::as_ref)
    }
}

/// Returns the largest number of parts that the work of a head is split into.
fn most_parts(heads: usize) -> usize {
    TASKS.div_ceil(heads.max(1))
}

/// The tables of one call of attention.
#[derive(Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) reach: usize,
    /// The first key with a position, and how many there are.
    pub(super) keys: (usize, usize),
    pub(super) queries: usize,
    pub(super) heads: usize,
    pub(super) of_heads: Option<&'a [f32]>,
    pub(super) of_queries: Option<&'a [f32]>,
    pub(super) of_keys: Option<&'a [f32]>,
}

impl Tables<'_> {
    /// Returns whether a query or a key has a row of its own, whose gradient one task must have for
    /// itself.
    pub(super) fn have_rows(&self) -> bool {
        self.of_queries.is_some() || self.of_keys.is_some()
    }

    fn columns(&self) -> usize {
        2 * self.reach + 1
    }

    fn of_head(&self, head: Head) -> Range<usize> {
        let start = head.number * self.columns();
        start..start + self.columns()
    }

    fn of_query(&self, head: Head, query: usize) -> Range<usize> {
        let start = (self.index(head) * self.queries + query) * self.columns();
        start..start + self.columns()
    }

    /// Returns the range of a key's row; `key` counts from the first with a position.
    fn of_key(&self, head: Head, key: usize) -> Range<usize> {
        let start = (self.index(head) * self.keys.1 + key) * self.columns();
        start..start + self.columns()
    }

    fn index(&self, head: Head) -> usize {
        head.example * self.heads + head.number
    }
}

/// Destinations of the gradients of the tables, as far as these are wanted.
pub(super) struct TableGradients<'a> {
    /// Rows for each head of each example: one for each part of its work.
    parts: usize,
    /// (B, H, parts, 2 K + 1).
    of_heads: Option<Shared<'a, f64>>,
    of_queries: Option<Shared<'a>>,
    of_keys: Option<Shared<'a>>,
}

/// Room for the gradients of the tables that are wanted.
pub(super) struct Buffers {
    /// 2 K + 1.
    columns: usize,
    parts: usize,
    /// (B, H, parts, 2 K + 1).
    of_heads: Option<Vec<f64>>,
    of_queries: Option<Vec<f32>>,
    of_keys: Option<Vec<f32>>,
}

impl Buffers {
    pub(super) fn new(args: &AttentionArgs, expected: [bool; 3], tables: &[View; 3]) -> Self {
        let columns = match &args.score_mods.term {
            Some(Term::ByDistance(tables)) => tables.columns(),
            Some(Term::ByPair(_)) | None => 0,
        };
        let heads = args.batch * args.heads;
        let parts = most_parts(heads);
        let [of_heads, of_queries, of_keys] = expected;
        let row_gradients = |expected: bool, table: &View| {
            let len = table.shape.elem_count();
            expected.then(|| vec![0.0; len])
        };
        Self {
            columns,
            parts,
            of_heads: of_heads.then(|| vec![0.0; heads * parts * columns]),
            of_queries: row_gradients(of_queries, &tables[1]),
            of_keys: row_gradients(of_keys, &tables[2]),
        }
    }

    /// Returns the destinations of the gradients, if there are tables.
    pub(super) fn targets(&mut self) -> Option<TableGradients<'_>> {
        (self.columns > 0).then(|| TableGradients {
            parts: self.parts,
            of_heads: self.of_heads.as_mut().map(|buffer| Shared::new(buffer)),
            of_queries: self.of_queries.as_mut().map(|buffer| Shared::new(buffer)),
            of_keys: self.of_keys.as_mut().map(|buffer| Shared::new(buffer)),
        })
    }

    /// Returns the gradients, those of the heads' table summed over examples and parts in order, in
    /// f64: a column is a sum over up to L² scores.
    pub(super) fn into_gradients(self, args: &AttentionArgs) -> [Gradient; 3] {
        let of_heads = self.of_heads.map(|partials| {
            let mut totals = vec![0.0; args.heads * self.columns];
            let rows = partials.chunks_exact(self.parts * self.columns);
            for (index, rows) in rows.enumerate() {
                let total = &mut totals[index % args.heads * self.columns..][..self.columns];
                for row in rows.chunks_exact(self.columns) {
                    total.iter_mut().zip(row).for_each(|(x, y)| *x += y);
                }
            }
            totals
                .iter()
                .map(|total: &f64| *total as f32)
                .collect::<Vec<_>>()
        });
        [of_heads, self.of_queries, self.of_keys].map(Gradient::from)
    }
}
