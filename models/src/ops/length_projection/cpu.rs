//! A sequence projected along its length: y_bkhe = Σ_l A_hlk x_blhe, one matrix for all heads or
//! one for each (Linformer, arXiv 2006.04768). Examples are multiplied where they lie; no tensor is
//! transposed in memory.
//!
//! dx_blhe = Σ_k A_hlk dy_bkhe, and dA_hlk = Σ_b Σ_e x_blhe dy_bkhe, summed over examples in order.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::unspecified;
use lra_cpu::gemm::{Matrix, multiply_into};
use lra_cpu::isa::Isa;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "length_projection";
/// Rows of a result that one task computes.
const ROWS: usize = 64;

/// Projects x (B, L, H E) by the first L rows of `matrix` (1 or H, N, K), to (B, K, H E).
pub fn project_length(x: &Tensor, matrix: &Tensor, heads: usize) -> Result<Tensor> {
    let ((_, length, row), (copies, longest, rank)) = (x.dims3()?, matrix.dims3()?);
    let fits = heads > 0 && row % heads == 0 && (copies == 1 || copies == heads);
    if !fits || longest < length || row * rank * length == 0 {
        let (x, matrix) = (x.shape(), matrix.shape());
        bail!("{NAME}: x {x:?} and matrix {matrix:?} do not fit for {heads} heads");
    }
    apply(Shortening, [x, matrix])
}

struct Shortening;

struct Sizes {
    batch: usize,
    /// L.
    length: usize,
    /// H E.
    row: usize,
    /// Matrices, and the columns of x that each is for.
    copies: usize,
    width: usize,
    /// N.
    longest: usize,
    /// K.
    rank: usize,
}

impl Sizes {
    fn new(x: &Shape, matrix: &Shape) -> Result<Self> {
        let ((batch, length, row), (copies, longest, rank)) = (x.dims3()?, matrix.dims3()?);
        Ok(Sizes {
            batch,
            length,
            row,
            copies,
            width: row / copies,
            longest,
            rank,
        })
    }

    /// Returns rows `from..` of matrix `copy`.
    fn matrix<'a>(&self, data: &'a [f32], copy: usize, from: usize) -> &'a [f32] {
        &data[(copy * self.longest + from) * self.rank..]
    }

    /// Results (B, rows, H E) in pieces of at most [`ROWS`] rows: example, first row, rows.
    fn pieces<'a>(
        &self,
        results: &'a mut [f32],
        rows: usize,
    ) -> impl IndexedParallelIterator<Item = (usize, usize, &'a mut [f32])> {
        let (row, per_example) = (self.row, rows.div_ceil(ROWS));
        let examples = results.chunks_mut(rows * row);
        let pieces: Vec<&mut [f32]> = examples.flat_map(|x| x.chunks_mut(ROWS * row)).collect();
        pieces
            .into_par_iter()
            .enumerate()
            .map(move |(i, piece)| (i / per_example, i % per_example * ROWS, piece))
    }
}

impl CustomOp<2> for Shortening {
    const NAME: &'static str = NAME;
    type Saved = ();

    fn forward(&self, [x, matrix]: [View; 2], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let sizes = Sizes::new(&x.shape, &matrix.shape)?;
        let (x, matrix) = (x.data, matrix.data);
        let Sizes {
            length, row, width, ..
        } = sizes;
        let isa = Isa::current();
        let mut y = unspecified(sizes.batch * sizes.rank * row);
        let pieces = sizes.pieces(&mut y, sizes.rank);
        pieces.for_each(|(example, first, y)| {
            for copy in 0..sizes.copies {
                let a = &sizes.matrix(matrix, copy, 0)[first..];
                let x = &x[example * length * row + copy * width..];
                multiply_into(
                    isa,
                    (y.len() / row, width, length),
                    Matrix::columns(a, sizes.rank),
                    Matrix::rows(x, row),
                    (&mut y[copy * width..], row),
                    false,
                );
            }
        });
        Ok((y, (sizes.batch, sizes.rank, row).into(), ()))
    }

    fn backward(&self, [x, matrix]: [View; 2], pass: BackwardPass<(), 2>) -> Result<[Gradient; 2]> {
        let sizes = Sizes::new(&x.shape, &matrix.shape)?;
        let (x, matrix, dy) = (x.data, matrix.data, pass.dy);
        let Sizes {
            length,
            row,
            width,
            rank,
            ..
        } = sizes;
        let isa = Isa::current();
        let mut dx = unspecified(x.len());
        sizes
            .pieces(&mut dx, length)
            .for_each(|(example, first, dx)| {
                for copy in 0..sizes.copies {
                    let dy = &dy[example * rank * row + copy * width..];
                    multiply_into(
                        isa,
                        (dx.len() / row, width, rank),
                        Matrix::rows(sizes.matrix(matrix, copy, first), rank),
                        Matrix::rows(dy, row),
                        (&mut dx[copy * width..], row),
                        false,
                    );
                }
            });
        // Rows beyond the length have no gradient.
        let mut dmatrix = vec![0.0; matrix.len()];
        let mut pieces = Vec::new();
        for (copy, dmatrix) in dmatrix.chunks_mut(sizes.longest * rank).enumerate() {
            let rows = dmatrix[..length * rank].chunks_mut(ROWS * rank).enumerate();
            pieces.extend(rows.map(|(piece, rows)| (copy, piece * ROWS, rows)));
        }
        pieces.into_par_iter().for_each(|(copy, first, rows)| {
            for example in 0..sizes.batch {
                let x = &x[(example * length + first) * row + copy * width..];
                let dy = &dy[example * rank * row + copy * width..];
                multiply_into(
                    isa,
                    (rows.len() / rank, rank, width),
                    Matrix::rows(x, row),
                    Matrix::columns(dy, row),
                    (rows, rank),
                    example > 0,
                );
            }
        });
        Ok([dx.into(), dmatrix.into()])
    }
}
