//! Queries that score keys by contents and by distance, as in Transformer-XL (arXiv:1901.02860):
//! for each head
//!
//! ```text
//! y_l = [q_l + u ; R_l Pᵀ (q_l + w)]
//! ```
//!
//! with R_l a rotation of neighbouring columns by angles of position l. Only the operands are kept:
//! dP, du and dw are sums of the tasks' results, in order.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{Shared, add, chunk_rows, sum_partials, sum_rows, task_rows, unspecified};
use lra_cpu::gemm::{Matrix, PackedMatrix, multiply, multiply_packed, multiply_packed_into};
use lra_cpu::isa::Isa;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::workspaces::Workspaces;
use lra_cpu::zero_rows;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};
use crate::ops::rotary::cpu::{Direction, Turn, turn};

const NAME: &str = "relative_queries";
/// Chunks of rows of the backward pass, and so partial sums of every gradient of a parameter; rows
/// of one, at least.
const PARTIALS: usize = 8;
const LEAST_ROWS: usize = 256;
/// Rows that the backward pass takes together.
const TILE: usize = 64;

/// Returns q (B, L, H E) with biases u = `content` and w = `position` (H, E) and P = `pairs` (H, E,
/// C), its columns turned by `turns` (L, C / 2): (B, L, H (E + C)).
///
/// # Errors
/// If shapes do not fit, or an operand is not f32 in main memory.
pub fn relative_queries(
    q: &Tensor,
    [content, position]: [&Tensor; 2],
    pairs: &Tensor,
    turns: Vec<Turn>,
) -> Result<Tensor> {
    let ((_, length, row), (heads, width, columns)) = (q.dims3()?, pairs.dims3()?);
    let biases = [content, position].map(|bias| bias.dims() == [heads, width]);
    if row != heads * width || biases != [true; 2] || turns.len() != length * (columns / 2) {
        let shapes = [q, content, position, pairs].map(Tensor::shape);
        let turns = turns.len();
        bail!("{NAME}: queries, biases and matrices {shapes:?} with {turns} rotations do not fit");
    }
    apply(RelativeQueries { turns }, [q, content, position, pairs])
}

struct RelativeQueries {
    /// (L, C / 2).
    turns: Vec<Turn>,
}

#[derive(Clone, Copy)]
struct Sizes {
    /// B L, and L.
    rows: usize,
    length: usize,
    heads: usize,
    /// E and C.
    width: usize,
    columns: usize,
}

impl Sizes {
    fn new(q: &Shape, pairs: &Shape) -> Result<Self> {
        let ((batch, length, _), (heads, width, columns)) = (q.dims3()?, pairs.dims3()?);
        Ok(Sizes {
            rows: batch * length,
            length,
            heads,
            width,
            columns,
        })
    }

    /// Numbers of a row of q and of y.
    fn row(&self) -> usize {
        self.heads * self.width
    }

    fn wide_row(&self) -> usize {
        self.heads * (self.width + self.columns)
    }

    /// Returns P of a head.
    fn of_head<'a>(&self, pairs: &'a [f32], head: usize) -> &'a [f32] {
        let len = self.width * self.columns;
        &pairs[head * len..][..len]
    }
}

/// Writes rows of `row` numbers, of which `x` has the first, plus `bias` into rows of `to`.
fn biased((x, row): (&[f32], usize), bias: &[f32], (to, to_row): (&mut [f32], usize)) {
    for (to, x) in to.chunks_mut(to_row).zip(x.chunks(row)) {
        for (to, (x, bias)) in to.iter_mut().zip(x.iter().zip(bias)) {
            *to = x + bias;
        }
    }
}

/// Turns the first columns of some rows, the first of which is at a position of its sequence.
struct Turned<'a> {
    rows: (&'a mut [f32], usize),
    columns: usize,
    turns: &'a [Turn],
    position: usize,
    direction: Direction,
}

impl Kernel for Turned<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let pairs = self.columns / 2;
        if pairs == 0 {
            return;
        }
        let (rows, row) = self.rows;
        let turns = self.turns.chunks_exact(pairs).cycle().skip(self.position);
        for (x, turns) in rows.chunks_mut(row).zip(turns) {
            turn(&mut x[..self.columns], turns, self.direction);
        }
    }
}

/// Operands: q, u, w and P.
impl CustomOp<4> for RelativeQueries {
    const NAME: &'static str = NAME;
    type Saved = ();

    fn forward(
        &self,
        [q, content, position, pairs]: [View; 4],
        _: bool,
    ) -> Result<(Vec<f32>, Shape, ())> {
        let sizes = Sizes::new(&q.shape, &pairs.shape)?;
        let Sizes { width, columns, .. } = sizes;
        let (row, wide_row) = (sizes.row(), sizes.wide_row());
        let isa = Isa::current();
        let packed = |head| {
            let pairs = Matrix::rows(sizes.of_head(pairs.data, head), columns);
            PackedMatrix::new(isa, pairs, (width, columns))
        };
        let packed: Vec<PackedMatrix> = (0..sizes.heads).map(packed).collect();
        let mut y = unspecified(sizes.rows * wide_row);
        let count = task_rows(sizes.rows);
        let tasks = y.par_chunks_mut(count * wide_row).enumerate();
        let workspaces = Workspaces::new(tasks.len(), || ());
        tasks.for_each(|(task, y)| {
            workspaces.lend(|()| {
                let rows = y.len() / wide_row;
                let mut shifted = Scratch::unspecified(rows * width);
                for (head, packed) in packed.iter().enumerate() {
                    let of_head = head * width..(head + 1) * width;
                    let [content, position] =
                        [content.data, position.data].map(|bias| &bias[of_head.clone()]);
                    let q = (&q.data[task * count * row + of_head.start..], row);
                    let y = &mut y[head * (width + columns)..];
                    biased(q, content, (y, wide_row));
                    biased(q, position, (&mut shifted, width));
                    let y = &mut y[width..];
                    let left = Matrix::rows(&shifted, width);
                    multiply_packed_into(isa, rows, left, packed, (y, wide_row), false);
                    isa.run(Turned {
                        rows: (y, wide_row),
                        columns,
                        turns: &self.turns,
                        position: task * count % sizes.length,
                        direction: Direction::Forward,
                    });
                }
            })
        });
        let (batch, length, _) = q.shape.dims3()?;
        Ok((y, (batch, length, wide_row).into(), ()))
    }

    fn backward(
        &self,
        [q, content, position, pairs]: [View; 4],
        pass: BackwardPass<(), 4>,
    ) -> Result<[Gradient; 4]> {
        let sizes = Sizes::new(&q.shape, &pairs.shape)?;
        let Sizes {
            heads,
            width,
            columns,
            ..
        } = sizes;
        let (row, wide_row) = (sizes.row(), sizes.wide_row());
        let isa = Isa::current();
        let transposed = |head| {
            let pairs = Matrix::columns(sizes.of_head(pairs.data, head), columns);
            PackedMatrix::new(isa, pairs, (columns, width))
        };
        let transposed: Vec<PackedMatrix> = (0..heads).map(transposed).collect();
        let count = chunk_rows(sizes.rows, LEAST_ROWS, PARTIALS);
        let chunks = pass.dy.chunks((count * wide_row).max(1));
        let live: Vec<Vec<_>> = chunks
            .map(|dy| zero_rows::runs(dy, wide_row).collect())
            .collect();
        // dP, du and dw of each chunk and head.
        let partial = width * (columns + 2);
        let mut partials = vec![0.0; live.len() * heads * partial];
        let mut dq = unspecified(q.data.len());
        let shared = Shared::new(&mut dq);
        let tasks = partials.par_chunks_mut(partial.max(1)).enumerate();
        let workspaces = Workspaces::new(tasks.len(), || ());
        tasks.for_each(|(task, partial)| {
            workspaces.lend(|()| {
                let (chunk, head) = (task / heads, task % heads);
                let (dpairs, biases) = partial.split_at_mut(width * columns);
                let (dcontent, dposition) = biases.split_at_mut(width);
                let position = &position.data[head * width..][..width];
                let mut shifted = Scratch::unspecified(TILE * width);
                let mut dshifted = Scratch::unspecified(TILE * width);
                let mut turned = Scratch::unspecified(TILE * columns);
                let tiles = live[chunk].iter().flat_map(|(rows, live)| {
                    let firsts = rows.clone().step_by(TILE);
                    firsts.map(move |first| (first, TILE.min(rows.end - first), *live))
                });
                for (first, rows, live) in tiles {
                    let first = chunk * count + first;
                    let dy = &pass.dy[first * wide_row + head * (width + columns)..];
                    let (shifted, dshifted, turned) = (
                        &mut shifted[..rows * width],
                        &mut dshifted[..rows * width],
                        &mut turned[..rows * columns],
                    );
                    if live {
                        let of_turned = turned.chunks_mut(columns.max(1));
                        for (turned, dy) in of_turned.zip(dy.chunks(wide_row)) {
                            turned.copy_from_slice(&dy[width..][..columns]);
                        }
                        isa.run(Turned {
                            rows: (turned, columns.max(1)),
                            columns,
                            turns: &self.turns,
                            position: first % sizes.length,
                            direction: Direction::Back,
                        });
                        let of_turned = Matrix::rows(turned, columns);
                        let packed = &transposed[head];
                        multiply_packed(isa, rows, of_turned, packed, dshifted, false);
                        let q = (&q.data[first * row + head * width..], row);
                        biased(q, position, (shifted, width));
                        let shape = (width, columns, rows);
                        let shifted = Matrix::columns(shifted, width);
                        multiply(isa, shape, shifted, of_turned, dpairs, true);
                        sum_rows(dshifted, dposition);
                    } else {
                        dshifted.fill(0.0);
                    }
                    for (i, (dshifted, dy)) in dshifted
                        .chunks_exact_mut(width)
                        .zip(dy.chunks(wide_row))
                        .enumerate()
                    {
                        add(&dy[..width], dcontent);
                        add(&dy[..width], dshifted);
                        // SAFETY: this task alone has its head's columns of its chunk's rows.
                        let dq = unsafe { shared.slice((first + i) * row + head * width, width) };
                        dq.copy_from_slice(dshifted);
                    }
                }
            })
        });
        // Sums of each head.
        let sums = sum_partials(&partials, heads * partial);
        let mut gradients = [content, position, pairs].map(|x| Vec::with_capacity(x.data.len()));
        let [dcontent, dposition, dpairs] = &mut gradients;
        for sums in sums.chunks_exact(partial.max(1)) {
            let (of_pairs, biases) = sums.split_at(width * columns);
            dpairs.extend_from_slice(of_pairs);
            dcontent.extend_from_slice(&biases[..width]);
            dposition.extend_from_slice(&biases[width..]);
        }
        let [dcontent, dposition, dpairs] = gradients.map(Gradient::from);
        Ok([dq.into(), dcontent, dposition, dpairs])
    }
}
