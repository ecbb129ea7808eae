//! The loss over logits, and the losses that a model adds to it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use candle_core::Tensor;

pub(crate) use crate::ops::cross_entropies;
pub use crate::ops::cross_entropy;
use crate::{DenseLabels, Error, Logits, Result};

/// Name and weight of a loss that is added to the cross-entropy in training. It is declared by the
/// model, the component or the head that adds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Name in settings (`train.aux.<name>`) and logs.
    pub name: &'static str,
    /// Usual weight: the factor of the loss in the sum that is trained, unless settings have
    /// another.
    pub weight: f64,
}

impl Loss {
    /// Returns the loss called `name` with the usual weight `weight`.
    #[must_use]
    pub const fn new(name: &'static str, weight: f64) -> Self {
        Self { name, weight }
    }
}

/// Losses, in nats, of a batch of B sequences that have labels at N single positions too.
pub struct DenseLosses {
    /// Mean over the batch, of rank 0, of the weighted mean of an example's losses:
    /// `(Σ l_i + w l) / (n + w)`. The l_i are the cross-entropies of the example's n labelled
    /// positions, l is that of its own label, and w is the weight of that label.
    pub weighted: Tensor,
    /// Cross-entropies (B) of the labels of the B sequences, in nats.
    pub sequence: Tensor,
    /// Cross-entropies (N) of the labels at the N positions, in nats. `None` if there are no such
    /// labels.
    pub positions: Option<Tensor>,
}

impl DenseLosses {
    /// Returns the losses of `logits`. `sequence` (B) of type u32 has the classes of the B
    /// sequences, and `dense` the labels at positions. The label of a sequence counts as `weight`
    /// positions. The loss of an example depends on no other example, so that a batch may be split
    /// in any way.
    ///
    /// # Errors
    /// If a tensor operation fails, the logits are of other labels, or a row of `dense` is not
    /// below B.
    pub fn of(
        logits: &Logits,
        sequence: &Tensor,
        dense: &DenseLabels,
        weight: f64,
    ) -> Result<Self> {
        let batch = logits.sequence.dim(0)?;
        let mut counts = vec![0.0; batch];
        for row in &dense.rows {
            let count = counts.get_mut(*row as usize).ok_or_else(|| {
                Error::Input(format!("a label of sequence {row}, for {batch} sequences"))
            })?;
            *count += 1.0;
        }
        let device = logits.sequence.device();
        let dot = |losses: &Tensor, shares: Vec<f64>| -> Result<Tensor> {
            let shares = Tensor::new(shares, device)?.to_dtype(losses.dtype())?;
            Ok((losses * shares)?.sum_all()?)
        };
        // An example without any label at all would have no loss.
        let per_label = |count: f64| 1.0 / ((count + weight).max(f64::MIN_POSITIVE) * batch as f64);
        let own = cross_entropies(&logits.sequence, sequence)?;
        let shares = counts.iter().map(|count| weight * per_label(*count));
        let mut weighted = dot(&own, shares.collect())?;
        let positions = match &logits.positions {
            Some(logits) => {
                let labels = Tensor::new(dense.labels.as_slice(), device)?;
                let losses = cross_entropies(logits, &labels)?;
                let shares = dense.rows.iter();
                let shares = shares.map(|row| per_label(counts[*row as usize]));
                weighted = (weighted + dot(&losses, shares.collect())?)?;
                Some(losses)
            }
            None => None,
        };
        Ok(Self {
            weighted,
            sequence: own,
            positions,
        })
    }
}

/// Collector of the losses that one forward pass adds to the cross-entropy (see
/// [`crate::Pass::add_loss`]).
#[derive(Default)]
pub struct AuxLosses(Mutex<BTreeMap<&'static str, Tensor>>);

impl AuxLosses {
    pub(crate) fn add(&self, loss: &Loss, per_row: &Tensor) -> Result<()> {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = match sums.get(loss.name) {
            Some(sum) => (sum + per_row)?,
            None => per_row.clone(),
        };
        sums.insert(loss.name, sum);
        Ok(())
    }

    /// Returns the name of each loss and its mean over the rows of the batch, a tensor of rank 0,
    /// in the order of names.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn means(self) -> Result<Vec<(&'static str, Tensor)>> {
        let sums = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        sums.into_iter()
            .map(|(name, per_row)| Ok((name, per_row.mean_all()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        Pass, RngKey,
        testing::{check_gradient, normal},
    };

    /// Returns three examples with two labelled positions, one, and none.
    fn labels() -> DenseLabels {
        DenseLabels {
            rows: vec![0, 0, 1],
            positions: vec![4, 1, 0],
            labels: vec![2, 0, 1],
        }
    }

    fn dense(inputs: &[Tensor], weight: f64) -> DenseLosses {
        let own = Tensor::new(&[1u32, 0, 1], &Device::Cpu).unwrap();
        let logits = Logits {
            sequence: inputs[0].clone(),
            positions: Some(inputs[1].clone()),
        };
        DenseLosses::of(&logits, &own, &labels(), weight).unwrap()
    }

    #[test]
    fn labels_of_sequences_beyond_the_batch_are_an_error() {
        let logits = Logits {
            sequence: normal("own", &[1, 2]),
            positions: Some(normal("positions", &[3, 3])),
        };
        let own = Tensor::new(&[1u32], &Device::Cpu).unwrap();
        let error = DenseLosses::of(&logits, &own, &labels(), 4.0)
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("a label of sequence 1"),
            "{error}"
        );
    }

    #[test]
    fn a_sequence_counts_as_so_many_positions() {
        let inputs = [normal("own", &[3, 2]), normal("positions", &[3, 3])];
        let losses = dense(&inputs, 4.0);
        let own = losses.sequence.to_vec1::<f64>().unwrap();
        let at = losses.positions.unwrap().to_vec1::<f64>().unwrap();
        let rows = [
            (at[0] + at[1] + 4.0 * own[0]) / 6.0,
            (at[2] + 4.0 * own[1]) / 5.0,
            own[2],
        ];
        let expected = rows.iter().sum::<f64>() / 3.0;
        let actual = losses.weighted.to_scalar::<f64>().unwrap();
        assert!((actual - expected).abs() < 1e-12, "{actual} {expected}");
    }

    #[test]
    fn a_sequence_without_labels_that_count_has_no_loss() {
        let losses = dense(&[normal("own", &[3, 2]), normal("positions", &[3, 3])], 0.0);
        let at = losses.positions.unwrap().to_vec1::<f64>().unwrap();
        let expected = ((at[0] + at[1]) / 2.0 + at[2]) / 3.0;
        let actual = losses.weighted.to_scalar::<f64>().unwrap();
        assert!((actual - expected).abs() < 1e-12, "{actual} {expected}");
    }

    #[test]
    fn gradients_of_weighted_losses_agree_with_differences() {
        check_gradient("dense losses", &[&[3, 2], &[3, 3]], |inputs| {
            Ok(dense(inputs, 4.0).weighted)
        });
    }

    #[test]
    fn losses_of_layers_add_up_and_towers_share_an_example() {
        const BALANCE: Loss = Loss::new("balance", 1.0);
        let losses = AuxLosses::default();
        let pass = Pass::new(true, RngKey::new(0, 0, 0));
        let gathering = pass.with_losses(&losses);
        let per_row = |values: &[f64]| Tensor::new(values, &Device::Cpu).unwrap();
        for tower in 0..2 {
            let tower = gathering.of_tower(tower, 2);
            tower.add_loss(&BALANCE, &per_row(&[1.0, 3.0])).unwrap();
            tower.add_loss(&BALANCE, &per_row(&[0.0, 2.0])).unwrap();
        }
        pass.add_loss(&BALANCE, &per_row(&[100.0, 100.0])).unwrap();
        let means = losses.means().unwrap();
        assert_eq!(means.len(), 1);
        assert_eq!(means[0].0, "balance");
        assert_eq!(means[0].1.to_scalar::<f64>().unwrap(), 3.0);
    }
}
