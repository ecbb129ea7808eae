//! Rotation of neighbouring columns by position, in one pass over the rows.

use candle_core::{Result, Shape, Tensor};
use rayon::prelude::*;

use super::buffers::chunk_rows;
use super::custom_op::{BackwardPass, CustomOp, Gradient, View, apply};

/// Rows of a task, at least, and tasks, at most.
const LEAST_ROWS: usize = 64;
const TASKS: usize = 64;

/// x (B, L, W) with columns 2c and 2c + 1 of each group of `width` among the first `columns` rotated by `angles` (L, width / 2).
pub(crate) fn rotate(x: &Tensor, columns: usize, width: usize, angles: Vec<f64>) -> Result<Tensor> {
    let turns = angles
        .iter()
        .map(|angle| [angle.cos() as f32, angle.sin() as f32]);
    let op = Rotary {
        turns: turns.collect(),
        columns,
        width,
    };
    apply(op, [x])
}

struct Rotary {
    /// Cosine and sine for each position and pair.
    turns: Vec<[f32; 2]>,
    columns: usize,
    width: usize,
}

impl Rotary {
    /// `direction` 1 as the angles say, -1 the other way.
    fn run(&self, x: &[f32], (length, row): (usize, usize), direction: f32) -> Vec<f32> {
        let mut y = x.to_vec();
        let pairs = self.width / 2;
        if row * pairs == 0 {
            return y;
        }
        let rows = chunk_rows(y.len() / row, LEAST_ROWS, TASKS);
        let chunks = y.par_chunks_mut(rows * row).enumerate();
        chunks.for_each(|(chunk, y)| {
            for (i, y) in y.chunks_exact_mut(row).enumerate() {
                let position = (chunk * rows + i) % length;
                let turns = &self.turns[position * pairs..][..pairs];
                for group in y[..self.columns].chunks_exact_mut(self.width) {
                    for (pair, [cosine, sine]) in group.chunks_exact_mut(2).zip(turns) {
                        let (a, b, sine) = (pair[0], pair[1], direction * sine);
                        pair[0] = a * cosine - b * sine;
                        pair[1] = a * sine + b * cosine;
                    }
                }
            }
        });
        y
    }
}

impl CustomOp<1> for Rotary {
    const NAME: &'static str = "rotary";
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [x]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let (_, length, row) = x.shape.dims3()?;
        Ok((self.run(x.data, (length, row), 1.0), x.shape, ()))
    }

    fn backward(&self, [x]: [View; 1], pass: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
        let (_, length, row) = x.shape.dims3()?;
        Ok([self.run(pass.dy, (length, row), -1.0).into()])
    }
}
