//! Scoring a split: accuracy and mean cross-entropy, without dropout and without a graph.

mod dense;

use candle_core::{D, DType, Device, Result, Tensor};
use datasets::Split;
use models::{Pass, RngKey};
use results::record::Dense;

use self::dense::DenseTally;

use crate::batch::{HostBatch, Layout};
use crate::step::Network;

/// The score of a split.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Fraction of examples classified correctly; for a pretraining, the mean fraction of an
    /// example's tokens that are predicted correctly.
    pub accuracy: f64,
    /// Mean cross-entropy in nats.
    pub loss: f64,
    /// Examples scored.
    pub examples: usize,
    /// Scores of labels at positions, if the data has any.
    pub dense: Option<Dense>,
}

impl Score {
    /// Returns whether loss and accuracy are finite: the loss is not if weights overflow.
    pub fn is_finite(&self) -> bool {
        let dense = self.dense.as_ref().is_none_or(Dense::is_finite);
        self.loss.is_finite() && self.accuracy.is_finite() && dense
    }

    /// Returns the accuracy that selects weights: over all labels, if positions have labels too.
    pub fn deciding_accuracy(&self) -> f64 {
        let dense = self.dense.as_ref();
        dense.map_or(self.accuracy, |it| it.weighted_accuracy)
    }

    /// Returns the loss that is compared with the prior's: over all labels, if positions have
    /// labels too.
    pub fn deciding_loss(&self) -> f64 {
        self.dense.as_ref().map_or(self.loss, |it| it.weighted_loss)
    }
}

/// Scores one split after another with the current weights.
pub struct Scorer<'a> {
    /// A model over the detached parameters, so that nothing is kept for a backward pass.
    pub network: Network<'a>,
    /// Conversion of rows into tensors.
    pub layout: Layout,
    /// Rows of a batch: all are padded to the longest of them if rows are sorted by length.
    pub batch: usize,
    /// Examples per forward pass, a part of a batch.
    pub part: usize,
    /// The kind of labels that single positions have, if any.
    pub dense: Option<datasets::Dense>,
    /// The number of labelled positions that the label of a whole sequence counts as.
    pub sequence_weight: f64,
    /// Device that holds the model.
    pub device: &'a Device,
}

impl Scorer<'_> {
    /// Returns the scorer of a split whose rows may be longer than those of training: fewer of them
    /// make a batch.
    #[must_use]
    pub fn of_longer_rows(self, training: Layout, test: Layout) -> Self {
        let fewer = |rows: usize| (rows * training.max_length / test.max_length.max(1)).max(1);
        Scorer {
            layout: test,
            batch: fewer(self.batch),
            part: fewer(self.part),
            ..self
        }
    }

    /// Scores the first `limit` rows of a split (all of them for 0). `rng` is the key of the last
    /// training step: random features are scored as they were trained. `each` is called with the
    /// number of rows done; if it returns false, scoring is abandoned and there is no score.
    pub fn score(
        &self,
        split: &Split,
        limit: usize,
        rng: RngKey,
        each: impl FnMut(usize) -> bool,
    ) -> Result<Option<Score>> {
        self.score_with_logits(split, limit, rng, each, |_, _| Ok(()))
    }

    /// Scores like [`Scorer::score`]. `seen` is called with the rows of each batch and the logits
    /// (B, classes) of a classifier.
    pub fn score_with_logits(
        &self,
        split: &Split,
        limit: usize,
        rng: RngKey,
        mut each: impl FnMut(usize) -> bool,
        mut seen: impl FnMut(&[usize], &Tensor) -> Result<()>,
    ) -> Result<Option<Score>> {
        let rows = if limit == 0 {
            split.len()
        } else {
            limit.min(split.len())
        };
        let pass = Pass::new(false, rng);
        let (mut loss, mut right) = (0.0, 0.0);
        let mut dense = self
            .dense
            .clone()
            .map(|kind| DenseTally::new(kind, self.sequence_weight));
        let order = self.layout.scored(split, rows);
        let mut done = 0;
        for rows in order.chunks(self.batch) {
            let host = HostBatch::assemble(split, rows.iter().copied(), self.layout);
            for part in rows.chunks(self.part) {
                let first = done % self.batch;
                let batch = host.to_device(first..first + part.len(), self.device)?;
                let sums = |mean: &Tensor, hits: &Tensor| -> Result<(f64, f64)> {
                    let mean = mean.to_dtype(DType::F64)?.to_scalar::<f64>()?;
                    let hits = hits.to_dtype(DType::F64)?.sum_all()?.to_scalar::<f64>()?;
                    Ok((mean * part.len() as f64, hits))
                };
                let (lost, hits) = match (self.network, &mut dense, &batch.dense) {
                    (Network::Classes(classifier), Some(tally), Some(labels)) => {
                        let labelled = &labels.labels;
                        let logits = classifier.forward_dense(&batch.inputs, labelled, &pass)?;
                        seen(part, &logits.sequence)?;
                        tally.add(&logits, &batch.labels, labels)?
                    }
                    (Network::Classes(classifier), ..) => {
                        let logits = classifier.forward(&batch.inputs, &pass)?;
                        seen(part, &logits)?;
                        let mean = models::loss::cross_entropy(&logits, &batch.labels)?;
                        sums(&mean, &logits.argmax(D::Minus1)?.eq(&batch.labels)?)?
                    }
                    (Network::Tokens(model), ..) => {
                        // Hidden tokens are drawn for the row, not for its position in the batch.
                        let rng = RngKey::new(rng.seed(), rng.step(), done as u64);
                        let found = model.forward(&batch.inputs, &Pass::new(false, rng))?;
                        sums(&found.losses.mean_all()?, &found.right)?
                    }
                };
                loss += lost;
                right += hits;
                done += part.len();
                if !each(done) {
                    return Ok(None);
                }
            }
        }
        let examples = rows as f64;
        Ok(Some(Score {
            accuracy: right / examples,
            loss: loss / examples,
            examples: rows,
            dense: dense.map(DenseTally::finish),
        }))
    }
}

#[cfg(test)]
mod tests {
    use models::{Classifier, Options, Parameters, Shape};

    use super::*;

    /// As many tokens make a batch, or the one row that is longer.
    #[test]
    fn of_longer_rows_fewer_make_a_batch() {
        let model = models::mixers::find("bag").unwrap();
        let shape = Shape {
            vocabulary: 5,
            classes: 2,
            towers: 1,
            max_length: 32,
            padding: true,
            grid: None,
        };
        let meta = Parameters::meta(&Device::Cpu, DType::F32);
        let classifier = Classifier::new(model, &shape, &Options::of(model), &meta).unwrap();
        let info = datasets::tasks::find("toy").unwrap().info();
        let training = Layout::new(info, 32);
        for (length, batch, part) in [(32, 8, 4), (64, 4, 2), (100, 2, 1), (1000, 1, 1)] {
            let scorer = Scorer {
                network: Network::Classes(&classifier),
                layout: training,
                batch: 8,
                part: 4,
                dense: None,
                sequence_weight: 1.0,
                device: &Device::Cpu,
            };
            let longer = scorer.of_longer_rows(training, Layout::new(info, length));
            let found = (longer.layout.max_length, longer.batch, longer.part);
            assert_eq!(found, (length, batch, part));
        }
    }
}
