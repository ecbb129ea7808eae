//! The gated output behind the filter of a state space: y = a ⊙ σ(g), where z = m f(x), m a dropout
//! mask or 1, and [a, g] = W z + b, or g = W z + b and a is z or x.
//!
//! x and y are (..., D), W (2D, D) or (D, D). Rows go through all steps a tile at a time, so that
//! intermediate results stay in the cache; only g is kept for the backward pass, which finds a ⊙
//! σ(g) in y and computes z again. Gradients of weights are partial sums, one per chunk of rows, or
//! for large weights products over all rows, as in `linear.rs`.

mod glu;

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{
    add, chunk_rows, multiply_by, split_mut, sum_partials, sum_rows, unspecified,
};
use lra_cpu::gemm::{Matrix, PackedMatrix, affine, multiply, multiply_packed};
use lra_cpu::isa::Isa;
use lra_cpu::scratch::{Scratch, Tiles};
use lra_cpu::workspaces::Workspaces;
use lra_cpu::zero_rows::is_zero_row;
use rayon::prelude::*;

use self::glu::{Gradients, Rows};
use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};
use crate::ops::activation::cpu::{Activation, Elementwise};
use crate::ops::dropout::cpu::{DropoutOptions, RowDropout};
use crate::ops::linear::cpu::{LARGEST_PARTIAL, by_rows_of_weight};

const NAME: &str = "gated linear";
/// Chunks of rows, and so partial sums of every weight's gradient.
const CHUNKS: usize = 32;
const LEAST_ROWS: usize = 128;
/// Rows that go through all steps together.
const TILE: usize = 128;

/// Steps before the linear layer, and the gate's factor.
pub struct GatedLinearOptions {
    /// f.
    pub activation: Activation,
    /// m.
    pub dropout: Option<DropoutOptions>,
    /// a.
    pub value: GatedValue,
}

/// Factor a in the gated output `y = a ⊙ σ(g)` of [`crate::ops::gated_linear()`], whose input x is
/// D wide. W is the weight of the linear layer that makes the gate g.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatedValue {
    /// The first half of the linear layer's output. Its second half is g, and W is (2D, D).
    Linear,
    /// The input of the linear layer, which is x after activation and dropout. W is (D, D).
    Activated,
    /// The input x before activation and dropout. W is (D, D).
    Input,
}

impl GatedValue {
    /// Returns the number of rows of W per column.
    fn halves(self) -> usize {
        match self {
            GatedValue::Linear => 2,
            GatedValue::Activated | GatedValue::Input => 1,
        }
    }

    /// Returns rows a and g, from x, z and the linear layer's output.
    fn parts<'a>(self, [x, z, made]: [&'a [f32]; 3], d: usize) -> [Rows<'a>; 2] {
        let rows = |data, stride| Rows { data, stride };
        match self {
            GatedValue::Linear => [rows(made, 2 * d), rows(&made[d..], 2 * d)],
            GatedValue::Activated => [rows(z, d), rows(made, d)],
            GatedValue::Input => [rows(x, d), rows(made, d)],
        }
    }
}

/// Returns y for x (B, ..., D), weight (2D, D) or (D, D) and a bias of as many rows.
///
/// # Errors
/// If shapes do not fit, or an operand is not f32 in main memory.
pub fn gated_linear(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    options: GatedLinearOptions,
) -> Result<Tensor> {
    let width = x.dims().last().copied().unwrap_or(0);
    let rows = options.value.halves() * width;
    if width == 0 || weight.dims() != [rows, width] || bias.dims() != [rows] {
        let (x, weight, bias) = (x.shape(), weight.shape(), bias.shape());
        bail!("{NAME}: x {x:?}, weight {weight:?} and bias {bias:?} do not fit");
    }
    let dropout = options.dropout.map(|options| RowDropout::new(options, x));
    let op = GatedLinear {
        activation: options.activation,
        dropout: dropout.transpose()?,
        value: options.value,
    };
    apply(op, [x, weight, bias])
}

struct GatedLinear {
    activation: Activation,
    dropout: Option<RowDropout>,
    value: GatedValue,
}

/// Operands: x, W and b.
impl CustomOp<3> for GatedLinear {
    const NAME: &'static str = NAME;
    /// g (..., D).
    type Saved = Vec<f32>;
    const READS_OUTPUT: bool = true;

    fn forward(
        &self,
        [x, weight, bias]: [View; 3],
        keeps: bool,
    ) -> Result<(Vec<f32>, Shape, Vec<f32>)> {
        let (isa, n) = (Isa::current(), bias.data.len());
        let d = n / self.value.halves();
        let m = x.data.len() / d;
        let rows = chunk_rows(m, LEAST_ROWS, CHUNKS);
        let mut y = unspecified(m * d);
        let mut gates = unspecified(if keeps { m * d } else { 0 });
        let kept = if keeps { rows * d } else { 0 };
        let kept = split_mut(&mut gates, kept, m.div_ceil(rows));
        let packed = PackedMatrix::new(isa, Matrix::columns(weight.data, d), (d, n));
        let chunks = y.par_chunks_mut(rows * d).zip(kept);
        let workspaces = Workspaces::new(chunks.len(), || ());
        chunks.enumerate().for_each(|(chunk, (y, kept))| {
            workspaces.lend(|()| {
                let side = TILE.min(rows);
                let mut z = Scratch::unspecified(side * d);
                let mut made = Scratch::unspecified(side * n);
                for (tile, y) in y.chunks_mut(TILE * d).enumerate() {
                    let (start, count) = (tile * TILE, y.len() / d);
                    let first = chunk * rows + start;
                    let z = &mut z[..count * d];
                    let x = &x.data[first * d..][..y.len()];
                    self.activation.values(isa, x, z);
                    if let Some(dropout) = &self.dropout {
                        dropout.scale(first, d, z);
                    }
                    let made = &mut made[..count * n];
                    affine(isa, Matrix::rows(z, d), &packed, bias.data, made);
                    let [a, g] = self.value.parts([x, z, made], d);
                    isa.run(glu::Forward { a, g, width: d, y });
                    if keeps {
                        let kept = kept[start * d..][..count * d].chunks_exact_mut(d);
                        kept.enumerate()
                            .for_each(|(row, kept)| kept.copy_from_slice(g.row(row, d)));
                    }
                }
            })
        });
        Ok((y, x.shape, gates))
    }

    fn backward(
        &self,
        [x, weight, bias]: [View; 3],
        pass: BackwardPass<Vec<f32>, 3>,
    ) -> Result<[Gradient; 3]> {
        let (isa, n) = (Isa::current(), bias.data.len());
        let d = n / self.value.halves();
        let m = x.data.len() / d;
        let rows = chunk_rows(m, LEAST_ROWS, CHUNKS);
        let chunks = m.div_ceil(rows);
        // Large weights have no partial sums: the factors of their gradients are kept instead.
        let large = n * d > LARGEST_PARTIAL;
        let (weights, written) = if large { (0, m) } else { (n * d, 0) };
        let mut dx = unspecified(m * d);
        let mut partials = vec![0.0; chunks * (weights + n)];
        let [mut z_all, mut dgate_all] = [unspecified(written * d), unspecified(written * n)];
        let step = if large { rows } else { 0 };
        let packed = PackedMatrix::new(isa, Matrix::rows(weight.data, d), (n, d));
        let tasks = split_mut(&mut dx, rows * d, chunks)
            .into_par_iter()
            .zip(split_mut(&mut partials, weights + n, chunks))
            .zip(split_mut(&mut z_all, step * d, chunks))
            .zip(split_mut(&mut dgate_all, step * n, chunks));
        let workspaces = Workspaces::new(chunks, || ());
        tasks.enumerate().for_each(|(chunk, task)| {
            workspaces.lend(|()| {
                let (((dx, partial), z_all), dgate_all) = task;
                let (dweight, dbias) = partial.split_at_mut(weights);
                let side = TILE.min(rows);
                let [mut dz, mut mask, mut dvalue] =
                    [(); 3].map(|()| Scratch::unspecified(side * d));
                let mut z = Tiles::new(z_all, side, d);
                let mut dgate = Tiles::new(dgate_all, side, n);
                for (tile, dx) in dx.chunks_mut(TILE * d).enumerate() {
                    let (start, count) = (tile * TILE, dx.len() / d);
                    let first = chunk * rows + start;
                    let narrow = first * d..(first + count) * d;
                    let [x, y, g, dy] =
                        [x.data, pass.y, &pass.saved, pass.dy].map(|rows| &rows[narrow.clone()]);
                    if is_zero_row(dy) {
                        dx.fill(0.0);
                        if large {
                            z.at(start, count).fill(0.0);
                            dgate.at(start, count).fill(0.0);
                        }
                        continue;
                    }
                    let [dz, dvalue] = [&mut dz, &mut dvalue].map(|it| &mut it[..count * d]);
                    let [z, dgate] = [&mut z, &mut dgate].map(|rows| rows.at(start, count));
                    // Drawn once for both of its uses.
                    let mask = self.dropout.as_ref().map(|dropout| {
                        let mask = &mut mask[..count * d];
                        mask.fill(1.0);
                        dropout.scale(first, d, mask);
                        &*mask
                    });
                    isa.run(glu::Backward {
                        y,
                        g,
                        dy,
                        width: d,
                        gradients: match self.value {
                            GatedValue::Linear => Gradients::Together(dgate),
                            GatedValue::Activated | GatedValue::Input => {
                                Gradients::Separate(dvalue, dgate)
                            }
                        },
                    });
                    sum_rows(dgate, dbias);
                    multiply_packed(isa, count, Matrix::rows(dgate, n), &packed, dz, false);
                    if self.value == GatedValue::Activated {
                        add(dvalue, dz);
                    }
                    if let Some(mask) = mask {
                        multiply_by(mask, dz);
                    }
                    self.activation.values_and_gradients(isa, [x, dz], [z, dx]);
                    if let Some(mask) = mask {
                        multiply_by(mask, z);
                    }
                    if !large {
                        let (dgate, z) = (Matrix::columns(dgate, n), Matrix::rows(z, d));
                        multiply(isa, (n, d, count), dgate, z, dweight, true);
                    }
                    if self.value == GatedValue::Input {
                        add(dvalue, dx);
                    }
                }
            })
        });
        let mut dweight = sum_partials(&partials, weights + n);
        let dbias = dweight.split_off(weights);
        if large {
            dweight = by_rows_of_weight(isa, &z_all, &dgate_all, (m, n, d));
        }
        Ok([dx, dweight, dbias].map(Gradient::Of))
    }
}
