//! Rotation of neighbouring columns by position, in one pass over the rows.

use candle_core::{Result, Shape, Tensor};
use lra_cpu::buffers::chunk_rows;
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Rows of a task, at least, and tasks, at most.
const LEAST_ROWS: usize = 64;
const TASKS: usize = 64;

/// Cosine and sine of an angle.
pub type Turn = [f32; 2];

/// Returns x (B, L, W) with columns 2c and 2c + 1 of each group of `width` among the first
/// `columns` rotated by `turns` (L, width / 2).
pub(crate) fn rotate(x: &Tensor, columns: usize, width: usize, turns: Vec<Turn>) -> Result<Tensor> {
    let op = Rotary {
        turns,
        columns,
        width,
    };
    apply(op, [x])
}

/// Direction in which pairs are turned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum Direction {
    /// Rotation by the angles.
    Forward,
    /// Rotation by their negatives.
    Back,
}

/// Turns neighbouring numbers of `x` as pairs; a last one without a partner stays.
#[inline(always)]
pub(in crate::ops) fn turn(x: &mut [f32], turns: &[Turn], direction: Direction) {
    let sign = match direction {
        Direction::Forward => 1.0,
        Direction::Back => -1.0,
    };
    for (pair, [cosine, sine]) in x.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
        let ([a, b], sine) = (*pair, sign * sine);
        *pair = [a * cosine - b * sine, a * sine + b * cosine];
    }
}

struct Rotary {
    /// (L, width / 2).
    turns: Vec<Turn>,
    columns: usize,
    width: usize,
}

impl Rotary {
    fn run(&self, x: &[f32], (length, row): (usize, usize), direction: Direction) -> Vec<f32> {
        let mut y = x.to_vec();
        if row * (self.width / 2) == 0 {
            return y;
        }
        let rows = chunk_rows(y.len() / row, LEAST_ROWS, TASKS);
        let isa = Isa::current();
        let chunks = y.par_chunks_mut(rows * row).enumerate();
        chunks.for_each(|(chunk, y)| {
            isa.run(Task {
                rotary: self,
                first: chunk * rows,
                sizes: (length, row),
                direction,
                y,
            });
        });
        y
    }
}

/// Some rows of all, from `first` on.
struct Task<'a> {
    rotary: &'a Rotary,
    first: usize,
    /// L and W.
    sizes: (usize, usize),
    direction: Direction,
    y: &'a mut [f32],
}

impl Kernel for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let Rotary {
            turns,
            columns,
            width,
        } = self.rotary;
        let ((length, row), pairs) = (self.sizes, width / 2);
        for (i, y) in self.y.chunks_exact_mut(row).enumerate() {
            let position = (self.first + i) % length;
            let turns = &turns[position * pairs..][..pairs];
            for group in y[..*columns].chunks_exact_mut(*width) {
                turn(group, turns, self.direction);
            }
        }
    }
}

impl CustomOp<1> for Rotary {
    const NAME: &'static str = "rotary";
    type Saved = ();
    const READS_OPERANDS: bool = false;

    fn forward(&self, [x]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let (_, length, row) = x.shape.dims3()?;
        Ok((
            self.run(x.data, (length, row), Direction::Forward),
            x.shape,
            (),
        ))
    }

    fn backward(&self, [x]: [View; 1], pass: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
        let (_, length, row) = x.shape.dims3()?;
        Ok([self.run(pass.dy, (length, row), Direction::Back).into()])
    }
}
