//! Scoring of labels at positions, in addition to those of whole sequences.

use candle_core::{D, DType, Result, Tensor};
use datasets::Dense as Kind;
use models::Logits;
use models::loss::DenseLosses;
use results::record::{Dense, DenseGroup};

use crate::batch::Positions;

/// Sums over the batches of a split.
pub(super) struct DenseTally {
    kind: Kind,
    /// The number of labelled positions that the label of a whole sequence counts as.
    weight: f64,
    weighted: Sums,
    groups: Vec<Sums>,
}

#[derive(Clone, Default)]
struct Sums {
    count: u64,
    loss: f64,
    right: f64,
}

impl Sums {
    fn add(&mut self, loss: f64, right: f64) {
        self.count += 1;
        self.loss += loss;
        self.right += right;
    }
}

/// Results for each label of a batch: its loss in nats, and 1 if the prediction was correct.
struct Answers(Vec<(f64, f64)>);

impl Answers {
    fn read(losses: &Tensor, logits: &Tensor, labels: &Tensor) -> Result<Self> {
        let hits = logits.argmax(D::Minus1)?.eq(labels)?;
        let numbers = |x: &Tensor| x.to_dtype(DType::F64)?.to_vec1::<f64>();
        let pairs = numbers(losses)?.into_iter().zip(numbers(&hits)?);
        Ok(Answers(pairs.collect()))
    }
}

impl DenseTally {
    /// Returns empty sums for labels of this kind.
    pub(super) fn new(kind: Kind, weight: f64) -> Self {
        DenseTally {
            weight,
            weighted: Sums::default(),
            groups: vec![Sums::default(); kind.groups.len()],
            kind,
        }
    }

    /// Adds a batch. Returns the sum of the cross-entropies of whole sequences and the number of them
    /// that were correct.
    pub(super) fn add(
        &mut self,
        logits: &Logits,
        labels: &Tensor,
        Positions {
            labels: dense,
            groups,
        }: &Positions,
    ) -> Result<(f64, f64)> {
        let losses = DenseLosses::of(logits, labels, dense, self.weight)?;
        let whole = Answers::read(&losses.sequence, &logits.sequence, labels)?;
        let single = match (&losses.positions, &logits.positions) {
            (Some(losses), Some(logits)) => {
                let labels = Tensor::new(dense.labels.as_slice(), logits.device())?;
                Answers::read(losses, logits, &labels)?
            }
            _ => Answers(Vec::new()),
        };
        let mut by_row = vec![Sums::default(); whole.0.len()];
        let places = dense.rows.iter().zip(groups);
        for ((row, group), (loss, right)) in places.zip(&single.0) {
            by_row[*row as usize].add(*loss, *right);
            if let Some(sums) = self.groups.get_mut(usize::from(*group)) {
                sums.add(*loss, *right);
            }
        }
        let (mut loss, mut right) = (0.0, 0.0);
        for (own, row) in whole.0.iter().zip(&by_row) {
            let total = row.count as f64 + self.weight;
            let mean = |sum: f64, own: f64| (sum + self.weight * own) / total;
            self.weighted
                .add(mean(row.loss, own.0), mean(row.right, own.1));
            loss += own.0;
            right += own.1;
        }
        Ok((loss, right))
    }

    /// Returns the scores of everything that was added.
    pub(super) fn finish(self) -> Dense {
        let sum = |number: fn(&Sums) -> f64| self.groups.iter().map(number).sum::<f64>();
        let labels = self.groups.iter().map(|sums| sums.count).sum::<u64>();
        // A split without labels at positions has no errors on them either.
        let mean = |sum: f64| sum / labels.max(1) as f64;
        let examples = self.weighted.count as f64;
        let named = self.kind.groups.iter().zip(&self.groups);
        let groups = named.filter(|(_, sums)| sums.count > 0);
        Dense {
            labels,
            accuracy: mean(sum(|sums| sums.right)),
            loss: mean(sum(|sums| sums.loss)),
            weighted_accuracy: self.weighted.right / examples,
            weighted_loss: self.weighted.loss / examples,
            groups: groups
                .map(|(name, sums)| DenseGroup {
                    name: name.clone(),
                    labels: sums.count,
                    accuracy: sums.right / sums.count as f64,
                    loss: sums.loss / sums.count as f64,
                    majority: None,
                })
                .collect(),
        }
    }
}
