//! Token ids to vectors in one pass: y[b, l] = table[id[b, l]] + positions[l], after an optional
//! first slot.
//!
//! The gradient of the table is summed by columns: each task owns a few columns of the whole table
//! and walks all tokens in order, so neither atomics nor partial sums are needed.

use candle_core::{DType, Result, Shape, Tensor, bail};
use lra_cpu::buffers::unspecified;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "embedding";
/// Columns of the table that one task sums: a cache line.
const COLUMNS: usize = 16;
/// Rows of the output per task.
const ROWS: usize = 256;

/// Embeds ids (B, L) of type u32, each below V, with `table` (V, D); yields (B, S, D), S = L slots,
/// or L + 1 where every sequence begins with `first` (1, D). Row s of `positions` (at least S, D)
/// is added to slot s.
pub fn embed(
    ids: &Tensor,
    table: &Tensor,
    first: Option<&Tensor>,
    positions: Option<&Tensor>,
) -> Result<Tensor> {
    let ((batch, length), (vocabulary, dim)) = (ids.dims2()?, table.dims2()?);
    let ids = ids.to_dtype(DType::U32)?.flatten_all()?.to_vec1::<u32>()?;
    if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
        bail!("{NAME}: id {id} in a table of {vocabulary} rows");
    }
    let slots = length + usize::from(first.is_some());
    if dim == 0
        || first.is_some_and(|first| first.dims() != [1, dim])
        || positions
            .is_some_and(|p| p.dims().len() != 2 || p.dims()[0] < slots || p.dims()[1] != dim)
    {
        let (first, positions) = (first.map(Tensor::shape), positions.map(Tensor::shape));
        bail!(
            "{NAME}: {slots} slots, table {:?}, first {first:?}, positions {positions:?}",
            table.shape()
        );
    }
    let op = Embedding {
        ids,
        batch,
        length,
        slots,
    };
    apply(op, [Some(table), first, positions])
}

struct Embedding {
    ids: Vec<u32>,
    batch: usize,
    length: usize,
    slots: usize,
}

impl Embedding {
    /// Returns tokens as (row of the output, id), in order.
    fn tokens(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let offset = self.slots - self.length;
        self.ids.iter().enumerate().map(move |(i, id)| {
            (
                i / self.length * self.slots + offset + i % self.length,
                *id as usize,
            )
        })
    }

    fn table_gradient(&self, dy: &[f32], (vocabulary, dim): (usize, usize)) -> Vec<f32> {
        let strips = dim.div_ceil(COLUMNS);
        let strip = |strip: usize| {
            let first = strip * COLUMNS;
            let width = COLUMNS.min(dim - first);
            let mut sums = vec![0.0; vocabulary * width];
            for (row, id) in self.tokens() {
                let dy = &dy[row * dim + first..][..width];
                let sums = &mut sums[id * width..][..width];
                sums.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
            }
            sums
        };
        let strips: Vec<Vec<f32>> = (0..strips).into_par_iter().map(strip).collect();
        let mut gradient = vec![0.0; vocabulary * dim];
        for (id, row) in gradient.chunks_exact_mut(dim).enumerate() {
            for (out, strip) in row.chunks_mut(COLUMNS).zip(&strips) {
                out.copy_from_slice(&strip[id * out.len()..][..out.len()]);
            }
        }
        gradient
    }

    /// Returns sums over the batch for slots `0..count` of `rows` rows; further rows are zero.
    fn slot_gradient(&self, dy: &[f32], dim: usize, rows: usize, count: usize) -> Vec<f32> {
        let mut gradient = vec![0.0; rows * dim];
        gradient[..count * dim]
            .par_chunks_mut(dim)
            .enumerate()
            .for_each(|(slot, sum)| {
                for example in 0..self.batch {
                    let dy = &dy[(example * self.slots + slot) * dim..][..dim];
                    sum.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
                }
            });
        gradient
    }
}

/// Operands: the table, the first row and the positions.
impl CustomOp<3> for Embedding {
    const NAME: &'static str = NAME;
    type Saved = ();

    fn forward(
        &self,
        [table, first, positions]: [View; 3],
        _: bool,
    ) -> Result<(Vec<f32>, Shape, ())> {
        let dim = table.shape.dims2()?.1;
        let offset = self.slots - self.length;
        let mut y = unspecified(self.batch * self.slots * dim);
        y.par_chunks_mut(dim)
            .with_min_len(ROWS)
            .enumerate()
            .for_each(|(row, y)| {
                let (example, slot) = (row / self.slots, row % self.slots);
                let x = match slot.checked_sub(offset) {
                    Some(token) => {
                        let id = self.ids[example * self.length + token] as usize;
                        &table.data[id * dim..][..dim]
                    }
                    None => first.data,
                };
                let Some(positions) = positions.given() else {
                    return y.copy_from_slice(x);
                };
                let positions = &positions[slot * dim..][..dim];
                for ((y, x), p) in y.iter_mut().zip(x).zip(positions) {
                    *y = x + p;
                }
            });
        Ok((y, (self.batch, self.slots, dim).into(), ()))
    }

    fn backward(
        &self,
        [table, first, positions]: [View; 3],
        pass: BackwardPass<(), 3>,
    ) -> Result<[Gradient; 3]> {
        let sizes = table.shape.dims2()?;
        let slots = |rows: &View, count: usize| {
            self.slot_gradient(pass.dy, sizes.1, rows.data.len() / sizes.1, count)
        };
        let [of_table, of_first, of_positions] = pass.expected;
        Ok([
            of_table.then(|| self.table_gradient(pass.dy, sizes)).into(),
            of_first.then(|| slots(&first, 1)).into(),
            of_positions.then(|| slots(&positions, self.slots)).into(),
        ])
    }
}
