//! Attention of channels to channels (XCiT, arXiv 2106.09681), for each example and head, on rows
//! (L, H E) as projections give them. Heads are multiplied where they lie in a row; no tensor is
//! transposed in memory.
//!
//! Cosines of columns over the positions: S_ij = Σ_l q_li k_lj / (|q_i| |k_j|), where
//! |q_i|² = Σ_l q_li² + tiny, with dq_li = Σ_j C_ij k_lj - q_li Σ_j dS_ij S_ij / |q_i|² and
//! C_ij = dS_ij / (|q_i| |k_j|), and dk likewise by the columns of C.
//!
//! Channels mixed: y_li = Σ_j A_ij v_lj, with dv_lj = Σ_i A_ij dy_li and dA_ij = Σ_l dy_li v_lj.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::unspecified;
use lra_cpu::gemm::{Matrix, multiply, multiply_into};
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Rows of a result that one task computes.
const ROWS: usize = 64;
/// Under the root: the gradient at zero stays finite, and columns of zeros have cosines of zero.
const TINY: f32 = 1e-24;

/// Returns S (B, H, E, E) of q and k (B, L, H E).
///
/// # Errors
/// If shapes do not fit.
pub fn channel_cosines(q: &Tensor, k: &Tensor, heads: usize) -> Result<Tensor> {
    if q.dims() != k.dims() {
        let (q, k) = (q.shape(), k.shape());
        bail!("{}: q {q:?} and k {k:?} differ", Cosines::NAME);
    }
    apply(Cosines { heads }, [q, k])
}

/// Returns y (B, L, H E) of v (B, L, H E) and weights A (B, H, E, E).
///
/// # Errors
/// If shapes do not fit.
pub fn mix_channels(v: &Tensor, weights: &Tensor) -> Result<Tensor> {
    let ((batch, _, row), (examples, heads, width, columns)) = (v.dims3()?, weights.dims4()?);
    if batch != examples || width != columns || heads * width != row {
        let (v, weights) = (v.shape(), weights.shape());
        bail!(
            "{}: v {v:?} and weights {weights:?} do not fit",
            Mixing::NAME
        );
    }
    apply(Mixing { heads }, [v, weights])
}

/// Layout of heads in x (B, L, H E).
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    length: usize,
    /// H E.
    row: usize,
    heads: usize,
    /// E.
    width: usize,
}

impl Sizes {
    fn new(x: &Shape, heads: usize) -> Result<Self> {
        let (batch, length, row) = x.dims3()?;
        if heads == 0 || row % heads != 0 || length * row == 0 {
            bail!("channel attention: x {x:?} does not fit {heads} heads");
        }
        Ok(Sizes {
            batch,
            length,
            row,
            heads,
            width: row / heads,
        })
    }

    /// Returns x from row `first` of an example on, and from the first channel of a head on.
    fn from<'a>(&self, x: &'a [f32], (example, first): (usize, usize), head: usize) -> &'a [f32] {
        &x[(example * self.length + first) * self.row + head * self.width..]
    }

    /// Returns the matrix of head `head` of an example.
    fn matrix<'a>(&self, matrices: &'a [f32], example: usize, head: usize) -> &'a [f32] {
        let size = self.width * self.width;
        &matrices[(example * self.heads + head) * size..][..size]
    }

    /// Returns matrices (B, H, E, E), one after the other, which `fill` computes from the example
    /// and the head.
    fn matrices(&self, fill: impl Fn(usize, usize, &mut [f32]) + Sync) -> Vec<f32> {
        let size = self.width * self.width;
        let mut matrices = unspecified(self.batch * self.heads * size);
        let each = matrices.par_chunks_mut(size).enumerate();
        each.for_each(|(i, matrix)| fill(i / self.heads, i % self.heads, matrix));
        matrices
    }

    /// Returns (B, L, H E), from `fill`, which is given the example, the first row and some rows.
    fn rows(&self, fill: impl Fn((usize, usize), &mut [f32]) + Sync) -> Vec<f32> {
        let mut rows = unspecified(self.batch * self.length * self.row);
        let examples = rows.chunks_mut(self.length * self.row);
        let per_example = self.length.div_ceil(ROWS);
        let pieces: Vec<&mut [f32]> = examples
            .flat_map(|example| example.chunks_mut(ROWS * self.row))
            .collect();
        pieces.into_par_iter().enumerate().for_each(|(i, piece)| {
            fill((i / per_example, i % per_example * ROWS), piece);
        });
        rows
    }

    /// Adds up Σ_l a_li b_lj of an example and a head.
    fn covariance(&self, isa: Isa, a: &[f32], b: &[f32], at: (usize, usize), sums: &mut [f32]) {
        let [a, b] = [a, b].map(|x| self.from(x, (at.0, 0), at.1));
        let sizes = (self.width, self.width, self.length);
        let (a, b) = (Matrix::columns(a, self.row), Matrix::rows(b, self.row));
        multiply(isa, sizes, a, b, sums, false);
    }

    /// Multiplies the rows of each head by the head's matrix, M or its transpose: y_li = Σ_j x_lj
    /// M_ji, or M_ij.
    fn by_matrices(
        &self,
        isa: Isa,
        x: &[f32],
        (matrices, transposed): (&[f32], bool),
        at: (usize, usize),
        y: &mut [f32],
    ) {
        for head in 0..self.heads {
            let matrix = self.matrix(matrices, at.0, head);
            let matrix = match transposed {
                false => Matrix::rows(matrix, self.width),
                true => Matrix::columns(matrix, self.width),
            };
            let sizes = (y.len() / self.row, self.width, self.width);
            let x = Matrix::rows(self.from(x, at, head), self.row);
            let y = (&mut y[head * self.width..], self.row);
            multiply_into(isa, sizes, x, matrix, y, false);
        }
    }
}

/// Cosines of q and k.
struct Cosines {
    heads: usize,
}

impl CustomOp<2> for Cosines {
    const NAME: &'static str = "channel_cosines";
    /// 1 / |q_i| and 1 / |k_j| (B, H E).
    type Saved = [Vec<f32>; 2];
    const READS_OUTPUT: bool = true;

    fn forward(&self, [q, k]: [View; 2], _: bool) -> Result<(Vec<f32>, Shape, Self::Saved)> {
        let sizes = Sizes::new(&q.shape, self.heads)?;
        let isa = Isa::current();
        let scales = [q.data, k.data].map(|x| {
            let mut scales = unspecified(sizes.batch * sizes.row);
            let examples = scales
                .par_chunks_mut(sizes.row)
                .zip(x.par_chunks(sizes.length * sizes.row));
            examples.for_each(|(scales, x)| isa.run(Scales { x, scales }));
            scales
        });
        let cosines = sizes.matrices(|example, head, cosines| {
            sizes.covariance(isa, q.data, k.data, (example, head), cosines);
            scale(&sizes, &scales, (example, head), cosines);
        });
        let shape = (sizes.batch, sizes.heads, sizes.width, sizes.width).into();
        Ok((cosines, shape, scales))
    }

    fn backward(
        &self,
        [q, k]: [View; 2],
        pass: BackwardPass<Self::Saved, 2>,
    ) -> Result<[Gradient; 2]> {
        let sizes = Sizes::new(&q.shape, self.heads)?;
        let isa = Isa::current();
        let scales = pass.saved;
        let scaled = sizes.matrices(|example, head, scaled| {
            scaled.copy_from_slice(sizes.matrix(pass.dy, example, head));
            scale(&sizes, &scales, (example, head), scaled);
        });
        // Factors of each column that is subtracted: (Σ_j dS_ij S_ij) / |q_i|², and the sums over i
        // for k.
        let mut along = [0, 1].map(|_| vec![0.0; sizes.batch * sizes.row]);
        let width = sizes.width;
        for (i, (ds, s)) in pass.dy.iter().zip(pass.y).enumerate() {
            let (matrix, row, column) = (i / (width * width), i / width % width, i % width);
            along[0][matrix * width + row] += ds * s;
            along[1][matrix * width + column] += ds * s;
        }
        for (along, scales) in along.iter_mut().zip(&scales) {
            let pairs = along.iter_mut().zip(scales);
            pairs.for_each(|(along, scale)| *along *= scale * scale);
        }
        let gradient = |x: &[f32], other: &[f32], along: &[f32], transposed: bool| {
            sizes.rows(|at, dx| {
                sizes.by_matrices(isa, other, (&scaled, transposed), at, dx);
                let x = &sizes.from(x, at, 0)[..dx.len()];
                let along = &along[at.0 * sizes.row..][..sizes.row];
                isa.run(TakeOff { x, along, dx });
            })
        };
        let dq = gradient(q.data, k.data, &along[0], true);
        let dk = gradient(k.data, q.data, &along[1], false);
        Ok([dq.into(), dk.into()])
    }
}

/// Scales element (i, j) of a head's matrix by the i-th scale of q and the j-th of k.
fn scale(
    sizes: &Sizes,
    [of_q, of_k]: &[Vec<f32>; 2],
    (example, head): (usize, usize),
    x: &mut [f32],
) {
    let first = example * sizes.row + head * sizes.width;
    let of_k = &of_k[first..][..sizes.width];
    for (x, of_q) in x.chunks_exact_mut(sizes.width).zip(&of_q[first..]) {
        let row = x.iter_mut().zip(of_k);
        row.for_each(|(x, of_k)| *x *= of_q * of_k);
    }
}

/// 1 / √(Σ_l x_li² + tiny) of the columns of one example.
struct Scales<'a> {
    x: &'a [f32],
    scales: &'a mut [f32],
}

impl Kernel for Scales<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let Scales { x, scales } = self;
        scales.fill(TINY);
        for row in x.chunks_exact(scales.len()) {
            let pairs = scales.iter_mut().zip(row);
            pairs.for_each(|(sum, x)| *sum += x * x);
        }
        scales.iter_mut().for_each(|sum| *sum = sum.sqrt().recip());
    }
}

/// dx -= x · along, row by row.
struct TakeOff<'a> {
    x: &'a [f32],
    along: &'a [f32],
    dx: &'a mut [f32],
}

impl Kernel for TakeOff<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let TakeOff { x, along, dx } = self;
        let rows = dx.chunks_exact_mut(along.len());
        for (dx, x) in rows.zip(x.chunks_exact(along.len())) {
            let each = dx.iter_mut().zip(x).zip(along);
            each.for_each(|((dx, x), along)| *dx -= x * along);
        }
    }
}

/// Mixing of v by A.
struct Mixing {
    heads: usize,
}

impl CustomOp<2> for Mixing {
    const NAME: &'static str = "mix_channels";
    type Saved = ();

    fn forward(&self, [v, weights]: [View; 2], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let sizes = Sizes::new(&v.shape, self.heads)?;
        let isa = Isa::current();
        let y = sizes.rows(|at, y| sizes.by_matrices(isa, v.data, (weights.data, true), at, y));
        Ok((y, v.shape, ()))
    }

    fn backward(
        &self,
        [v, weights]: [View; 2],
        pass: BackwardPass<(), 2>,
    ) -> Result<[Gradient; 2]> {
        let sizes = Sizes::new(&v.shape, self.heads)?;
        let isa = Isa::current();
        let dy = pass.dy;
        let dv = sizes.rows(|at, dv| sizes.by_matrices(isa, dy, (weights.data, false), at, dv));
        let dweights = sizes.matrices(|example, head, sums| {
            sizes.covariance(isa, dy, v.data, (example, head), sums);
        });
        Ok([dv.into(), dweights.into()])
    }
}
