//! Weighted sum over positions: y_b = Σ_l w_bl x_bl, for mean and sum pooling with padding left out.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

use super::buffers::{floats, read, split_mut, sum_partials, tensor, uninit};

const NAME: &str = "weighted sum";
/// Positions summed by one task.
const POSITIONS: usize = 512;

/// x (B, L, D) and constant weights (B, L) to (B, D).
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
    x.contiguous()?.apply_op1(WeightedSum { weights })
}

struct WeightedSum {
    weights: Vec<f32>,
}

impl CustomOp1 for WeightedSum {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (batch, length, dim) = layout.shape().dims3()?;
        let x = floats(NAME, x, layout)?;
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
                .chunks(parts * dim)
                .flat_map(|parts| sum_partials(parts, dim))
                .collect(),
        };
        let y = if length == 0 {
            vec![0.0; batch * dim]
        } else {
            y
        };
        Ok((CpuStorage::F32(y), (batch, dim).into()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let dy = dy.contiguous()?;
        let dy = read(NAME, &dy)?;
        let (_, length, dim) = x.dims3()?;
        let mut dx = uninit(x.elem_count());
        dx.par_chunks_mut(dim.max(1))
            .with_min_len(POSITIONS)
            .enumerate()
            .for_each(|(row, dx)| {
                let dy = &dy[row / length * dim..][..dim];
                dx.iter_mut()
                    .zip(dy)
                    .for_each(|(dx, dy)| *dx = self.weights[row] * dy);
            });
        tensor(dx, x.shape()).map(Some)
    }
}
