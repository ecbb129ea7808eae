//! Softmax cross-entropy, mean over the batch: L = 1/B Σ_b (log Σ_c exp x_bc - x_b,label).
//!
//! The softmax is kept for the backward pass, dx_bc = dL / B (softmax(x_b)_c - [c = label]). Sums are in f64: there are
//! few numbers, and their digits are what a loss curve is made of.

use candle_core::{Result, Shape, Tensor, bail};

use super::custom_op::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "cross-entropy";

/// The mean loss (rank 0), in nats, of logits (B, C) for labels (B) of type u32.
///
/// # Errors
/// If shapes do not fit, a label is not below C, or an operand is not in main memory.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let (batch, classes) = logits.dims2()?;
    let labels: Vec<u32> = labels.to_vec1()?;
    if labels.len() != batch || batch == 0 {
        bail!("{NAME}: {batch} rows of logits for {} labels", labels.len());
    }
    if let Some(label) = labels.iter().find(|label| **label as usize >= classes) {
        bail!("{NAME}: label {label} among {classes} classes");
    }
    apply(CrossEntropy { labels, classes }, [logits])
}

struct CrossEntropy {
    labels: Vec<u32>,
    classes: usize,
}

impl CustomOp<1> for CrossEntropy {
    const NAME: &'static str = NAME;
    /// The softmax.
    type Saved = Vec<f32>;

    fn forward(&self, [logits]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, Vec<f32>)> {
        let logits = logits.data;
        let mut softmax = Vec::with_capacity(logits.len());
        let mut total = 0.0;
        for (row, label) in logits.chunks_exact(self.classes).zip(&self.labels) {
            let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let below = |x: &f32| f64::from(*x) - f64::from(top);
            let sum: f64 = row.iter().map(|x| below(x).exp()).sum();
            softmax.extend(row.iter().map(|x| (below(x).exp() / sum) as f32));
            total += sum.ln() - below(&row[*label as usize]);
        }
        let mean = total / self.labels.len() as f64;
        Ok((vec![mean as f32], Shape::from(()), softmax))
    }

    fn backward(&self, _: [View; 1], pass: BackwardPass<Vec<f32>, 1>) -> Result<[Gradient; 1]> {
        let share = pass.dy[0] / self.labels.len() as f32;
        let mut gradient = pass.saved;
        gradient.iter_mut().for_each(|p| *p *= share);
        for (row, label) in gradient.chunks_exact_mut(self.classes).zip(&self.labels) {
            row[*label as usize] -= share;
        }
        Ok([gradient.into()])
    }
}
