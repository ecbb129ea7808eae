//! Scores by distance: z_ij += t_h[c] + a_i[c] + b_j[c] with c = K + min(max(j - i, -K), K).
//!
//! Nothing has the size of the scores: tables have 2 K + 1 columns, of each head (t), of each query (a) or of each key
//! (b), and tiles of scores take from them what belongs to their positions. Distances beyond K count as K.

mod tile;

use std::ops::Range;
use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};

pub(super) use self::tile::Places;
use super::problem::{Head, Problem, TASKS};
use super::{Attention, NAME};
use crate::kernels::buffers::{Shared, StridedRowsMut, floats, read, tensor};
use crate::kernels::custom_op::Tied;
use crate::kernels::tile::Operand;
use crate::kernels::triple::{QkvOp, Sizes, packed};

/// What is added to scores by the distance of key from query. Queries are at 0, 1, .., keys too, from the first of `keys` on.
///
/// Every table has a column for each distance from -K to K.
#[derive(Clone, Debug)]
pub struct RelativeScores {
    /// K, the largest distance that is told apart.
    pub reach: usize,
    /// The keys that have a position; nothing is added to the scores of others.
    pub keys: Range<usize>,
    /// t, one row for each head: (H, 2 K + 1).
    pub of_heads: Option<Tensor>,
    /// a, one row for each query: (B, H, Lq, 2 K + 1).
    pub of_queries: Option<Tensor>,
    /// b, one row for each of `keys`: (B, H, keys, 2 K + 1).
    pub of_keys: Option<Tensor>,
}

impl RelativeScores {
    /// Columns of a table.
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
        let fits = |table: &Option<Tensor>, wanted: &[usize]| {
            table.as_ref().is_none_or(|table| table.dims() == wanted)
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

    fn tables(&self) -> [Option<&Tensor>; 3] {
        [&self.of_heads, &self.of_queries, &self.of_keys].map(Option::as_ref)
    }
}

/// Attention with scores by distance, of `first`: packed projections where there are no `others`, else queries, the others being
/// keys and values.
pub(super) fn attend(
    first: &Tensor,
    others: &[&Tensor],
    attention: Attention,
    scores: &RelativeScores,
) -> Result<Tensor> {
    let tables = scores.tables();
    let all = others.iter().copied().chain(tables.into_iter().flatten());
    let tied = Tied::new(all.map(Tensor::contiguous).collect::<Result<_>>()?);
    let first = first.contiguous()?;
    let tie = tied.tie(first.dtype())?;
    let mut index = others.len();
    let places = tables.map(|table| {
        let place = table.map(|_| index);
        index += usize::from(place.is_some());
        place
    });
    let op = Relative {
        attention,
        reach: scores.reach,
        keys: scores.keys.clone(),
        others: others.len(),
        places,
        tied,
    };
    first.apply_op2(&tie, op)
}

/// Attention with [`RelativeScores`]. The operands but the first are tied.
struct Relative {
    attention: Attention,
    reach: usize,
    keys: Range<usize>,
    /// Tied operands that are keys and values: two or none.
    others: usize,
    /// Where the tables are among the tied operands.
    places: [Option<usize>; 3],
    tied: Arc<Tied>,
}

impl Relative {
    /// Calls `f` with the problem whose first operand is this.
    fn with_problem<T>(
        &self,
        shape: &Shape,
        first: &[f32],
        f: impl FnOnce(Sizes, Problem) -> T,
    ) -> Result<T> {
        let tied = self.tied.operands();
        let readings = tied.iter().map(|operand| read(NAME, operand));
        let readings = readings.collect::<Result<Vec<_>>>()?;
        let (sizes, operands) = match self.others {
            0 => packed(shape, first)?,
            _ => {
                let sizes = [shape.dims3()?, tied[0].dims3()?, tied[1].dims3()?];
                let data = [first, &*readings[0], &*readings[1]];
                let operand = |which: usize| Operand::whole(data[which], sizes[which].2);
                (sizes, [operand(0), operand(1), operand(2)])
            }
        };
        let [of_heads, of_queries, of_keys] =
            self.places.map(|place| place.map(|at| &*readings[at]));
        let mut problem = self.attention.problem(sizes, operands);
        problem.relative = Some(Tables {
            reach: self.reach,
            keys: (self.keys.start, self.keys.len()),
            queries: sizes[0].1,
            heads: self.attention.heads,
            of_heads,
            of_queries,
            of_keys,
        });
        Ok(f(sizes, problem))
    }

    /// The shape of a table whose gradient somebody wants.
    fn wanted(&self, table: usize) -> Option<(usize, &Shape)> {
        let place = self.places[table]?;
        let operand = &self.tied.operands()[place];
        operand.track_op().then(|| (place, operand.shape()))
    }
}

impl CustomOp2 for Relative {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        first: &CpuStorage,
        layout: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let first = floats(NAME, first, layout)?;
        self.with_problem(layout.shape(), first, |sizes, problem| {
            let (batch, queries, _) = sizes[0];
            let output = self.attention.attend(&problem);
            (
                CpuStorage::F32(output),
                (batch, queries, problem.row()).into(),
            )
        })
    }

    fn bwd(
        &self,
        first: &Tensor,
        tie: &Tensor,
        output: &Tensor,
        doutput: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let doutput = doutput.contiguous()?;
        let shape = first.shape();
        let first = read(NAME, first)?;
        let (output, doutput) = (read(NAME, output)?, read(NAME, &doutput)?);
        let sums = self.attention.sums()?;
        let start = |len: usize| self.attention.start(len);
        let tied = self.tied.operands();
        let mut dfirst = start(first.len());
        let [mut dkeys, mut dvalues] = [0, 1].map(|which| match self.others {
            0 => Vec::new(),
            _ => start(tied[which].elem_count()),
        });
        let mut dtables: [Option<Vec<f32>>; 3] = [0, 1, 2].map(|table| {
            let (_, shape) = self.wanted(table)?;
            Some(vec![0.0; shape.elem_count()])
        });
        self.with_problem(shape, &first, |_, problem| {
            let shared = [&mut dfirst, &mut dkeys, &mut dvalues].map(|buffer| Shared::new(buffer));
            let targets = [0, 1, 2].map(|which| {
                let operand = problem.operands[which];
                let (buffer, start) = match self.others {
                    0 => (&shared[0], operand.start),
                    _ => (&shared[which], 0),
                };
                StridedRowsMut {
                    buffer,
                    start,
                    stride: operand.row,
                }
            });
            let [of_heads, of_queries, of_keys] = &mut dtables;
            let heads = problem.batch * problem.heads;
            let parts = most_parts(heads);
            let columns = 2 * self.reach + 1;
            let mut sums_of_heads = match of_heads {
                Some(_) => vec![0.0; heads * parts * columns],
                None => Vec::new(),
            };
            {
                let gradients = TableGradients {
                    parts,
                    of_heads: of_heads.is_some().then(|| Shared::new(&mut sums_of_heads)),
                    of_queries: of_queries.as_mut().map(|buffer| Shared::new(buffer)),
                    of_keys: of_keys.as_mut().map(|buffer| Shared::new(buffer)),
                };
                problem.backward(sums, [&output, &doutput], targets, Some(&gradients));
            }
            if let Some(of_heads) = of_heads {
                // Examples and parts in order, in f64: a column is a sum over up to L² scores.
                let mut totals = vec![0.0; of_heads.len()];
                let rows = sums_of_heads.chunks_exact(parts * columns).enumerate();
                for (index, rows) in rows {
                    let total = &mut totals[index % problem.heads * columns..][..columns];
                    for row in rows.chunks_exact(columns) {
                        total.iter_mut().zip(row).for_each(|(x, y)| *x += y);
                    }
                }
                let narrow = of_heads.iter_mut().zip(totals);
                narrow.for_each(|(x, total)| *x = total as f32);
            }
        })?;
        for (which, gradient) in [dkeys, dvalues].into_iter().take(self.others).enumerate() {
            self.tied
                .leave(which, tensor(gradient, tied[which].shape())?)?;
        }
        for (table, gradient) in dtables.into_iter().enumerate() {
            if let (Some((place, shape)), Some(gradient)) = (self.wanted(table), gradient) {
                self.tied.leave(place, tensor(gradient, shape)?)?;
            }
        }
        Ok((Some(tensor(dfirst, shape)?), Some(tie.zeros_like()?)))
    }
}

/// Parts that the work of a head is split into, at most.
fn most_parts(heads: usize) -> usize {
    TASKS.div_ceil(heads.max(1))
}

/// The tables of one call of attention.
#[derive(Clone, Copy)]
pub(super) struct Tables<'a> {
    reach: usize,
    /// The first key with a position, and how many there are.
    keys: (usize, usize),
    queries: usize,
    heads: usize,
    of_heads: Option<&'a [f32]>,
    of_queries: Option<&'a [f32]>,
    of_keys: Option<&'a [f32]>,
}

impl Tables<'_> {
    /// Whether a query or a key has a row of its own, whose gradient one task must have for itself.
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

    /// `key` counts from the first with a position.
    fn of_key(&self, head: Head, key: usize) -> Range<usize> {
        let start = (self.index(head) * self.keys.1 + key) * self.columns();
        start..start + self.columns()
    }

    fn index(&self, head: Head) -> usize {
        head.example * self.heads + head.number
    }
}

/// Where the gradients of the tables go, as far as somebody wants them.
pub(super) struct TableGradients<'a> {
    /// Rows for each head of each example: one for each part of its work.
    parts: usize,
    /// (B, H, parts, 2 K + 1).
    of_heads: Option<Shared<'a, f64>>,
    of_queries: Option<Shared<'a>>,
    of_keys: Option<Shared<'a>>,
}
