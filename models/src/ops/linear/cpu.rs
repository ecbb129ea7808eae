//! Affine map y = x Wᵀ + b of the last dimension, with its own weight gradient.
//!
//! x is (..., K), W is (N, K) as in PyTorch, b is (N). W is packed once, and the rows of x are
//! split into chunks, each multiplied by it on one thread. The weight gradient dW = dyᵀ x, a
//! product of a very wide and a very tall matrix, is split by rows as well (one partial sum per
//! chunk) where W is small, and by rows of W where partial sums of that size would cost more than
//! they save.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{chunk_rows, split_mut, sum_partials, task_rows, unspecified};
use lra_cpu::gemm::{Matrix, PackedMatrix, affine, multiply, multiply_packed};
use lra_cpu::isa::Isa;
use lra_cpu::zero_rows;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "linear";
/// Row chunks of the backward pass, and so partial sums per weight.
const PARTIALS: usize = 32;
/// Rows below which a chunk of the backward pass is not worth its partial sums.
const LEAST_PARTIAL_ROWS: usize = 256;
/// Largest weight that is summed from partials: 64 Ki elements are 8 MiB of partial sums.
pub(in crate::ops) const LARGEST_PARTIAL: usize = 64 * 1024;

/// Returns x Wᵀ + b for x (..., K), weight (N, K), bias (N).
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    apply(Linear, [Some(x), Some(weight), bias])
}

struct Linear;

/// Returns (rows M, outputs N, inputs K), and the shape of y.
fn sizes([x, weight, bias]: &[View; 3]) -> Result<(usize, usize, usize, Shape)> {
    let (n, k) = weight.shape.dims2()?;
    let mut dims = x.shape.dims().to_vec();
    let fits = bias.given().is_none_or(|_| bias.shape.dims() == [n]);
    match dims.last_mut() {
        Some(last) if *last == k && n * k > 0 && fits => *last = n,
        _ => {
            let (x, weight, bias) = (&x.shape, &weight.shape, &bias.shape);
            bail!("{NAME}: x {x:?}, weight {weight:?} and bias {bias:?} do not fit")
        }
    }
    let m = dims[..dims.len() - 1].iter().product();
    Ok((m, n, k, dims.into()))
}

/// Operands: x, W and, where there is one, b.
impl CustomOp<3> for Linear {
    const NAME: &'static str = NAME;
    type Saved = ();

    fn forward(&self, operands: [View; 3], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let (m, n, k, shape) = sizes(&operands)?;
        let [x, weight, bias] = operands;
        let y = forward(x.data, weight.data, bias.given(), (m, n, k));
        Ok((y, shape, ()))
    }

    fn backward(&self, operands: [View; 3], pass: BackwardPass<(), 3>) -> Result<[Gradient; 3]> {
        let (m, n, k, _) = sizes(&operands)?;
        let [x, weight, bias] = operands;
        let bias = bias.given().is_some();
        let [x, weight] = [x.data, weight.data];
        Ok(backward(x, weight, bias, pass.dy, (m, n, k), pass.expected).map(Gradient::from))
    }
}

/// Returns y (M, N).
pub(in crate::ops) fn forward(
    x: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    (m, n, k): (usize, usize, usize),
) -> Vec<f32> {
    let mut y = unspecified(m * n);
    let rows = task_rows(m);
    let isa = Isa::current();
    let weight = PackedMatrix::new(isa, Matrix::columns(weight, k), (k, n));
    y.par_chunks_mut(rows * n).enumerate().for_each(|(i, y)| {
        let m = y.len() / n;
        let x = Matrix::rows(&x[i * rows * k..][..m * k], k);
        match bias {
            Some(bias) => affine(isa, x, &weight, bias, y),
            None => multiply_packed(isa, m, x, &weight, y, false),
        }
    });
    y
}

/// Returns gradients of x and W where they are wanted, and of b where there is one.
pub(in crate::ops) fn backward(
    x: &[f32],
    weight: &[f32],
    bias: bool,
    dy: &[f32],
    (m, n, k): (usize, usize, usize),
    [wants_x, wants_weight, _]: [bool; 3],
) -> [Option<Vec<f32>>; 3] {
    let rows = chunk_rows(m, LEAST_PARTIAL_ROWS, PARTIALS);
    let chunks = m.div_ceil(rows);
    let by_rows_of_x = wants_weight && n * k <= LARGEST_PARTIAL;
    // A gradient that is not wanted, or that is computed below, has empty pieces here.
    let dx_width = if wants_x { k } else { 0 };
    let dweight_len = if by_rows_of_x { n * k } else { 0 };
    let dbias_len = if bias { n } else { 0 };

    let isa = Isa::current();
    let packed = wants_x.then(|| PackedMatrix::new(isa, Matrix::rows(weight, k), (n, k)));
    let mut dx = unspecified(m * dx_width);
    let mut partials = vec![0.0; chunks * (dweight_len + dbias_len)];
    let dx_pieces = split_mut(&mut dx, rows * dx_width, chunks);
    let partial_pieces = split_mut(&mut partials, dweight_len + dbias_len, chunks);
    let tasks = dx_pieces.into_par_iter().zip(partial_pieces).enumerate();
    tasks.for_each(|(i, (dx, partial))| {
        let first = i * rows;
        let m = rows.min(m - first);
        let dy = &dy[first * n..][..m * n];
        let (dweight, dbias) = partial.split_at_mut(dweight_len);
        for (rows, live) in zero_rows::runs(dy, n) {
            let m = rows.len();
            let x = &x[(first + rows.start) * k..][..m * k];
            let dx = &mut dx[rows.start * dx_width..rows.end * dx_width];
            let dy = &dy[rows.start * n..rows.end * n];
            if !live {
                dx.fill(0.0);
                continue;
            }
            if let Some(weight) = &packed {
                multiply_packed(isa, m, Matrix::rows(dy, n), weight, dx, false);
            }
            if by_rows_of_x {
                let (dy, x) = (Matrix::columns(dy, n), Matrix::rows(x, k));
                multiply(isa, (n, k, m), dy, x, dweight, true);
            }
            for dy in dy.chunks_exact(n) {
                for (total, dy) in dbias.iter_mut().zip(dy) {
                    *total += dy;
                }
            }
        }
    });

    let mut dweight = sum_partials(&partials, dweight_len + dbias_len);
    let dbias = dweight.split_off(dweight_len);
    if wants_weight && !by_rows_of_x {
        dweight = by_rows_of_weight(isa, x, dy, (m, n, k));
    }
    [
        wants_x.then_some(dx),
        wants_weight.then_some(dweight),
        bias.then_some(dbias),
    ]
}

/// Computes dW of a large weight, a strip of its rows per task, from one run of rows after the
/// other that have a gradient.
pub(in crate::ops) fn by_rows_of_weight(
    isa: Isa,
    x: &[f32],
    dy: &[f32],
    (m, n, k): (usize, usize, usize),
) -> Vec<f32> {
    let live = zero_rows::runs(&dy[..m * n], n).filter(|(_, live)| *live);
    let live: Vec<_> = live.map(|(rows, _)| rows).collect();
    if live.is_empty() {
        return vec![0.0; n * k];
    }
    let mut dweight = unspecified(n * k);
    let strip = task_rows(n);
    for (index, rows) in live.into_iter().enumerate() {
        let x = Matrix::rows(&x[rows.start * k..], k);
        let x = PackedMatrix::new(isa, x, (rows.len(), k));
        let dy = &dy[rows.start * n..rows.end * n];
        let strips = dweight.par_chunks_mut(strip * k).enumerate();
        strips.for_each(|(i, dweight)| {
            let dy = Matrix::columns(&dy[i * strip..], n);
            multiply_packed(isa, dweight.len() / k, dy, &x, dweight, index > 0);
        });
    }
    dweight
}
