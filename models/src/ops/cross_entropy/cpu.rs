//! Softmax cross-entropy by row, log Σ_c exp x_bc - x_b,label, or its mean over the rows.
//!
//! The softmax is kept for the backward pass, dx_bc = dL_b (softmax(x_b)_c - [c = label]) with dL_b
//! = dL / B for a mean. Sums are in f64: there are few numbers, and a loss curve needs their
//! digits. Rows are cut in groups of one size, and a mean is taken in their order.

use candle_core::{Result, Shape, Tensor, bail};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "cross-entropy";

/// Rows that one thread takes at a time.
const GROUP: usize = 64;

/// Returns the mean loss (rank 0), in nats, of logits (B, C) for labels (B) of type u32.
///
/// # Errors
/// If shapes do not fit, a label is not below C, or an operand is not in main memory.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    of(logits, labels, true)
}

/// Returns the loss of every row, (B).
///
/// # Errors
/// Errors of [`cross_entropy`].
pub fn cross_entropies(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    of(logits, labels, false)
}

fn of(logits: &Tensor, labels: &Tensor, mean: bool) -> Result<Tensor> {
    let (batch, classes) = logits.dims2()?;
    let labels: Vec<u32> = labels.to_vec1()?;
    if labels.len() != batch || batch == 0 {
        bail!("{NAME}: {batch} rows of logits for {} labels", labels.len());
    }
    if let Some(label) = labels.iter().find(|label| **label as usize >= classes) {
        bail!("{NAME}: label {label} among {classes} classes");
    }
    let operation = CrossEntropy {
        labels,
        classes,
        mean,
    };
    apply(operation, [logits])
}

struct CrossEntropy {
    labels: Vec<u32>,
    classes: usize,
    mean: bool,
}

impl CustomOp<1> for CrossEntropy {
    const NAME: &'static str = NAME;
    /// The softmax.
    type Saved = Vec<f32>;
    const READS_OPERANDS: bool = false;

    fn forward(&self, [logits]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, Vec<f32>)> {
        let (logits, rows) = (logits.data, self.labels.len());
        let mut softmax = vec![0f32; logits.len()];
        let mut losses = vec![0f64; rows];
        let groups = (softmax.par_chunks_mut(GROUP * self.classes))
            .zip(losses.par_chunks_mut(GROUP))
            .zip(logits.par_chunks(GROUP * self.classes))
            .zip(self.labels.par_chunks(GROUP));
        groups.for_each(|(((softmax, losses), logits), labels)| {
            let rows = (softmax.chunks_exact_mut(self.classes)).zip(losses);
            let given = logits.chunks_exact(self.classes).zip(labels);
            for ((softmax, loss), (row, label)) in rows.zip(given) {
                let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let below = |x: &f32| f64::from(*x) - f64::from(top);
                let sum: f64 = row.iter().map(|x| below(x).exp()).sum();
                for (p, x) in softmax.iter_mut().zip(row) {
                    *p = (below(x).exp() / sum) as f32;
                }
                *loss = sum.ln() - below(&row[*label as usize]);
            }
        });
        if self.mean {
            let total = losses.iter().fold(0.0, |sum, loss| sum + loss);
            return Ok((vec![(total / rows as f64) as f32], Shape::from(()), softmax));
        }
        let losses = losses.into_iter().map(|loss| loss as f32).collect();
        Ok((losses, Shape::from(rows), softmax))
    }

    fn backward(&self, _: [View; 1], pass: BackwardPass<Vec<f32>, 1>) -> Result<[Gradient; 1]> {
        let rows = self.labels.len();
        let share = |row: usize| match self.mean {
            true => pass.dy[0] / rows as f32,
            false => pass.dy[row],
        };
        let mut gradient = pass.saved;
        let rows = gradient.chunks_exact_mut(self.classes).zip(&self.labels);
        for (index, (row, label)) in rows.enumerate() {
            let share = share(index);
            row.iter_mut().for_each(|p| *p *= share);
            row[*label as usize] -= share;
        }
        Ok([gradient.into()])
    }
}
