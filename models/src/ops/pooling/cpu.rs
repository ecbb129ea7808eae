//! Weighted sum over positions: y_b = Σ_l w_bl x_bl, for mean and sum pooling with padding left
//! out.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{split_mut, sum_partials, unspecified};
use rayon::prelude::*;

use crate::autograd::read;
use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "weighted sum";
/// Positions summed by one task.
const POSITIONS: usize = 512;

/// Maps x (B, L, D) and constant weights (B, L) to (B, D).
pub fn weighted_sum(x: &Tensor, weights: &Tensor) -> Result<Tensor> {
    let (batch, length, _) = x.dims3()?;
    if weights.dims() != [batch, length] {
        bail!(
            "{NAME}: x {:?} and weights {:?} do not fit",
            x.shape(),
            weights.shape()
        );
    }
    let weights = read(NAME, &weights.contiguous()?)?.to_vec();
    apply(WeightedSum { weights }, [x])
}

struct WeightedSum {
    weights: Vec<f32>,
}

impl CustomOp<1> for WeightedSum {
    const NAME: &'static str = NAME;
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [x]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let (batch, length, dim) = x.shape.dims3()?;
        let x = x.data;
        let parts = length.div_ceil(POSITIONS);
        let mut partials = vec![0.0; batch * parts * dim];
        let tasks = split_mut(&mut partials, dim, batch * parts);
        tasks.into_par_iter().enumerate().for_each(|(task, sum)| {
            let (example, first) = (task / parts, task % parts * POSITIONS);
            for position in first..length.min(first + POSITIONS) {
                let row = example * length + position;
                let weight = self.weights[row];
                if weight != 0.0 {
                    let x = &x[row * dim..][..dim];
                    sum.iter_mut()
                        .zip(x)
                        .for_each(|(sum, x)| *sum += weight * x);
                }
            }
        });
        let y = match parts {
            0 | 1 => partials,
            _ => partials
                .chunks((parts * dim).max(1))
                .flat_map(|parts| sum_partials(parts, dim))
                .collect(),
        };
        let y = if length == 0 {
            vec![0.0; batch * dim]
        } else {
            y
        };
        Ok((y, (batch, dim).into(), ()))
    }

    fn backward(&self, [x]: [View; 1], pass: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
        let (_, length, dim) = x.shape.dims3()?;
        let mut dx = unspecified(x.shape.elem_count());
        dx.par_chunks_mut(dim.max(1))
            .with_min_len(POSITIONS)
            .enumerate()
            .for_each(|(row, dx)| {
                let dy = &pass.dy[row / length * dim..][..dim];
                dx.iter_mut()
                    .zip(dy)
                    .for_each(|(dx, dy)| *dx = self.weights[row] * dy);
            });
        Ok([dx.into()])
    }
}
